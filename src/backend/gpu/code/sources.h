// The kernel sources, as they stand in the binary.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace skald::backend::gpu {

struct SourceFile {
  std::string_view name;  ///< "prelude.cuh"
  std::string_view text;
};

/// Every file of kernels/, by name (made by CMake).
std::span<const SourceFile> kernel_sources();

/// One compilation: a file with kernels in it, the files that it includes put in their places. No compiler
/// has to find a header.
struct SourceModule {
  std::string name;  ///< "linear"
  std::string text;
  std::string digest;  ///< first 16 hexadecimal digits of the text's SHA-256
};

/// The modules of the backend.
std::vector<SourceModule> kernel_modules();
/// One module of given files, from the one that is called `name`.cuh. Throws Error(internal) when a file that
/// is included is not there.
SourceModule make_module(std::span<const SourceFile> files, const std::string& name);

}  // namespace skald::backend::gpu
