// Talker and code predictor: the programs as they are recorded. Specification 3, 5.2.
#include "model/talker.h"
#include "model/talker_limits.h"

namespace skald::model {

using backend::Activation;
using backend::Buffer;
using backend::Copy;
using backend::Dtype;
using backend::Lanes;
using backend::Norm;

Lanes Talker::lanes_of(const Width& w, int32_t rows) const {
  return {.lanes = w.lanes, .rows = rows, .slot = w.lane_slot, .gate = slots_.status};
}

Lanes Talker::prefill_lanes() const {
  return {.lanes = 1,
          .rows = kPromptRows,
          .slot = prefill_.lane_slot,
          .count = prefill_.lane_count,
          .start = slots_.position};
}

void Talker::record_prefill() {
  const TalkerConfig& t = config_.talker;
  Prefill& p = prefill_;
  p.lane_slot = device_.allocate("prefill.lane_slot", Dtype::i32, 1, 1);
  p.lane_count = device_.allocate("prefill.lane_count", Dtype::i32, 1, 1);
  p.text_ids = device_.allocate("prefill.text_ids", Dtype::i32, kPromptRows, 1);
  p.codec_ids = device_.allocate("prefill.codec_ids", Dtype::i32, kPromptRows, groups_);
  p.extra = device_.allocate("prefill.extra", Dtype::f32, kPromptRows, t.hidden_size);
  p.text_rows = device_.allocate("prefill.text_rows", Dtype::f32, kPromptRows, t.text_hidden_size);
  p.text_inner = device_.allocate("prefill.text_inner", Dtype::f32, kPromptRows, t.text_hidden_size);
  p.projected = device_.allocate("prefill.projected", Dtype::f32, kPromptRows, t.hidden_size);
  p.folded = device_.allocate("prefill.folded", Dtype::f32, kPromptRows, config_.predictor.hidden_size);
  p.stack = StackBuffers::allocate(device_, "prefill", talker_->shape(), kPromptRows);
  p.last = device_.allocate("prefill.last", Dtype::f32, 1, t.hidden_size);
  p.hidden = device_.allocate("prefill.hidden", Dtype::f32, 1, t.hidden_size);
  p.logits = device_.allocate("prefill.logits", Dtype::f32, 1, t.vocab_size);

  const Lanes lanes = prefill_lanes();
  p.project = device_.record("talker.text", [&](backend::Ops& ops) {
    ops.label("talker.text_projection");
    ops.gather_sum({.tables = {text_table_}, .ids = p.text_ids, .out = p.text_rows, .lanes = lanes});
    ops.linear({.x = p.text_rows,
                .weight = fc1_,
                .bias = fc1_bias_,
                .activation = Activation::silu,
                .out = p.text_inner,
                .lanes = lanes});
    ops.linear({.x = p.text_inner,
                .weight = fc2_,
                .bias = fc2_bias_,
                .residual = p.extra,
                .out = p.projected,
                .lanes = lanes});
  });
  p.embed = device_.record("talker.embed", [&](backend::Ops& ops) {
    ops.label("talker.embed");
    ops.gather_sum(
        {.tables = frame_tables_, .ids = p.codec_ids, .add = p.projected, .out = p.stack.x, .lanes = lanes});
  });
  p.layers = device_.record("talker.prefill", [&](backend::Ops& ops) {
    talker_->record_rope(ops, p.stack.rope, lanes);
    talker_->record_layers(ops, p.stack, lanes);
    ops.advance({.counter = slots_.position, .lanes = lanes});
  });
  p.head = device_.record("talker.prefill_head", [&](backend::Ops& ops) {
    const Lanes one{.lanes = 1, .rows = 1, .slot = p.lane_slot};
    ops.label("talker.head");
    ops.copy({.rows = Copy::last, .x = p.stack.x, .out = p.last, .lanes = lanes});
    record_head(ops, p.last, p.hidden, p.logits, one);
  });
  Lanes text_lanes = lanes;
  text_lanes.start = text_count_;
  p.store = device_.record("talker.store_text", [&](backend::Ops& ops) {
    ops.label("talker.store_text");
    ops.store_rows({.x = p.projected, .store = text_store_, .capacity = text_capacity_, .lanes = text_lanes});
    ops.advance({.counter = text_count_, .lanes = text_lanes});
  });
}

/// Final norm and head of one row per lane; both results also go to the lane's slot.
void Talker::record_head(backend::Ops& ops, const Buffer& x, const Buffer& hidden, const Buffer& logits,
                         const Lanes& lanes) const {
  ops.label("talker.head");
  ops.linear({.x = x,
              .norm = {Norm::rms, final_norm_, {}, config_.talker.rms_norm_eps},
              .out = hidden,
              .lanes = lanes});
  ops.linear({.x = hidden, .weight = head_, .out = logits, .lanes = lanes});
  ops.store_rows({.x = hidden, .store = hidden_, .capacity = 1, .lanes = lanes});
  ops.store_rows({.x = logits, .store = logits_, .capacity = 1, .lanes = lanes});
}

Talker::Width Talker::make_width(int32_t lanes) {
  const TalkerConfig& t = config_.talker;
  const std::string name = " x" + std::to_string(lanes);
  Width w;
  w.lanes = lanes;
  w.lane_slot = device_.allocate("lane_slot" + name, Dtype::i32, lanes, 1);
  w.talker = StackBuffers::allocate(device_, "talker" + name, talker_->shape(), lanes);
  w.hidden = device_.allocate("hidden" + name, Dtype::f32, lanes, t.hidden_size);
  w.logits = device_.allocate("logits" + name, Dtype::f32, lanes, t.vocab_size);
  w.probs = device_.allocate("probs" + name, Dtype::f32, lanes, t.vocab_size);
  w.pair = device_.allocate("predictor.pair" + name, Dtype::f32, lanes, 2 * config_.predictor.hidden_size);
  w.predictor = StackBuffers::allocate(device_, "predictor" + name, predictor_->shape(), 2 * lanes);
  w.predictor_logits = device_.allocate("predictor.logits" + name, Dtype::f32, lanes, (groups_ - 1) * codes_);
  w.predictor_probs = device_.allocate("predictor.probs" + name, Dtype::f32, lanes, (groups_ - 1) * codes_);

  // The predictor's positions never change, so their angles are computed once, here.
  const backend::Program angles = device_.record("predictor.rope" + name, [&](backend::Ops& ops) {
    for (int32_t pass = 0; pass + 1 < groups_; ++pass) {
      const int32_t rows = pass == 0 ? 2 : 1;
      Lanes fixed = lanes_of(w, rows);
      fixed.gate = {};
      fixed.start_offset = pass == 0 ? 0 : pass + 1;
      w.ropes.push_back(
          device_.allocate("predictor.rope" + name, Dtype::f32, rows * lanes, config_.predictor.head_dim));
      predictor_->record_rope(ops, w.ropes.back(), fixed);
    }
  });
  const std::vector<int32_t> any_slot(lanes, 0);
  device_.write(w.lane_slot, std::as_bytes(std::span(any_slot)));
  device_.run(angles);

  w.codes = device_.record("frame.codes" + name, [&](backend::Ops& ops) { record_predictor(ops, w); });
  w.step = device_.record("frame.step" + name, [&](backend::Ops& ops) { record_step(ops, w); });
  return w;
}

void Talker::record_predictor(backend::Ops& ops, const Width& w) const {
  const Lanes lanes = lanes_of(w);
  ops.label("talker.sample");
  ops.copy({.rows = Copy::of_slot, .x = logits_, .out = w.logits, .lanes = lanes});
  ops.sample({.group = 0,
              .logits = w.logits,
              .probs = w.probs,
              .codes = codes_,
              .stop_id = config_.talker.codec_eos_id,
              .slots = slots_,
              .lanes = lanes});
  ops.label("predictor.input");
  const int32_t width = config_.predictor.hidden_size;
  const Buffer first_row = w.pair.columns(0, width);
  ops.copy(
      {.rows = Copy::of_slot, .x = hidden_, .out = input_projection_ ? w.hidden : first_row, .lanes = lanes});
  if (input_projection_) {
    ops.linear(
        {.x = w.hidden, .weight = input_projection_, .bias = input_bias_, .out = first_row, .lanes = lanes});
  }
  ops.gather_sum({.tables = {predictor_tables_[0]},
                  .ids = slots_.codes.columns(0, 1),
                  .ids_by_slot = true,
                  .out = w.pair.columns(width, width),
                  .lanes = lanes});
  for (int32_t group = 1; group < groups_; ++group) record_predictor_pass(ops, w, group);
  ops.label("frame.publish");
  ops.publish_frame({.slots = slots_, .lanes = lanes});
}

/// One pass that yields `group`: the first takes the two rows of `pair`, the others the previous code's
/// embedding.
void Talker::record_predictor_pass(backend::Ops& ops, const Width& w, int32_t group) const {
  const bool first = group == 1;
  const int32_t rows = first ? 2 : 1, width = config_.predictor.hidden_size;
  const Lanes one = lanes_of(w);
  Lanes lanes = lanes_of(w, rows);
  lanes.start_offset = first ? 0 : group;
  StackBuffers stack = w.predictor.first_rows(rows * w.lanes);
  stack.rope = w.ropes[group - 1];

  ops.label("predictor.input");
  if (first) {
    stack.x = w.pair.reshaped(2 * w.lanes, width);  // the layers work in place
  } else {
    ops.gather_sum({.tables = {predictor_tables_[group - 1]},
                    .ids = slots_.codes.columns(group - 1, 1),
                    .ids_by_slot = true,
                    .out = stack.x,
                    .lanes = one});
  }
  predictor_->record_layers(ops, stack, lanes);

  ops.label("predictor.head." + std::to_string(group - 1));
  Buffer last = stack.x;
  if (first) last = stack.x.reshaped(w.lanes, 2 * width).columns(width, width);
  const Buffer logits = w.predictor_logits.columns((group - 1) * codes_, codes_);
  ops.linear({.x = last,
              .norm = {Norm::rms, predictor_norm_, {}, config_.predictor.rms_norm_eps},
              .weight = predictor_heads_[group - 1],
              .out = logits,
              .lanes = one});
  ops.sample({.group = group,
              .logits = logits,
              .probs = w.predictor_probs.columns((group - 1) * codes_, codes_),
              .codes = codes_,
              .slots = slots_,
              .lanes = one});
}

void Talker::record_step(backend::Ops& ops, const Width& w) const {
  Lanes lanes = lanes_of(w);
  lanes.start = slots_.position;
  ops.label("talker.input");
  ops.gather_sum({.tables = frame_tables_,
                  .ids = slots_.codes,
                  .ids_by_slot = true,
                  .stored = text_store_,
                  .stored_count = text_count_,
                  .stored_step = slots_.step,
                  .pad = pad_,
                  .out = w.talker.x,
                  .lanes = lanes});
  talker_->record_rope(ops, w.talker.rope, lanes);
  talker_->record_layers(ops, w.talker, lanes);
  Lanes row = lanes_of(w);
  record_head(ops, w.talker.x, w.hidden, w.logits, row);
  ops.advance({.counter = slots_.position, .lanes = row});
  ops.advance({.counter = slots_.step, .lanes = row});
}

}  // namespace skald::model
