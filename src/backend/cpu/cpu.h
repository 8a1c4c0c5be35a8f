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
  /// How matrices are held: "f32", "bf16", "int8" (weights alone, a scale per 64 inputs of an output), or
  /// "auto": bf16 where the checkpoint has bf16, else f32, both without any rounding. Convolutions and
  /// tensors marked exact keep their values. Unknown: Error(invalid_argument)
  std::string weights = "auto";
  /// "exact", or "fast": matrices and convolutions as 16-bit integers (8-bit with weights "int8"), their
  /// inputs rounded to 16-bit integers, except for tensors marked exact (docs/decisions/0010). Every target
  /// computes it; AVX512_VNNI takes two thirds of the time of "exact" where arithmetic is the bound. Unknown:
  /// Error(invalid_argument)
  std::string compute = "exact";
};

/// Makes the CPU device. Throws Error(invalid_argument) naming the targets this machine has.
std::unique_ptr<Backend> make_cpu_backend(const CpuOptions& options = {});

/// Bytes of one matrix element under `CpuOptions::weights`, scales included, for a checkpoint whose matrices
/// are bf16 or are not. Unknown: Error(invalid_argument).
double cpu_matrix_bytes(const std::string& weights, bool bf16_source, const std::string& compute = "exact");

/// Names of the SIMD targets that this build and machine both have, best first.
std::vector<std::string> cpu_targets();

}  // namespace skald::backend
