// Machine code for one device: prepared ahead of time, kept from an earlier start, or compiled now.
#pragma once

#include <string>
#include <vector>

#include "backend/gpu/code/sources.h"
#include "backend/gpu/driver/driver.h"
#include "backend/gpu/gpu.h"

namespace skald::backend::gpu {

/// A module's code for one architecture.
struct DeviceCode {
  enum Origin : uint8_t { prepared, kept, compiled };
  std::string name;
  Origin origin = prepared;
  std::vector<std::byte> image;  ///< followed by a zero byte, for portable code, which is text
};

/// What is known of a vendor's software once its driver was started in a child.
struct ProbeResult {
  std::string problem;                     ///< empty = it starts
  std::string compiler;                    ///< "9.0 libhiprtc.so.6.2"; empty = none was found
  std::vector<std::string> architectures;  ///< that it knows; empty = it does not tell
};
/// Without a helper program the driver is not started, and the compiler is looked for in this process.
ProbeResult probe_driver(const Driver& driver, const GpuOptions& options);

/// Code of all `modules` for a device. Throws Error(device_code) naming the architecture, what was looked
/// for, what the compiler said, and what to do.
std::vector<DeviceCode> device_code(const std::vector<SourceModule>& modules, const Driver& driver,
                                    const GpuInfo& device, const std::string& compiler,
                                    const GpuOptions& options);

/// Fills in how much of the code is there, without making any.
void count_code(const std::vector<SourceModule>& modules, const Driver& driver, const std::string& compiler,
                const GpuOptions& options, GpuInfo& device);

}  // namespace skald::backend::gpu
