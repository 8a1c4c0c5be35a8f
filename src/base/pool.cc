// Fork-join thread pool and the number of threads the process may use.
#include "base/pool.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <optional>
#include <sstream>
#include <utility>

#include "base/control_group.h"
#include "base/float_environment.h"
#include "skald/error.h"

namespace skald {
namespace {

namespace fs = std::filesystem;

constexpr int kSpins = 2000;  // some tens of microseconds: longer than the serial work between two forks

inline void pause_cpu() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// Spins, then parks, until `value` differs from `old`; returns the new value.
uint32_t wait_change(const std::atomic<uint32_t>& value, uint32_t old) {
  for (int i = 0; i < kSpins; ++i) {
    const uint32_t now = value.load(std::memory_order_acquire);
    if (now != old) return now;
    pause_cpu();
  }
  value.wait(old, std::memory_order_acquire);
  return value.load(std::memory_order_acquire);
}

std::string first_line(const fs::path& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return line;
}

/// CPUs granted by one control-group folder, if it limits them. Version 2 has cpu.max ("250000 100000" or
/// "max ..."), version 1 two files, with quota -1 for no limit.
std::optional<double> group_quota(const fs::path& dir) {
  double quota = 0, period = 0;
  if (const std::string line = first_line(dir / "cpu.max"); !line.empty()) {
    std::istringstream(line) >> quota >> period;
  } else {
    std::istringstream(first_line(dir / "cpu.cfs_quota_us")) >> quota;
    std::istringstream(first_line(dir / "cpu.cfs_period_us")) >> period;
  }
  if (quota <= 0 || period <= 0) return std::nullopt;
  return quota / period;
}

/// The tightest quota from the process's group up to the root.
std::optional<double> tightest_quota(const fs::path& root) {
  std::optional<double> best;
  visit_control_groups(root, "cpu", [&](const fs::path& folder, bool) {
    if (const auto quota = group_quota(folder)) best = std::min(best.value_or(*quota), *quota);
  });
  return best;
}

int affinity_count() {
  // A fixed cpu_set_t covers 1024 processors; larger machines need a dynamic one.
  for (int bits = 1024; bits <= 1 << 20; bits *= 2) {
    cpu_set_t* set = CPU_ALLOC(bits);
    if (!set) break;
    const size_t bytes = CPU_ALLOC_SIZE(bits);
    const int rc = sched_getaffinity(0, bytes, set);
    const int count = rc == 0 ? CPU_COUNT_S(bytes, set) : 0;
    CPU_FREE(set);
    if (rc == 0) return std::max(count, 1);
  }
  return std::max(1u, std::thread::hardware_concurrency());
}

}  // namespace

ThreadLimit usable_threads(const fs::path& root) {
  const int processors = affinity_count();
  const auto quota = tightest_quota(root);
  if (!quota || *quota >= processors)
    return {processors, fmt::format("{} processors in the affinity mask", processors)};
  const int threads = std::max(1, static_cast<int>(std::floor(*quota)));
  return {threads,
          fmt::format("{} of {} processors (control group quota {:.2f})", threads, processors, *quota)};
}

Pool::Pool(int threads) {
  if (threads > 1) helpers_.reserve(static_cast<size_t>(threads) - 1);
  try {
    for (int i = 1; i < threads; ++i) helpers_.emplace_back([this, i] { help(i); });
  } catch (const std::exception& error) {  // a destructor of a running thread would end the process
    join();
    throw Error(ErrorCode::device, fmt::format("cannot start thread {} of {} ({}); ask for fewer threads",
                                               helpers_.size() + 2, threads, error.what()));
  }
}

Pool::~Pool() { join(); }

void Pool::join() {
  stop_.store(true, std::memory_order_release);
  epoch_.fetch_add(1, std::memory_order_release);
  epoch_.notify_all();
  for (std::thread& helper : helpers_) helper.join();
}

void Pool::fork(int tasks, Call call, void* context) {
  tasks_ = tasks, call_ = call, context_ = context;
  pending_.store(static_cast<uint32_t>(tasks), std::memory_order_relaxed);
  const uint32_t epoch = epoch_.load(std::memory_order_relaxed) + 1;
  ticket_.store((uint64_t{epoch} << 32) | static_cast<uint32_t>(tasks), std::memory_order_release);
  epoch_.store(epoch, std::memory_order_release);
  epoch_.notify_all();
  while (take(epoch, 0)) {
  }
  for (uint32_t left = pending_.load(std::memory_order_acquire); left != 0;)
    left = wait_change(pending_, left);
  if (failed_.load(std::memory_order_relaxed)) {
    failed_.store(false, std::memory_order_relaxed);
    std::rethrow_exception(std::exchange(failure_, nullptr));
  }
}

/// Runs one task of call `epoch`; false when none is left.
bool Pool::take(uint32_t epoch, int thread) {
  uint64_t ticket = ticket_.load(std::memory_order_acquire);
  do {
    if (ticket >> 32 != epoch || static_cast<uint32_t>(ticket) == 0) return false;
  } while (!ticket_.compare_exchange_weak(ticket, ticket - 1, std::memory_order_acquire));
  try {
    call_(context_, tasks_ - static_cast<int>(static_cast<uint32_t>(ticket)), thread);
  } catch (...) {
    // Only the first failure is kept; the flag also keeps two threads from writing it at once.
    if (!failed_.exchange(true, std::memory_order_acq_rel)) failure_ = std::current_exception();
  }
  if (pending_.fetch_sub(1, std::memory_order_acq_rel) == 1) pending_.notify_one();
  return true;
}

void Pool::help(int thread) {
  const DefaultFloats floats;  // a new thread has those of the one that started it
  uint32_t seen = 0;
  while (true) {
    seen = wait_change(epoch_, seen);
    if (stop_.load(std::memory_order_acquire)) return;
    while (take(seen, thread)) {
    }
  }
}

}  // namespace skald
