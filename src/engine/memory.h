// Memory a process may still take, and the refusal when a model needs more.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "model/model.h"
#include "skald/skald.h"

namespace skald::engine {

/// Bytes this process may still take: the smallest of MemAvailable and what every enclosing control group
/// leaves (version 1 and 2; page cache that can be dropped counts as free). None where the system does not
/// tell. `root` stands for "/" in tests.
std::optional<uint64_t> available_memory(const std::filesystem::path& root = "/");

/// Throws Error(out_of_memory) with needed and available bytes and what to lower when `needed` does not fit.
void check_memory(const model::MemoryEstimate& needed, std::optional<uint64_t> available,
                  const EngineOptions& options);

}  // namespace skald::engine
