// A stack of pre-norm decoder layers.
#include "model/transformer.h"

#include <cmath>
#include <utility>

namespace skald::model {

using backend::Buffer;
using backend::Dtype;
using backend::Lanes;
using backend::Norm;

StackBuffers StackBuffers::allocate(backend::Backend& device, const std::string& label,
                                    const StackShape& shape, int32_t rows) {
  auto make = [&](const char* what, int32_t width) {
    return device.allocate(label + "." + what, Dtype::f32, rows, width);
  };
  return {.x = make("x", shape.hidden),
          .q = make("q", shape.heads * shape.head_dim),
          .attended = make("attended", shape.heads * shape.head_dim),
          .gated = make("gated", shape.intermediate),
          .rope = make("rope", shape.head_dim)};
}

StackBuffers StackBuffers::first_rows(int32_t rows) const {
  return {x.row_range(0, rows), q.row_range(0, rows), attended.row_range(0, rows), gated.row_range(0, rows),
          rope.row_range(0, rows)};
}

DecoderStack::DecoderStack(backend::Backend& device, const WeightLoader& loader, const StackShape& shape,
                           const std::string& label, int32_t slots, int32_t capacity)
    : shape_(shape), label_(label) {
  for (int32_t i = 0; i < shape.layers; ++i) {
    const std::string name = "layers." + std::to_string(i);
    layers_.push_back(load_layer(device, loader.under(name), label + "." + name, slots, capacity));
  }
}

DecoderStack::Layer DecoderStack::load_layer(backend::Backend& device, const WeightLoader& from,
                                             const std::string& label, int32_t slots,
                                             int32_t capacity) const {
  const StackShape& s = shape_;
  const int32_t q_width = s.heads * s.head_dim, kv_width = s.kv_heads * s.head_dim;
  Layer layer;
  layer.input_norm = load_norm(from, "input_layernorm");
  layer.wq = from.matrix("self_attn.q_proj.weight", q_width, s.hidden);
  layer.wk = from.matrix("self_attn.k_proj.weight", kv_width, s.hidden);
  layer.wv = from.matrix("self_attn.v_proj.weight", kv_width, s.hidden);
  if (s.head_norms) {
    layer.q_norm = from.vector("self_attn.q_norm.weight", s.head_dim);
    layer.k_norm = from.vector("self_attn.k_norm.weight", s.head_dim);
  }
  layer.wo = from.matrix("self_attn.o_proj.weight", s.hidden, q_width);
  layer.post_norm = load_norm(from, "post_attention_layernorm");
  if (!s.encoder) layer.gate = from.matrix("mlp.gate_proj.weight", s.intermediate, s.hidden);
  layer.up = from.matrix(s.encoder ? "mlp.fc1.weight" : "mlp.up_proj.weight", s.intermediate, s.hidden);
  layer.down = from.matrix(s.encoder ? "mlp.fc2.weight" : "mlp.down_proj.weight", s.hidden, s.intermediate);
  if (s.layer_scales) {
    layer.attention_scale = from.vector("self_attn_layer_scale.scale", s.hidden);
    layer.mlp_scale = from.vector("mlp_layer_scale.scale", s.hidden);
  }
  layer.cache = allocate_cache(device, label, slots, capacity);
  return layer;
}

Norm DecoderStack::load_norm(const WeightLoader& from, const std::string& name) const {
  Norm norm{Norm::rms, from.vector(name + ".weight", shape_.hidden), {}, shape_.epsilon};
  if (shape_.encoder) norm.kind = Norm::layer, norm.bias = from.vector(name + ".bias", shape_.hidden);
  return norm;
}

backend::KvCache DecoderStack::allocate_cache(backend::Backend& device, const std::string& label,
                                              int32_t slots, int32_t capacity) const {
  const int64_t rows = int64_t{slots} * capacity;
  const int32_t width = shape_.kv_heads * shape_.head_dim;
  return {.k = device.allocate(label + ".k", Dtype::f32, rows, width),
          .v = device.allocate(label + ".v", Dtype::f32, rows, width),
          .capacity = capacity,
          .ring = shape_.window > 0};
}

void DecoderStack::record_rope(backend::Ops& ops, const Buffer& rope, const Lanes& lanes) const {
  ops.label(label_ + ".rope");
  ops.rope_angles({.theta = shape_.theta, .head_dim = shape_.head_dim, .out = rope, .lanes = lanes});
}

void DecoderStack::record_layers(backend::Ops& ops, const StackBuffers& b, const Lanes& lanes) const {
  const StackShape& s = shape_;
  const float scale = 1.0f / std::sqrt(static_cast<float>(s.head_dim));
  for (size_t i = 0; i < layers_.size(); ++i) {
    const Layer& layer = layers_[i];
    ops.label(label_ + ".layers." + std::to_string(i));
    ops.qkv_rope({.x = b.x,
                  .norm = layer.input_norm,
                  .wq = layer.wq,
                  .wk = layer.wk,
                  .wv = layer.wv,
                  .q_norm = layer.q_norm,
                  .k_norm = layer.k_norm,
                  .heads = s.heads,
                  .kv_heads = s.kv_heads,
                  .head_dim = s.head_dim,
                  .rope = b.rope,
                  .q = b.q,
                  .cache = layer.cache,
                  .lanes = lanes});
    ops.attention({.q = b.q,
                   .cache = layer.cache,
                   .heads = s.heads,
                   .kv_heads = s.kv_heads,
                   .head_dim = s.head_dim,
                   .scale = scale,
                   .window = s.window,
                   .out = b.attended,
                   .lanes = lanes});
    ops.linear({.x = b.attended,
                .weight = layer.wo,
                .residual = b.x,
                .scale = layer.attention_scale,
                .out = b.x,
                .lanes = lanes});
    record_mlp(ops, layer, b, lanes);
  }
}

void DecoderStack::record_mlp(backend::Ops& ops, const Layer& layer, const StackBuffers& b,
                              const Lanes& lanes) const {
  if (shape_.encoder)
    ops.linear({.x = b.x,
                .norm = layer.post_norm,
                .weight = layer.up,
                .activation = backend::Activation::gelu_erf,
                .out = b.gated,
                .lanes = lanes});
  else
    ops.gated_pair({.x = b.x,
                    .norm = layer.post_norm,
                    .gate = layer.gate,
                    .up = layer.up,
                    .out = b.gated,
                    .lanes = lanes});
  ops.linear({.x = b.gated,
              .weight = layer.down,
              .residual = b.x,
              .scale = layer.mlp_scale,
              .out = b.x,
              .lanes = lanes});
}

std::vector<backend::KvCache> DecoderStack::caches() const {
  std::vector<backend::KvCache> caches;
  for (const Layer& layer : layers_) caches.push_back(layer.cache);
  return caches;
}

KvStore DecoderStack::allocate_store(backend::Backend& device, int32_t entries, int32_t rows) const {
  KvStore store;
  for (size_t i = 0; i < layers_.size(); ++i)
    store.layers.push_back(allocate_cache(device, label_ + ".store", entries, rows));
  return store;
}

namespace {

/// The first lanes.rows positions of `from` in one cache, to the slot of the lane in the other.
void record_copy(backend::Ops& ops, const backend::KvCache& source, int32_t from,
                 const backend::KvCache& target, const Lanes& lanes) {
  for (const auto& [x, store] : {std::pair(source.k, target.k), std::pair(source.v, target.v)})
    ops.store_rows({.x = x.row_range(from * source.capacity, lanes.rows),
                    .store = store,
                    .capacity = target.capacity,
                    .lanes = lanes});
}

}  // namespace

void DecoderStack::record_save(backend::Ops& ops, int32_t slot, const KvStore& store,
                               const Lanes& lanes) const {
  ops.label(label_ + ".save");
  for (size_t i = 0; i < layers_.size(); ++i)
    record_copy(ops, layers_[i].cache, slot, store.layers[i], lanes);
}

void DecoderStack::record_restore(backend::Ops& ops, int32_t entry, const KvStore& store,
                                  const Lanes& lanes) const {
  ops.label(label_ + ".restore");
  for (size_t i = 0; i < layers_.size(); ++i)
    record_copy(ops, store.layers[i], entry, layers_[i].cache, lanes);
}

}  // namespace skald::model
