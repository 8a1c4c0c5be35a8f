// getrusage and /proc.
#include "diagnose/process_usage.h"

#include <sys/resource.h>

#include <fstream>
#include <string>

namespace skald::diagnose {
namespace fs = std::filesystem;

namespace {

double seconds(const timeval& t) {
  return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
}

/// Second number of schedstat: nanoseconds spent ready, but not running.
std::optional<double> waited(const fs::path& tasks) {
  double nanoseconds = 0;
  bool any = false;
  std::error_code error;
  for (const auto& task : fs::directory_iterator(tasks, error)) {
    std::ifstream file(task.path() / "schedstat");
    double ran = 0, ready = 0;
    if (file >> ran >> ready) nanoseconds += ready, any = true;
  }
  if (error || !any) return std::nullopt;
  return nanoseconds * 1e-9;
}

}  // namespace

ProcessUsage process_usage(const fs::path& root) {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return {.cpu_seconds = seconds(usage.ru_utime) + seconds(usage.ru_stime),
          .waited_seconds = waited(root / "proc/self/task"),
          .major_faults = usage.ru_majflt};
}

uint64_t peak_memory(const fs::path& root) {
  std::ifstream file(root / "proc/self/status");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("VmHWM:")) return 1024 * std::stoull(line.substr(6));
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return 1024 * static_cast<uint64_t>(usage.ru_maxrss);
}

bool reset_peak_memory(const fs::path& root) {
  std::ofstream file(root / "proc/self/clear_refs");
  return static_cast<bool>(file << "5" << std::flush);
}

}  // namespace skald::diagnose
