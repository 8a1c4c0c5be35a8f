// Numbers that look random and are the same everywhere: for made-up prompts, codes and weights.
#pragma once

#include <cstdint>

namespace skald::diagnose {

/// splitmix64.
class Numbers {
 public:
  explicit Numbers(uint64_t seed) : state_(seed) {}
  uint64_t next() {
    uint64_t z = state_ += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }
  int32_t below(int32_t limit) { return static_cast<int32_t>(next() % static_cast<uint64_t>(limit)); }
  /// Between 0 and 1, neither included.
  float unit() { return (static_cast<float>(next() >> 41) + 0.5f) * 0x1p-23f; }

 private:
  uint64_t state_;
};

}  // namespace skald::diagnose
