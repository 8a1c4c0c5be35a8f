// SHA-256 (FIPS 180-4), for telling contents apart. Not on any hot path.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace skald {

using Digest = std::array<uint8_t, 32>;

class Sha256 {
 public:
  Sha256& add(std::span<const std::byte> bytes);
  Sha256& add(std::string_view text) { return add(std::as_bytes(std::span(text))); }
  /// The bytes preceded by their number, so that no two lists of fields give the same bytes.
  Sha256& field(std::span<const std::byte> bytes);
  Sha256& field(std::string_view text) { return field(std::as_bytes(std::span(text))); }
  /// Nothing may be added afterwards.
  Digest finish();

 private:
  void block(const std::byte* bytes);
  std::array<uint32_t, 8> state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<std::byte, 64> pending_{};
  uint64_t length_ = 0;  ///< bytes added
};

Digest sha256(std::span<const std::byte> bytes);
/// The first `digits` lower-case hexadecimal digits, at most 64.
std::string hex(const Digest& digest, size_t digits = 64);

}  // namespace skald
