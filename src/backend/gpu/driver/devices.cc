// Listing and choosing devices.
#include "backend/gpu/driver/devices.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cstring>
#include <map>
#include <tuple>

namespace skald::backend::gpu {

std::string plain_architecture(const std::string& name) { return name.substr(0, name.find(':')); }

namespace {

std::string lower(std::string s) {
  std::transform(s.begin(), s.end(), s.begin(), [](unsigned char c) { return std::tolower(c); });
  return s;
}

/// gcnArchName of hipDeviceProp_t, whose layout changed with ROCm 6: at its place in either layout, else
/// wherever a string begins with "gfx".
std::string hip_architecture(const Driver& driver, int device) {
  constexpr size_t kNewLayout = 1160, kOldLayout = 396;
  const DriverApi& api = driver.api();
  std::array<char, 4096> bytes{};
  const bool newer = api.device_properties != nullptr;
  driver.check(
      newer ? api.device_properties(bytes.data(), device) : api.device_properties_old(bytes.data(), device),
      "read the device's properties");
  bytes.back() = '\0';
  const char* at = bytes.data() + (newer ? kNewLayout : kOldLayout);
  if (std::strncmp(at, "gfx", 3) != 0)
    at = static_cast<const char*>(memmem(bytes.data(), bytes.size(), "gfx", 3));
  if (!at) throw Error(ErrorCode::device, "the driver does not tell the device's architecture");
  return plain_architecture(at);
}

/// ROCm gives sixteen characters, CUDA sixteen bytes; nothing but zeros is what cards without one tell.
std::string uuid_text(const Uuid& uuid) {
  const uint8_t* b = uuid.bytes;
  if (std::all_of(b, b + 16, [](uint8_t c) { return c == 0 || c == '0'; })) return {};
  if (std::all_of(b, b + 16, [](uint8_t c) { return std::isxdigit(c) != 0; }))
    return "GPU-" + std::string(reinterpret_cast<const char*>(b), 16);
  return fmt::format("GPU-{:02x}-{:02x}-{:02x}-{:02x}-{:02x}", fmt::join(b, b + 4, ""),
                     fmt::join(b + 4, b + 6, ""), fmt::join(b + 6, b + 8, ""), fmt::join(b + 8, b + 10, ""),
                     fmt::join(b + 10, b + 16, ""));
}

std::string version_text(const Driver& driver) {
  int version = 0, runtime = 0;
  driver.check(driver.api().driver_version(&version), "read the driver's version");
  if (driver.vendor() == Vendor::nvidia)
    return fmt::format("CUDA {}.{}", version / 1000, version % 1000 / 10);
  if (driver.api().runtime_version && driver.api().runtime_version(&runtime) == kSuccess) version = runtime;
  return fmt::format("HIP {}.{}.{}", version / 10000000, version / 100000 % 100, version % 100000);
}

void query_device(const Driver& driver, GpuInfo& info) {
  const DriverApi& api = driver.api();
  const auto attribute = [&](Attribute a) {
    int value = 0;
    driver.check(api.device_attribute(&value, driver.attribute_number(a), info.index),
                 "read an attribute of the device");
    return value;
  };
  std::array<char, 256> name{};
  driver.check(api.device_name(name.data(), static_cast<int>(name.size()) - 1, info.index),
               "read the device's name");
  info.name = name.data();
  driver.check(api.device_memory(&info.memory, info.index), "read the size of the device's memory");
  info.integrated = attribute(Attribute::integrated) != 0;
  info.compute_units = attribute(Attribute::compute_units);
  info.warp = attribute(Attribute::warp);
  if (info.nvidia) {
    info.capability = 10 * attribute(Attribute::major) + attribute(Attribute::minor);
    info.architecture = fmt::format("sm_{}", info.capability);
  } else {
    info.architecture = hip_architecture(driver, info.index);
  }
  Uuid uuid{};
  if (api.device_uuid && api.device_uuid(&uuid, info.index) == kSuccess) info.uuid = uuid_text(uuid);
  std::array<char, 64> bus{};
  if (api.device_bus_id &&
      api.device_bus_id(bus.data(), static_cast<int>(bus.size()) - 1, info.index) == kSuccess)
    info.bus_id = lower(bus.data());
  if (info.warp != 32 && info.warp != 64)
    info.problem = fmt::format("its waves have {} lanes, not 32 or 64", info.warp);
}

auto rank(const GpuInfo& d) {
  // ~memory: more is earlier.
  return std::make_tuple(!d.problem.empty(), d.integrated, ~d.memory, d.nvidia, d.index);
}

bool names(const GpuInfo& d, const std::string& wanted) {
  if (wanted.empty()) return false;
  return wanted == "gpu" || (wanted == "discrete" && !d.integrated) ||
         wanted == (d.nvidia ? "cuda" : "hip") || wanted == d.id || wanted == lower(d.uuid) ||
         wanted == d.bus_id || wanted == lower(d.architecture) || wanted == lower(d.name);
}

std::string list_text(const std::vector<GpuInfo>& devices) {
  std::vector<std::string> all;
  for (const GpuInfo& d : devices)
    all.push_back(fmt::format("{} ({}{}{})", d.id, d.name.empty() ? "unknown" : d.name,
                              d.architecture.empty() ? "" : ", ", d.architecture));
  return fmt::format("{}", fmt::join(all, ", "));
}

}  // namespace

std::vector<GpuInfo> query_devices(const Driver& driver) {
  int count = 0;
  driver.check(driver.api().device_count(&count), "count the devices");
  std::vector<GpuInfo> devices;
  for (int index = 0; index < count; ++index) {
    GpuInfo info;
    info.nvidia = driver.vendor() == Vendor::nvidia;
    info.index = index;
    info.id = fmt::format("{}:{}", vendor_prefix(driver.vendor()), index);
    try {
      info.driver = version_text(driver);
      query_device(driver, info);
    } catch (const Error& e) {
      info.problem = e.what();
    }
    devices.push_back(std::move(info));
  }
  // One that several devices tell would lead to any of them.
  std::map<std::string, int> told;
  for (const GpuInfo& d : devices) ++told[d.uuid];
  for (GpuInfo& d : devices)
    if (told[d.uuid] > 1) d.uuid.clear();
  return devices;
}

void order_devices(std::vector<GpuInfo>& devices) {
  std::stable_sort(devices.begin(), devices.end(),
                   [](const GpuInfo& a, const GpuInfo& b) { return rank(a) < rank(b); });
}

const GpuInfo& choose_device(const std::vector<GpuInfo>& devices, const std::string& wanted) {
  const auto found = std::find_if(devices.begin(), devices.end(),
                                  [key = lower(wanted)](const GpuInfo& d) { return names(d, key); });
  if (found == devices.end())
    throw Error(ErrorCode::device, fmt::format("there is no device \"{}\"; this machine has: {}", wanted,
                                               devices.empty() ? "no GPU" : list_text(devices)));
  if (!found->problem.empty())
    throw Error(ErrorCode::device, fmt::format("{} cannot be used: {}", found->id, found->problem));
  return *found;
}

}  // namespace skald::backend::gpu
