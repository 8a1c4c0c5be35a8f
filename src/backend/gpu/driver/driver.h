// A vendor's opened libraries: the function table, the compiler, and errors in the library's own terms.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "backend/gpu/driver/api.h"
#include "backend/gpu/driver/search.h"
#include "skald/error.h"

namespace skald::backend::gpu {

/// Where to look, beyond the loader's own search and the standard folders.
struct DriverSearch {
  std::vector<std::filesystem::path> folders;
  std::filesystem::path root = "/";  ///< of the standard folders; tests use a tree of their own
};

class Driver {
 public:
  /// Opens the vendor's driver library and fills the table. Returns null, with the reasons in `attempts`,
  /// when none can be opened or one that opens lacks functions. Does not initialise it.
  static std::shared_ptr<Driver> open(Vendor vendor, const DriverSearch& search,
                                      std::vector<Attempt>& attempts);

  /// The same for one file.
  static std::shared_ptr<Driver> open_file(Vendor vendor, const std::string& path,
                                           std::vector<Attempt>& attempts);

  Vendor vendor() const { return vendor_; }
  const DriverApi& api() const { return api_; }
  const Library& library() const { return library_; }

  /// Throws what `status` means, unless it is success. `what` completes "cannot ...: ".
  void check(Status status, std::string_view what) const {
    if (status != kSuccess) fail(status, what);
  }
  [[noreturn]] void fail(Status status, std::string_view what) const;
  /// "hipErrorNoDevice (no ROCm-capable device is detected)".
  std::string describe(Status status) const;
  /// The library's own number for a property.
  int attribute_number(Attribute attribute) const;

 private:
  explicit Driver(Vendor vendor) : vendor_(vendor) {}

  Vendor vendor_;
  Library library_;
  DriverApi api_;
};

/// Whether an error of the driver means that the device is gone for this process.
bool is_fatal(Status status);
ErrorCode error_code(Status status);

/// The run-time compiler of the installation that a driver library came from.
struct Compiler {
  Library library;
  CompilerApi api;
  int major = 0, minor = 0;
};

/// Finds the compiler that belongs to a driver. AMD: the same folder and major version, else the symbols
/// inside the driver library (ROCm 5). NVIDIA: an own package, so any that is found, the newest first, but
/// none newer than the driver's CUDA version. Returns null with the reasons in `attempts`.
std::unique_ptr<Compiler> open_compiler(const Driver& driver, const DriverSearch& search,
                                        std::vector<Attempt>& attempts);

// Per vendor (hip.cc, cuda.cc): fill a table; return the name of a missing function, or an empty one.
std::string fill_hip(const Library& library, DriverApi& api);
std::string fill_cuda(const Library& library, DriverApi& api);
std::string fill_hiprtc(const Library& library, CompilerApi& api);
std::string fill_nvrtc(const Library& library, CompilerApi& api);
int hip_attribute(Attribute attribute);
int cuda_attribute(Attribute attribute);

}  // namespace skald::backend::gpu
