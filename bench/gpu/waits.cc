// How long it takes from handing a tiny kernel to a GPU until the host sees what it stored, by way of
// waiting.
//
//   gpu_waits [DEVICE [RUNS]]     libraries from $SKALD_GPU_LIBRARIES, code kept in $SKALD_TEST_CACHE
//
// It tells apart what a single number cannot: a host that sleeps too long (the rows that sleep), a doorbell
// that stays in a write buffer (the rows without a fence or a question are slow, those with one are not), and
// a device that serves others first (every row is slow, and so is the driver's own answer).
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <thread>

#include "backend/gpu/code/provider.h"
#include "backend/gpu/kernels/link_args.h"
#include "backend/gpu/open.h"
#include "backend/gpu/stream.h"

namespace skald::backend::gpu {
namespace {

using Clock = std::chrono::steady_clock;

double microseconds_since(Clock::time_point from) {
  return std::chrono::duration<double, std::micro>(Clock::now() - from).count();
}

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

class Waits {
 public:
  Waits(const OpenDevice& open, const std::vector<DeviceCode>& code, int runs)
      : context_(open.driver, open.info.index),
        health_(context_, open.info.id, 20000),
        kernels_(context_, code, open.info.architecture),
        words_(context_, "words", 4096),
        queue_(context_, health_, kernels_, "waits", true, words_.as<int>(), words_.address()),
        runs_(runs) {
    queue_.await(queue_.mark());
  }

  void run() {
    row("own wait of the backend", [this](uint32_t n) { queue_.await(n); });
    row("tight loop", [this](uint32_t n) { look(n, [] {}); });
    row("fence once, tight loop", [this](uint32_t n) {
      std::atomic_thread_fence(std::memory_order_seq_cst);
      look(n, [] {});
    });
    row("fence and pause each look", [this](uint32_t n) {
      look(n, [] {
        std::atomic_thread_fence(std::memory_order_seq_cst);
        pause();
      });
    });
    row("yield each look", [this](uint32_t n) { look(n, [] { std::this_thread::yield(); }); });
    row("sleep 20 us each look",
        [this](uint32_t n) { look(n, [] { std::this_thread::sleep_for(std::chrono::microseconds(20)); }); });
    row("driver asked once, tight loop", [this](uint32_t n) {
      context_.api().query_stream(queue_.stream());
      look(n, [] {});
    });
    row("driver's own answer", [this](uint32_t n) {
      while (context_.api().query_stream(queue_.stream()) == kNotReady) {
      }
      look(n, [] {});
    });
    row(
        "tight loop, host idle 2 ms before", [this](uint32_t n) { look(n, [] {}); }, 2000);
    ahead();
    sleeps();
  }

 private:
  template <class Each>
  void look(uint32_t number, Each&& each) {
    const auto from = Clock::now();
    for (int i = 0; static_cast<int32_t>(queue_.done() - number) < 0; ++i) {
      each();
      if (i % 1024 == 1023 && microseconds_since(from) > 3e6) throw std::runtime_error("no answer in 3 s");
    }
  }

  void row(const char* name, const std::function<void(uint32_t)>& wait, int idle_us = 200) {
    std::vector<double> times;
    for (int i = 0; i < runs_; ++i) {
      std::this_thread::sleep_for(std::chrono::microseconds(idle_us));
      const auto from = Clock::now();
      wait(queue_.mark());
      times.push_back(microseconds_since(from));
    }
    print(name, std::move(times));
  }

  static void print(const char* name, std::vector<double> times) {
    std::sort(times.begin(), times.end());
    fmt::print("{:<36} {:>10.1f} {:>10.1f} {:>10.1f}\n", name, times[times.size() / 2], times.front(),
               times.back());
    std::fflush(stdout);
  }

  /// Work handed over without waiting in between: what one piece costs the device.
  void ahead() {
    constexpr int kPieces = 200;
    std::vector<double> times, host;
    for (int i = 0; i < std::max(1, runs_ / 4); ++i) {
      const auto from = Clock::now();
      uint32_t last = 0;
      for (int n = 0; n < kPieces; ++n) last = queue_.mark();
      host.push_back(microseconds_since(from) / kPieces);
      queue_.await(last);
      times.push_back(microseconds_since(from) / kPieces);
    }
    print("one of 200 handed over together", std::move(times));
    print("  of which the host's call", std::move(host));
  }

  void sleeps() {
    std::vector<double> times;
    for (int i = 0; i < runs_; ++i) {
      const auto from = Clock::now();
      std::this_thread::sleep_for(std::chrono::microseconds(20));
      times.push_back(microseconds_since(from));
    }
    print("a sleep of 20 us takes", std::move(times));
  }

  Context context_;
  Health health_;
  Kernels kernels_;
  HostBlock words_;
  WorkQueue queue_;
  int runs_;
};

int measure(const std::string& device, int runs) {
  GpuOptions options;
  options.device = device;
  if (const char* folder = std::getenv("SKALD_GPU_LIBRARIES")) options.library_folders = {folder};
  if (const char* folder = std::getenv("SKALD_TEST_CACHE")) options.cache_folder = folder;
  const OpenDevice open = open_device(options);
  std::vector<SourceModule> modules = kernel_modules();
  modules.resize(1);  // "link"
  Waits waits(open, device_code(modules, *open.driver, open.info, open.compiler, options), runs);
  fmt::print("{} {}, {}\n{:<36} {:>10} {:>10} {:>10}\n", open.info.id, open.info.name, open.info.driver,
             "microseconds", "median", "least", "most");
  waits.run();
  return 0;
}

}  // namespace
}  // namespace skald::backend::gpu

int main(int count, char** words) {
  try {
    return skald::backend::gpu::measure(count > 1 ? words[1] : "gpu", count > 2 ? std::atoi(words[2]) : 40);
  } catch (const std::exception& e) {
    fmt::print(stderr, "gpu_waits: {}\n", e.what());
    return 1;
  }
}
