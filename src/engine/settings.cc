// Sampler settings and frame limits: precedence and ranges.
#include "engine/settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

namespace skald::engine {
namespace {

[[noreturn]] void reject(const char* name, auto value, const char* range) {
  throw Error(ErrorCode::invalid_argument, fmt::format("{} is {}, but must be {}", name, value, range));
}

float temperature(const char* name, float value) {
  if (!std::isfinite(value) || value < 0 || (value > 0 && value < kLeastDivisor))
    reject(name, value, "0 (greedy) or a finite number of at least 1e-6");
  return value;
}

float top_p(const char* name, float value) {
  if (!(value > 0 && value <= 1)) reject(name, value, "above 0 and at most 1 (1 = off)");
  return value;
}

int32_t at_least_zero(const char* name, int32_t value) {
  if (value < 0) reject(name, value, "at least 0");
  return value;
}

}  // namespace

backend::SlotSettings resolve_sampling(const Sampling& s, const model::GenerationConfig& d) {
  backend::SlotSettings out;
  backend::SamplerSettings& t = out.talker;
  t.temperature = temperature("temperature", s.temperature.value_or(d.temperature));
  t.top_p = top_p("top_p", s.top_p.value_or(d.top_p));
  t.top_k = at_least_zero("top_k", s.top_k.value_or(d.top_k));
  t.min_new_tokens = at_least_zero("min_new_tokens", s.min_new_tokens.value_or(2));
  t.repetition_penalty = s.repetition_penalty.value_or(d.repetition_penalty);
  if (!(t.repetition_penalty >= kLeastDivisor && t.repetition_penalty <= 1 / kLeastDivisor))
    reject("repetition_penalty", t.repetition_penalty, "within 1e-6..1e6 (1 = off)");
  t.greedy = s.greedy || !d.do_sample || t.temperature == 0;

  backend::SamplerSettings& p = out.predictor;
  p.temperature = temperature("sub_temperature", s.sub_temperature.value_or(d.subtalker_temperature));
  p.top_p = top_p("sub_top_p", s.sub_top_p.value_or(d.subtalker_top_p));
  p.top_k = at_least_zero("sub_top_k", s.sub_top_k.value_or(d.subtalker_top_k));
  p.greedy = s.greedy || s.sub_greedy || !d.subtalker_dosample || p.temperature == 0;
  for (backend::SamplerSettings* sampler : {&t, &p})
    if (sampler->temperature == 0) sampler->temperature = 1;  // greedy never divides by it
  return out;
}

std::optional<int32_t> caller_frame_limit(const SpeechRequest& request) {
  std::optional<int32_t> limit = request.max_frames;
  if (limit && *limit < 1) reject("max_frames", *limit, "at least 1");
  if (request.max_new_tokens) {
    if (*request.max_new_tokens < 2)
      reject("max_new_tokens", *request.max_new_tokens,
             "at least 2, as N gives N - 1 frames (max_frames gives exactly N)");
    limit = std::min(limit.value_or(std::numeric_limits<int32_t>::max()), *request.max_new_tokens - 1);
  }
  return limit;
}

uint64_t draw_seed() {
  std::random_device device;
  return ((uint64_t{device()} << 32) | device()) >> 11;
}

int32_t text_frame_bound(uint64_t code_points) {
  constexpr uint64_t most = std::numeric_limits<int32_t>::max();
  const uint64_t frames = code_points > most / kFramesPerCodePoint ? most : code_points * kFramesPerCodePoint;
  return static_cast<int32_t>(std::max<uint64_t>(kLeastFrameBound, frames));
}

}  // namespace skald::engine
