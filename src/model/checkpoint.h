// Safetensors files, mapped and strictly checked: single file or sharded index.
// Specification 1.1, 1.12, 1.13.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "backend/ops.h"
#include "model/config.h"

namespace skald::model {

/// A set of named tensors mapped from one file or several shards. Immutable; sources stay valid while it
/// lives.
class Checkpoint {
 public:
  /// Opens `dir/model.safetensors` or, failing that, `dir/model.safetensors.index.json` with its shards.
  /// Checks header length, JSON, types, shape times type against length, ranges inside the file, no overlap,
  /// no duplicates. Throws Error(model_not_found) or Error(model_invalid) naming file, tensor and byte
  /// offset.
  static std::shared_ptr<const Checkpoint> open(const std::filesystem::path& dir);
  virtual ~Checkpoint() = default;

  virtual bool has(std::string_view name) const = 0;
  /// The tensor, whose shape must equal `shape` and whose type must be f32, f16 or bf16; the data is aligned
  /// to its type. Throws Error(model_invalid) naming tensor, expected and found.
  virtual backend::TensorSource get(std::string_view name, const std::vector<int64_t>& shape) const = 0;
  /// The tensor was read for good: its pages leave the process (a later `get` maps them again). Sources of it
  /// given before must not be used any more.
  virtual void release(std::string_view name) const = 0;
  virtual std::vector<std::string> names() const = 0;  ///< sorted
  virtual std::vector<int64_t> shape(std::string_view name) const = 0;
  /// Throws Error(model_invalid) for a type that backend::Dtype does not have.
  virtual backend::Dtype dtype(std::string_view name) const = 0;
  virtual std::string type_name(std::string_view name) const = 0;  ///< as the file writes it: "BF16"
  virtual std::string file(std::string_view name) const = 0;       ///< path of the file that holds it
};

/// Elements of a tensor as float32, whatever its type (f32, f16, bf16).
std::vector<float> to_floats(const backend::TensorSource& source);

struct ExpectedTensor {
  std::string name;
  std::vector<int64_t> shape;
};

/// Every tensor that a configuration implies (specification 1.12, 1.13), main file and codec.
std::vector<ExpectedTensor> expected_tensors(const ModelConfig& config);
std::vector<ExpectedTensor> expected_codec_tensors(const CodecConfig& config);

/// What the tensors of a main file say about themselves, without any configuration.
struct FoundModel {
  int64_t hidden_size = 0, intermediate_size = 0;  ///< of the talker; 0 when its tensors are absent
  bool speaker_encoder = false;
  ModelSize size() const;  ///< by the published shapes
};
FoundModel find_model(const Checkpoint& checkpoint);

/// Compares every tensor's name, shape and type with the configuration and adds a fault for each difference;
/// a tensor too many is a warning. Weights of another size or type of model are one fault that says so.
void compare_tensors(const Checkpoint& checkpoint, const ModelConfig& config, Faults& faults);
void compare_codec_tensors(const Checkpoint& checkpoint, const CodecConfig& config, Faults& faults);

/// Throws Error(model_invalid) with the first difference that is an error and the number of the others.
void require_tensors(const Checkpoint& checkpoint, const ModelConfig& config);
void require_codec_tensors(const Checkpoint& checkpoint, const CodecConfig& config);

}  // namespace skald::model
