// What the helper program is asked to do, as bytes over an inherited descriptor.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "backend/gpu/driver/api.h"

namespace skald::backend::gpu {

/// One compilation.
struct CompileJob {
  Vendor vendor = Vendor::amd;
  std::string driver_library;        ///< the file that the device was found through
  std::vector<std::string> folders;  ///< where the compiler may be, beyond the usual places
  std::string architecture;          ///< "gfx1100", "sm_90"
  std::vector<std::string> options;
  std::string name, source;
};

std::string encode(const CompileJob& job);
/// Throws Error(internal) when the bytes are not those of encode().
CompileJob decode_job(std::string_view bytes);

/// How the helper ends.
enum HelperStatus : int {
  kHelperDone = 0,
  kHelperCompileError = 2,
  kHelperNoLibrary = 3,
  kHelperUnknownArchitecture = 4,
  kHelperUsage = 5,
};

/// Compiles in this process, which the vendor's compiler may end. Returns a HelperStatus; `message` gets the
/// compiler's log or what else went wrong.
int compile_here(const CompileJob& job, std::string& code, std::string& message);

/// Starts the driver in this process: kHelperDone and a line with the compiler's version and file ("" = there
/// is none) and one with the architectures that it knows, or kHelperNoLibrary and what the driver says.
int probe_here(Vendor vendor, const std::string& driver_library, const std::vector<std::string>& folders,
               std::string& message);

/// The compiler options of skald's kernels, without the architecture's.
std::vector<std::string> compile_options(Vendor vendor);

}  // namespace skald::backend::gpu
