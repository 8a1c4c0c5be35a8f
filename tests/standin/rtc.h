// A run-time compiler that compiles kernels for the CPU: what HIPRTC's and NVRTC's faces share.
#pragma once

#include <string>
#include <vector>

namespace standin {

/// Compiles `source` with the host's compiler into a module for `architecture`. Returns whether it worked;
/// `log` has the compiler's words. `faults` are those of core.h: rtcabort and rtchang.
bool compile(const std::string& source, const std::string& architecture,
             const std::vector<std::string>& options, const std::string& faults, std::string& code,
             std::string& log);

}  // namespace standin
