// The rounds of the scheduler.
#include "engine/scheduler.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <utility>

#include "base/float_environment.h"
#include "base/to_error.h"
#include "engine/scheduler_job.h"
#include "engine/streams.h"
#include "model/talker_limits.h"

namespace skald::engine {

std::vector<size_t> choose_frames(std::span<const Candidate> candidates, size_t width) {
  const bool urgent = std::any_of(candidates.begin(), candidates.end(),
                                  [](const Candidate& c) { return !c.lead || *c.lead < kTightLead; });
  std::vector<size_t> chosen;
  for (size_t i = 0; i < candidates.size(); ++i)
    if (!urgent || !candidates[i].lead || *candidates[i].lead <= kAmpleLead) chosen.push_back(i);
  std::stable_sort(chosen.begin(), chosen.end(), [&](size_t a, size_t b) {
    const Candidate &x = candidates[a], &y = candidates[b];
    if (x.lead.has_value() != y.lead.has_value()) return !x.lead.has_value();
    if (!x.lead || *x.lead == *y.lead) return x.order < y.order;
    return *x.lead < *y.lead;
  });
  if (chosen.size() > width) chosen.resize(width);
  return chosen;
}

int32_t chunk_frames(std::optional<double> lead, int32_t most) {
  constexpr double kFrame = 0.08;
  constexpr int32_t kLate = 4;
  if (!lead) return 1;
  if (*lead < 0) return std::min(kLate, most);
  return std::clamp(static_cast<int32_t>(*lead / kFrame / 2), 1, most);
}

/// The thread and what it works on.
class Scheduler::Loop {
 public:
  Loop(std::shared_ptr<Core> core, const SchedulerOptions& options)
      : core_(std::move(core)),
        options_(options),
        engine_(make_engine(core_)),
        bell_(std::make_shared<Bell>()),
        thread_([this] { run(); }) {}

  ~Loop() { stop(); }

  /// Ends every stream, then the thread; called once more it does nothing.
  void stop() {
    {
      const std::lock_guard lock(bell_->mutex);
      stopping_ = true;
      for (const auto& job : jobs_) job->utterance.cancel(), job->queue.close();
      bell_->ring_locked();
    }
    if (thread_.joinable()) thread_.join();
  }

  Engine& engine() { return *engine_; }

  std::unique_ptr<SpeechStream> start(const SpeechRequest& request, std::shared_ptr<Pace> pace) {
    const DefaultFloats floats;
    auto job = std::make_shared<Job>(core_, completed_request(*core_, request), false, std::move(pace),
                                     Clock::now());
    enter(job);
    return make_job_speech_stream(bell_, std::move(job), core_->samples_per_frame());
  }

  std::unique_ptr<TextStream> start_text(const SpeechRequest& request, std::shared_ptr<Pace> pace) {
    const DefaultFloats floats;
    auto job =
        std::make_shared<Job>(core_, completed_request(*core_, request), true, std::move(pace), Clock::now());
    enter(job);
    return make_job_text_stream(bell_, std::move(job), core_->samples_per_frame());
  }

  std::shared_ptr<Pace> make_pace(bool live) const {
    const auto rate = static_cast<double>(core_->config().codec.output_sample_rate);
    return std::make_shared<Pace>(core_->samples_per_frame() / rate, live);
  }

  /// Runs what goes past the rounds; an error of the device counts there too.
  template <class Work>
  auto watched(Work&& work) {
    try {
      return work(*engine_);
    } catch (...) {
      note_fault(std::current_exception());
      throw;
    }
  }

  SchedulerState state() const {
    const std::lock_guard lock(bell_->mutex);
    SchedulerState s = state_;
    s.active = static_cast<int32_t>(
        std::count_if(jobs_.begin(), jobs_.end(), [](const auto& j) { return !j->over; }));
    if (round_began_) look_for_progress(s);
    s.wedged = s.still_ms > static_cast<double>(options_.wedged_after.count());
    return s;
  }

 private:
  using Jobs = std::vector<std::shared_ptr<Job>>;

  /// A long round is no standstill: a slow device may take minutes for a prompt.
  void look_for_progress(SchedulerState& s) const {
    const auto now = Clock::now();
    const uint64_t progress = core_->device->progress();
    if (progress != progress_) progress_ = progress, progressed_ = now;
    s.round_age_ms = milliseconds(*round_began_, now);
    s.still_ms = milliseconds(std::max(*round_began_, progressed_), now);
  }

  void enter(const std::shared_ptr<Job>& job) {
    const std::lock_guard lock(bell_->mutex);
    if (stopping_) throw Error(ErrorCode::cancelled, "the engine is closing");
    job->order = arrivals_++;
    jobs_.push_back(job);
    bell_->ring_locked();
  }

  void run() {
    const DefaultFloats floats;  // a new thread has those of the one that started it
    uint64_t seen = 0;
    for (;;) {
      Jobs jobs;
      {
        std::unique_lock lock(bell_->mutex);
        round_began_.reset();
        if (!worked_) bell_->rung.wait(lock, [&] { return bell_->rings != seen || stopping_; });
        if (stopping_ && jobs_.empty()) return;
        seen = bell_->rings;
        jobs = jobs_;
        round_began_ = Clock::now();
      }
      const auto from = Clock::now();
      worked_ = false;
      round(jobs);
      const std::lock_guard lock(bell_->mutex);
      if (worked_) state_.busy_ms += milliseconds(from, Clock::now());
    }
  }

  /// One round: prompts, a frame, samples.
  void round(Jobs& jobs) {
    Jobs able;
    double started_ms = 0;
    for (const auto& job : jobs) {
      Utterance& u = job->utterance;
      if (!has_room(*job) || !look_for_text(*job)) continue;
      if (!u.started()) {
        if (started_ms > options_.start_budget_ms) continue;
        const auto from = Clock::now();
        u.start();
        started_ms += milliseconds(from, Clock::now());
        worked_ = true;
        const std::lock_guard lock(bell_->mutex);
        ++state_.prompts;
      }
      able.push_back(job);
    }
    const Jobs batch = run_frames(able);
    for (const auto& job : jobs) hand_over(*job, batch);
    leave(jobs);
  }

  /// A stream whose reader does not take what there is waits for it.
  bool has_room(const Job& job) const {
    const std::lock_guard lock(bell_->mutex);
    const Utterance& u = job.utterance;
    return u.stopped() || u.cancelled() || job.frames + u.deliverable() < options_.ready_frames;
  }

  /// Whether the next frame can be had. For want of text it cannot: hand_over() tells the reader.
  bool look_for_text(Job& job) {
    uint64_t texts = 0;
    {
      const std::lock_guard lock(bell_->mutex);
      texts = job.texts;
    }
    const bool waited = std::exchange(job.starved_with, std::nullopt).has_value();
    const bool ready = job.utterance.ready();
    if (ready && waited) job.pace->resume(Clock::now());
    if (!ready && !job.utterance.stopped()) job.starved_with = texts;
    return ready;
  }

  /// Runs one frame of the chosen ones, and where the device works behind the host hands some more over.
  /// Returns who was chosen.
  Jobs run_frames(const Jobs& able) {
    Jobs batch = choose(able);
    if (batch.empty()) return batch;
    const auto from = Clock::now();
    submit_all(batch, core_->model->frames_ahead());
    uint64_t frames = 0;
    for (const auto& job : batch) {
      if (!job->utterance.in_flight()) continue;
      job->utterance.collect();
      ++frames;
    }
    const double share = milliseconds(from, Clock::now()) / static_cast<double>(batch.size());
    for (const auto& job : batch) job->utterance.charge(share);
    worked_ = true;
    const std::lock_guard lock(bell_->mutex);
    ++state_.rounds;
    state_.frames += frames;
    state_.width_sum += batch.size();
    state_.running = static_cast<int32_t>(able.size());
    return batch;
  }

  /// Hands frames over until every stream has `ahead` in work beyond the next one, or can take none.
  void submit_all(const Jobs& batch, int32_t ahead) {
    try {
      for (int32_t depth = 0; depth <= ahead && submit(batch, ahead); ++depth) {
      }
    } catch (...) {
      for (const auto& job : batch) job->utterance.end_with(std::current_exception());
    }
  }

  Jobs choose(const Jobs& able) const {
    const auto now = Clock::now();
    std::vector<Candidate> candidates;
    Jobs takers;
    for (const auto& job : able) {
      if (!job->utterance.in_flight() && !job->utterance.can_submit(0)) continue;
      takers.push_back(job);
      candidates.push_back({job->pace->turn(now, job->served), job->order});
    }
    Jobs chosen;
    for (const size_t i : choose_frames(candidates, model::kMaxLanes)) {
      takers[i]->served = now;
      chosen.push_back(takers[i]);
    }
    return chosen;
  }

  /// Hands one more frame of every stream over that has fewer than `ahead` in work; false = of none.
  bool submit(const Jobs& batch, int32_t ahead) {
    std::vector<int32_t> slots, stepping;
    for (const auto& job : batch) {
      const Utterance& u = job->utterance;
      if (!u.can_submit(ahead)) continue;
      slots.push_back(u.slot());
      if (u.needs_step()) stepping.push_back(u.slot());
    }
    if (slots.empty()) return false;
    const std::lock_guard lock(core_->compute);
    if (!stepping.empty()) core_->model->frame_step(stepping);
    core_->model->frame_codes(slots);
    for (const auto& job : batch)
      if (job->utterance.can_submit(ahead)) job->utterance.note_submitted();
    return true;
  }

  /// Decodes what the reader wants by now, and tells it about an end or the need of text. Before the latter
  /// it gets all there is: it may wait for the text a long time. Meanwhile the device goes on with `batch`.
  void hand_over(Job& job, const Jobs& batch) {
    Utterance& u = job.utterance;
    const auto now = Clock::now();
    // Less than what may be ready at once, or the stream would wait for its reader and the reader for it.
    const int32_t most = std::clamp(options_.ready_frames / 2, 1, core_->options.codec_chunk);
    const int32_t wanted = job.starved_with   ? 1
                           : job.pace->live() ? chunk_frames(job.pace->lead(now), most)
                                              : most;
    while (!u.over() && (u.stopped() || u.deliverable() >= wanted)) {
      if (const int32_t ahead = core_->model->frames_ahead(); ahead > 0)
        submit_all(batch, frames_beside_codec(ahead, std::min(most, u.deliverable())));
      AudioChunk chunk = u.deliver_ready(most);
      worked_ = true;
      if (u.error()) note_fault(u.error());  // before the reader sees it
      if (chunk.frames > 0) job.pace->heard(chunk.frames, Clock::now());
      publish(job, std::move(chunk));
    }
    if (!job.starved_with) return;
    const std::lock_guard lock(bell_->mutex);
    job.starved_at = *job.starved_with + 1;
    job.changed.notify_all();
  }

  /// Gives the reader what was made. Where there is no memory for that the stream ends, and it alone.
  void publish(Job& job, AudioChunk chunk) {
    try {
      give(job, std::move(chunk));
    } catch (...) {
      job.utterance.cancel();
      job.utterance.deliver_ready(1);  // over: its slot is free
      job.queue.close();
      const std::lock_guard lock(bell_->mutex);
      job.error = std::current_exception();
      job.over = true;
      job.changed.notify_all();
    }
  }

  void give(Job& job, AudioChunk chunk) {
    const std::vector<int32_t>& codes = job.utterance.all_codes();
    SpeechResult result = job.utterance.result();
    if (job.utterance.over()) job.queue.close();
    const std::lock_guard lock(bell_->mutex);
    job.samples.insert(job.samples.end(), chunk.samples.begin(), chunk.samples.end());
    job.frames += chunk.frames;
    job.codes.insert(job.codes.end(), codes.begin() + static_cast<std::ptrdiff_t>(job.codes.size()),
                     codes.end());
    job.result = std::move(result);
    job.error = job.utterance.error();
    job.over = job.utterance.over();
    job.changed.notify_all();
  }

  /// Takes streams that are over off the list.
  void leave(Jobs& jobs) {
    if (std::none_of(jobs.begin(), jobs.end(), [](const auto& job) { return job->utterance.over(); })) return;
    const std::lock_guard lock(bell_->mutex);
    std::erase_if(jobs_, [](const auto& job) { return job->over; });
  }

  /// An error of the device is everyone's: whoever watches the health of the engine must see it.
  void note_fault(std::exception_ptr error) {
    const Error e = to_error(std::move(error));
    const ErrorCode c = e.code();
    if (c != ErrorCode::device_lost && c != ErrorCode::device_wedged && c != ErrorCode::device &&
        c != ErrorCode::device_function)
      return;
    const std::lock_guard lock(bell_->mutex);
    if (!state_.fault) state_.fault = e;
  }

  std::shared_ptr<Core> core_;
  SchedulerOptions options_;
  std::unique_ptr<Engine> engine_;
  std::shared_ptr<Bell> bell_;
  bool worked_ = false;  // this thread's: the last round did something

  // Under bell_->mutex.
  Jobs jobs_;
  uint64_t arrivals_ = 0;
  bool stopping_ = false;
  SchedulerState state_;
  std::optional<Clock::time_point> round_began_;
  mutable uint64_t progress_ = 0;  // as it was last seen, and when that was new
  mutable Clock::time_point progressed_;

  std::thread thread_;  // last: it uses all of the above
};

namespace {

/// An Engine whose streams go through the scheduler.
template <class Loop>
class Client final : public Engine {
 public:
  Client(std::shared_ptr<Loop> loop, bool live) : loop_(std::move(loop)), pace_(loop_->make_pace(live)) {}
  const ModelInfo& info() const override { return loop_->engine().info(); }
  std::unique_ptr<SpeechStream> start_stream(const SpeechRequest& request,
                                             const Diagnosis* diagnosis) override {
    return diagnosis ? loop_->engine().start_stream(request, diagnosis) : loop_->start(request, pace_);
  }
  std::unique_ptr<TextStream> start_text_stream(const SpeechRequest& request,
                                                const Diagnosis* diagnosis) override {
    return diagnosis ? loop_->engine().start_text_stream(request, diagnosis)
                     : loop_->start_text(request, pace_);
  }
  std::string status() const override { return loop_->engine().status(); }
  PromptInfo prompt(const SpeechRequest& request) const override { return loop_->engine().prompt(request); }
  std::vector<float> decode(std::span<const int32_t> codes, DecodeMode mode) override {
    return loop_->watched([&](Engine& e) { return e.decode(codes, mode); });
  }
  void decode_to(std::span<const int32_t> codes, DecodeMode mode, const SampleSink& sink) override {
    loop_->watched([&](Engine& e) { e.decode_to(codes, mode, sink); });
  }
  std::vector<int32_t> encode(const SampleSource& source) override {
    return loop_->watched([&](Engine& e) { return e.encode(source); });
  }
  MadeVoice make_voice(const VoiceRequest& request) override {
    return loop_->watched([&](Engine& e) { return e.make_voice(request); });
  }
  void add_voice(Voice voice, bool replace) override { loop_->engine().add_voice(std::move(voice), replace); }
  void remove_voice(std::string_view name) override { loop_->engine().remove_voice(name); }
  std::shared_ptr<const Voice> find_voice(std::string_view name) const override {
    return loop_->engine().find_voice(name);
  }
  std::vector<std::string> voice_names() const override { return loop_->engine().voice_names(); }

 private:
  std::shared_ptr<Loop> loop_;
  std::shared_ptr<Pace> pace_;
};

}  // namespace

Scheduler::Scheduler(std::shared_ptr<Core> core, const SchedulerOptions& options)
    : loop_(std::make_shared<Loop>(std::move(core), options)) {}

Scheduler::~Scheduler() { loop_->stop(); }

std::unique_ptr<Engine> Scheduler::client(bool live) { return std::make_unique<Client<Loop>>(loop_, live); }

SchedulerState Scheduler::state() const { return loop_->state(); }

}  // namespace skald::engine
