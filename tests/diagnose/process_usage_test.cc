// Numbers of the process, from a small tree that stands for /proc and from the real one.
#include "diagnose/process_usage.h"

#include <gtest/gtest.h>

#include <chrono>
#include <vector>

#include "model/snapshot_files.h"

namespace skald::diagnose {
namespace {

using test::TempDir;
namespace fs = std::filesystem;

TEST(ProcessUsage, AddsTheWaitingOfAllThreads) {
  const TempDir root;
  for (const auto& [task, text] :
       {std::pair("11", "500000000 250000000 7\n"), std::pair("12", "1 1000000000 2\n")}) {
    fs::create_directories(root / "proc/self/task" / task);
    test::write_file(root / "proc/self/task" / task / "schedstat", text);
  }
  const auto waited = process_usage(root.path()).waited_seconds;
  ASSERT_TRUE(waited);
  EXPECT_DOUBLE_EQ(*waited, 1.25);
}

TEST(ProcessUsage, WaitingIsUnknownWhereTheSystemDoesNotTell) {
  const TempDir root;
  EXPECT_FALSE(process_usage(root.path()).waited_seconds);
  fs::create_directories(root / "proc/self/task/11");
  EXPECT_FALSE(process_usage(root.path()).waited_seconds);
}

TEST(ProcessUsage, CountsProcessorTime) {
  const double before = process_usage().cpu_seconds;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (process_usage().cpu_seconds < before + 0.02)
    ASSERT_LT(std::chrono::steady_clock::now(), end) << "no processor time was counted";
}

TEST(PeakMemory, ReadsTheHighWaterMark) {
  const TempDir root;
  fs::create_directories(root / "proc/self");
  test::write_file(root / "proc/self/status",
                   "Name:\tx\nVmPeak:\t  900 kB\nVmHWM:\t   512 kB\nVmRSS:\t 10 kB\n");
  EXPECT_EQ(peak_memory(root.path()), 512u * 1024);
}

TEST(PeakMemory, GrowsWithUseAndCanStartAnew) {
  constexpr size_t kBytes = 64 << 20;
  const uint64_t before = peak_memory();
  {
    const std::vector<char> block(kBytes, 1);
    EXPECT_EQ(block[kBytes / 2], 1);
  }
  EXPECT_GE(peak_memory(), before);
  const uint64_t high = peak_memory();
  if (!reset_peak_memory()) GTEST_SKIP() << "this system does not reset the peak";
  EXPECT_LE(peak_memory(), high);
}

TEST(PeakMemory, SaysWhenItCannotStartAnew) {
  const TempDir root;
  EXPECT_FALSE(reset_peak_memory(root.path()));
}

}  // namespace
}  // namespace skald::diagnose
