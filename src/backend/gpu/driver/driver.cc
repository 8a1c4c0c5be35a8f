// Opening a vendor's libraries, and what their errors mean.
#include "backend/gpu/driver/driver.h"

#include <fmt/format.h>

#include <algorithm>

namespace skald::backend::gpu {

namespace fs = std::filesystem;

std::shared_ptr<Driver> Driver::open_file(Vendor vendor, const std::string& path,
                                          std::vector<Attempt>& attempts) {
  std::shared_ptr<Driver> driver(new Driver(vendor));
  driver->library_ = Library::open(path, attempts);
  if (!driver->library_) return nullptr;
  const std::string missing = vendor == Vendor::amd ? fill_hip(driver->library_, driver->api_)
                                                    : fill_cuda(driver->library_, driver->api_);
  if (missing.empty()) return driver;
  attempts.back().opened = false;
  attempts.back().outcome =
      fmt::format("opened, but it has no function {}: too old, or not what its name says", missing);
  return nullptr;
}

std::shared_ptr<Driver> Driver::open(Vendor vendor, const DriverSearch& search,
                                     std::vector<Attempt>& attempts) {
  for (const std::string& path :
       candidates(library_names(vendor).driver, search.folders, standard_folders(vendor, search.root)))
    if (auto driver = open_file(vendor, path, attempts)) return driver;
  return nullptr;
}

std::string Driver::describe(Status status) const {
  const char *name = nullptr, *text = nullptr;
  if (vendor_ == Vendor::amd) {
    name = api_.error_name(status), text = api_.error_text(status);
  } else {
    api_.get_error_name(status, &name), api_.get_error_text(status, &text);
  }
  return fmt::format("{} ({})", name ? name : fmt::format("error {}", status),
                     text ? text : "no description");
}

int Driver::attribute_number(Attribute attribute) const {
  return vendor_ == Vendor::amd ? hip_attribute(attribute) : cuda_attribute(attribute);
}

bool is_fatal(Status status) {
  // Faults of a kernel or of the hardware; the driver answers with the same number from then on.
  constexpr Status kFatal[] = {46,  214, 220, 226, 402, 700, 702, 709, 710,
                               714, 715, 716, 717, 718, 719, 721, 802, 999};
  return std::find(std::begin(kFatal), std::end(kFatal), status) != std::end(kFatal);
}

ErrorCode error_code(Status status) {
  if (is_fatal(status)) return ErrorCode::device_lost;
  switch (status) {
    case kOutOfMemory: return ErrorCode::out_of_memory;
    case kInvalidFunction:
    case kNotFound:
    case kOutOfResources: return ErrorCode::device_function;
    case kInvalidImage:
    case kNoBinaryForGpu:
    case kInvalidPtx:
    case kUnsupportedPtx: return ErrorCode::device_code;
    default: return ErrorCode::device;
  }
}

void Driver::fail(Status status, std::string_view what) const {
  if (api_.last_error) api_.last_error();  // HIP would report it again at the next launch
  throw Error(error_code(status), fmt::format("cannot {}: {}", what, describe(status)));
}

namespace {

std::unique_ptr<Compiler> usable_hiprtc(Library library, std::vector<Attempt>& attempts) {
  auto compiler = std::make_unique<Compiler>();
  compiler->library = std::move(library);
  const std::string missing = fill_hiprtc(compiler->library, compiler->api);
  if (missing.empty() && compiler->api.version(&compiler->major, &compiler->minor) == kSuccess)
    return compiler;
  attempts.back().opened = false;
  attempts.back().outcome =
      fmt::format("opened, but it has no working {}", missing.empty() ? "hiprtcVersion" : missing);
  return nullptr;
}

std::unique_ptr<Compiler> open_hiprtc(const Driver& driver, std::vector<Attempt>& attempts) {
  const fs::path folder = driver.library().file().parent_path();
  const int major = major_version(driver.library().file());
  for (const std::string& name : library_names(Vendor::amd).compiler) {
    const int named = major_version(name);
    if (major >= 0 && named >= 0 && named != major) continue;  // of another installation
    const std::string path = folder.empty() ? name : (folder / name).string();
    if (Library library = Library::open(path, attempts))
      if (auto compiler = usable_hiprtc(std::move(library), attempts)) return compiler;
  }
  // Up to ROCm 5 the compiler's functions are inside the driver library.
  if (!driver.library().find("hiprtcVersion")) {
    attempts.push_back(
        {driver.library().file().string(), false, "no compiler inside the driver library either"});
    return nullptr;
  }
  attempts.push_back({driver.library().file().string(), true, "compiler inside the driver library"});
  return usable_hiprtc(driver.library(), attempts);
}

std::unique_ptr<Compiler> open_nvrtc(const Driver& driver, const DriverSearch& search,
                                     std::vector<Attempt>& attempts) {
  int version = 0;
  driver.check(driver.api().driver_version(&version), "read the driver's version");
  for (const std::string& path : candidates(library_names(Vendor::nvidia).compiler, search.folders,
                                            standard_folders(Vendor::nvidia, search.root))) {
    auto compiler = std::make_unique<Compiler>();
    compiler->library = Library::open(path, attempts);
    if (!compiler->library) continue;
    attempts.back().opened = false;
    const std::string missing = fill_nvrtc(compiler->library, compiler->api);
    if (!missing.empty()) {
      attempts.back().outcome = fmt::format("opened, but it has no function {}", missing);
    } else if (compiler->api.version(&compiler->major, &compiler->minor) != kSuccess) {
      attempts.back().outcome = "opened, but it does not tell its version";
    } else if (compiler->major > version / 1000) {
      attempts.back().outcome =
          fmt::format("version {}.{} is newer than the driver's CUDA {}.{}", compiler->major, compiler->minor,
                      version / 1000, version % 1000 / 10);
    } else {
      attempts.back().opened = true;
      return compiler;
    }
  }
  return nullptr;
}

}  // namespace

std::unique_ptr<Compiler> open_compiler(const Driver& driver, const DriverSearch& search,
                                        std::vector<Attempt>& attempts) {
  return driver.vendor() == Vendor::amd ? open_hiprtc(driver, attempts)
                                        : open_nvrtc(driver, search, attempts);
}

}  // namespace skald::backend::gpu
