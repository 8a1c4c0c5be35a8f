// Frames as the device reports them.
#include "backend/gpu/ring.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>

namespace skald::backend::gpu {
namespace {

int32_t acquire(int* word) { return std::atomic_ref<int>(*word).load(std::memory_order_acquire); }

}  // namespace

ReportRing::ReportRing(const Context& context, Health& health)
    : health_(health),
      entries_(context, "reports", sizeof(int) * kMostSlots * Backend::kReportedRuns * kStride),
      beats_(context, "reports.beats", sizeof(int) * kMostSlots) {}

HostRingArgs ReportRing::args() const {
  return {.entries = reinterpret_cast<int*>(entries_.address()),
          .beat = reinterpret_cast<int*>(beats_.address()),
          .depth = Backend::kReportedRuns,
          .stride = kStride,
          .slots = kMostSlots};
}

int* ReportRing::entry(int32_t slot, int32_t run) const {
  const int64_t e = (int64_t{run} - 1) % Backend::kReportedRuns;
  return entries_.as<int>() + (int64_t{slot} * Backend::kReportedRuns + e) * kStride;
}

int32_t ReportRing::last_run(int32_t slot) const {
  int32_t last = 0;
  for (int32_t e = 1; e <= Backend::kReportedRuns; ++e)
    last = std::max(last, acquire(entry(slot, e) + kRingSequence));
  return last;
}

FrameReport ReportRing::await(int32_t slot, int32_t run, std::span<int32_t> codes,
                              const Health::Wait& queue) {
  if (slot < 0 || slot >= kMostSlots || run < 1 || codes.size() > size_t{kMostGroups})
    throw Error(ErrorCode::internal,
                fmt::format("no report of run {} of slot {} with {} codes", run, slot, codes.size()));
  int* const from = entry(slot, run);
  const auto sequence = [&] { return acquire(from + kRingSequence); };
  Health::Wait wait = queue;
  wait.reached = [&] { return sequence() >= run; };
  if (!wait.reached()) health_.wait(wait);
  FrameReport report{.status = static_cast<SlotStatus>(from[kRingStatus]),
                     .frames = from[kRingFrames],
                     .position = from[kRingPosition],
                     .sampled = from[kRingSampled],
                     .step = from[kRingStep]};
  std::copy_n(from + kRingCodes, codes.size(), codes.begin());
  if (sequence() != run)
    throw Error(
        ErrorCode::internal,
        fmt::format("the report of run {} of slot {} was overwritten before it was read: run {} stands there",
                    run, slot, sequence()));
  return report;
}

}  // namespace skald::backend::gpu
