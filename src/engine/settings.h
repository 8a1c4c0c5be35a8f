// Sampler settings and frame limits of a request: absent values from the model, ranges checked. Pure
// functions.
#pragma once

#include <cstdint>
#include <optional>

#include "backend/ops.h"
#include "model/config.h"
#include "skald/skald.h"

namespace skald::engine {

/// Frames that any text may take before its run counts as a runaway, and frames per code point beyond that.
/// The factor was measured on English only; for other languages it is a guess on the generous side.
inline constexpr int32_t kLeastFrameBound = 240;
inline constexpr int32_t kFramesPerCodePoint = 12;

/// The smallest cache of the talker; the largest has the model's max_position_embeddings.
inline constexpr int32_t kLeastCacheCapacity = 32;

/// Logits are divided by the temperature and by the repetition penalty (or multiplied by it): nearer to 0
/// they would overflow, and the model be blamed for it.
inline constexpr float kLeastDivisor = 1e-6f;

/// Settings of both samplers: the request's value, else generation_config.json, else the defaults of
/// specification 6.1. Temperature 0 is greedy. Seed, max_frames and the diagnosis fields stay 0. Throws
/// Error(invalid_argument) naming the setting, its value and its range.
backend::SlotSettings resolve_sampling(const Sampling& sampling, const model::GenerationConfig& defaults);

/// The caller's own limit in frames: max_frames, max_new_tokens - 1 (specification 6.4), the smaller of both,
/// or none. Throws Error(invalid_argument) for max_frames below 1 or max_new_tokens below 2.
std::optional<int32_t> caller_frame_limit(const SpeechRequest& request);

/// A seed for a request that names none: 53 bits, so that a reader of JSON that knows only doubles can repeat
/// the run.
uint64_t draw_seed();

/// Frames after which a run over a text of this many code points counts as a runaway.
int32_t text_frame_bound(uint64_t code_points);

}  // namespace skald::engine
