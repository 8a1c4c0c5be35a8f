// Asks for the self-test, shows what came of it.
#include "cli/first_start.h"

#include <cstdlib>
#include <filesystem>
#include <string_view>

#include <fmt/format.h>

#include "cli/command.h"
#include "diagnose/self_test.h"

namespace skald::cli {
namespace {

/// Another build computes with other kernels: the program's file tells them apart where versions do not.
std::string build_identity() {
  std::error_code failure;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", failure);
  const auto size = std::filesystem::file_size(program, failure);
  const auto time = std::filesystem::last_write_time(program, failure).time_since_epoch().count();
  return fmt::format("{} {} {}", build_text(), size, time);
}

void check(Session& session, const EngineOptions& options, const GpuFacts& gpu) {
  const char* wish = std::getenv("SKALD_SELF_TEST");
  if (wish != nullptr && std::string_view(wish) == "off") {
    session.log.warning(fmt::format("{} is not checked: SKALD_SELF_TEST is off", gpu.id));
    return;
  }
  diagnose::FirstStart start;
  start.device = fmt::format("{} {} {}", gpu.name, gpu.architecture, gpu.uuid);
  start.driver = gpu.driver;
  start.build = fmt::format("{}, weights {}", build_identity(), options.weights);
  start.cache = options.gpu_cache;
  start.test.engine = options;
  start.test.engine.device = gpu.id;
  start.test.engine.on_gpu = nullptr;
  start.test.scratch = std::filesystem::temp_directory_path();
  start.test.on_progress = [&](std::string_view stage) {
    session.log.status(fmt::format("first start of {}, self-test: {}", gpu.id, stage));
  };
  const diagnose::KeptResult result = check_first_start(start);
  if (result.lost_completions > 0)
    session.log.warning(
        fmt::format("{} did not report all of its work as done in its self-test; speech is not held "
                    "up by that; see `skald doctor`",
                    gpu.id));
  if (!result.passed)
    throw Error(
        ErrorCode::device,
        fmt::format("{} ({}) failed its self-test, so its speech cannot be trusted: {}; `skald doctor` says "
                    "more, and --device cpu runs without it",
                    gpu.id, gpu.name, result.failure));
}

}  // namespace

void check_gpus_first(Session& session, EngineOptions& options) {
  options.on_gpu = [&session, copy = options](const GpuFacts& gpu) { check(session, copy, gpu); };
}

}  // namespace skald::cli
