// Buffers and staging.
#include "backend/gpu/memory.h"

#include <fmt/format.h>

#include "backend/checks.h"
#include "skald/error.h"

namespace skald::backend::gpu {

Buffer Buffers::allocate(std::string_view label, Dtype dtype, int64_t rows, int32_t width) {
  int64_t count = 0, bytes = 0;
  if (rows < 0 || width < 0 || rows > INT32_MAX || __builtin_mul_overflow(rows, int64_t{width}, &count) ||
      __builtin_mul_overflow(count, static_cast<int64_t>(dtype_size(dtype)), &bytes))
    throw Error(
        ErrorCode::out_of_memory,
        fmt::format(
            "buffer '{}' of {} rows x {} columns is more than a view can address; lower the number of "
            "slots or frames",
            label, rows, width));
  buffers_.push_back(
      {std::string(label), DeviceBlock(context_, std::string(label), static_cast<size_t>(bytes))});
  bytes_ += static_cast<size_t>(bytes);
  return {.id = static_cast<int32_t>(buffers_.size() - 1),
          .dtype = dtype,
          .rows = static_cast<int32_t>(rows),
          .width = width,
          .stride = width};
}

DeviceAddress Buffers::address(const Buffer& view, const std::string& what) const {
  if (view.id < 0 || static_cast<size_t>(view.id) >= buffers_.size())
    throw Error(ErrorCode::internal, fmt::format("{}: no such buffer", what));
  const Named& buffer = buffers_[static_cast<size_t>(view.id)];
  return buffer.block.address() +
         static_cast<DeviceAddress>(checked_offset(view, buffer.block.size(), buffer.label, what));
}

Staging::Staging(const Context& context, const std::string& label, std::function<uint32_t()> mark,
                 std::function<void(uint32_t)> await)
    : block_(context, label, 2 * kHalf), mark_(std::move(mark)), await_(std::move(await)) {}

Staging::Piece Staging::take(size_t bytes) {
  if (bytes > kHalf) throw Error(ErrorCode::internal, fmt::format("staging of {} bytes at once", bytes));
  if (used_ + bytes > kHalf) {
    free_after_[half_] = mark_();
    in_use_[half_] = true;
    half_ ^= 1, used_ = 0;
    if (in_use_[half_]) await_(free_after_[half_]);
    in_use_[half_] = false;
  }
  const size_t at = half_ * kHalf + used_;
  used_ += (bytes + 63) / 64 * 64;
  return {block_.as<std::byte>() + at, block_.address() + at};
}

void Staging::all_done() {
  used_ = 0;
  in_use_[0] = in_use_[1] = false;
}

}  // namespace skald::backend::gpu
