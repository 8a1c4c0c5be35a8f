// Anonymous memory: zero pages, committed by the system when first touched.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace skald::backend::cpu {

/// rows * width * element, or Error(out_of_memory) naming `what` when the product does not fit or is
/// negative.
size_t checked_bytes(std::string_view what, int64_t rows, int64_t width, size_t element);

/// One private mapping, page-aligned and zeroed. Move-only.
class Mapping {
 public:
  Mapping() = default;
  /// Throws Error(out_of_memory) with the size. `huge` asks for large pages (weights: few page-table misses).
  Mapping(std::string_view what, size_t bytes, bool huge = false);
  ~Mapping();
  Mapping(Mapping&& other) noexcept { swap(other); }
  Mapping& operator=(Mapping&& other) noexcept {
    swap(other);
    return *this;
  }

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }

 private:
  void swap(Mapping& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
  }

  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

/// Pieces of large mappings in the order they are asked for: small weights share large pages, and what is
/// loaded together lies together.
class Arena {
 public:
  /// Zeroed, on a 64-byte border, until the arena dies. Throws Error(out_of_memory) naming `what`.
  std::byte* take(std::string_view what, size_t bytes);

  struct Chunk {
    Mapping memory;
    size_t used = 0;  ///< what lies behind was never touched
  };
  const std::vector<Chunk>& chunks() const { return chunks_; }

 private:
  std::vector<Chunk> chunks_;
};

}  // namespace skald::backend::cpu
