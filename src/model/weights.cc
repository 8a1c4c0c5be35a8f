// Moves checkpoint tensors to a backend by name.
#include "model/weights.h"

namespace skald::model {

backend::Weight WeightLoader::load(backend::WeightRole role, const std::string& name,
                                   std::vector<int64_t> shape) const {
  const std::string full = prefix_ + name;
  backend::TensorSource source = file_->get(full, shape);
  source.exact = exact_;
  const backend::Weight weight = device_->load(role, source);
  if (role != backend::WeightRole::table) file_->release(full);
  if (after_each_) after_each_();
  return weight;
}

std::vector<float> WeightLoader::floats(const std::string& name, std::vector<int64_t> shape) const {
  const std::string full = prefix_ + name;
  std::vector<float> values = to_floats(file_->get(full, shape));
  file_->release(full);
  return values;
}

backend::Weight WeightLoader::derived(backend::WeightRole role, const std::string& name,
                                      const std::vector<float>& values, std::vector<int64_t> shape) const {
  const std::string full = prefix_ + name;
  const backend::Weight weight = device_->load(role, {.name = full,
                                                      .dtype = backend::Dtype::f32,
                                                      .shape = std::move(shape),
                                                      .data = std::as_bytes(std::span(values)),
                                                      .exact = exact_});
  if (after_each_) after_each_();
  return weight;
}

}  // namespace skald::model
