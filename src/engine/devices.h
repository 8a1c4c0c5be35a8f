// Devices by name.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backend/gpu/gpu.h"
#include "backend/ops.h"
#include "skald/skald.h"

namespace skald::engine {

/// Where and how GPUs are looked for.
backend::GpuOptions gpu_options(const EngineOptions& options);

/// Throws Error(invalid_argument) for a name that is empty or ends where a part is to follow ("cpu:",
/// "hip:").
void check_device_name(const std::string& name);

/// Throws Error(invalid_argument) for names of weights or of a way to compute that there are not.
void check_precision(const EngineOptions& options);

struct OpenedDevice {
  std::unique_ptr<backend::Backend> device;
  bool cpu = false;
  std::vector<std::string> notes;  ///< why it is not another one, with "auto"; threads without processors
};

/// Makes the device that the options name. "cpu:AVX2" is the CPU with that SIMD target, whatever `cpu_target`
/// says. Throws Error(device), Error(device_code), Error(out_of_memory) or Error(invalid_argument) when the
/// one asked for cannot be used; one that was only looked for ("auto") is a note.
OpenedDevice open_device(const EngineOptions& options);

}  // namespace skald::engine
