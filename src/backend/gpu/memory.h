// Buffers of the model on the device, and page-locked memory through which rows go in and out.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "backend/gpu/driver/handles.h"
#include "backend/ops.h"

namespace skald::backend::gpu {

/// Every buffer that the model allocated. Views are checked against them.
class Buffers {
 public:
  explicit Buffers(const Context& context) : context_(context) {}

  /// Throws Error(out_of_memory).
  Buffer allocate(std::string_view label, Dtype dtype, int64_t rows, int32_t width);
  /// Address of the view's first element. Throws Error(internal) when it leaves its buffer.
  DeviceAddress address(const Buffer& view, const std::string& what) const;
  size_t bytes() const { return bytes_; }
  /// Address and size of a buffer's whole memory.
  const DeviceBlock& block(const Buffer& buffer) const {
    return buffers_.at(static_cast<size_t>(buffer.id)).block;
  }

 private:
  struct Named {
    std::string label;
    DeviceBlock block;
  };
  const Context& context_;
  std::vector<Named> buffers_;
  size_t bytes_ = 0;
};

/// Two halves of page-locked memory: one is filled while the device may still read the other.
class Staging {
 public:
  static constexpr size_t kHalf = size_t{4} << 20;

  /// `mark` puts a mark behind all work so far and returns its number; `await` waits for one.
  Staging(const Context& context, const std::string& label, std::function<uint32_t()> mark,
          std::function<void(uint32_t)> await);

  struct Piece {
    std::byte* host;
    DeviceAddress address;
  };
  /// At most kHalf bytes on a 64-byte border, free for use.
  Piece take(size_t bytes);
  /// Everything that was handed over is done.
  void all_done();

 private:
  HostBlock block_;
  std::function<uint32_t()> mark_;
  std::function<void(uint32_t)> await_;
  size_t half_ = 0, used_ = 0;
  uint32_t free_after_[2] = {0, 0};  ///< number of the mark behind the last use of a half
  bool in_use_[2] = {false, false};
};

}  // namespace skald::backend::gpu
