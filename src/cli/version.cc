// skald --version.
#include <fmt/format.h>

#include "cli/command.h"
#include "engine/device_info.h"

namespace skald::cli {

std::string build_text() {
#if defined(__clang__)
  const std::string compiler = "clang " __clang_version__;
#else
  const std::string compiler = "GCC " __VERSION__;
#endif
  return fmt::format("{}, {}, {}", SKALD_VERSION, SKALD_BUILD_TYPE, compiler);
}

std::string version_text() {
  const std::string build = build_text();
  const size_t version = build.find(", ");
  return fmt::format("skald {}\nbuild: {}\nSIMD targets here, best first: {}\n", build.substr(0, version),
                     build.substr(version + 2), fmt::join(engine::cpu_targets(), ", "));
}

}  // namespace skald::cli
