// Moves checkpoint tensors to a backend by name; the one place that reports a missing or misshapen tensor.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backend/ops.h"
#include "model/checkpoint.h"

namespace skald::model {

/// Loads tensors of one checkpoint under a name prefix. Cheap to copy; owns nothing but a share of the
/// mapping.
class WeightLoader {
 public:
  WeightLoader(backend::Backend& device, std::shared_ptr<const Checkpoint> file, std::string prefix = "")
      : device_(&device), file_(std::move(file)), prefix_(std::move(prefix)) {}

  WeightLoader under(const std::string& name) const {
    WeightLoader inner = *this;
    inner.prefix_ += name + ".";
    return inner;
  }
  /// The same tensors, to be kept without rounding (TensorSource::exact).
  WeightLoader exactly() const {
    WeightLoader exact = *this;
    exact.exact_ = true;
    return exact;
  }

  /// The same tensors; `after_each` runs whenever one was moved.
  WeightLoader pausing(std::function<void()> after_each) const {
    WeightLoader pausing = *this;
    pausing.after_each_ = std::move(after_each);
    return pausing;
  }

  backend::Weight matrix(const std::string& name, int64_t out, int64_t in) const {
    return load(backend::WeightRole::matrix, name, {out, in});
  }
  /// A 1x1 convolution [out, in, 1] used as a matrix.
  backend::Weight pointwise(const std::string& name, int64_t out, int64_t in) const {
    return load(backend::WeightRole::matrix, name, {out, in, 1});
  }
  backend::Weight table(const std::string& name, int64_t entries, int64_t width) const {
    return load(backend::WeightRole::table, name, {entries, width});
  }
  backend::Weight vector(const std::string& name, int64_t n) const {
    return load(backend::WeightRole::vector, name, {n});
  }
  /// Tables stay in the file; of everything else the file's pages are given back once it is packed.
  backend::Weight load(backend::WeightRole role, const std::string& name, std::vector<int64_t> shape) const;
  std::vector<float> floats(const std::string& name, std::vector<int64_t> shape) const;
  /// Loads values computed from tensors. For tables the caller keeps `values` alive.
  backend::Weight derived(backend::WeightRole role, const std::string& name, const std::vector<float>& values,
                          std::vector<int64_t> shape) const;

 private:
  backend::Backend* device_;
  std::shared_ptr<const Checkpoint> file_;
  std::string prefix_;
  bool exact_ = false;
  std::function<void()> after_each_;
};

}  // namespace skald::model
