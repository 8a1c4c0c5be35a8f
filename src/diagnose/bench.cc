// One load, one cold request, some warm ones, and the measured one.
#include "diagnose/bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numbers>
#include <utility>

#include "base/pool.h"
#include "diagnose/process_usage.h"
#include "diagnose/timed_device.h"
#include "engine/core.h"
#include "engine/make_voice.h"
#include "engine/streams.h"

namespace skald::diagnose {
namespace {

using engine::Clock;
using engine::milliseconds;

constexpr const char* kText =
    "The trains to the coast leave every hour, and on a clear day you can see the lighthouse from the second "
    "carriage.";
constexpr int32_t kPromptRoom = 256;  // cache positions beyond the frames: the fixed prompt takes far fewer
constexpr int32_t kMostWarmUpFrames = 8;
constexpr int32_t kLengths[] = {64, 256, 1024, 4096};
constexpr int32_t kLengthWindow = 32;
constexpr int32_t kReferenceSeconds = 10;

void check_options(const BenchOptions& o) {
  const auto check = [](const char* name, int64_t value, int64_t least, int64_t most) {
    if (value < least || value > most)
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("{} is {}, but must be within {}..{}", name, value, least, most));
  };
  check("frames", o.frames, 2, 30000);
  check("chunk", o.chunk, 1, o.engine.codec_chunk);
  check("warm_runs", o.warm_runs, 1, 1000);
  if (o.engine.cache_capacity != 0 && o.engine.cache_capacity < o.frames + kPromptRoom)
    throw Error(
        ErrorCode::invalid_argument,
        fmt::format("{} frames and their prompt need a cache of {} positions, but cache_capacity is {}",
                    o.frames, o.frames + kPromptRoom, o.engine.cache_capacity));
}

/// The request that every model can speak, in its first voice.
SpeechRequest make_request(const model::ModelConfig& config, const BenchOptions& o, int32_t frames) {
  SpeechRequest r;
  r.text = kText;
  if (config.type == model::ModelType::custom_voice && !config.talker.speaker_ids.empty())
    r.voice = config.talker.speaker_ids.begin()->first;
  if (config.type == model::ModelType::base) {
    r.x_vector.assign(static_cast<size_t>(config.talker.hidden_size), 0.01f);
    r.consent = "a constant vector is nobody's voice";
  }
  if (config.type == model::ModelType::voice_design) r.instruct = "A calm voice of middle age.";
  if (config.talker.language_ids.contains("english")) r.language = "english";
  r.seed = o.seed;
  r.request_id = "bench";
  r.max_frames = frames;
  r.sampling.min_new_tokens = frames + 1;  // so the stop token is never drawn
  return r;
}

/// A tone whose loudness moves like that of syllables: the encoders' work depends on the length alone.
VoiceRequest make_recording() {
  VoiceRequest r;
  r.name = "bench", r.identity = SpeakerIdentity::synthetic, r.ref_text = std::string(kText);
  for (int32_t i = 0; i < kReferenceSeconds * engine::kCodecRate; ++i) {
    const double t = static_cast<double>(i) / engine::kCodecRate;
    const double loudness = 0.2 + 0.1 * std::sin(2 * std::numbers::pi * 3 * t);
    r.recording.samples.push_back(static_cast<float>(loudness * std::sin(2 * std::numbers::pi * 160 * t)));
  }
  return r;
}

StageTime scaled(StageTime t, double factor) {
  t.ms *= factor, t.ops *= factor, t.launches *= factor;
  t.work.weight_bytes *= factor, t.work.state_bytes *= factor, t.work.flops *= factor;
  return t;
}

/// One codec call, per frame.
struct CodecCall {
  size_t end = 0;  ///< frames decoded after it
  StageTime time;
};

/// Program runs of one request, put together to frames.
struct RequestTimes {
  StageTimes prefill;
  std::vector<StageTimes> frames;  ///< the codec's part is the mean over its call
  std::vector<CodecCall> calls;

  /// Adds the runs behind one chunk of `count` frames.
  void add(const std::vector<StageTimes>& runs, int32_t count) {
    StageTime codec;
    for (const StageTimes& run : runs) {
      if (run[Stage::codec].ops > 0) {
        codec += run[Stage::codec];
      } else if (run[Stage::prefill].ops > 0) {
        prefill += run;
      } else {
        pending_ += run;
        if (run[Stage::predictor].ops > 0) frames.push_back(std::exchange(pending_, {}));
      }
    }
    if (codec.ops == 0) return;
    codec = scaled(codec, 1.0 / count);
    calls.push_back({frames.size(), codec});
    for (size_t i = frames.size() - static_cast<size_t>(count); i < frames.size(); ++i)
      frames[i][Stage::codec] = codec;
  }

  double total_ms() const {
    double ms = 0;
    for (const StageTime& t : prefill.stages) ms += t.ms;
    for (const StageTimes& frame : frames)
      for (const StageTime& t : frame.stages) ms += t.ms;
    return ms;
  }

 private:
  StageTimes pending_;  // the step that precedes a frame's codes
};

double median_of(const std::vector<StageTime>& times, double (*value)(const StageTime&)) {
  std::vector<double> values;
  for (const StageTime& t : times) values.push_back(value(t));
  return spread_of(std::move(values)).median;
}

/// Summary of samples; those without any op are left out.
StageReport summary(std::vector<StageTime> times) {
  std::erase_if(times, [](const StageTime& t) { return t.ops == 0; });
  std::vector<double> ms;
  for (const StageTime& t : times) ms.push_back(t.ms);
  return {.ms = spread_of(std::move(ms)),
          .weight_bytes = median_of(times, [](const StageTime& t) { return t.work.weight_bytes; }),
          .bytes = median_of(times, [](const StageTime& t) { return t.work.bytes(); }),
          .flops = median_of(times, [](const StageTime& t) { return t.work.flops; }),
          .ops = median_of(times, [](const StageTime& t) { return t.ops; }),
          .launches = median_of(times, [](const StageTime& t) { return t.launches; })};
}

/// The sum of some stages over frames; a frame without one of them is left out.
StageReport summary(std::span<const StageTimes> frames, std::initializer_list<Stage> stages) {
  std::vector<StageTime> times;
  for (const StageTimes& frame : frames) {
    StageTime sum;
    bool whole = true;
    for (const Stage stage : stages) sum += frame[stage], whole = whole && frame[stage].ops > 0;
    if (whole) times.push_back(sum);
  }
  return summary(std::move(times));
}

LengthReport length_row(std::span<const StageTimes> frames, int32_t length, int32_t first) {
  const int32_t from = std::max(first, length - kLengthWindow);
  const auto part = frames.subspan(static_cast<size_t>(from), static_cast<size_t>(length - from));
  const auto ms = [&](Stage stage) { return summary(part, {stage}).ms.median; };
  return {.frames = length,
          .talker_ms = ms(Stage::talker),
          .attention_ms = ms(Stage::talker_attention),
          .predictor_ms = ms(Stage::predictor),
          .sampling_ms = ms(Stage::sampling),
          .codec_ms = ms(Stage::codec)};
}

/// A bench from the checked options to its report.
class Bench {
 public:
  explicit Bench(const BenchOptions& options) : o_(options) {}

  BenchReport run() {
    load();
    progress("first audio, cold and warm");
    device_->time(!behind());
    cold();
    warm();
    progress(fmt::format("{} frames", o_.frames));
    measure();
    if (behind()) measure_programs();
    report_.peak_rss_bytes = peak_memory();
    device_->time(false);
    if (core_->config().type == model::ModelType::base) reference();
    progress("the machine, again");
    report_.speed_after = device_->measure_speed();
    return std::move(report_);
  }

 private:
  /// Requests are measured as they are; where the time goes is asked for in others, program by program.
  bool behind() const { return device_->frames_ahead() > 0; }

  void progress(std::string_view what) {
    if (o_.on_progress) o_.on_progress(what);
  }

  void load() {
    EngineOptions options = o_.engine;
    if (options.cache_capacity == 0)
      options.cache_capacity = std::max(EngineOptions{}.cache_capacity, o_.frames + kPromptRoom);
    const auto from = Clock::now();
    double measuring_ms = 0;
    ProcessUsage before;
    core_ = engine::load_core(o_.model, options, [&](std::unique_ptr<backend::Backend> inner) {
      if (o_.wrap) inner = o_.wrap(std::move(inner));
      auto device = std::make_unique<TimedDevice>(std::move(inner));
      device_ = device.get();
      progress("the machine");
      const auto start = Clock::now();
      report_.speed_before = device->measure_speed();
      report_.peak_rss_since_load = reset_peak_memory();
      before = process_usage();
      measuring_ms = milliseconds(start, Clock::now());
      progress("loading");
      return device;
    });
    report_.load_ms = milliseconds(from, Clock::now()) - measuring_ms;
    report_.load_major_faults = process_usage().major_faults - before.major_faults;
    describe(options);
  }

  void describe(const EngineOptions& options) {
    const model::ModelConfig& config = core_->config();
    const SpeechRequest request = make_request(config, o_, o_.frames);
    const ThreadLimit limit = usable_threads();
    report_.model_type = model::model_type_name(config.type);
    report_.model_size = config.size_tag;
    report_.device = device_->name(), report_.device_notes = core_->device_notes;
    report_.weights = options.weights != "auto"            ? options.weights
                      : model::has_bf16_matrices(o_.model) ? "bf16"
                                                           : "f32";
    report_.compute = options.compute;
    report_.threads = options.threads > 0 ? options.threads : limit.threads;
    report_.threads_reason = options.threads > 0 ? "as asked for" : limit.reason;
    report_.text = request.text, report_.voice = request.voice, report_.language = request.language;
    report_.seed = o_.seed;
    report_.frames = o_.frames, report_.chunk = o_.chunk;
    report_.warm_up_frames = std::min(kMostWarmUpFrames, o_.frames / 4);
    report_.cache_capacity = options.cache_capacity;
    report_.weight_bytes = device_->weight_bytes(), report_.buffer_bytes = device_->buffer_bytes();
  }

  /// Memory between chunks, where the device can tell; what it took is no time of the request.
  void probe(size_t frames) {
    const auto from = Clock::now();
    const double cpu = process_usage().cpu_seconds;
    if (const double speed = device_->measure_read_speed(); speed > 0) probes_.push_back({frames, speed});
    probing_cpu_seconds_ += process_usage().cpu_seconds - cpu;
    probing_ms_ += milliseconds(from, Clock::now());
  }

  /// Speaks to the end.
  std::pair<SpeechResult, RequestTimes> speak(int32_t frames, bool probing = false) {
    const auto stream = engine::make_speech_stream(core_, make_request(core_->config(), o_, frames), nullptr);
    RequestTimes times;
    for (bool last = false; !last;) {
      const AudioChunk chunk = stream->next_audio(o_.chunk);
      times.add(device_->take_runs(), chunk.frames);
      last = chunk.last;
      if (probing) probe(times.frames.size());
    }
    return {stream->result(), std::move(times)};
  }

  void cold() {
    const auto [result, times] = speak(1);
    report_.cold_first_audio_ms = result.first_audio_ms;
    report_.prompt_rows = result.prompt_rows;
    report_.cold_prefill = summary({times.prefill[Stage::prefill]});
  }

  void warm() {
    std::vector<double> first_audio;
    std::vector<StageTime> prefill;
    for (int32_t i = 0; i < o_.warm_runs; ++i) {
      const auto [result, times] = speak(1);
      first_audio.push_back(result.first_audio_ms);
      prefill.push_back(times.prefill[Stage::prefill]);
      report_.reused_rows = result.reused_rows;
    }
    report_.warm_first_audio_ms = spread_of(std::move(first_audio));
    report_.prefill = summary(std::move(prefill));
  }

  void measure() {
    probe(0);
    probing_ms_ = probing_cpu_seconds_ = 0;
    const ProcessUsage before = process_usage();
    const auto from = Clock::now();
    const auto [result, times] = speak(o_.frames, true);
    report_.wall_ms = milliseconds(from, Clock::now()) - probing_ms_;
    std::vector<double> speeds;
    for (const ReadProbe& p : probes_) speeds.push_back(p.bytes_per_second);
    report_.read_speed = spread_of(std::move(speeds));
    const ProcessUsage after = process_usage();
    report_.compute_ms = result.compute_ms, report_.rtf = result.rtf;
    report_.audio_seconds = static_cast<double>(result.samples) / core_->config().codec.output_sample_rate;
    report_usage(before, after);
    if (behind()) return;
    report_.other_ms = (result.compute_ms - times.total_ms()) / o_.frames;
    report_stages(times.frames);
    report_codec(times.calls);
  }

  /// Stages of a device that works behind the host.
  void measure_programs() {
    progress("as the device sees it");
    device_->start_trace();
    speak(o_.frames);
    const TimedDevice::Pace pace = device_->pace(device_->end_trace());
    report_.frame_ms = pace.frame_ms, report_.idle_share = pace.idle;
    progress("program by program");
    device_->time(true);
    report_.prefill = summary({speak(1).second.prefill[Stage::prefill]});
    const RequestTimes times = speak(o_.frames).second;
    probes_.clear();  // of another request
    report_stages(times.frames);
    report_codec(times.calls);
    double device_ms = 0;
    for (const Stage stage : {Stage::prefill}) device_ms += times.prefill[stage].ms;
    for (const StageTimes& frame : times.frames)
      for (const Stage stage : {Stage::talker, Stage::talker_attention, Stage::predictor, Stage::sampling})
        device_ms += frame[stage].ms;
    const auto spoilt =
        engine::make_speech_stream(core_, make_request(core_->config(), o_, o_.frames), nullptr);
    device_->time(false);
    spoilt->next_audio(o_.chunk);
    report_.kernels = device_->frame_kernels();
    spoilt->cancel();
    report_.other_ms = std::max(0.0, (report_.compute_ms - device_ms) / o_.frames);
  }

  /// As voices are made; after what has the peak of memory, as speaking does not need the encoders.
  void reference() {
    progress(fmt::format("a reference of {} s", kReferenceSeconds));
    const VoiceRequest request = make_recording();
    const auto encode_ms = [&] { return engine::make_voice(*core_, request).encode_ms; };
    ReferenceReport& r = report_.reference;
    try {
      r.first_ms = encode_ms();
      std::vector<double> ms;
      for (int32_t i = 0; i < o_.warm_runs; ++i) ms.push_back(encode_ms());
      r.ms = spread_of(std::move(ms));
      device_->time_ops();
      r.by_op_ms = encode_ms();
      r.ops = device_->take_op_times();
      r.audio_seconds = kReferenceSeconds;
    } catch (const Error& e) {
      // The rest of the report stands without it.
      if (e.code() != ErrorCode::out_of_memory && e.code() != ErrorCode::unsupported) throw;
      r = {.why_not = e.what()};
    }
  }

  void report_usage(const ProcessUsage& before, const ProcessUsage& after) {
    report_.cpu_seconds = after.cpu_seconds - before.cpu_seconds - probing_cpu_seconds_;
    report_.cpu_share = report_.cpu_seconds / (report_.wall_ms / 1000 * report_.threads);
    if (!before.waited_seconds || !after.waited_seconds) return;
    const double waited = *after.waited_seconds - *before.waited_seconds;
    report_.wait_share = waited / std::max(waited + report_.cpu_seconds, 1e-9);
  }

  void report_stages(std::span<const StageTimes> frames) {
    const auto counted = frames.subspan(static_cast<size_t>(report_.warm_up_frames));
    const auto report = [&](std::initializer_list<Stage> stages) {
      StageReport r = summary(counted, stages);
      r.bandwidth_share = bandwidth_share(frames, stages);
      return r;
    };
    report_.talker = report({Stage::talker, Stage::talker_attention});
    report_.attention = report({Stage::talker_attention});
    report_.predictor = report({Stage::predictor});
    report_.sampling = report({Stage::sampling});
    report_.language_model =
        report({Stage::talker, Stage::talker_attention, Stage::predictor, Stage::sampling});
    for (const int32_t length : kLengths)
      if (length < o_.frames) report_.lengths.push_back(length_row(frames, length, report_.warm_up_frames));
    report_.lengths.push_back(length_row(frames, o_.frames, report_.warm_up_frames));
  }

  /// 0 without probes: the bandwidth of the whole run is known at its end only.
  double bandwidth_share(std::span<const StageTimes> frames, std::initializer_list<Stage> stages) const {
    if (probes_.empty()) return 0;
    std::vector<double> shares;
    for (size_t i = static_cast<size_t>(report_.warm_up_frames); i < frames.size(); ++i) {
      StageTime sum;
      for (const Stage stage : stages) sum += frames[i][stage];
      if (sum.ms > 0) shares.push_back(sum.work.bytes() / (sum.ms / 1000) / bandwidth_at(probes_, i));
    }
    return spread_of(std::move(shares)).median;
  }

  /// One sample a call, without calls of warm-up frames alone.
  void report_codec(const std::vector<CodecCall>& calls) {
    std::vector<StageTime> times;
    for (const CodecCall& call : calls)
      if (call.end > static_cast<size_t>(report_.warm_up_frames)) times.push_back(call.time);
    report_.codec = summary(std::move(times));
  }

  const BenchOptions& o_;
  std::shared_ptr<engine::Core> core_;
  TimedDevice* device_ = nullptr;  // owned by the core
  std::vector<ReadProbe> probes_;
  double probing_ms_ = 0, probing_cpu_seconds_ = 0;
  BenchReport report_;
};

}  // namespace

double bandwidth_at(std::span<const ReadProbe> probes, size_t frame) {
  const auto after =
      std::find_if(probes.begin(), probes.end(), [&](const ReadProbe& p) { return p.frames > frame; });
  if (after == probes.end()) return probes.back().bytes_per_second;
  if (after == probes.begin()) return probes.front().bytes_per_second;
  return (after->bytes_per_second + std::prev(after)->bytes_per_second) / 2;
}

double BenchReport::read_bandwidth() const {
  if (read_speed.samples > 0) return read_speed.median;
  return std::max(speed_before.read_bytes_per_second, speed_after.read_bytes_per_second);
}

double BenchReport::peak_flops() const {
  return std::max(speed_before.flops_per_second, speed_after.flops_per_second);
}

bool BenchReport::loaded() const { return wait_share >= 0 ? wait_share > 0.05 : cpu_share < 0.8; }

bool BenchReport::memory_changed() const {
  if (!(speed_before.read_bytes_per_second > 0 && speed_after.read_bytes_per_second > 0)) return false;
  const double change = std::abs(speed_before.read_bytes_per_second - speed_after.read_bytes_per_second);
  return change > 0.15 * read_bandwidth();
}

BenchReport run_bench(const BenchOptions& options) {
  check_options(options);
  return Bench(options).run();
}

}  // namespace skald::diagnose
