// Reads /proc/meminfo and the control groups.
#include "engine/memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <string>

#include "base/control_group.h"

namespace skald::engine {
namespace {

namespace fs = std::filesystem;

/// The number in a file that holds nothing else; none for "max" or a missing file.
std::optional<uint64_t> read_number(const fs::path& file) {
  std::ifstream in(file);
  uint64_t value = 0;
  if (in >> value) return value;
  return std::nullopt;
}

/// The number after `key` in a file of "key number" lines.
std::optional<uint64_t> read_field(const fs::path& file, const std::string& key) {
  std::ifstream in(file);
  std::string line;
  while (std::getline(in, line)) {
    if (!line.starts_with(key)) continue;
    const size_t digit = line.find_first_of("0123456789", key.size());
    if (digit != std::string::npos) return std::stoull(line.substr(digit, 19));
  }
  return std::nullopt;
}

void lower(std::optional<uint64_t>& least, std::optional<uint64_t> value) {
  if (value && (!least || *value < *least)) least = value;
}

/// What one control group leaves: limit - use + page cache that is not in use.
std::optional<uint64_t> left_in_group(const fs::path& dir, const char* limit_file, const char* use_file,
                                      const char* cache) {
  const auto limit = read_number(dir / limit_file);
  const auto use = read_number(dir / use_file);
  if (!limit || !use) return std::nullopt;
  const uint64_t reclaimable = read_field(dir / "memory.stat", std::string(cache) + " ").value_or(0);
  const uint64_t held = *use - std::min(*use, reclaimable);
  return *limit - std::min(*limit, held);
}

}  // namespace

std::optional<uint64_t> available_memory(const fs::path& root) {
  std::optional<uint64_t> least;
  if (const auto kib = read_field(root / "proc/meminfo", "MemAvailable:")) least = *kib * 1024;
  visit_control_groups(root, "memory", [&](const fs::path& dir, bool version2) {
    lower(least, version2 ? left_in_group(dir, "memory.max", "memory.current", "inactive_file")
                          : left_in_group(dir, "memory.limit_in_bytes", "memory.usage_in_bytes",
                                          "total_inactive_file"));
  });
  return least;
}

void check_memory(const model::MemoryEstimate& needed, std::optional<uint64_t> available,
                  const EngineOptions& options) {
  if (!available || needed.total() <= *available) return;
  constexpr double gib = 1024.0 * 1024 * 1024;
  throw Error(
      ErrorCode::out_of_memory,
      fmt::format(
          "the model needs {} bytes ({:.2f} GiB: weights {}, caches {}, buffers {}), but only {} bytes "
          "({:.2f} GiB) are available; lower cache_capacity (now {}) or slots (now {}), use a smaller "
          "model, or free memory",
          needed.total(), static_cast<double>(needed.total()) / gib, needed.weights, needed.cache,
          needed.buffers, *available, static_cast<double>(*available) / gib, options.cache_capacity,
          options.slots));
}

}  // namespace skald::engine
