// The fork-join pool and the number of usable threads.
#include "base/pool.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <stdexcept>

namespace skald {
namespace {

TEST(Pool, EveryTaskRunsOnce) {
  for (const int threads : {1, 2, 3, 8}) {
    Pool pool(threads);
    EXPECT_EQ(pool.threads(), threads);
    for (int tasks : {0, 1, 2, 5, 100}) {
      std::vector<std::atomic<int>> count(static_cast<size_t>(tasks));
      std::atomic<bool> thread_in_range{true};
      pool.run(tasks, [&](int task, int thread) {
        ++count[static_cast<size_t>(task)];
        if (thread < 0 || thread >= threads) thread_in_range = false;
      });
      for (const auto& c : count) EXPECT_EQ(c, 1);
      EXPECT_TRUE(thread_in_range);
    }
  }
}

/// What tasks wrote is visible after run(), without any synchronisation of theirs; many short calls in a row.
// B083: no wake-up is lost.
TEST(Pool, ManyShortForks) {
  Pool pool(3);
  std::vector<int> values(7);
  for (int round = 0; round < 20'000; ++round)
    pool.run(7, [&](int task, int) { values[static_cast<size_t>(task)] += task; });
  EXPECT_EQ(std::accumulate(values.begin(), values.end(), 0), 20'000 * 21);
}

TEST(Pool, WakesParkedHelpers) {
  Pool pool(2);
  for (int i = 0; i < 5; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // long enough to park
    std::atomic<int> running{0}, together{0};
    pool.run(2, [&](int, int) {
      // Both tasks can only meet if two threads run them.
      ++running;
      const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
      while (running < 2 && std::chrono::steady_clock::now() < end) std::this_thread::yield();
      if (running == 2) ++together;
    });
    EXPECT_EQ(together, 2);
  }
}

TEST(Pool, ExceptionsReachTheCallerAndThePoolStaysUsable) {
  for (const int threads : {1, 4}) {
    Pool pool(threads);
    for (int round = 0; round < 50; ++round) {
      std::atomic<int> ran{0};
      EXPECT_THROW(pool.run(20,
                            [&](int task, int) {
                              ++ran;
                              if (task % 5 == 3) throw std::runtime_error("task");
                            }),
                   std::runtime_error);
      EXPECT_EQ(ran, threads > 1 ? 20 : 4) << "helpers finish the other tasks";
      pool.run(20, [&](int, int) { ++ran; });
    }
  }
}

TEST(Pool, IdleUsesNoProcessorTime) {
  Pool pool(4);
  pool.run(8, [](int, int) {});
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  const auto used = [] {
    rusage r{};
    getrusage(RUSAGE_SELF, &r);
    return r.ru_utime.tv_sec + r.ru_stime.tv_sec +
           1e-6 * static_cast<double>(r.ru_utime.tv_usec + r.ru_stime.tv_usec);
  };
  const double before = used();
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  EXPECT_LT(used() - before, 0.05);
}

class FakeRoot : public testing::Test {
 protected:
  void SetUp() override {
    root_ = std::filesystem::temp_directory_path() / ("skald_pool_test_" + std::to_string(::getpid()));
    std::filesystem::remove_all(root_);
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  void put(const std::string& path, const std::string& text) {
    std::filesystem::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text << "\n";
  }
  std::filesystem::path root_;
};

TEST_F(FakeRoot, NoQuotaMeansTheAffinityMask) {
  put("proc/self/cgroup", "0::/user.slice");
  put("sys/fs/cgroup/user.slice/cpu.max", "max 100000");
  const ThreadLimit limit = usable_threads(root_);
  EXPECT_GE(limit.threads, 1);
  EXPECT_NE(limit.reason.find("affinity"), std::string::npos) << limit.reason;
}

TEST_F(FakeRoot, QuotaOfTheGroupIsRoundedDown) {
  put("proc/self/cgroup", "0::/a/b");
  put("sys/fs/cgroup/a/b/cpu.max", "190000 100000");
  const ThreadLimit limit = usable_threads(root_);
  EXPECT_EQ(limit.threads, 1);
  // On a machine of one processor the affinity mask is tighter.
  const bool one = std::thread::hardware_concurrency() < 2;
  EXPECT_NE(limit.reason.find(one ? "affinity" : "quota 1.90"), std::string::npos) << limit.reason;
}

TEST_F(FakeRoot, TheTightestParentCounts) {
  put("proc/self/cgroup", "0::/a/b");
  put("sys/fs/cgroup/a/b/cpu.max", "max 100000");
  put("sys/fs/cgroup/a/cpu.max", "50000 100000");
  EXPECT_EQ(usable_threads(root_).threads, 1);
}

TEST_F(FakeRoot, VersionOneHierarchy) {
  put("proc/self/cgroup", "4:memory:/x\n3:cpuacct,cpu:/box\n0::/");
  put("sys/fs/cgroup/cpu/box/cpu.cfs_quota_us", "100000");
  put("sys/fs/cgroup/cpu/box/cpu.cfs_period_us", "100000");
  put("sys/fs/cgroup/memory/x/cpu.cfs_quota_us", "1");
  EXPECT_EQ(usable_threads(root_).threads, 1);
  put("sys/fs/cgroup/cpu/box/cpu.cfs_quota_us", "-1");
  EXPECT_NE(usable_threads(root_).reason.find("affinity"), std::string::npos);
}

}  // namespace
}  // namespace skald
