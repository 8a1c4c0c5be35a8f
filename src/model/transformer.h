// A stack of pre-norm decoder layers: the talker, the code predictor and the codec's two transformers are all
// this. Specification 3.2, 5.1, 8.4, 9.3.
#pragma once

#include <string>
#include <vector>

#include "backend/ops.h"
#include "model/weights.h"

namespace skald::model {

struct StackShape {
  int32_t hidden = 0, intermediate = 0, layers = 0, heads = 0, kv_heads = 0, head_dim = 0;
  float epsilon = 0, theta = 0;
  int32_t window = 0;         ///< visible positions, itself included; 0 = all
  bool head_norms = true;     ///< per-head RMS norm of q and k (not in the codec)
  bool layer_scales = false;  ///< per-channel scale of both residual branches (codec only)
  bool encoder = false;       ///< layer norms with bias, and fc2(gelu(fc1)) in place of the gated pair
};

/// Activations of one shape class. `x` [rows, hidden] is input and output.
struct StackBuffers {
  backend::Buffer x;
  backend::Buffer q, attended;  ///< [rows, heads * head_dim]
  backend::Buffer gated;        ///< [rows, intermediate]
  backend::Buffer rope;         ///< [rows, head_dim]
  static StackBuffers allocate(backend::Backend& device, const std::string& label, const StackShape& shape,
                               int32_t rows);
  /// The same memory seen as fewer rows.
  StackBuffers first_rows(int32_t rows) const;
};

/// Keys and values of every layer of a stack, apart from its working cache: `entries` times `rows` positions.
struct KvStore {
  std::vector<backend::KvCache> layers;
};

class DecoderStack {
 public:
  /// `layers` are loaded from "layers.N." under `loader`. Cache: `capacity` positions for each of `slots`.
  DecoderStack(backend::Backend& device, const WeightLoader& loader, const StackShape& shape,
               const std::string& label, int32_t slots, int32_t capacity);

  const StackShape& shape() const { return shape_; }
  std::vector<backend::KvCache> caches() const;
  void record_rope(backend::Ops& ops, const backend::Buffer& rope, const backend::Lanes& lanes) const;
  /// All layers on buffers.x; buffers.rope must hold the rows' angles.
  void record_layers(backend::Ops& ops, const StackBuffers& buffers, const backend::Lanes& lanes) const;

  KvStore allocate_store(backend::Backend& device, int32_t entries, int32_t rows) const;
  /// The first positions of `slot` to the entry that the lane names.
  void record_save(backend::Ops& ops, int32_t slot, const KvStore& store, const backend::Lanes& lanes) const;
  /// The first positions of `entry` to the slot that the lane names.
  void record_restore(backend::Ops& ops, int32_t entry, const KvStore& store,
                      const backend::Lanes& lanes) const;

 private:
  struct Layer {
    backend::Norm input_norm, post_norm;
    backend::Weight wq, wk, wv, q_norm, k_norm, wo, attention_scale;
    backend::Weight gate, up, down, mlp_scale;  ///< of an encoder: `up` is fc1, `down` fc2
    backend::KvCache cache;
  };
  Layer load_layer(backend::Backend& device, const WeightLoader& from, const std::string& label,
                   int32_t slots, int32_t capacity) const;
  backend::Norm load_norm(const WeightLoader& from, const std::string& name) const;
  void record_mlp(backend::Ops& ops, const Layer& layer, const StackBuffers& b,
                  const backend::Lanes& lanes) const;
  backend::KvCache allocate_cache(backend::Backend& device, const std::string& label, int32_t slots,
                                  int32_t capacity) const;

  StackShape shape_;
  std::string label_;
  std::vector<Layer> layers_;
};

}  // namespace skald::model
