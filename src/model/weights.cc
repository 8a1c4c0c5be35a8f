// Moves checkpoint tensors to a backend by name.
#include "model/weights.h"

namespace skald::model {

backend::Weight WeightLoader::pointwise(const std::string& name, int64_t out, int64_t in) const {
  backend::TensorSource source = file_->get(prefix_ + name, {out, in, 1});
  source.shape = {out, in};
  return device_->load(backend::WeightRole::matrix, source);
}

backend::Weight WeightLoader::derived(backend::WeightRole role, const std::string& name,
                                      const std::vector<float>& values, std::vector<int64_t> shape) const {
  const std::string full = prefix_ + name;
  return device_->load(role, {.name = full,
                              .dtype = backend::Dtype::f32,
                              .shape = std::move(shape),
                              .data = std::as_bytes(std::span(values))});
}

}  // namespace skald::model
