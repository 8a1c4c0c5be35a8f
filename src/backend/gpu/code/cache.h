// Machine code kept on disk: found again by everything that it depends on, whole or not at all.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/sha256.h"

namespace skald::backend::gpu {

/// Everything that machine code depends on.
struct CodeKey {
  std::string architecture, module, source_digest, options, compiler;
  Digest digest() const;
  /// "gfx1100-linear-0123456789abcdef01234567.code".
  std::string file_name() const;
};

/// A folder of entries. Any number of processes may use it at once: entries appear by renaming a complete
/// file. An entry that is damaged, or is not what its name says, counts as missing and is replaced.
class CodeCache {
 public:
  /// An empty folder name makes a cache that keeps nothing.
  explicit CodeCache(std::filesystem::path folder) : folder_(std::move(folder)) {}

  std::optional<std::vector<std::byte>> find(const CodeKey& key) const;
  /// Returns why the entry could not be kept, empty = it was; a cache that cannot be written is no error.
  std::string keep(const CodeKey& key, std::span<const std::byte> code) const;

 private:
  std::filesystem::path folder_;
};

}  // namespace skald::backend::gpu
