// What the system says about this process: processor time, waiting, peak memory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace skald::diagnose {

/// Sums since the process began.
struct ProcessUsage {
  double cpu_seconds = 0;  ///< of all threads
  std::optional<double>
      waited_seconds;        ///< ready to run, but other work had the processors; live threads only
  int64_t major_faults = 0;  ///< pages that had to come from the disk
};

/// `root` stands for "/" in tests.
ProcessUsage process_usage(const std::filesystem::path& root = "/");

/// Largest resident size so far in bytes, or since reset_peak_memory() where that works.
uint64_t peak_memory(const std::filesystem::path& root = "/");
/// Starts the peak anew; false where the system does not allow it.
bool reset_peak_memory(const std::filesystem::path& root = "/");

}  // namespace skald::diagnose
