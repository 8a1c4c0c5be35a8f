// How fast this machine reads and multiplies, with the device's own threads and instruction set.
#include <unistd.h>

#include <chrono>

#include "backend/cpu/device.h"
#include "skald/error.h"

namespace skald::backend::cpu {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// Best rate of several passes; each returns how much it did. The best one, since other work on the machine
/// can only slow a pass down.
template <class Pass>
double best_rate(double seconds, Pass&& pass) {
  constexpr int kLeastPasses = 3;
  double best = 0;
  const auto start = Clock::now();
  for (int n = 0; n < kLeastPasses || seconds_since(start) < seconds; ++n) {
    const auto from = Clock::now();
    const double done = pass();
    best = std::max(best, done / seconds_since(from));
  }
  return best;
}

/// Of the last cache that the system tells of, 0 without one.
int64_t cache_bytes() {
#ifdef _SC_LEVEL3_CACHE_SIZE
  return std::max<int64_t>(sysconf(_SC_LEVEL3_CACHE_SIZE), 0);
#else
  return 0;
#endif
}

/// Memory to stream: eight times the last cache, within reason; under a limit of address space or memory
/// less, down to twice the cache. Nothing where that is refused as well.
Mapping stream_memory() {
  constexpr int64_t kLeast = int64_t{256} << 20, kMost = int64_t{1} << 30, kSmallest = int64_t{32} << 20;
  const int64_t cache = cache_bytes();
  int64_t bytes = std::clamp(8 * cache, kLeast, kMost);
  for (const int64_t smallest = std::min(std::max(2 * cache, kSmallest), bytes); bytes >= smallest;
       bytes /= 2) {
    try {
      return Mapping("bandwidth measurement", static_cast<size_t>(bytes), true);
    } catch (const Error&) {  // half of it may do
    }
  }
  return {};
}

/// 0 without memory for it.
double read_rate(const Kernels& kernels, Pool& pool) {
  const int threads = pool.threads();
  const Mapping memory = stream_memory();
  const int64_t part = static_cast<int64_t>(memory.size() / sizeof(float)) / threads / 1024 * 1024;
  if (part == 0) return 0;
  // Untouched pages would all be the one page of zeros.
  pool.run(threads, [&](int task, int) { std::fill_n(memory.as<int32_t>() + task * part, part, 1); });
  std::vector<int32_t> sums(static_cast<size_t>(threads));
  return best_rate(0.25, [&] {
    pool.run(threads, [&](int task, int) {
      sums[static_cast<size_t>(task)] = kernels.read_stream(memory.as<int32_t>() + task * part, part);
    });
    return static_cast<double>(part) * threads * sizeof(float);
  });
}

/// One pass over the weights in the arena, each chunk split among the threads.
double read_rate(const Kernels& kernels, Pool& pool, const Arena& arena) {
  constexpr size_t kLeast = size_t{256} << 20, kMost = size_t{1} << 30;
  const int threads = pool.threads();
  std::vector<int32_t> sums(static_cast<size_t>(threads));
  const auto start = Clock::now();
  size_t done = 0;
  for (const Arena::Chunk& chunk : arena.chunks()) {
    const int64_t part = static_cast<int64_t>(chunk.used / sizeof(int32_t)) / threads / 1024 * 1024;
    pool.run(threads, [&](int task, int) {
      sums[static_cast<size_t>(task)] ^= kernels.read_stream(chunk.memory.as<int32_t>() + task * part, part);
    });
    done += static_cast<size_t>(part) * static_cast<size_t>(threads) * sizeof(int32_t);
    if (done >= kMost) break;
  }
  return done < kLeast ? 0 : static_cast<double>(done) / seconds_since(start);
}

double multiply_add_rate(const Kernels& kernels, Pool& pool) {
  constexpr int64_t kRounds = 1 << 20;
  std::vector<float> sinks(static_cast<size_t>(pool.threads()));
  std::vector<double> done(sinks.size());
  return best_rate(0.1, [&] {
    pool.run(pool.threads(), [&](int task, int) {
      const auto i = static_cast<size_t>(task);
      done[i] = kernels.multiply_add(kRounds, &sinks[i]);
    });
    double sum = 0;
    for (const double d : done) sum += d;
    return sum;
  });
}

}  // namespace

DeviceSpeed CpuDevice::measure_speed() {
  return {.read_bytes_per_second = read_rate(kernels_, pool_),
          .flops_per_second = multiply_add_rate(kernels_, pool_)};
}

double CpuDevice::measure_read_speed() { return read_rate(kernels_, pool_, arena_); }

}  // namespace skald::backend::cpu
