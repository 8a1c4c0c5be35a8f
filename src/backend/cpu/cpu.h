// The CPU backend's one public door. Everything else under backend/cpu is private to it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backend/ops.h"

namespace skald::backend {

struct CpuOptions {
  int threads = 0;     ///< 0 = what the process may use (affinity and control group)
  std::string target;  ///< SIMD target to force, e.g. "AVX2", "SSE4", "scalar"; empty = best. Unknown:
                       ///< Error(invalid_argument)
};

/// Makes the CPU device. Throws Error(invalid_argument) naming the targets this machine has.
std::unique_ptr<Backend> make_cpu_backend(const CpuOptions& options = {});

/// Names of the SIMD targets that this build and machine both have, best first.
std::vector<std::string> cpu_targets();

}  // namespace skald::backend
