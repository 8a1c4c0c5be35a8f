// Turns the arguments of a checked call into the arguments of kernels.
#pragma once

#include <string>

#include "backend/checks.h"
#include "backend/gpu/launch.h"

namespace skald::backend::gpu {

class Binder : private CallTarget, public Checker {
 public:
  /// `where` names program, op and label; `number` is what fault words call the op.
  Binder(LaunchTarget& target, std::string where, uint32_t number)
      : Checker(static_cast<const CallTarget&>(*this), std::move(where)), target_(target), number_(number) {}

  LaunchTarget& target() const { return target_; }

  const DeviceWeight& weight(Weight handle) const { return target_.weight(handle, where()); }
  /// Null when absent.
  const float* vector(Weight handle) const {
    return handle ? reinterpret_cast<const float*>(weight(handle).address) : nullptr;
  }
  template <class T>
  T* scratch(int64_t count) const {
    return reinterpret_cast<T*>(target_.scratch(static_cast<size_t>(count) * sizeof(T)));
  }
  template <class T>
  T* zeroed(int64_t count) const {
    return reinterpret_cast<T*>(target_.zeroed(static_cast<size_t>(count) * sizeof(T)));
  }

  /// `slots`: how many the arrays of the op have.
  LaneArgs lanes(const Lanes& lanes, int64_t slots) const;
  NormArgs norm(const Norm& norm) const;
  /// Plain rows.
  InputArgs input(const Buffer& x, const Lanes& lanes) const;
  /// A matrix or a causal convolution.
  MatrixArgs matrix(Weight handle) const;
  CacheArgs cache(const KvCache& cache, int width) const;
  CounterArgs counter(const Buffer& buffer, int64_t count, const char* what) const;

 private:
  std::byte* locate(const Buffer& view, const std::string& what) const override {
    return reinterpret_cast<std::byte*>(target_.address(view, what));
  }
  const WeightShape& weight_shape(Weight handle, const std::string& what) const override {
    return target_.weight(handle, what);
  }

  LaunchTarget& target_;
  uint32_t number_;
};

/// Any number of slots: for ops that have no array of their own.
constexpr int64_t kAnySlots = INT32_MAX;

}  // namespace skald::backend::gpu
