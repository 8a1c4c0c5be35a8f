// Drives one model over a pair of devices.
#include "diagnose/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <span>
#include <utility>

#include "diagnose/numbers.h"
#include "engine/devices.h"
#include "engine/memory.h"
#include "model/model.h"
#include "model/talker_limits.h"

namespace skald::diagnose {
namespace {

constexpr int32_t kSlots = 3;          ///< so that the program of four lanes has an idle one
constexpr int32_t kFramePrompt = 250;  ///< 60 frames from there cross 256, 290 and 300
constexpr int32_t kWholePrompts = 64;  ///< longer ones share their beginning, see shared_rows()
constexpr int32_t kForcedFrames = 2;   ///< behind every prompt length
constexpr int32_t kNever = 1 << 30;

/// Rows of a prompt that are computed once for all lengths near each other: only its last one or two blocks
/// are each length's own. The same blocks either way.
int32_t shared_rows(int32_t length) {
  if (length <= kWholePrompts) return 0;
  return std::min((length - 2) / model::kPromptRows * model::kPromptRows, model::kPrefixRows);
}

/// Sampler settings that take every path of the sampler, in turns.
backend::SlotSettings settings_of(size_t turn, uint64_t seed) {
  const backend::SamplerSettings plain{.min_new_tokens = kNever};
  backend::SamplerSettings greedy = plain, wide = plain, narrow = plain;
  greedy.greedy = 1;
  wide.top_k = 0, wide.top_p = 0.8f, wide.repetition_penalty = 1.05f;
  narrow.temperature = 0.6f, narrow.top_k = 5, narrow.top_p = 0.95f, narrow.repetition_penalty = 1.3f;
  const std::array turns{plain, greedy, wide, narrow, plain};
  const backend::SamplerSettings& chosen = turns[turn % turns.size()];
  return {.talker = chosen,
          .predictor = chosen,
          .seed_low = static_cast<uint32_t>(seed),
          .seed_high = static_cast<uint32_t>(seed >> 32),
          .max_frames = kNever,
          .recorded_noise = turn % turns.size() == 4,
          .want_probs = 1};
}

class Comparison {
 public:
  Comparison(const CompareOptions& options, CompareReport& report) : o_(options), report_(report) {}

  void open() {
    progress("opening the devices and loading the model");
    config_ = model::load_config(o_.model);
    report_.model_type = model::model_type_name(config_.type), report_.model_size = config_.size_tag;
    report_.arithmetic_a = arithmetic_of(o_.a), report_.arithmetic_b = arithmetic_of(o_.b);
    report_.request = request_tolerance(report_.arithmetic_a, report_.arithmetic_b);
    sizes_ = sizes_of();
    auto a = open_one(o_.a, report_.arithmetic_a);
    auto b = open_one(o_.b, report_.arithmetic_b);
    require_memory();
    report_.device_a = a->name(), report_.device_b = b->name();
    pair_ = std::make_unique<PairDevice>(std::move(a), std::move(b), report_.op_tolerance);
  }

  void run() {
    const bool alike = report_.arithmetic_a == report_.arithmetic_b;
    if (!alike) pair_->set_mode(PairDevice::Mode::apart);  // what is computed while loading differs as well
    pair_->set_context("loading");
    model_ = model::Model::load(o_.model, *pair_, sizes_);
    x_vector_ = floats(static_cast<size_t>(config_.talker.hidden_size), 0.1f);
    if (alike) pair_->compare_memory();
    if (o_.lockstep && alike) {
      lockstep_prompts();
      lockstep_frames();
      lockstep_lanes();
      lockstep_codec();
    }
    if (o_.forced) {
      pair_->set_mode(PairDevice::Mode::apart);
      forced_prompts();
      forced_frames();
      forced_codec();
    }
  }

  /// Everything that the pair knows, also after an error.
  void collect() {
    if (!pair_) return;
    report_.ops_compared = pair_->ops_compared();
    report_.differences = pair_->differences();
    std::map<std::array<std::string, 3>, size_t> lines;
    for (const auto& [key, statistics] : pair_->statistics()) {
      const RecordedCall& call = pair_->call(key);
      const std::string output(call.outputs[key.output].name);
      const auto [at, fresh] =
          lines.emplace(std::array{pair_->program_name(key.program), call.kind, output}, report_.ops.size());
      if (fresh)
        report_.ops.push_back({pair_->program_name(key.program), call.kind, output, call.label, statistics});
      if (fresh) continue;
      CompareReport::OpLine& line = report_.ops[at->second];
      if (statistics.worst_element > line.statistics.worst_element) line.worst_label = call.label;
      line.statistics.add(statistics);
    }
    for (HeadReport& head : report_.heads)
      if (head.compared > 0) head.mean_cosine /= static_cast<double>(head.compared);
  }

 private:
  void progress(std::string_view what) const {
    if (o_.on_progress) o_.on_progress(what);
  }

  Arithmetic arithmetic_of(const EngineOptions& options) const {
    if (options.weights != "auto") return {options.weights, options.compute};
    return {model::has_bf16_matrices(o_.model) ? "bf16" : "f32", options.compute};
  }

  std::unique_ptr<backend::Backend> open_one(const EngineOptions& options, const Arithmetic& arithmetic) {
    if (o_.open) return o_.open(options);
    engine::OpenedDevice opened = engine::open_device(options);
    if (opened.cpu) cpu_arithmetic_.push_back(arithmetic);
    report_.device_notes.insert(report_.device_notes.end(), opened.notes.begin(), opened.notes.end());
    return std::move(opened.device);
  }

  /// The model lies in this machine's memory once for every CPU.
  void require_memory() const {
    model::MemoryEstimate needed;
    for (const Arithmetic& arithmetic : cpu_arithmetic_) {
      model::ModelOptions sizes = sizes_;
      sizes.matrix_bytes = arithmetic.weights == "int8"                                    ? 1.0625
                           : arithmetic.weights == "bf16" || arithmetic.compute != "exact" ? 2
                                                                                           : 4;
      const model::MemoryEstimate one = model::estimate_memory(config_, sizes);
      needed.weights += one.weights, needed.cache += one.cache, needed.buffers += one.buffers;
    }
    EngineOptions told = o_.a;
    told.slots = sizes_.slots, told.cache_capacity = sizes_.cache_capacity;
    engine::check_memory(needed, engine::available_memory(), told);
  }

  model::ModelOptions sizes_of() const {
    const int32_t longest = report_.lengths.empty() ? 0 : report_.lengths.back();
    const int32_t needed = std::max(longest + kForcedFrames, kFramePrompt + o_.frames) + 8;
    model::ModelOptions sizes;
    sizes.slots = kSlots, sizes.codec_chunk = 16, sizes.prefix_entries = 1;
    sizes.cache_capacity = (needed + 63) / 64 * 64;
    if (sizes.cache_capacity > config_.talker.max_position_embeddings)
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("{} positions are needed, but the model has {}; give fewer frames or shorter "
                              "lengths",
                              sizes.cache_capacity, config_.talker.max_position_embeddings));
    return sizes;
  }

  std::vector<float> floats(size_t count, float scale) {
    Numbers numbers(o_.seed + count);
    std::vector<float> values(count);
    for (float& v : values) v = scale * (2 * numbers.unit() - 1);
    return values;
  }

  /// A prompt with rows of every kind; equal up to the shorter length for equal `salt`.
  model::Prompt prompt(int32_t rows, uint64_t salt, int32_t shared = 0) const {
    const model::TalkerConfig& t = config_.talker;
    Numbers numbers(o_.seed * 1000003 + salt);
    model::Prompt p;
    p.prefix_rows = shared;
    for (int32_t r = 0; r < rows; ++r) {
      model::PromptRow row;
      if (r % 8 != 7) row.text_id = numbers.below(t.text_vocab_size);
      if (r % 8 == 5) {  // a frame of reference speech
        for (int32_t g = 0; g < t.num_code_groups; ++g) row.codec_ids.push_back(numbers.below(codes()));
      } else if (r % 8 != 0) {
        row.codec_ids = {numbers.below(t.vocab_size)};
      }
      row.speaker_vector = r == 6;
      p.rows.push_back(std::move(row));
    }
    return p;
  }

  int32_t codes() const { return std::min(config_.talker.codes(), config_.codec.decoder.codebook_size); }
  int32_t groups() const { return config_.talker.num_code_groups; }

  std::vector<int32_t> random_codes(Numbers& numbers, int32_t frames) const {
    std::vector<int32_t> all(static_cast<size_t>(frames) * static_cast<size_t>(groups()));
    for (int32_t& code : all) code = numbers.below(codes());
    return all;
  }

  void append_text(int32_t slot, int32_t count) {
    Numbers numbers(o_.seed + 77);
    std::vector<int32_t> ids;
    for (int32_t i = 0; i < count; ++i) ids.push_back(numbers.below(config_.talker.text_vocab_size));
    model_->append_text(slot, ids);
  }

  void set_noise(int32_t slot, Numbers& numbers) {
    const auto exponential = [&](int32_t count) {
      std::vector<float> noise(static_cast<size_t>(count));
      for (float& e : noise) e = -std::log(numbers.unit());
      return noise;
    };
    model_->set_noise(slot, exponential(config_.talker.vocab_size),
                      exponential((groups() - 1) * config_.talker.codes()));
  }

  // ---- lock step

  void lockstep_prompts() {
    Numbers numbers(o_.seed + 5);
    for (size_t i = 0; i < report_.lengths.size(); ++i) {
      const int32_t slot = 0, rows = report_.lengths[i];
      const std::string what = fmt::format("prompt of {} rows", rows);
      progress(fmt::format("lock step, {}", what));
      pair_->set_context(what);
      model_->begin(slot, settings_of(i, o_.seed + i));
      set_noise(slot, numbers);
      model_->prefill(slot, prompt(rows, 1, shared_rows(rows)), x_vector_);
      pair_->set_context(fmt::format("frame 0 after a {}", what));
      model_->frame_codes({&slot, 1});
      model_->frame_step({&slot, 1});
    }
    pair_->set_context("after the prompts");
    pair_->compare_memory();
  }

  void lockstep_frames() {
    const int32_t slot = 1, rows = kFramePrompt;
    model_->begin(slot, settings_of(0, o_.seed));
    pair_->set_context(fmt::format("prompt of {} rows", rows));
    model_->prefill(slot, prompt(rows, 2), x_vector_);
    append_text(slot, std::min(40, o_.frames / 2));  // the other frames are fed the padding row
    for (int32_t frame = 0; frame < o_.frames; ++frame) {
      if (frame % 10 == 0) progress(fmt::format("lock step, frame {} of {}", frame, o_.frames));
      pair_->set_context(fmt::format("frame {}, position {}", frame, rows + frame));
      model_->frame_codes({&slot, 1});
      model_->frame_step({&slot, 1});
    }
    pair_->set_context("after the frames");
    pair_->compare_memory();
  }

  /// Several requests at once, which end at different frames.
  void lockstep_lanes() {
    constexpr std::array<int32_t, kSlots> kRows{9, 33, 65}, kFrames{2, 4, 6};
    progress("lock step, several requests at once");
    Numbers numbers(o_.seed + 6);
    std::vector<int32_t> slots;
    for (int32_t slot = 0; slot < kSlots; ++slot) {
      const auto i = static_cast<size_t>(slot);
      backend::SlotSettings settings = settings_of(i + 2, o_.seed + i);
      settings.max_frames = kFrames[i];
      pair_->set_context(fmt::format("prompt of {} rows in slot {}", kRows[i], slot));
      model_->begin(slot, settings);
      set_noise(slot, numbers);
      model_->prefill(slot, prompt(kRows[i], 10 + i), x_vector_);
      append_text(slot, 3);
      slots.push_back(slot);
    }
    for (int32_t frame = 0; frame <= kFrames.back(); ++frame) {
      pair_->set_context(fmt::format("frame {} of {} requests at once", frame, kSlots));
      model_->frame_codes(slots);
      model_->frame_step(slots);
    }
    // A program of two lanes as well.
    model_->begin(0, settings_of(0, o_.seed));
    model_->begin(2, settings_of(1, o_.seed));
    const std::array<int32_t, 2> two{2, 0};
    for (const int32_t slot : two) model_->prefill(slot, prompt(7, 20), x_vector_);
    pair_->set_context("frame of 2 requests at once");
    model_->frame_codes(two);
    model_->frame_step(two);
    pair_->set_context("after several requests at once");
    pair_->compare_memory();
  }

  void lockstep_codec() {
    // Every shape class with every kind of filling; then whole chunks, beyond the transformer's window.
    std::vector<int32_t> chunks{1, 1, 2, 4, 3, 16, 7};
    Numbers numbers(o_.seed + 7);
    const int32_t slot = 1;
    pair_->set_context("codec reset");
    model_->codec_reset(slot);
    for (int32_t done = 0, i = 0; done < o_.codec_frames; ++i) {
      const int32_t wanted = static_cast<size_t>(i) < chunks.size() ? chunks[static_cast<size_t>(i)] : 16;
      const int32_t count = std::min(wanted, o_.codec_frames - done);
      progress(fmt::format("lock step, codec frame {} of {}", done, o_.codec_frames));
      pair_->set_context(fmt::format("codec frames {} to {}", done, done + count - 1));
      decode(slot, random_codes(numbers, count));
      done += count;
    }
    pair_->set_context("after the codec");
    pair_->compare_memory();
  }

  std::vector<float> decode(int32_t slot, std::span<const int32_t> codes) {
    const size_t frames = codes.size() / static_cast<size_t>(groups());
    std::vector<float> samples(frames * static_cast<size_t>(config_.codec.decode_upsample_rate));
    model_->codec_decode(slot, codes, samples);
    return samples;
  }

  // ---- forced: every device on its own

  /// What a head said on one device.
  template <class Read>
  std::array<std::vector<float>, 2> both(size_t count, Read&& read) {
    std::array<std::vector<float>, 2> values;
    for (const auto side : {PairDevice::Side::a, PairDevice::Side::b}) {
      auto& to = values[side == PairDevice::Side::b];
      to.resize(count);
      pair_->read_from(side);
      read(to);
    }
    pair_->read_from(PairDevice::Side::a);
    return values;
  }

  void judge_head(int32_t codebook, std::span<const float> a, std::span<const float> b,
                  const std::string& where) {
    HeadReport& head = report_.heads.at(static_cast<size_t>(codebook));
    head.add(cosine(a, b), where);
    const auto best = [](std::span<const float> v) {
      return static_cast<size_t>(std::max_element(v.begin(), v.end()) - v.begin());
    };
    const size_t first = best(a), second = best(b);
    if (first == second) return;
    ++head.disagreements;
    if (is_tie(a, b, first, second, report_.request.tie)) ++head.ties;
  }

  /// One frame with all its codes given; heads are judged before they are fed on.
  void forced_frame(int32_t slot, Numbers& numbers, const std::string& where) {
    pair_->set_context(where);
    const auto logits = both(static_cast<size_t>(config_.talker.vocab_size),
                             [&](std::span<float> to) { model_->read_logits(slot, to); });
    judge_head(0, logits[0], logits[1], where);
    model_->force(slot, random_codes(numbers, 1));
    model_->frame_codes({&slot, 1});
    const auto width = static_cast<size_t>(config_.talker.codes());
    const auto rest = both(width * static_cast<size_t>(groups() - 1),
                           [&](std::span<float> to) { model_->read_predictor_logits(to); });
    for (int32_t g = 1; g < groups(); ++g) {
      const size_t at = width * static_cast<size_t>(g - 1);
      judge_head(g, std::span(rest[0]).subspan(at, width), std::span(rest[1]).subspan(at, width), where);
    }
    model_->frame_step({&slot, 1});
  }

  void forced_prompts() {
    Numbers numbers(o_.seed + 8);
    for (const int32_t rows : report_.lengths) {
      const int32_t slot = 0;
      progress(fmt::format("each on its own, prompt of {} rows", rows));
      pair_->set_context(fmt::format("prompt of {} rows", rows));
      model_->begin(slot, settings_of(0, o_.seed));
      model_->prefill(slot, prompt(rows, 3, shared_rows(rows)), x_vector_);
      for (int32_t frame = 0; frame < kForcedFrames; ++frame)
        forced_frame(slot, numbers, fmt::format("prompt of {} rows, frame {}", rows, frame));
    }
  }

  void forced_frames() {
    Numbers numbers(o_.seed + 9);
    const int32_t slot = 2, rows = kFramePrompt;
    model_->begin(slot, settings_of(0, o_.seed));
    model_->prefill(slot, prompt(rows, 4), x_vector_);
    append_text(slot, std::min(40, o_.frames / 2));
    for (int32_t frame = 0; frame < o_.frames; ++frame) {
      if (frame % 10 == 0) progress(fmt::format("each on its own, frame {} of {}", frame, o_.frames));
      forced_frame(slot, numbers, fmt::format("frame {}, position {}", frame, rows + frame));
    }
  }

  void forced_codec() {
    const int32_t frames = std::min(o_.codec_frames, 48);
    if (frames == 0) return;
    progress("each on its own, codec");
    std::array<std::vector<float>, 2> samples;
    for (const auto side : {PairDevice::Side::a, PairDevice::Side::b}) {
      pair_->read_from(side);
      pair_->set_context("codec");
      Numbers numbers(o_.seed + 10);
      model_->codec_reset(0);
      samples[side == PairDevice::Side::b] = decode(0, random_codes(numbers, frames));
    }
    pair_->read_from(PairDevice::Side::a);
    report_.waveform_rms = root_mean_square(samples[0]);
    report_.waveform_difference = largest_difference(samples[0], samples[1]);
  }

  const CompareOptions& o_;
  CompareReport& report_;
  model::ModelConfig config_;
  model::ModelOptions sizes_;
  std::unique_ptr<PairDevice> pair_;
  std::unique_ptr<model::Model> model_;
  std::vector<float> x_vector_;
  std::vector<Arithmetic> cpu_arithmetic_;
};

void check_options(const CompareOptions& o) {
  const auto within = [](const char* name, int64_t value, int64_t least, int64_t most) {
    if (value < least || value > most)
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("{} is {}, but must be within {}..{}", name, value, least, most));
  };
  within("frames", o.frames, 0, kMostFrames);
  within("codec_frames", o.codec_frames, 0, kMostFrames);
  for (const int32_t length : o.lengths) within("lengths", length, 1, kMostLength);
}

void find_failures(CompareReport& r) {
  const auto fail = [&](std::string where, std::string what) {
    r.failures.push_back({std::move(where), std::move(what)});
  };
  if (!r.differences.empty()) {
    fail("lock step", describe(r.differences.front()));
    if (r.differences.size() > 1)
      fail("lock step", fmt::format("{} more results of ops differ", r.differences.size() - 1));
  }
  const RequestTolerance& t = r.request;
  bool compared = false;
  for (const HeadReport& head : r.heads) {
    if (head.compared == 0) continue;
    compared = true;
    if (std::isnan(head.worst_cosine)) {
      fail("forced frames", fmt::format("head {}: logits that are no numbers (NaN or infinite) at {}",
                                        head.codebook, head.worst_at));
      continue;
    }
    if (head.worst_cosine < t.worst_cosine)
      fail("forced frames", fmt::format("head {}: cosine {:.7f} at {}, but at least {} is needed",
                                        head.codebook, head.worst_cosine, head.worst_at, t.worst_cosine));
    const uint64_t wrong = head.disagreements - head.ties;
    if (t.codes_equal && wrong > 0)
      fail("forced frames",
           fmt::format("head {}: {} of {} frames have another best code, and no tie explains it",
                       head.codebook, wrong, head.compared));
  }
  if (compared && r.mean_cosine() < t.mean_cosine)
    fail("forced frames",
         fmt::format("mean cosine {:.7f}, but at least {} is needed", r.mean_cosine(), t.mean_cosine));
  if (!std::isfinite(r.waveform_difference))
    fail("codec", "samples that are no numbers (NaN or infinite)");
  else if (r.waveform_difference > t.waveform)
    fail("codec", fmt::format("samples differ by up to {:.2e}, but {} is the most", r.waveform_difference,
                              t.waveform));
}

}  // namespace

std::vector<int32_t> default_lengths() {
  std::vector<int32_t> lengths{1,   2,   3,   7,   8,   9,   15,  16,  17,  31,  32,  33,  63,
                               64,  65,  127, 128, 129, 191, 192, 193, 319, 320, 321, 383, 384,
                               385, 447, 448, 449, 511, 512, 513, 575, 576, 577, 639, 640};
  for (int32_t dense = 255; dense <= 260; ++dense) lengths.push_back(dense);
  for (int32_t dense = 290; dense <= 310; ++dense) lengths.push_back(dense);
  std::sort(lengths.begin(), lengths.end());
  return lengths;
}

RequestTolerance request_tolerance(const Arithmetic& a, const Arithmetic& b) {
  const Arithmetic f32{.weights = "f32"};
  if (a == f32 && b == f32)
    return {.worst_cosine = 0.99999, .mean_cosine = 0.99999, .tie = 1e-5, .codes_equal = true};
  if (a == b) return {.worst_cosine = 0.998, .mean_cosine = 0.9995, .tie = 1e-5};
  RequestTolerance t{.worst_cosine = 0.99999, .mean_cosine = 0.99999, .tie = 1e-5};
  if (a.compute != b.compute) t.worst_cosine = t.mean_cosine = 0.9995, t.waveform = 1e-3;
  if ((a.weights == "int8") != (b.weights == "int8")) t.worst_cosine = 0.99, t.mean_cosine = 0.998;
  return t;
}

void HeadReport::add(double cosine, const std::string& where) {
  if (compared == 0) mean_cosine = 0;
  // Nothing is worse than NaN, and the first one stays.
  if (compared++ == 0 || cosine < worst_cosine || (std::isnan(cosine) && !std::isnan(worst_cosine)))
    worst_cosine = cosine, worst_at = where;
  mean_cosine += cosine;
}

double CompareReport::mean_cosine() const {
  double sum = 0, count = 0;
  for (const HeadReport& head : heads) {
    sum += head.mean_cosine * static_cast<double>(head.compared);
    count += static_cast<double>(head.compared);
  }
  return count > 0 ? sum / count : 1;
}

double CompareReport::worst_cosine() const {
  double worst = 1;
  for (const HeadReport& head : heads) {
    if (head.compared > 0 && std::isnan(head.worst_cosine)) return head.worst_cosine;
    if (head.compared > 0) worst = std::min(worst, head.worst_cosine);
  }
  return worst;
}

CompareReport run_compare(const CompareOptions& options) {
  check_options(options);
  CompareReport report;
  report.lengths = options.lengths.empty() ? default_lengths() : options.lengths;
  std::sort(report.lengths.begin(), report.lengths.end());
  report.lengths.erase(std::unique(report.lengths.begin(), report.lengths.end()), report.lengths.end());
  report.frames = options.frames, report.codec_frames = options.codec_frames, report.seed = options.seed;
  Comparison comparison(options, report);
  comparison.open();
  for (int32_t g = 0; g < 16; ++g) report.heads.push_back({.codebook = g});
  try {
    comparison.run();
  } catch (const Error& e) {
    report.error = e;
  }
  comparison.collect();
  find_failures(report);
  return report;
}

}  // namespace skald::diagnose
