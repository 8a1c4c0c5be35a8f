// Kernels by name, graphs by capture.
#include "backend/gpu/program.h"

#include <fmt/format.h>

#include <algorithm>

#include "backend/gpu/kernels/kernels.h"

namespace skald::backend::gpu {
namespace {

// CUlaunchConfig and CUlaunchAttribute of CUDA 11.8 and later, and the one attribute that we set.
struct LaunchAttribute {
  int id = 0;
  char padding[4] = {};
  union {
    int allowed;
    char bytes[64];
  } value = {};
};
struct LaunchConfiguration {
  unsigned grid[3], block[3], dynamic_shared;
  StreamHandle stream;
  const LaunchAttribute* attributes;
  unsigned attribute_count;
};
constexpr int kProgrammaticStreamSerialization = 6;
constexpr int kMostDynamicShared = 8;  // an attribute of a function
constexpr int kCaptureRelaxed = 2;
constexpr int kFirstCaptureError = 900, kLastCaptureError = 912, kNotSupported = 801;

/// The module that holds a kernel.
std::string_view module_of(std::string_view kernel) {
  for (const KernelModule& module : kKernelModules)
    if (std::find(module.kernels.begin(), module.kernels.end(), kernel) != module.kernels.end())
      return module.name;
  return "link";
}

}  // namespace

Kernels::Kernels(const Context& context, const std::vector<DeviceCode>& code, std::string architecture)
    : context_(context),
      architecture_(std::move(architecture)),
      // Hopper is the first that can, and the kernels' own waits are compiled from there on.
      can_overlap_(context.api().launch_with != nullptr && architecture_.starts_with("sm_") &&
                   architecture_.size() >= 5 && architecture_ >= "sm_90") {
  for (const DeviceCode& c : code) {
    try {
      modules_.push_back({c.name, load_module(context, c.name, c.image.data())});
    } catch (const Error& e) {
      constexpr const char* kOrigins[] = {"prepared", "kept", "freshly compiled"};
      throw Error(e.code() == ErrorCode::device_lost ? e.code() : ErrorCode::device_code,
                  fmt::format("the {} code '{}' for {} does not load: {}", kOrigins[c.origin], c.name,
                              architecture_, e.what()));
    }
  }
}

FunctionHandle Kernels::find(const std::string& name, uint32_t dynamic_shared) const {
  Found& found = look_up(name);
  if (dynamic_shared > found.shared && context_.api().set_function) {
    if (const Status status =
            context_.api().set_function(found.function, kMostDynamicShared, static_cast<int>(dynamic_shared));
        status != kSuccess)
      context_.driver().fail(status,
                             fmt::format("give kernel '{}' {} bytes of shared memory", name, dynamic_shared));
    found.shared = dynamic_shared;
  }
  return found.function;
}

Kernels::Found& Kernels::look_up(const std::string& name) const {
  const auto known = found_.find(name);
  if (known != found_.end()) return known->second;
  const std::string_view home = module_of(name);
  for (const Loaded& loaded : modules_) {
    // Asking the wrong one is an error in the eyes of tools that watch the driver.
    if (loaded.name != home) continue;
    FunctionHandle function = nullptr;
    const Status status = context_.api().get_function(&function, loaded.module.get(), name.c_str());
    if (status == kSuccess) {
      return found_[name] = {.function = function};
    }
    if (context_.api().last_error) context_.api().last_error();
    if (is_fatal(status)) context_.driver().fail(status, fmt::format("find kernel '{}'", name));
  }
  throw Error(
      ErrorCode::device_function,
      fmt::format(
          "the code for {} has no kernel '{}': it is not of this version of skald; remove it, so that it is "
          "made again",
          architecture_, name));
}

Status Kernels::launch(const Launch& l, StreamHandle stream, bool overlap) const {
  FunctionHandle function = find(l.kernel, l.dynamic_shared);
  // The driver copies the bytes before it returns.
  void* arguments[] = {const_cast<std::byte*>(l.args.data())};
  if (!overlap || !can_overlap_)
    return context_.api().launch(function, l.blocks, 1, 1, l.threads, 1, 1, l.dynamic_shared, stream,
                                 arguments, nullptr);
  LaunchAttribute attribute;
  attribute.id = kProgrammaticStreamSerialization;
  attribute.value.allowed = 1;
  const LaunchConfiguration configuration{{l.blocks, 1, 1}, {l.threads, 1, 1}, l.dynamic_shared,
                                          stream,           &attribute,        1};
  return context_.api().launch_with(&configuration, function, arguments, nullptr);
}

GraphExec capture(const Context& context, Health& health, const Kernels& kernels, StreamHandle stream,
                  const std::vector<Launch>& launches) {
  const DriverApi& api = context.api();
  context.enter();
  const auto unsupported = [&](Status status) {
    const bool yes = status == kNotSupported || (status >= kFirstCaptureError && status <= kLastCaptureError);
    if (yes && api.last_error) api.last_error();
    return yes;
  };
  if (const Status status = api.begin_capture(stream, kCaptureRelaxed); status != kSuccess) {
    if (unsupported(status)) return {};
    health.check(status, "record a graph");
  }
  Status launched = kSuccess;
  std::string kernel;
  for (const Launch& l : launches) {
    launched = kernels.launch(l, stream, true);
    if (launched != kSuccess) {
      kernel = l.kernel;
      break;
    }
  }
  GraphHandle graph = nullptr;
  const Status ended = api.end_capture(stream, &graph);
  GraphExecHandle exec = nullptr;
  Status instantiated = launched;
  if (launched == kSuccess && ended == kSuccess)
    instantiated = api.instantiate ? api.instantiate(&exec, graph, 0)
                                   : api.instantiate_with_log(&exec, graph, nullptr, nullptr, 0);
  if (ended == kSuccess && graph) api.destroy_graph(graph);
  health.check(launched, fmt::format("record a launch of kernel '{}'", kernel));
  if (unsupported(ended) || unsupported(instantiated)) return {};
  health.check(ended, "record a graph");
  health.check(instantiated, "make a graph");
  return {context, exec};
}

}  // namespace skald::backend::gpu
