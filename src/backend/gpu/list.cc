// What GPUs there are.
#include <fmt/format.h>

#include "backend/gpu/code/provider.h"
#include "backend/gpu/driver/devices.h"
#include "backend/gpu/open.h"

namespace skald::backend {
namespace gpu {

OpenVendor open_vendor(Vendor vendor, const GpuOptions& options) {
  OpenVendor found;
  found.report.vendor = vendor == Vendor::amd ? "AMD" : "NVIDIA";
  std::vector<Attempt> attempts;
  found.driver = Driver::open(vendor, {options.library_folders, options.root}, attempts);
  for (Attempt& a : attempts)
    found.report.attempts.push_back({std::move(a.path), a.opened, std::move(a.outcome)});
  if (!found.driver) {
    found.report.problem = fmt::format("no usable {} was found", library_names(vendor).driver.back());
    return found;
  }
  found.report.library = found.driver->library().file().string();
  try {
    ProbeResult probe = probe_driver(*found.driver, options);
    found.compiler = found.report.compiler = std::move(probe.compiler);
    found.report.architectures = std::move(probe.architectures);
    found.report.problem = std::move(probe.problem);
    if (!found.report.problem.empty()) return found;
    found.driver->check(found.driver->api().init(0), "start the driver");
    found.devices = query_devices(*found.driver);
    if (found.devices.empty()) found.report.problem = "the driver lists no device";
  } catch (const Error& e) {
    found.report.problem = e.what();
  }
  return found;
}

OpenDevice open_device(const GpuOptions& options) {
  std::vector<OpenVendor> vendors;
  std::vector<GpuInfo> devices;
  std::string problems;
  for (const Vendor vendor : {Vendor::amd, Vendor::nvidia}) {
    // "hip:1" says that the other vendor's driver need not be started.
    if (options.device.starts_with(vendor_prefix(vendor == Vendor::amd ? Vendor::nvidia : Vendor::amd)))
      continue;
    vendors.push_back(open_vendor(vendor, options));
    const OpenVendor& v = vendors.back();
    devices.insert(devices.end(), v.devices.begin(), v.devices.end());
    if (!v.report.problem.empty())
      problems += fmt::format("{}{}: {}", problems.empty() ? "" : "; ", v.report.vendor, v.report.problem);
  }
  order_devices(devices);
  const bool any = options.device == "gpu" || options.device == "discrete";
  if (devices.empty())
    throw Error(ErrorCode::device,
                fmt::format("there is no GPU{} ({}); `skald doctor` lists what was tried, and "
                            "the device \"cpu\" needs none",
                            any ? "" : fmt::format(" for \"{}\"", options.device), problems));
  OpenDevice open;
  open.info = choose_device(devices, options.device);
  for (const OpenVendor& v : vendors)
    if (v.driver && (v.driver->vendor() == Vendor::nvidia) == open.info.nvidia)
      open.driver = v.driver, open.compiler = v.compiler;
  return open;
}

}  // namespace gpu

GpuList list_gpus(const GpuOptions& options) {
  GpuList list;
  for (const gpu::Vendor vendor : {gpu::Vendor::amd, gpu::Vendor::nvidia}) {
    gpu::OpenVendor found = gpu::open_vendor(vendor, options);
    for (GpuInfo& device : found.devices)
      if (device.problem.empty())
        gpu::count_code(gpu::kernel_modules(), *found.driver, found.compiler, options, device);
    list.devices.insert(list.devices.end(), found.devices.begin(), found.devices.end());
    list.vendors.push_back(std::move(found.report));
  }
  gpu::order_devices(list.devices);
  return list;
}

}  // namespace skald::backend
