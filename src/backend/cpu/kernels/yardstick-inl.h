// What the machine can do at most: a streaming read and a loop of multiply-adds. Included once per target.
#if defined(SKALD_BACKEND_CPU_YARDSTICK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef SKALD_BACKEND_CPU_YARDSTICK_INL_H_
#undef SKALD_BACKEND_CPU_YARDSTICK_INL_H_
#else
#define SKALD_BACKEND_CPU_YARDSTICK_INL_H_
#endif

#include "backend/cpu/kernels/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace skald::backend::cpu::HWY_NAMESPACE {
namespace {

int32_t read_stream(const int32_t* x, int64_t n) {
  // Four streams keep more lines in flight than one; each strip has its own accumulators.
  constexpr int kStreams = 4;
  const int64_t part = n / kStreams;
  // Integers: any bytes will do, and no value is slow to add.
  const hn::RebindToSigned<decltype(kD)> d;
  using Words = hn::Vec<decltype(d)>;
  Words sums[kStreams][kVectors];
  for (auto& stream : sums)
    for (Words& sum : stream) sum = hn::Zero(d);
  for (int64_t i = 0; i < part; i += kPanel)
    for (int s = 0; s < kStreams; ++s)
      for (int v = 0; v < kVectors; ++v)
        sums[s][v] = hn::Add(sums[s][v], hn::LoadU(d, x + s * part + i + v * kLanes));
  uint32_t total = 0;
  for (auto& stream : sums)
    for (Words& sum : stream) total += static_cast<uint32_t>(hn::GetLane(sum));
  return static_cast<int32_t>(total);
}

double multiply_add(int64_t rounds, float* sink) {
  constexpr int kIndependent = 12;  // two units of latency 4 or 5, within 16 registers
  V sums[kIndependent];
  for (int i = 0; i < kIndependent; ++i) sums[i] = hn::Set(kD, static_cast<float>(i));
  const V factor = hn::Set(kD, 0.5f), term = hn::Set(kD, 1.0f);
  for (int64_t r = 0; r < rounds; ++r)
    for (int i = 0; i < kIndependent; ++i) sums[i] = hn::MulAdd(sums[i], factor, term);
  for (const V& sum : sums) *sink += hn::GetLane(sum);
  return 2.0 * static_cast<double>(rounds) * kIndependent * kLanes;
}

}  // namespace
}  // namespace skald::backend::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
