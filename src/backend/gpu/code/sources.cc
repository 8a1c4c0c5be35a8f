// Kernel sources put together.
#include "backend/gpu/code/sources.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "backend/gpu/kernels/kernels.h"
#include "base/sha256.h"
#include "skald/error.h"

namespace skald::backend::gpu {
namespace {

constexpr std::string_view kInclude = "#include \"backend/gpu/kernels/", kOnce = "#pragma once";

class Assembler {
 public:
  explicit Assembler(std::span<const SourceFile> files) : files_(files) {}

  /// Appends a file, and before its own lines those of what it includes; each file once.
  void add(std::string_view name, std::string& to) {
    if (!done_.insert(std::string(name)).second) return;
    const auto file =
        std::find_if(files_.begin(), files_.end(), [&](const SourceFile& f) { return f.name == name; });
    if (file == files_.end())
      throw Error(ErrorCode::internal, fmt::format("kernel source '{}' is not in this build", name));
    int number = 1;
    to += fmt::format("#line 1 \"{}\"\n", name);
    for (std::string_view rest = file->text; !rest.empty(); ++number) {
      const size_t end = std::min(rest.find('\n'), rest.size() - 1) + 1;
      line(rest.substr(0, end), name, number, to);
      rest.remove_prefix(end);
    }
  }

 private:
  void line(std::string_view text, std::string_view name, int number, std::string& to) {
    if (text.starts_with(kInclude)) {
      const std::string_view wanted = text.substr(kInclude.size());
      add(wanted.substr(0, wanted.find('"')), to);
      to += fmt::format("#line {} \"{}\"\n", number + 1, name);
    } else if (text.starts_with(kOnce)) {
      to += '\n';
    } else {
      to += text;
    }
  }

  std::span<const SourceFile> files_;
  std::set<std::string> done_;
};

}  // namespace

SourceModule make_module(std::span<const SourceFile> files, const std::string& name) {
  SourceModule module{name, {}, {}};
  Assembler(files).add(name + ".cuh", module.text);
  module.digest = hex(sha256(std::as_bytes(std::span(module.text))), 16);
  return module;
}

std::vector<SourceModule> kernel_modules() {
  std::vector<SourceModule> modules{make_module(kernel_sources(), "link")};
  for (const KernelModule& m : kKernelModules)
    modules.push_back(make_module(kernel_sources(), std::string(m.name)));
  return modules;
}

}  // namespace skald::backend::gpu
