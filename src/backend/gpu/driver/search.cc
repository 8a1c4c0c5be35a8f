// Looking for GPU libraries.
#include "backend/gpu/driver/search.h"

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <charconv>
#include <system_error>

#include "base/float_environment.h"

namespace skald::backend::gpu {

namespace fs = std::filesystem;

void* Library::find(const char* symbol) const { return handle_ ? dlsym(handle_, symbol) : nullptr; }

Library Library::open(const std::string& path, std::vector<Attempt>& attempts) {
  Library library;
  const bool bare = path.find('/') == std::string::npos;
  std::error_code failure;
  if (!bare && !fs::exists(path, failure)) {
    attempts.push_back({path, false, "no such file"});
    return library;
  }
  const DefaultFloats kept;  // of this thread, whatever the library's start does to them
  library.handle_ = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library.handle_) {
    const char* why = dlerror();
    attempts.push_back({path, false, why ? why : "the loader refused it without a reason"});
    return library;
  }
  const link_map* map = nullptr;
  if (dlinfo(library.handle_, RTLD_DI_LINKMAP, &map) == 0 && map && map->l_name && *map->l_name)
    library.file_ = fs::weakly_canonical(map->l_name, failure);
  attempts.push_back({path, true, bare && !library.file_.empty() ? library.file_.string() : "opened"});
  return library;
}

LibraryNames library_names(Vendor vendor) {
  if (vendor == Vendor::amd)
    return {{"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "libamdhip64.so"},
            {"libhiprtc.so.7", "libhiprtc.so.6", "libhiprtc.so.5", "libhiprtc.so"}};
  return {{"libcuda.so.1", "libcuda.so"},
          {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2", "libnvrtc.so"}};
}

namespace {

/// Folders `parent`/NAME... whose name begins with `prefix`, highest version first, each with `below`
/// appended.
void add_versions(std::vector<fs::path>& to, const fs::path& parent, const std::string& prefix,
                  const fs::path& below) {
  std::vector<fs::path> found;
  std::error_code failure;
  for (fs::directory_iterator it(parent, failure), end; !failure && it != end; it.increment(failure)) {
    if (it->path().filename().string().starts_with(prefix) && fs::is_directory(it->path() / below, failure))
      found.push_back(it->path() / below);
  }
  const auto numbers = [](const fs::path& p) {
    std::vector<unsigned> v;
    const std::string s = p.string();
    for (size_t i = 0; i < s.size();) {
      unsigned n = 0;
      const auto [next, error] = std::from_chars(s.data() + i, s.data() + s.size(), n);
      if (error == std::errc()) v.push_back(n);
      i = std::max(i + 1, static_cast<size_t>(next - s.data()));
    }
    return v;
  };
  std::sort(found.begin(), found.end(),
            [&](const fs::path& a, const fs::path& b) { return numbers(a) > numbers(b); });
  to.insert(to.end(), found.begin(), found.end());
}

}  // namespace

std::vector<fs::path> standard_folders(Vendor vendor, const fs::path& root) {
  std::vector<fs::path> folders;
  std::error_code failure;
  const auto add = [&](const char* path) {
    if (fs::is_directory(root / path, failure)) folders.push_back(root / path);
  };
  if (vendor == Vendor::amd) {
    add("opt/rocm/lib");
    add_versions(folders, root / "opt", "rocm-", "lib");
    add_versions(folders, root / "opt/rocm", "core-", "lib");
    add("usr/lib64");
  } else {
    add("usr/lib/wsl/lib");
    add("usr/local/nvidia/lib64");
    add("usr/local/cuda/lib64");
    add_versions(folders, root / "usr/local", "cuda-", "lib64");
    add("usr/lib64");
  }
  return folders;
}

std::vector<std::string> candidates(const std::vector<std::string>& names, const std::vector<fs::path>& given,
                                    const std::vector<fs::path>& standard) {
  std::vector<std::string> all;
  const auto in = [&](const std::vector<fs::path>& folders) {
    for (const fs::path& folder : folders)
      for (const std::string& name : names) all.push_back((folder / name).string());
  };
  in(given);
  all.insert(all.end(), names.begin(), names.end());
  in(standard);
  return all;
}

int major_version(const fs::path& file) {
  const std::string name = file.filename().string();
  const size_t at = name.find(".so.");
  int major = -1;
  if (at != std::string::npos) std::from_chars(name.data() + at + 4, name.data() + name.size(), major);
  return major;
}

}  // namespace skald::backend::gpu
