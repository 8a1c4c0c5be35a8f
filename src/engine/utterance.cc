// The frame loop of one utterance.
#include "engine/utterance.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <mutex>
#include <utility>

#include "engine/make_voice.h"
#include "engine/settings.h"

namespace skald::engine {

Utterance::Utterance(std::shared_ptr<Core> core, const SpeechRequest& request, Prepared prepared,
                     const Diagnosis* diagnosis, Clock::time_point started)
    : core_(std::move(core)),
      lease_(core_),
      prepared_(std::move(prepared)),
      tap_(core_->config(), diagnosis),
      decode_(request.decode),
      official_cut_(request.cut == CutMode::official),
      stall_(0),
      x_vector_(prepared_.x_vector),
      codec_(*core_, lease_.slot(), request.decode),
      started_(started) {
  tap_.configure(prepared_.settings);
  if (const auto replay = tap_.replay_frames())
    prepared_.frame_limit = std::min(*replay, prepared_.frame_limit.value_or(*replay));
  limited_ = prepared_.frame_limit.has_value();
  if (!limited_) stall_ = StallGuard(request.stall_frames);  // a limit of N means exactly N frames
  prepared_.settings.seed_low = static_cast<uint32_t>(*request.seed);
  prepared_.settings.seed_high = static_cast<uint32_t>(*request.seed >> 32);
  result_.seed = *request.seed;
  result_.request_id = request.request_id;
  result_.instruct_ignored = prepared_.instruct_ignored;
  result_.warnings = prepared_.warnings;
  if (prepared_.input.text_complete) build_prompt();
  note_clone(request);
}

/// What a cloned voice adds: a warning where another model made it, and a line for the audit.
void Utterance::note_clone(const SpeechRequest& request) {
  if (!prepared_.input.has_x_vector) return;
  const Voice* voice = request.clone.get();
  if (voice && !voice->model_hash.empty() && voice->model_hash != core_->speaker_encoder)
    warn(fmt::format("voice \"{}\" was made with another model of the same width, so it may sound different",
                     voice->name));
  if (!core_->options.on_audit) return;
  Voice given;
  if (!voice) {
    given.x_vector = request.x_vector, given.codes = request.ref_codes, given.ref_text = request.ref_text;
    given.consent = request.consent, given.source = "request";
    voice = &given;
  }
  core_->options.on_audit(audit_line("cloned_speech", request.request_id, *voice));
}

void Utterance::build_prompt() {
  const model::PromptInput& input = prepared_.input;
  prompt_ = model::build_prompt(core_->config(), input);
  const std::vector<int32_t> trailing = model::trailing_ids(core_->config(), input, *prompt_);
  const int32_t bound = prepared_.frame_limit.value_or(text_frame_bound(prepared_.code_points));
  room_ = check_room(core_->options.cache_capacity, prompt_->rows.size(), trailing.size(), bound, limited_);
  result_.frame_bound = std::min(bound, room_);
  result_.prompt_rows = static_cast<int32_t>(prompt_->rows.size());
  result_.text_tokens = static_cast<int32_t>(input.text_ids.size());
}

/// First work on the device: the slot's settings, the prompt, and the text that follows it.
void Utterance::run_prompt() {
  tap_.report_prompt(*core_, *prompt_, x_vector_);
  const model::PromptInput& input = prepared_.input;
  std::vector<int32_t> trailing = model::trailing_ids(core_->config(), input, *prompt_);
  // Rows beyond the last possible frame are never fed; a caller's limit may cut a long text short.
  if (trailing.size() > static_cast<size_t>(room_)) trailing.resize(static_cast<size_t>(room_));
  // The guard counts frames itself where more text may still raise the bound.
  const bool fixed = limited_ || input.text_complete;
  prepared_.settings.max_frames = limited_ ? *prepared_.frame_limit
                                  : fixed  ? result_.frame_bound
                                           : std::numeric_limits<int32_t>::max();
  const std::lock_guard lock(core_->compute);
  const auto from = Clock::now();
  model::Model& model = *core_->model;
  model.begin(lease_.slot(), prepared_.settings);
  result_.reused_rows = model.prefill(lease_.slot(), *prompt_, x_vector_);
  if (!trailing.empty()) model.append_text(lease_.slot(), trailing);
  trailing_ = static_cast<int64_t>(trailing.size());
  first_run_ = model.runs(lease_.slot()) + 1;
  running_ = true;
  frame_ms_ += milliseconds(from, Clock::now());
}

bool Utterance::wants_text() const {
  if (stopped() || prepared_.input.text_complete) return false;
  if (!prompt_) return true;
  const int64_t waiting = running_
                              ? trailing_ - fed_
                              : static_cast<int64_t>(prepared_.input.text_ids.size()) - prompt_->text_used;
  return waiting < static_cast<int64_t>(kLookAhead);
}

void Utterance::set_text(std::span<const int32_t> ids, std::span<const int32_t> role_ids,
                         uint64_t code_points, bool complete) {
  model::PromptInput& input = prepared_.input;
  const size_t known = input.text_ids.size();
  const auto fresh = ids.subspan(known);
  input.text_ids.insert(input.text_ids.end(), fresh.begin(), fresh.end());
  input.text_complete = complete;
  prepared_.code_points = code_points;
  if (!prompt_) {
    if (!role_ids.empty()) input.role_ids.assign(role_ids.begin(), role_ids.end());
    if (!limited_ && input.text_ids.size() > static_cast<size_t>(core_->options.cache_capacity))
      check_room(core_->options.cache_capacity, 0, input.text_ids.size(), kLeastFrameBound, false);
    if (complete || input.text_ids.size() >= model::text_tokens_needed(input, core_->groups()))
      build_prompt();
    return;
  }
  result_.text_tokens = static_cast<int32_t>(input.text_ids.size());
  if (!limited_) result_.frame_bound = std::min(text_frame_bound(code_points), room_);
  if (!running_) return;  // start() hands everything over
  std::vector<int32_t> rows(fresh.begin(), fresh.end());
  if (complete && !prompt_->end_used) rows.push_back(core_->config().tts_eos_id);
  if (!limited_)
    check_room(core_->options.cache_capacity, prompt_->rows.size(),
               static_cast<size_t>(trailing_) + rows.size(), result_.frame_bound, false);
  const auto left = static_cast<size_t>(std::max<int64_t>(0, room_ - trailing_));
  if (rows.size() > left) rows.resize(left);
  if (rows.empty()) return;
  const std::lock_guard lock(core_->compute);
  core_->model->append_text(lease_.slot(), rows);
  trailing_ += static_cast<int64_t>(rows.size());
}

AudioChunk Utterance::next(int32_t max_frames) {
  if (max_frames < 1)
    throw Error(ErrorCode::invalid_argument,
                fmt::format("max_frames of a chunk is {}, but must be at least 1", max_frames));
  if (over_) {
    if (error_) rethrow();
    return {.samples = {}, .frames = 0, .last = true};
  }
  try {
    // The very first chunk is one frame: nothing is sooner to hear.
    const int64_t wanted = delivered_ == 0 ? 1 : max_frames;
    run_frames(holds_back() ? std::numeric_limits<int64_t>::max() : delivered_ + wanted);
    if (!holds_back() || stopped()) {
      keep_ahead(max_frames);
      AudioChunk chunk = deliver(max_frames);
      if (chunk.frames > 0 || chunk.last) return chunk;
    }
    if (!stopped()) return {};
  } catch (...) {
    error_ = std::current_exception();
    if (stop_ != StopReason::cancelled) stop_ = StopReason::error;
  }
  finish();
  rethrow();
}

/// Computes frames until there are `until`, the utterance stops, or text is needed.
void Utterance::run_frames(int64_t until) {
  while (!stopped() && frames() < until) {
    check_cancelled();
    if (!text_ready()) return;
    if (!running_) run_prompt();
    run_frame();
  }
}

bool Utterance::text_ready() {
  if (!prepared_.input.text_complete && pull_text && wants_text()) pull_text();
  if (stopped()) return false;
  return running_ ? text_row_ready(frames()) : prepared_.input.text_complete || has_prompt();
}

/// Frame f needs the text row that is fed with frame f - 1.
bool Utterance::text_row_ready(int64_t frame) const {
  return prepared_.input.text_complete || frame == 0 || trailing_ >= frame;
}

/// Hands frames over until `ahead` of them are in work beyond the next one. What stops the utterance earlier
/// makes the rest of them do nothing.
void Utterance::submit_frames(int32_t ahead) {
  model::Model& model = *core_->model;
  const int32_t slot = lease_.slot();
  const int64_t next = frames() + 1;
  const int64_t end = std::max(next, std::min<int64_t>(next + ahead, prepared_.settings.max_frames));
  while (submitted_ < end && text_row_ready(submitted_)) {
    if (submitted_ > 0) model.frame_step({&slot, 1});
    tap_.before(model, slot);
    model.frame_codes({&slot, 1});
    ++submitted_;
  }
}

int32_t frames_beside_codec(int32_t ahead, int64_t frames) {
  return static_cast<int32_t>(
      std::clamp<int64_t>(frames / 2, ahead / 2, backend::Backend::kReportedRuns / 2));
}

/// Before the host waits for the codec: what the device goes on with meanwhile.
void Utterance::keep_ahead(int32_t max_frames) {
  const int32_t ahead = tap_.active() ? 0 : core_->model->frames_ahead();
  if (ahead == 0 || !running_ || stopped() || cancelled_) return;
  const int64_t reference =
      reference_decoded_ ? 0 : static_cast<int64_t>(prepared_.input.ref_codes.size()) / core_->groups();
  const std::lock_guard lock(core_->compute);
  submit_frames(frames_beside_codec(ahead, reference + std::min<int64_t>(max_frames, frames() - delivered_)));
}

/// The next frame of the device, which is kept a few frames ahead of the host where it works by itself. Who
/// listens to every step sees every step alone.
void Utterance::run_frame() {
  const int32_t slot = lease_.slot();
  const int64_t frame = frames();
  tap_.choose(frame);
  std::vector<int32_t> codes(static_cast<size_t>(core_->groups()));
  std::unique_lock lock(core_->compute);
  const auto from = Clock::now();
  const model::Model& model = *core_->model;
  const int32_t ahead = tap_.active() ? 0 : model.frames_ahead();
  if (submitted_ - frame <= ahead / 2) submit_frames(ahead);
  if (ahead > 0) lock.unlock();
  const backend::SlotStatus status = await_frame(codes);
  if (lock) tap_.after(model, slot, codes);
  if (lock) lock.unlock();
  frame_ms_ += milliseconds(from, Clock::now());
  tap_.report();
  take_frame(codes, status);
}

/// Waits for the oldest frame in work; `codes` [groups] become its codes, or empty where the slot drew none.
backend::SlotStatus Utterance::await_frame(std::vector<int32_t>& codes) {
  const int64_t frame = frames();
  const backend::FrameReport report =
      core_->model->await_frame(lease_.slot(), first_run_ + static_cast<int32_t>(frame), codes);
  fed_ = frame;
  if (report.frames <= frame) codes.clear();
  return report.status;
}

void Utterance::take_frame(const std::vector<int32_t>& codes, backend::SlotStatus status) {
  codes_.insert(codes_.end(), codes.begin(), codes.end());
  settle(status);
  if (!codes.empty()) watch(codes[0]);
}

// ---- steps for a scheduler

/// Runs `body`; what it throws ends the utterance.
template <class Body>
void Utterance::guarded(Body&& body) noexcept {
  try {
    body();
  } catch (...) {
    error_ = std::current_exception();
    if (stop_ != StopReason::cancelled) stop_ = StopReason::error;
  }
}

bool Utterance::ready() {
  bool ready = false;
  if (!stopped()) guarded([&] { check_cancelled(), ready = text_ready(); });
  return ready;
}

void Utterance::start() {
  guarded([&] { run_prompt(); });
}

bool Utterance::can_submit(int32_t ahead) const {
  const int64_t next = frames() + 1;
  return running_ && !stopped() &&
         submitted_ < std::max(next, std::min<int64_t>(next + ahead, prepared_.settings.max_frames)) &&
         text_row_ready(submitted_);
}

void Utterance::collect() {
  guarded([&] {
    std::vector<int32_t> codes(static_cast<size_t>(core_->groups()));
    const backend::SlotStatus status = await_frame(codes);
    take_frame(codes, status);
  });
}

int32_t Utterance::deliverable() const {
  if (over_ || (holds_back() && !stopped())) return 0;
  return static_cast<int32_t>(frames() - delivered_);
}

AudioChunk Utterance::deliver_ready(int32_t max_frames) {
  AudioChunk chunk;
  bool whole = false;
  guarded([&] { chunk = deliver(max_frames), whole = true; });
  if (!whole || (error_ && delivered_ == frames())) finish();
  return chunk;
}

void Utterance::end_with(std::exception_ptr error) {
  guarded([&] { std::rethrow_exception(std::move(error)); });
}

/// What the slot's status means for the request.
void Utterance::settle(backend::SlotStatus status) {
  switch (status) {
    case backend::kRunning: return;
    case backend::kStopToken: return stop(StopReason::eos);
    case backend::kLength:
      if (limited_) return stop(StopReason::length);
      return stop_at_bound();
    case backend::kCacheFull:
      return stop(
          ErrorCode::runaway,
          fmt::format("no stop token before the cache of {} positions was full ({} prompt rows, {} frames)",
                      core_->options.cache_capacity, result_.prompt_rows, frames()));
    case backend::kNonFinite:
      return stop(
          ErrorCode::non_finite,
          fmt::format(
              "the logits of frame {} hold NaN or infinity; the model's weights or the device are faulty",
              frames()));
    case backend::kIdle: break;
  }
  throw Error(ErrorCode::internal, fmt::format("slot {} became idle while speaking", lease_.slot()));
}

/// The guards of a run without a caller's limit.
void Utterance::watch(int32_t code0) {
  if (limited_) return;
  const bool consumed = prepared_.input.text_complete && fed_ >= trailing_;
  const bool stalled = stall_.add(code0, consumed);
  if (stopped()) return;
  if (frames() >= result_.frame_bound) return stop_at_bound();
  if (stalled)
    stop(ErrorCode::runaway,
         fmt::format("the talker went round in circles: the last frames up to frame {} use at most {} "
                     "different codes after the whole text was spoken",
                     frames(), StallGuard::kFewCodes));
}

void Utterance::stop_at_bound() {
  if (result_.frame_bound < text_frame_bound(prepared_.code_points))
    return stop(
        ErrorCode::runaway,
        fmt::format("no stop token within {} frames, all that a cache of {} positions leaves beside {} "
                    "prompt rows; try another seed, or raise cache_capacity",
                    frames(), core_->options.cache_capacity, result_.prompt_rows));
  stop(ErrorCode::runaway,
       fmt::format(
           "no stop token within {} frames, the bound for a text of {} characters; try another seed, or set "
           "max_frames to take what there is",
           frames(), prepared_.code_points));
}

void Utterance::stop(ErrorCode code, const std::string& message) {
  stop_ = code == ErrorCode::runaway ? StopReason::runaway : StopReason::error;
  error_ = std::make_exception_ptr(Error(code, message));
}

void Utterance::fail(std::exception_ptr error) {
  if (stopped()) return;
  stop_ = StopReason::error;
  error_ = std::move(error);
}

void Utterance::check_cancelled() {
  if (!cancelled_) return;
  stop_ = StopReason::cancelled;
  throw Error(ErrorCode::cancelled, fmt::format("cancelled after {} frames", frames()));
}

/// Decodes what is complete, at most max_frames frames; the last chunk ends the utterance.
AudioChunk Utterance::deliver(int32_t max_frames) {
  check_cancelled();
  AudioChunk chunk;
  if (!reference_decoded_) decode_reference(chunk.samples);
  chunk.frames = static_cast<int32_t>(std::min<int64_t>(max_frames, frames() - delivered_));
  const auto groups = static_cast<size_t>(core_->groups());
  const auto first = static_cast<size_t>(delivered_) * groups,
             count = static_cast<size_t>(chunk.frames) * groups;
  codec_.decode(std::span(codes_).subspan(first, count), chunk.samples);
  if (delivered_ == 0 && chunk.frames > 0) result_.first_audio_ms = milliseconds(started_, Clock::now());
  delivered_ += chunk.frames;
  result_.samples += static_cast<int64_t>(chunk.samples.size());
  chunk.last = stopped() && !error_ && delivered_ == frames();
  if (chunk.last) finish();
  return chunk;
}

/// Runs the reference through the codec as context and drops its samples, save those that the official
/// arithmetic of specification 10.3 leaves in.
void Utterance::decode_reference(std::vector<float>& kept) {
  reference_decoded_ = true;
  if (!prepared_.input.in_context) return;
  const std::vector<int32_t>& codes = prepared_.input.ref_codes;
  const std::vector<float> tail = codec_.decode_reference(codes);
  result_.reused_reference = codec_.reused_reference();
  if (!official_cut_) return;
  const int64_t reference = static_cast<int64_t>(codes.size()) / core_->groups(),
                total = reference + frames(), rate = core_->samples_per_frame();
  const auto cut =
      static_cast<int64_t>(static_cast<double>(reference) / static_cast<double>(std::max<int64_t>(total, 1)) *
                           static_cast<double>(total * rate));
  // Rounding leaves at most a sample, so the last frame of the reference is enough.
  const int64_t left = std::clamp<int64_t>(reference * rate - cut, 0, static_cast<int64_t>(tail.size()));
  kept.assign(tail.end() - left, tail.end());
}

void Utterance::finish() {
  if (over_) return;
  over_ = true;
  if (stop_ == StopReason::eos && frames() == 0)
    warn("the model ended before the first frame: there is no audio");
  if (stop_ == StopReason::eos && (fed_ < trailing_ || !prepared_.input.text_complete))
    warn(fmt::format("the model ended the speech after {} frames, before it was given all of the text",
                     frames()));
  lease_.release();
}

void Utterance::rethrow() { std::rethrow_exception(error_); }

SpeechResult Utterance::result() const {
  SpeechResult r = result_;
  r.frames = frames();
  r.stop = stop_;
  r.compute_ms = frame_ms_ + codec_.compute_ms();
  const double audio_ms = 1000.0 * static_cast<double>(r.samples) / core_->config().codec.output_sample_rate;
  r.rtf = audio_ms > 0 ? r.compute_ms / audio_ms : 0;
  return r;
}

}  // namespace skald::engine
