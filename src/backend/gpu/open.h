// From options to an opened driver with its devices.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backend/gpu/driver/driver.h"
#include "backend/gpu/gpu.h"

namespace skald::backend::gpu {

/// What one vendor's software offers, opened and started.
struct OpenVendor {
  std::shared_ptr<Driver> driver;  ///< null where none can be opened
  std::string compiler;            ///< as ProbeResult::compiler
  std::vector<GpuInfo> devices;
  GpuVendorReport report;
};
/// Never throws for what it finds: the report says it.
OpenVendor open_vendor(Vendor vendor, const GpuOptions& options);

/// The chosen device with its driver. Throws Error(device).
struct OpenDevice {
  std::shared_ptr<Driver> driver;
  std::string compiler;
  GpuInfo info;
};
OpenDevice open_device(const GpuOptions& options);

}  // namespace skald::backend::gpu
