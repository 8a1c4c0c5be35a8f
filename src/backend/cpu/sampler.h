// One draw from a row of logits. Definitions: specification 6.2 (talker) and 5.3 (predictor).
#pragma once

#include <cstdint>
#include <span>

#include "backend/cpu/philox.h"
#include "backend/ops.h"

namespace skald::backend::cpu {

constexpr int32_t kDrawNonFinite = -1;

struct DrawRequest {
  std::span<const float> logits;
  SamplerSettings settings;
  int32_t codes = 0;     ///< ids [0, codes) may be drawn
  int32_t stop_id = -1;  ///< and this one, unless `forbid_stop`
  bool forbid_stop = false;
  const uint8_t* seen = nullptr;  ///< [logits], ids already drawn; null = no repetition penalty
  const float* noise = nullptr;   ///< [logits], recorded exponential noise; null = the generator
  PhiloxKey seed{};
  uint32_t frame = 0, group = 0;  ///< counters of the generator
  int32_t forced = -1;            ///< this code instead of the draw
  float* probs = nullptr;         ///< [logits], written when not null
};

/// Scratch of one draw, each [logits].
struct DrawScratch {
  float* scores = nullptr;
  float* work = nullptr;
  int32_t* order = nullptr;
};

/// The drawn (or forced) id, or kDrawNonFinite when any raw logit is NaN or infinite.
/// `probs` are the softmax of the processed logits; removed ids have probability 0.
int32_t draw(const DrawRequest& request, const DrawScratch& scratch);

}  // namespace skald::backend::cpu
