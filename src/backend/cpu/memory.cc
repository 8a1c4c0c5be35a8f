// Anonymous memory by mmap.
#include "backend/cpu/memory.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "skald/error.h"

namespace skald::backend::cpu {

size_t checked_bytes(std::string_view what, int64_t rows, int64_t width, size_t element) {
  int64_t count = 0, bytes = 0;
  if (rows < 0 || width < 0 || __builtin_mul_overflow(rows, width, &count) ||
      __builtin_mul_overflow(count, static_cast<int64_t>(element), &bytes))
    throw Error(ErrorCode::out_of_memory,
                fmt::format("buffer '{}' of {} rows x {} columns x {} bytes does not fit the address space; "
                            "lower the number of slots or frames",
                            what, rows, width, element));
  return static_cast<size_t>(bytes);
}

Mapping::Mapping(std::string_view what, size_t bytes, bool huge) {
  if (bytes == 0) return;
  void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED)
    throw Error(ErrorCode::out_of_memory,
                fmt::format("cannot reserve {} bytes ({:.1f} GB) for '{}': {}", bytes,
                            static_cast<double>(bytes) / 1e9, what, std::strerror(errno)));
  data_ = static_cast<std::byte*>(at), size_ = bytes;
  if (huge) madvise(at, bytes, MADV_HUGEPAGE);  // only a hint: failure costs speed, not correctness
}

std::byte* Arena::take(std::string_view what, size_t bytes) {
  // What a chunk has left over is never touched, so it costs addresses only.
  constexpr size_t kChunk = size_t{64} << 20, kLine = 64;
  if (chunks_.empty() || bytes > chunks_.back().memory.size() - chunks_.back().used)
    chunks_.push_back({Mapping(what, std::max(kChunk, bytes), true)});
  Chunk& chunk = chunks_.back();
  std::byte* const at = chunk.memory.data() + chunk.used;
  chunk.used = std::min(chunk.memory.size(), (chunk.used + bytes + kLine - 1) / kLine * kLine);
  return at;
}

Mapping::~Mapping() {
  if (data_) munmap(data_, size_);
}

}  // namespace skald::backend::cpu
