// Little-endian numbers and checked ranges of files that others wrote.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace skald::voice {

/// The number whose bytes these are, lowest first; at most eight.
inline uint64_t little_endian(std::string_view bytes) {
  uint64_t value = 0;
  for (size_t i = bytes.size(); i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes[i]);
  return value;
}

/// Base of readers that go through a file from its start.
class ByteReader {
 protected:
  explicit ByteReader(std::string_view bytes) : bytes_(bytes) {}
  ByteReader(const ByteReader&) = delete;
  ByteReader& operator=(const ByteReader&) = delete;
  ~ByteReader() = default;

  /// Throws what a reader throws where its file ends too early.
  [[noreturn]] virtual void cut_short() const = 0;

  std::string_view take(uint64_t size) {
    if (size > bytes_.size() - at_) cut_short();
    const std::string_view out = bytes_.substr(at_, size);
    at_ += size;
    return out;
  }
  uint64_t number(uint64_t width) { return little_endian(take(width)); }

  std::string_view bytes_;
  size_t at_ = 0;  ///< of the next byte
};

}  // namespace skald::voice
