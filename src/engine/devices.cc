// From a name to a device.
#include "engine/devices.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>

#include "backend/cpu/cpu.h"
#include "base/pool.h"

namespace skald::engine {
namespace {

constexpr std::string_view kCpuTarget = "cpu:";

bool same_word(const std::string& a, const std::string& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](unsigned char x, unsigned char y) { return std::tolower(x) == std::tolower(y); });
}

/// A target as the backend spells it; an unknown one stays, for the backend to refuse.
std::string spelled_target(const std::string& word) {
  for (const std::string& target : backend::cpu_targets())
    if (same_word(target, word)) return target;
  return word;
}

OpenedDevice open_cpu(const EngineOptions& o, std::vector<std::string> notes) {
  const std::string target =
      o.device.starts_with(kCpuTarget) ? spelled_target(o.device.substr(kCpuTarget.size())) : o.cpu_target;
  if (const ThreadLimit limit = usable_threads(); o.threads > limit.threads)
    notes.push_back(
        fmt::format("{} threads were asked for, but this process may use {}; more threads than "
                    "processors only wait for each other",
                    o.threads, limit.reason));
  return {.device = backend::make_cpu_backend(
              {.threads = o.threads, .target = target, .weights = o.weights, .compute = o.compute}),
          .cpu = true,
          .notes = std::move(notes)};
}

/// For comparisons: every op's own launches, one order of sums.
constexpr std::string_view kPlain = "+plain";

std::string_view without_plain(std::string_view name) {
  if (name.ends_with(kPlain)) name.remove_suffix(kPlain.size());
  return name;
}

}  // namespace

void check_device_name(const std::string& name) {
  const std::string_view device = without_plain(name);
  if (!device.empty() && !device.ends_with(':')) return;
  throw Error(
      ErrorCode::invalid_argument,
      fmt::format("device '{}' is half a name; write cpu, cpu:TARGET with one of {}, auto, gpu, hip:0 "
                  "or cuda:0",
                  name, fmt::join(backend::cpu_targets(), ", ")));
}

backend::GpuOptions gpu_options(const EngineOptions& o) {
  backend::GpuOptions gpu{.device = o.device == "auto" ? "discrete" : o.device,
                          .weights = o.weights,
                          .library_folders = o.gpu_libraries,
                          .code_folder = o.gpu_code,
                          .cache_folder = o.gpu_cache,
                          .helper = o.gpu_helper,
                          .deadline_ms = o.gpu_deadline_ms};
  if (const size_t length = without_plain(gpu.device).size(); length < gpu.device.size()) {
    gpu.device.resize(length);
    gpu.fuse = gpu.matrix_units = false;
  }
  return gpu;
}

void check_precision(const EngineOptions& o) { backend::cpu_matrix_bytes(o.weights, true, o.compute); }

OpenedDevice open_device(const EngineOptions& o) {
  check_device_name(o.device);
  if (o.device == "cpu" || o.device.starts_with(kCpuTarget)) return open_cpu(o, {});
  if (o.compute != "exact" && o.device != "auto")
    throw Error(
        ErrorCode::unsupported,
        fmt::format("compute \"{}\" is for the CPU; leave it out with device \"{}\"", o.compute, o.device));
  try {
    backend::GpuInfo gpu;
    OpenedDevice opened{.device = backend::make_gpu_backend(gpu_options(o), &gpu), .cpu = false, .notes = {}};
    if (o.on_gpu) o.on_gpu({gpu.id, gpu.name, gpu.architecture, gpu.uuid, gpu.bus_id, gpu.driver});
    return opened;
  } catch (const Error& e) {
    if (o.device != "auto") throw;
    return open_cpu(o, {fmt::format("no GPU is used: {}", e.what())});
  }
}

}  // namespace skald::engine
