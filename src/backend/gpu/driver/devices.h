// The GPUs of this machine: what the drivers tell about them, and which one a name means.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backend/gpu/driver/driver.h"
#include "backend/gpu/gpu.h"

namespace skald::backend::gpu {

/// Asks an initialised driver about its devices. One that does not answer is listed with the problem named.
std::vector<GpuInfo> query_devices(const Driver& driver);

/// Puts the devices in the order in which they are chosen: usable before broken, discrete before integrated,
/// then more memory, then the driver's own order.
void order_devices(std::vector<GpuInfo>& devices);

/// The device that `wanted` names: "gpu", "discrete", "hip", "cuda", "hip:0", "cuda:1", a UUID, a
/// PCI bus id ("0000:03:00.0"), an architecture or a full name (any case). Of several the first in order.
/// Throws Error(device) saying what there is, or what is wrong with the one meant.
const GpuInfo& choose_device(const std::vector<GpuInfo>& devices, const std::string& wanted);

/// "gfx90a" of "gfx90a:sramecc+:xnack-".
std::string plain_architecture(const std::string& name);

}  // namespace skald::backend::gpu
