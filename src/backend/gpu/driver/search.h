// Where GPU libraries are looked for, and a record of every place that was tried.
//
// Order: folders that the caller names, then the loader's own search (by bare name), then the folders where
// the vendors install. Within each the newest major version comes first. The first library that opens wins;
// everything else of that vendor must come from the same installation.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "backend/gpu/driver/api.h"

namespace skald::backend::gpu {

/// One place that was tried.
struct Attempt {
  std::string path;
  bool opened = false;
  std::string outcome;  ///< the loader's own words, or what was found there
};

/// A library that stays open as long as the process lives: the vendors' libraries keep threads and do not
/// bear being closed.
class Library {
 public:
  Library() = default;
  explicit operator bool() const { return handle_ != nullptr; }
  /// The address of a symbol, or null.
  void* find(const char* symbol) const;
  /// The file that the loader took, links resolved; empty when it does not tell.
  const std::filesystem::path& file() const { return file_; }

  /// Opens one file or bare name; the attempt is noted. Returns an empty library on failure.
  static Library open(const std::string& path, std::vector<Attempt>& attempts);

 private:
  void* handle_ = nullptr;
  std::filesystem::path file_;
};

/// Names of a vendor's libraries, newest major version first.
struct LibraryNames {
  std::vector<std::string> driver, compiler;
};
LibraryNames library_names(Vendor vendor);

/// Folders where the vendor's packages install, newest version first; those that exist.
std::vector<std::filesystem::path> standard_folders(Vendor vendor, const std::filesystem::path& root = "/");

/// Candidates in the order in which they are tried.
std::vector<std::string> candidates(const std::vector<std::string>& names,
                                    const std::vector<std::filesystem::path>& given,
                                    const std::vector<std::filesystem::path>& standard);

/// The major version in a library's file name ("libamdhip64.so.6.2.41134" gives 6); -1 = none.
int major_version(const std::filesystem::path& file);

}  // namespace skald::backend::gpu
