// Reference clips made from integers alone: python/reference/clips.py in C++, sample for sample. A `crc` in
// the fixtures pins both.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <vector>

namespace skald::test {

namespace clip {

/// 32 bits of noise per index.
inline uint32_t hashed(uint64_t value) {
  auto x = static_cast<uint32_t>(value);
  x = (x ^ (x >> 16)) * 0x85EBCA6Bu;
  x = (x ^ (x >> 13)) * 0xC2B2AE35u;
  return x ^ (x >> 16);
}

/// 0 .. 2^(bits-1) - 1 and back over a period of 2^32.
inline int64_t triangle(uint64_t phase, int bits) {
  const uint32_t top = static_cast<uint32_t>(phase) >> (32 - bits), half = 1u << (bits - 1);
  return top < half ? top : (1u << bits) - 1 - top;
}

/// A sine of parabolas, -16384 .. 16384 over a period of 2^32.
inline int64_t parabola(uint64_t phase) {
  const int64_t x = int64_t{static_cast<uint32_t>(phase) >> 17} - 16384;
  return (x * (16384 - std::abs(x))) >> 12;
}

}  // namespace clip

/// `count` samples of a voice-like noise at 24 kHz as 16-bit integers.
inline std::vector<int16_t> clip_integers(int64_t count, uint64_t seed) {
  using namespace clip;
  const uint64_t key = seed * 0x9E3779B9u & 0xFFFFFFFFu;
  std::array<uint32_t, 4> traits;
  for (size_t i = 0; i < traits.size(); ++i) traits[i] = hashed(i + key);
  const uint64_t base = 14316558 + uint64_t{traits[0] % (1 << 14)} * 2730, breath = 64 + traits[2] % 512;
  std::vector<int16_t> out;
  out.reserve(static_cast<size_t>(count));
  uint64_t phase = 0;
  for (uint64_t n = 0; n < static_cast<uint64_t>(count); ++n) {
    int64_t total = 0;
    for (uint64_t h = 1; h <= 8; ++h) {
      const int64_t wander = triangle(n * (29000 * (h + 2)) + key * h, 12);
      const int64_t product = parabola(phase * h) * (wander + 292) * ((traits[1] >> h & 1) != 0 ? 3 : 1);
      const auto divisor = static_cast<int64_t>(h);
      total += (product - (product < 0 ? divisor - 1 : 0)) / divisor;  // rounds down, as Python does
    }
    const int64_t swell = std::max<int64_t>(triangle(n * 662804, 12) - 300, 0);
    const uint64_t syllable = n * 662804 >> 32;
    const int64_t loud = 96 + (hashed(syllable + key) & 127);
    const int64_t voiced = ((total >> 12) * swell * loud) >> 18;
    const int64_t noise = ((int64_t{hashed(n + key * 3) & 255} - 128) * static_cast<int64_t>(breath)) >> 7;
    out.push_back(static_cast<int16_t>(std::clamp<int64_t>(voiced + noise, -32768, 32767)));
    const auto glide = static_cast<uint64_t>(triangle(n * 138547 + key, 16));
    phase = (phase + base + (glide * (base >> 1) >> 15)) & 0xFFFFFFFFu;
  }
  return out;
}

/// The same in [-1, 1), as the official package takes it.
inline std::vector<float> clip_samples(int64_t count, uint64_t seed) {
  std::vector<float> out;
  for (const int16_t v : clip_integers(count, seed)) out.push_back(static_cast<float>(v) / 32768.0f);
  return out;
}

/// The checksum of the fixtures: CRC-32 of the samples as little-endian 16-bit integers.
inline uint32_t clip_crc(const std::vector<int16_t>& samples) {
  uint32_t crc = 0xFFFFFFFFu;
  const auto add = [&](uint32_t byte) {
    crc ^= byte;
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320u : 0u);
  };
  for (const int16_t sample : samples) {
    const auto bits = static_cast<uint16_t>(sample);
    add(bits & 0xFF), add(bits >> 8);
  }
  return ~crc;
}

}  // namespace skald::test
