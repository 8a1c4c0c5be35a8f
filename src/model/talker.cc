// Talker and code predictor: loading, slots and running. The recorded programs are in talker_programs.cc.
#include "model/talker.h"

#include <algorithm>
#include <numeric>

#include "model/talker_limits.h"
#include "skald/error.h"

namespace skald::model {

using backend::Buffer;
using backend::Dtype;

namespace {

StackShape shape_of(const DecoderConfig& c) {
  return {.hidden = c.hidden_size,
          .intermediate = c.intermediate_size,
          .layers = c.layers,
          .heads = c.heads,
          .kv_heads = c.kv_heads,
          .head_dim = c.head_dim,
          .epsilon = c.rms_norm_eps,
          .theta = c.rope_theta};
}

}  // namespace

Talker::Talker(backend::Backend& device, const WeightLoader& talker, const ModelConfig& config,
               const ModelOptions& options)
    : device_(device),
      config_(config),
      slot_count_(options.slots),
      text_capacity_(options.cache_capacity),
      groups_(config.talker.num_code_groups),
      codes_(config.talker.codes()),
      runs_(static_cast<size_t>(options.slots), 0),
      text_rows_(static_cast<size_t>(options.slots), 0) {
  load_tables(talker);
  talker_ = std::make_unique<DecoderStack>(device, talker.under("model"), shape_of(config.talker), "talker",
                                           options.slots, options.cache_capacity);
  // One frame's positions only: the predictor has no memory of earlier frames.
  predictor_ =
      std::make_unique<DecoderStack>(device, talker.under("code_predictor.model"), shape_of(config.predictor),
                                     "predictor", options.slots, groups_);
  allocate_slots(options);
  record_prefill();
  prefixes_ = std::make_unique<PrefixCache>(device, *talker_, options.slots, options.prefix_entries,
                                            std::min(kPrefixRows, options.cache_capacity));
  record_pad();
  fold_projection(talker);
  for (int32_t lanes = 1;; lanes *= 2) {
    widths_.emplace(lanes, make_width(lanes));
    if (lanes >= options.slots || lanes >= kMaxLanes) break;
  }
}

void Talker::load_tables(const WeightLoader& talker) {
  const TalkerConfig& t = config_.talker;
  const DecoderConfig& p = config_.predictor;
  const WeightLoader model = talker.under("model");
  text_table_ = model.table("text_embedding.weight", t.text_vocab_size, t.text_hidden_size);
  codec_table_ = model.table("codec_embedding.weight", t.vocab_size, t.hidden_size);
  final_norm_ = model.vector("norm.weight", t.hidden_size);
  head_ = talker.matrix("codec_head.weight", t.vocab_size, t.hidden_size);
  const WeightLoader projection = talker.under("text_projection");
  fc1_ = projection.matrix("linear_fc1.weight", t.text_hidden_size, t.text_hidden_size);
  fc1_bias_ = projection.vector("linear_fc1.bias", t.text_hidden_size);
  fc2_ = projection.matrix("linear_fc2.weight", t.hidden_size, t.text_hidden_size);
  fc2_bias_ = projection.vector("linear_fc2.bias", t.hidden_size);

  const WeightLoader predictor = talker.under("code_predictor");
  frame_tables_.push_back(codec_table_);
  for (int32_t g = 0; g + 1 < groups_; ++g) {
    const std::string n = std::to_string(g);
    frame_tables_.push_back(
        predictor.table("model.codec_embedding." + n + ".weight", p.vocab_size, t.hidden_size));
    predictor_heads_.push_back(predictor.matrix("lm_head." + n + ".weight", p.vocab_size, p.hidden_size));
  }
  predictor_norm_ = predictor.vector("model.norm.weight", p.hidden_size);
  if (config_.has_input_projection()) {
    input_projection_ = predictor.matrix("small_to_mtp_projection.weight", p.hidden_size, t.hidden_size);
    input_bias_ = predictor.vector("small_to_mtp_projection.bias", p.hidden_size);
  }
}

void Talker::allocate_slots(const ModelOptions& options) {
  const int32_t n = options.slots, vocab = config_.talker.vocab_size, hidden = config_.talker.hidden_size;
  auto word_array = [&](const char* label) { return device_.allocate(label, Dtype::i32, n, 1); };
  slots_ = {
      .settings = device_.allocate("slots.settings", Dtype::u8, n, sizeof(backend::SlotSettings)),
      .status = word_array("slots.status"),
      .position = word_array("slots.position"),
      .step = word_array("slots.step"),
      .sampled = word_array("slots.sampled"),
      .frames = word_array("slots.frames"),
      .codes = device_.allocate("slots.codes", Dtype::i32, n, groups_),
      .forced = device_.allocate("slots.forced", Dtype::i32, n, groups_),
      .seen = device_.allocate("slots.seen", Dtype::u8, n, vocab),
      .ring = device_.allocate("slots.ring", Dtype::i32, int64_t{n} * kRingFrames, groups_),
      .noise = device_.allocate("slots.noise", Dtype::f32, n, vocab),
      .predictor_noise = device_.allocate("slots.predictor_noise", Dtype::f32, n, (groups_ - 1) * codes_),
      .cache_capacity = options.cache_capacity,
      .ring_frames = kRingFrames,
      .groups = groups_};
  hidden_ = device_.allocate("slots.hidden", Dtype::f32, n, hidden);
  logits_ = device_.allocate("slots.logits", Dtype::f32, n, vocab);
  text_store_ = device_.allocate("slots.text", Dtype::f32, int64_t{n} * text_capacity_, hidden);
  text_count_ = word_array("slots.text_count");
  pad_ = device_.allocate("talker.pad", Dtype::f32, 1, hidden);
}

/// The 1.7B predictor projects every input row. An embedding row gives the same result each time, so the
/// tables are projected once, here, by the same operation.
void Talker::fold_projection(const WeightLoader& talker) {
  const int32_t fed = groups_ - 1;  // the last table is never an input of the predictor
  predictor_tables_.assign(frame_tables_.begin(), frame_tables_.begin() + fed);
  if (!input_projection_) return;
  projected_.reserve(fed);
  for (int32_t g = 0; g < fed; ++g) {
    const int32_t entries = g == 0 ? config_.talker.vocab_size : config_.predictor.vocab_size;
    projected_.push_back(projected_table(frame_tables_[g], entries));
    predictor_tables_[g] = talker.derived(backend::WeightRole::table, "projected." + std::to_string(g),
                                          projected_.back(), {entries, config_.predictor.hidden_size});
  }
}

std::vector<float> Talker::projected_table(backend::Weight table, int32_t entries) {
  const int32_t rows = kPromptRows, width = config_.predictor.hidden_size;
  const Prefill& p = prefill_;
  const Buffer out = p.folded;
  const Buffer ids = p.text_ids;
  const backend::Program program = device_.record("predictor.fold", [&](backend::Ops& ops) {
    ops.label("predictor.fold");
    ops.gather_sum({.tables = {table}, .ids = ids, .out = p.projected, .lanes = prefill_lanes()});
    ops.linear({.x = p.projected,
                .weight = input_projection_,
                .bias = input_bias_,
                .out = out,
                .lanes = prefill_lanes()});
  });
  std::vector<float> values(size_t(entries) * width);
  for (int32_t at = 0; at < entries; at += rows) {
    const int32_t count = std::min(rows, entries - at);
    std::vector<int32_t> part(count);
    std::iota(part.begin(), part.end(), at);
    device_.write(p.lane_count, std::as_bytes(std::span(&count, 1)));
    device_.write(ids.row_range(0, count), std::as_bytes(std::span(part)));
    device_.run(program);
    device_.read(out.row_range(0, count), std::as_writable_bytes(std::span(values).subspan(
                                              size_t(at) * width, size_t(count) * width)));
  }
  return values;
}

void Talker::record_pad() {
  project_text(std::span(&config_.tts_pad_id, 1), {});
  std::vector<float> row(config_.talker.hidden_size);
  device_.read(prefill_.projected.row_range(0, 1), std::as_writable_bytes(std::span(row)));
  device_.write(pad_, std::as_bytes(std::span(row)));
}

void Talker::begin(int32_t slot, const backend::SlotSettings& settings) {
  const backend::SlotArrays& s = slots_;
  for (const Buffer& b : {s.position, s.step, s.sampled, s.frames, s.codes, s.seen, text_count_})
    device_.zero(b.row_range(slot, 1));
  text_rows_[static_cast<size_t>(slot)] = 0;
  device_.write(s.settings.row_range(slot, 1), std::as_bytes(std::span(&settings, 1)));
  const std::vector<int32_t> free(groups_, -1);
  device_.write(s.forced.row_range(slot, 1), std::as_bytes(std::span(free)));
  const int32_t running = backend::kRunning;
  device_.write(s.status.row_range(slot, 1), std::as_bytes(std::span(&running, 1)));
}

void Talker::release(int32_t slot) { device_.zero(slots_.status.row_range(slot, 1)); }

int32_t Talker::word(const Buffer& array, int32_t slot) const {
  int32_t value = 0;
  device_.read(array.row_range(slot, 1), std::as_writable_bytes(std::span(&value, 1)));
  return value;
}

/// Projects text ids (at most kPromptRows) into prefill_.projected; `extra` [ids * hidden] is added, empty =
/// nothing.
void Talker::project_text(std::span<const int32_t> ids, std::span<const float> extra) {
  const auto count = static_cast<int32_t>(ids.size());
  device_.write(prefill_.lane_count, std::as_bytes(std::span(&count, 1)));
  device_.write(prefill_.text_ids.row_range(0, count), std::as_bytes(ids));
  if (extra.empty()) {
    device_.zero(prefill_.extra.row_range(0, count));
  } else {
    device_.write(prefill_.extra.row_range(0, count), std::as_bytes(extra));
  }
  device_.run(prefill_.project);
}

/// Fills the first rows of prefill_.stack.x.
void Talker::embed_rows(std::span<const PromptRow> rows, std::span<const float> x_vector) {
  std::vector<int32_t> text_ids, codec_ids(rows.size() * groups_, -1);
  std::vector<float> extra(rows.size() * config_.talker.hidden_size, 0.0f);
  for (size_t r = 0; r < rows.size(); ++r) {
    text_ids.push_back(rows[r].text_id);
    std::copy(rows[r].codec_ids.begin(), rows[r].codec_ids.end(), codec_ids.begin() + r * groups_);
    if (rows[r].speaker_vector)
      std::copy(x_vector.begin(), x_vector.end(), extra.begin() + r * x_vector.size());
  }
  project_text(text_ids, extra);
  device_.write(prefill_.codec_ids.row_range(0, static_cast<int32_t>(rows.size())),
                std::as_bytes(std::span(codec_ids)));
  device_.run(prefill_.embed);
}

int32_t Talker::prefill(int32_t slot, const Prompt& prompt, std::span<const float> x_vector) {
  const int32_t known = prefixes_->restore(slot, prompt, x_vector);
  device_.write(slots_.position.row_range(slot, 1), std::as_bytes(std::span(&known, 1)));
  device_.write(prefill_.lane_slot, std::as_bytes(std::span(&slot, 1)));
  const std::span<const PromptRow> rows(prompt.rows);
  for (auto at = static_cast<size_t>(known); at < rows.size(); at += kPromptRows) {
    embed_rows(rows.subspan(at, std::min<size_t>(kPromptRows, rows.size() - at)), x_vector);
    device_.run(prefill_.layers);
  }
  device_.run(prefill_.head);
  if (known == 0) prefixes_->save(slot, prompt, x_vector);
  return known;
}

std::vector<float> Talker::prompt_rows(const Prompt& prompt, std::span<const float> x_vector) {
  const int32_t slot = 0, hidden = config_.talker.hidden_size;
  device_.write(prefill_.lane_slot, std::as_bytes(std::span(&slot, 1)));
  std::vector<float> out(prompt.rows.size() * hidden);
  const std::span<const PromptRow> rows(prompt.rows);
  for (size_t at = 0; at < rows.size(); at += kPromptRows) {
    const size_t count = std::min<size_t>(kPromptRows, rows.size() - at);
    embed_rows(rows.subspan(at, count), x_vector);
    device_.read(prefill_.stack.x.row_range(0, static_cast<int32_t>(count)),
                 std::as_writable_bytes(std::span(out).subspan(at * hidden, count * hidden)));
  }
  return out;
}

void Talker::append_text(int32_t slot, std::span<const int32_t> text_ids) {
  size_t& rows = text_rows_[static_cast<size_t>(slot)];
  if (rows + text_ids.size() > size_t(text_capacity_))
    throw Error(ErrorCode::text_too_long, "the text has more tokens than the cache has positions (" +
                                              std::to_string(text_capacity_) +
                                              "); split it or raise the cache capacity");
  device_.write(prefill_.lane_slot, std::as_bytes(std::span(&slot, 1)));
  for (size_t at = 0; at < text_ids.size(); at += kPromptRows) {
    project_text(text_ids.subspan(at, std::min<size_t>(kPromptRows, text_ids.size() - at)), {});
    device_.run(prefill_.store);
  }
  rows += text_ids.size();
}

/// The smallest recorded width that takes the slots, with its lanes set. What is set already is not written
/// again: frame after frame of one request hands over programs alone.
Talker::Width& Talker::width_for(std::span<const int32_t> slots) {
  const auto chosen = widths_.lower_bound(static_cast<int32_t>(slots.size()));
  if (slots.empty() || chosen == widths_.end())
    throw Error(ErrorCode::internal, "no program for " + std::to_string(slots.size()) + " slots at once");
  Width& w = chosen->second;
  std::vector<int32_t> lanes(w.lanes, -1);
  std::copy(slots.begin(), slots.end(), lanes.begin());
  if (lanes != w.lane_slots) {
    device_.write(w.lane_slot, std::as_bytes(std::span(lanes)));
    w.lane_slots = std::move(lanes);
  }
  return w;
}

void Talker::frame_codes(std::span<const int32_t> slots) {
  device_.run(width_for(slots).codes);
  for (const int32_t slot : slots) ++runs_[static_cast<size_t>(slot)];
}

void Talker::frame_step(std::span<const int32_t> slots) { device_.run(width_for(slots).step); }

}  // namespace skald::model
