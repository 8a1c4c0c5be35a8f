// Philox 4x32-10: the counter-based generator behind every random draw (Salmon et al., "Parallel random
// numbers: as easy as 1, 2, 3", SC 2011). The same counter and key give the same numbers on every device and
// in any order.
#pragma once

#include <array>
#include <cstdint>

namespace skald::backend {

using PhiloxCounter = std::array<uint32_t, 4>;
using PhiloxKey = std::array<uint32_t, 2>;

constexpr PhiloxCounter philox4x32(PhiloxCounter c, PhiloxKey k) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53u} * c[0], b = uint64_t{0xCD9E8D57u} * c[2];
    c = {static_cast<uint32_t>(b >> 32) ^ c[1] ^ k[0], static_cast<uint32_t>(b),
         static_cast<uint32_t>(a >> 32) ^ c[3] ^ k[1], static_cast<uint32_t>(a)};
    k[0] += 0x9E3779B9u, k[1] += 0xBB67AE85u;
  }
  return c;
}

/// The 32 random bits of one candidate. Four neighbouring indices share a block: counter = (index / 4, frame,
/// group, 0).
constexpr uint32_t philox_bits(uint32_t index, uint32_t frame, uint32_t group, PhiloxKey seed) {
  return philox4x32({index / 4, frame, group, 0}, seed)[index % 4];
}

/// Uniform in (0, 1], a multiple of 2^-24: exact in float32 on every device.
constexpr float philox_uniform(uint32_t bits) { return static_cast<float>((bits >> 8) + 1) * 0x1p-24f; }

}  // namespace skald::backend
