// One draw from a row of logits.
#include "backend/cpu/sampler.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

namespace skald::backend::cpu {
namespace {

constexpr float kRemoved = -std::numeric_limits<float>::infinity();

/// Steps 1 to 3: repetition penalty once per distinct id, minimum length, suppression.
void restrict_ids(const DrawRequest& r, float* scores) {
  const auto n = static_cast<int32_t>(r.logits.size());
  const float penalty = r.settings.repetition_penalty;
  if (r.seen && penalty != 1.0f)
    for (int32_t i = 0; i < n; ++i)
      if (r.seen[i]) scores[i] = scores[i] < 0 ? scores[i] * penalty : scores[i] / penalty;
  for (int32_t i = r.codes; i < n; ++i)
    if (i != r.stop_id) scores[i] = kRemoved;
  if (r.forbid_stop && r.stop_id >= 0 && r.stop_id < n) scores[r.stop_id] = kRemoved;
}

/// Keeps everything that is at least the k-th largest score, ties included.
void keep_top_k(std::span<float> scores, int32_t k, float* work) {
  if (k <= 0 || static_cast<size_t>(k) >= scores.size()) return;
  std::copy(scores.begin(), scores.end(), work);
  std::nth_element(work, work + (k - 1), work + scores.size(), std::greater<>());
  const float least = work[k - 1];
  for (float& s : scores)
    if (s < least) s = kRemoved;
}

/// Removes the smallest scores while their cumulative probability is at most 1 - p; the largest always stays.
/// As the reference: a stable ascending sort, a softmax in float32, a running sum in double rounded to
/// float32.
void keep_top_p(std::span<float> scores, float p, const DrawScratch& scratch) {
  if (p >= 1.0f) return;
  const size_t n = scores.size();
  int32_t* order = scratch.order;
  std::iota(order, order + n, 0);
  const auto by_score = [&](int32_t a, int32_t b) {
    return scores[static_cast<size_t>(a)] < scores[static_cast<size_t>(b)];
  };
  // Removed scores are equal and come first; only the rest needs sorting.
  int32_t* const kept = std::stable_partition(
      order, order + n, [&](int32_t i) { return scores[static_cast<size_t>(i)] == kRemoved; });
  std::stable_sort(kept, order + n, by_score);
  const float most = scores[static_cast<size_t>(order[n - 1])];
  double total = 0;
  for (const int32_t* i = kept; i != order + n; ++i) {
    scratch.work[*i] = std::exp(scores[static_cast<size_t>(*i)] - most);
    total += static_cast<double>(scratch.work[*i]);
  }
  const auto sum = static_cast<float>(total);
  const float limit = 1.0f - p;
  double cumulative = 0;
  for (const int32_t* i = kept; i != order + n - 1; ++i) {
    cumulative += static_cast<double>(scratch.work[*i] / sum);
    if (static_cast<float>(cumulative) > limit) break;
    scores[static_cast<size_t>(*i)] = kRemoved;
  }
}

/// Softmax in float32; `probs` may be `scores`.
void softmax(std::span<const float> scores, float* probs) {
  const float most = *std::max_element(scores.begin(), scores.end());
  double total = 0;
  for (size_t i = 0; i < scores.size(); ++i) {
    probs[i] = scores[i] == kRemoved ? 0.0f : std::exp(scores[i] - most);
    total += static_cast<double>(probs[i]);
  }
  const auto sum = static_cast<float>(total);
  for (size_t i = 0; i < scores.size(); ++i) probs[i] /= sum;
}

/// argmax of probs[i] / e[i], lowest index on ties. Ids with probability 0 are never drawn.
int32_t pick(const DrawRequest& r, const float* probs) {
  int32_t best = -1;
  float best_ratio = -1;
  for (int32_t i = 0; i < static_cast<int32_t>(r.logits.size()); ++i) {
    if (!(probs[i] > 0)) continue;
    const auto at = static_cast<uint32_t>(i);
    // 0 - log, not -log: of 1 that is +0, and the candidate wins; over -0 it could never be drawn.
    const float e =
        r.noise ? r.noise[i] : 0.0f - std::log(philox_uniform(philox_bits(at, r.frame, r.group, r.seed)));
    const float ratio = probs[i] / e;
    if (ratio > best_ratio) best = i, best_ratio = ratio;
  }
  return best;
}

}  // namespace

int32_t draw(const DrawRequest& r, const DrawScratch& scratch) {
  const size_t n = r.logits.size();
  for (const float x : r.logits)
    if (!std::isfinite(x)) return kDrawNonFinite;
  const std::span<float> scores(scratch.scores, n);
  std::copy(r.logits.begin(), r.logits.end(), scores.begin());
  restrict_ids(r, scratch.scores);
  const bool greedy = r.settings.greedy != 0 || !(r.settings.temperature > 0);
  const auto largest = [&] {
    return static_cast<int32_t>(std::max_element(scores.begin(), scores.end()) - scores.begin());
  };
  int32_t id = greedy ? largest() : -1;
  if (!greedy) {
    if (r.settings.temperature != 1.0f)
      for (float& s : scores) s /= r.settings.temperature;
    keep_top_k(scores, r.settings.top_k, scratch.work);
    keep_top_p(scores, r.settings.top_p, scratch);
  }
  if (!greedy || r.probs) {
    softmax(scores, scratch.scores);
    if (r.probs) std::copy(scores.begin(), scores.end(), r.probs);
  }
  if (r.forced >= 0) return r.forced;
  return greedy ? id : pick(r, scratch.scores);
}

}  // namespace skald::backend::cpu
