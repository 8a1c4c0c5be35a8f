// Running a device through its paces.
#include "diagnose/self_test.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>

#include "diagnose/numbers.h"
#include "diagnose/test_model.h"
#include "engine/devices.h"
#include "model/model.h"

namespace skald::diagnose {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int32_t kPromptRows = 24, kChunk = 16;

double milliseconds(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double, std::milli>(to - from).count();
}

/// Speaks made-up rows with the same seed, as the engine does: frames ahead of the host, codec beside.
class Speaker {
 public:
  Speaker(backend::Backend& device, model::Model& model) : device_(device), model_(model) {}

  GenerationReport speak(int32_t frames, std::vector<int32_t>& codes) {
    const model::ModelConfig& config = model_.config();
    const auto groups = static_cast<size_t>(config.talker.num_code_groups);
    const backend::DeviceCounters before = device_.counters();
    begin(frames);
    GenerationReport report{.frames = frames};
    std::vector<Clock::time_point> done{Clock::now()};
    std::vector<float> samples;
    for (int32_t frame = 0; frame < frames; ++frame) {
      submit(frame, frames);
      codes.resize(codes.size() + groups);
      await(frame, frames, std::span(codes).last(groups));
      if ((frame + 1) % kChunk != 0 && frame + 1 != frames) continue;
      const size_t chunk = codes.size() - decoded_;
      samples.resize(chunk / groups * static_cast<size_t>(config.codec.decode_upsample_rate));
      model_.codec_decode(0, std::span(codes).subspan(decoded_), samples);
      decoded_ = codes.size();
      done.push_back(Clock::now());
      report.slowest_ms = std::max(report.slowest_ms, milliseconds(*(done.end() - 2), done.back()));
    }
    model_.release(0);
    measure(report, done);
    const backend::DeviceCounters after = device_.counters();
    report.waits = after.waits - before.waits;
    report.lost_completions = after.lost_completions - before.lost_completions;
    return report;
  }

 private:
  void begin(int32_t frames) {
    const model::TalkerConfig& t = model_.config().talker;
    backend::SlotSettings settings;
    settings.talker.min_new_tokens = frames + 1;  // the stop token would end the test
    settings.max_frames = frames;
    settings.seed_low = 1;
    Numbers numbers(1);
    model::Prompt prompt;
    for (int32_t r = 0; r < kPromptRows; ++r) {
      model::PromptRow row;
      row.text_id = numbers.below(t.text_vocab_size);
      row.codec_ids = {numbers.below(t.vocab_size)};
      prompt.rows.push_back(std::move(row));
    }
    model_.begin(0, settings);
    model_.codec_reset(0);
    model_.prefill(0, prompt, {});
    submitted_ = 0, decoded_ = 0, first_run_ = model_.runs(0) + 1;
  }

  void submit(int32_t frame, int32_t frames) {
    const int32_t end = std::min(frames, frame + 1 + model_.frames_ahead());
    for (; submitted_ < end; ++submitted_) {
      const int32_t slot = 0;
      if (submitted_ > 0) model_.frame_step({&slot, 1});
      model_.frame_codes({&slot, 1});
    }
  }

  void await(int32_t frame, int32_t frames, std::span<int32_t> codes) {
    const backend::FrameReport report = model_.await_frame(0, first_run_ + frame, codes);
    if (report.status == backend::kNonFinite)
      throw Error(ErrorCode::non_finite, fmt::format("the logits of frame {} hold NaN or infinity", frame));
    const auto wanted = frame + 1 == frames ? backend::kLength : backend::kRunning;
    if (report.status != wanted || report.frames != frame + 1)
      throw Error(ErrorCode::internal,
                  fmt::format("after frame {} the device reports {} frames and status {}, not {}", frame,
                              report.frames, static_cast<int>(report.status), static_cast<int>(wanted)));
  }

  static void measure(GenerationReport& report, const std::vector<Clock::time_point>& done) {
    const size_t chunks = done.size() - 1, quarter = std::max<size_t>(1, chunks / 4);
    const auto per_frame = [&](size_t from, size_t to) {
      const double frames = std::min<double>(report.frames, static_cast<double>(kChunk * to)) -
                            static_cast<double>(kChunk * from);
      return milliseconds(done[from], done[to]) / std::max(frames, 1.0);
    };
    report.ms_per_frame = per_frame(0, chunks);
    report.first_quarter_ms = per_frame(0, quarter);
    report.last_quarter_ms = per_frame(chunks - quarter, chunks);
  }

  backend::Backend& device_;
  model::Model& model_;
  int32_t submitted_ = 0, first_run_ = 0;
  size_t decoded_ = 0;  ///< codes
};

class SelfTest {
 public:
  SelfTest(const SelfTestOptions& options, SelfTestReport& report, std::filesystem::path model)
      : o_(options), report_(report), model_(std::move(model)) {}

  void run() {
    compare_kernels();
    if (report_.kernels->error) throw *report_.kernels->error;
    generate();
  }

 private:
  void begin(std::string stage) {
    report_.stage = std::move(stage);
    if (o_.on_progress) o_.on_progress(report_.stage);
  }

  std::unique_ptr<backend::Backend> open(const EngineOptions& options) const {
    return o_.open ? o_.open(options) : engine::open_device(options).device;
  }

  void compare_kernels() {
    begin("kernels against the CPU");
    CompareOptions compare;
    compare.model = model_;
    compare.a = compare.b = o_.engine;
    compare.a.device = "cpu";
    compare.open = o_.open;
    compare.lengths = o_.prompts;
    compare.frames = o_.compared_frames, compare.codec_frames = o_.codec_frames;
    report_.kernels = run_compare(compare);
    report_.device = report_.kernels->device_b;
  }

  void generate() {
    begin("loading");
    const auto device = open(o_.engine);
    const model::ModelConfig config = model::load_config(model_);
    model::ModelOptions sizes;
    sizes.prefix_entries = 0, sizes.codec_chunk = kChunk;
    sizes.cache_capacity = kPromptRows + o_.lengths.back() + 8;
    const auto model = model::Model::load(model_, *device, sizes);
    report_.read_bytes_per_second = device->measure_speed().read_bytes_per_second;
    const std::string& weights = report_.kernels->arithmetic_a.weights;
    report_.bytes_per_frame = bytes_per_frame(config,
                                              weights == "f32"    ? 4
                                              : weights == "bf16" ? 2
                                                                  : 1.0625,
                                              kPromptRows + o_.lengths.back() / 2);
    Speaker speaker(*device, *model);
    std::vector<int32_t> first;
    for (const int32_t frames : o_.lengths) {
      begin(fmt::format("generation of {} frames", frames));
      std::vector<int32_t> codes;
      report_.generations.push_back(speaker.speak(frames, codes));
      if (first.empty()) first = codes;
      if (!std::equal(first.begin(), first.end(), codes.begin())) report_.repeatable = false;
    }
  }

  const SelfTestOptions& o_;
  SelfTestReport& report_;
  const std::filesystem::path model_;
};

}  // namespace

double bytes_per_frame(const model::ModelConfig& config, double matrix_bytes, int32_t context) {
  const auto layer = [](const model::DecoderConfig& c) {
    const double h = c.hidden_size, q = 1.0 * c.head_dim * c.heads, kv = 1.0 * c.head_dim * c.kv_heads;
    return h * (q + 2 * kv) + q * h + 3 * h * c.intermediate_size;
  };
  const model::TalkerConfig& t = config.talker;
  const model::DecoderConfig& p = config.predictor;
  const double talker = t.layers * layer(t) + 1.0 * t.hidden_size * t.vocab_size;
  const double predictor =
      (t.num_code_groups - 1) * (p.layers * layer(p) + 1.0 * p.hidden_size * p.vocab_size);
  const double cache = 1.0 * context * t.layers * 2 * t.kv_heads * t.head_dim * sizeof(float);
  return (talker + predictor) * matrix_bytes + cache;
}

uint64_t SelfTestReport::lost_completions() const {
  uint64_t lost = 0;
  for (const GenerationReport& g : generations) lost += g.lost_completions;
  return lost;
}

double SelfTestReport::predicted_rtf() const {
  return read_bytes_per_second > 0 ? bytes_per_frame / read_bytes_per_second / 0.08 : 0;
}

double SelfTestReport::measured_rtf() const { return generations.empty() ? 0 : generations.back().rtf(); }

bool SelfTestReport::passed() const { return !error && repeatable && kernels && kernels->equal(); }

std::string SelfTestReport::failure() const {
  if (error) return fmt::format("{}: {} [{}]", stage, error->what(), error_code_name(error->code()));
  if (kernels && !kernels->equal())
    return fmt::format("{}: {}", kernels->failures.front().where, kernels->failures.front().what);
  if (!repeatable) return "the same request gave other codes the second time";
  return kernels ? "" : "it was not run";
}

SelfTestReport run_self_test(const SelfTestOptions& options) {
  SelfTestReport report;
  report.device = options.engine.device;
  std::optional<TestModel> small;
  if (options.model.empty()) small.emplace(options.scratch);
  const std::filesystem::path model = small ? small->path() : options.model;
  const model::ModelConfig config = model::load_config(model);
  report.model =
      small ? "test model" : fmt::format("{} {}", model::model_type_name(config.type), config.size_tag);
  try {
    SelfTest(options, report, model).run();
  } catch (const Error& e) {
    report.error = e;
  }
  return report;
}

KeptResult check_first_start(const FirstStart& start) {
  const SelfTestCache cache(start.cache);
  const std::string key = fmt::format("{}\n{}\n{}", start.device, start.driver, start.build);
  if (const auto known = cache.find(key)) return *known;
  const SelfTestReport report = run_self_test(start.test);
  const KeptResult result{report.passed(), report.failure(), report.lost_completions()};
  cache.keep(key, result);
  return result;
}

}  // namespace skald::diagnose
