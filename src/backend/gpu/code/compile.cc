// The vendors' run-time compilers, called in the process at hand.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cstring>

#include "backend/gpu/code/job.h"
#include "backend/gpu/driver/driver.h"
#include "backend/gpu/kernels/kernels.h"

namespace skald::backend::gpu {

namespace fs = std::filesystem;

namespace {

std::string attempts_text(const std::vector<Attempt>& attempts) {
  std::string text;
  for (const Attempt& a : attempts)
    text += fmt::format("{}{}: {}", text.empty() ? "" : "; ", a.path, a.outcome);
  return text;
}

/// What the code object manager of the same installation can compile for; empty = it does not tell.
std::vector<std::string> amd_architectures(const Driver& driver) {
  using Count = int (*)(size_t*);
  using Name = int (*)(size_t, const char**);
  std::vector<Attempt> attempts;
  const fs::path folder = driver.library().file().parent_path();
  Library library;
  for (const char* name : {"libamd_comgr.so.3", "libamd_comgr.so.2", "libamd_comgr.so"}) {
    std::error_code failure;
    if (!folder.empty() && fs::exists(folder / name, failure))
      library = Library::open((folder / name).string(), attempts);
    if (!library) library = Library::open(name, attempts);
    if (library) break;
  }
  std::vector<std::string> known;
  const auto count = reinterpret_cast<Count>(library.find("amd_comgr_get_isa_count"));
  const auto name = reinterpret_cast<Name>(library.find("amd_comgr_get_isa_name"));
  size_t n = 0;
  if (!count || !name || count(&n) != 0) return known;
  for (size_t i = 0; i < n; ++i) {
    const char* text = nullptr;  // "amdgcn-amd-amdhsa--gfx1030"
    if (name(i, &text) != 0 || !text) continue;
    const char* last = std::strrchr(text, '-');
    known.emplace_back(last ? last + 1 : text);
  }
  return known;
}

int capability(const std::string& architecture) {
  int number = 0;
  const size_t at = architecture.find('_') + 1;
  std::from_chars(architecture.data() + at, architecture.data() + architecture.size(), number);
  return number;
}

/// The same for NVRTC, which tells numbers.
std::vector<int> nvidia_architectures(const CompilerApi& api) {
  int count = 0;
  if (!api.architecture_count || !api.architectures || api.architecture_count(&count) != kSuccess ||
      count < 1)
    return {};
  std::vector<int> known(static_cast<size_t>(count));
  if (api.architectures(known.data()) != kSuccess) known.clear();
  return known;
}

/// Machine code for a card that the compiler knows; for a newer card the newest portable code, which the
/// driver compiles.
std::string nvidia_target(const CompilerApi& api, const std::string& architecture, bool& portable) {
  portable = false;
  const std::vector<int> known = nvidia_architectures(api);
  if (known.empty()) return architecture;
  const int wanted = capability(architecture);
  if (std::find(known.begin(), known.end(), wanted) != known.end()) return architecture;
  int best = 0;
  for (const int k : known)
    if (k < wanted) best = std::max(best, k);
  portable = best > 0;
  return portable ? fmt::format("compute_{}", best) : architecture;
}

class Program {
 public:
  Program(const CompilerApi& api, const CompileJob& job) : api_(api) {
    status_ = api.create(&program_, job.source.c_str(), (job.name + ".cu").c_str(), 0, nullptr, nullptr);
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  ~Program() {
    if (program_) api_.destroy(&program_);
  }

  bool compile(const std::vector<std::string>& options) {
    std::vector<const char*> texts;
    for (const std::string& o : options) texts.push_back(o.c_str());
    if (status_ == kSuccess) status_ = api_.compile(program_, static_cast<int>(texts.size()), texts.data());
    return status_ == kSuccess;
  }
  std::string log() const { return text(api_.log_size, api_.log); }
  std::string error() const {
    const char* name = api_.error_text(status_);
    return name ? name : fmt::format("error {}", status_);
  }
  std::string code(bool portable) const {
    return portable ? text(api_.ptx_size, api_.ptx) : text(api_.code_size, api_.code);
  }

 private:
  std::string text(Status (*size_of)(void*, size_t*), Status (*get)(void*, char*)) const {
    size_t size = 0;
    std::string bytes;
    if (program_ && size_of(program_, &size) == kSuccess && size > 0) {
      bytes.resize(size);
      if (get(program_, bytes.data()) != kSuccess) bytes.clear();
    }
    return bytes;
  }

  const CompilerApi& api_;
  void* program_ = nullptr;
  Status status_;
};

DriverSearch search_of(const std::vector<std::string>& folders) {
  DriverSearch search;
  search.folders.assign(folders.begin(), folders.end());
  return search;
}

}  // namespace

std::vector<std::string> compile_options(Vendor vendor) {
  if (vendor == Vendor::nvidia) return {std::begin(kNvrtcOptions), std::end(kNvrtcOptions)};
  return {std::begin(kClangOptions), std::end(kClangOptions)};
}

int compile_here(const CompileJob& job, std::string& code, std::string& message) {
  std::vector<Attempt> attempts;
  const auto driver = Driver::open_file(job.vendor, job.driver_library, attempts);
  const auto compiler = driver ? open_compiler(*driver, search_of(job.folders), attempts) : nullptr;
  if (!compiler) {
    message = attempts_text(attempts);
    return kHelperNoLibrary;
  }
  std::vector<std::string> options = job.options;
  bool portable = false;
  if (job.vendor == Vendor::nvidia) {
    options.push_back("--gpu-architecture=" + nvidia_target(compiler->api, job.architecture, portable));
  } else {
    // HIPRTC may end the process for a name it does not know, so its own list is asked first.
    const std::vector<std::string> known = amd_architectures(*driver);
    if (!known.empty() && std::find(known.begin(), known.end(), job.architecture) == known.end()) {
      message = fmt::format("this ROCm's compiler ({}.{}) does not know {}; its newest is {}",
                            compiler->major, compiler->minor, job.architecture, known.back());
      return kHelperUnknownArchitecture;
    }
    options.push_back("--offload-arch=" + job.architecture);
  }
  Program program(compiler->api, job);
  if (!program.compile(options)) {
    message = fmt::format("{}: {}", program.error(), program.log().c_str());
    return kHelperCompileError;
  }
  code = program.code(portable);
  if (code.empty()) message = "the compiler gave no code";
  return code.empty() ? kHelperCompileError : kHelperDone;
}

int probe_here(Vendor vendor, const std::string& driver_library, const std::vector<std::string>& folders,
               std::string& message) {
  std::vector<Attempt> attempts;
  const auto driver = Driver::open_file(vendor, driver_library, attempts);
  if (!driver) {
    message = attempts_text(attempts);
    return kHelperNoLibrary;
  }
  int count = 0;
  Status status = driver->api().init(0);
  if (status == kSuccess) status = driver->api().device_count(&count);
  if (status != kSuccess) {
    message = driver->describe(status);
    return kHelperNoLibrary;
  }
  attempts.clear();
  const auto compiler = open_compiler(*driver, search_of(folders), attempts);
  if (!compiler) return message.clear(), kHelperDone;
  message = fmt::format("{}.{} {}\n", compiler->major, compiler->minor, compiler->library.file().string());
  if (vendor == Vendor::amd) {
    message += fmt::format("{}", fmt::join(amd_architectures(*driver), " "));
  } else {
    for (const int known : nvidia_architectures(compiler->api)) message += fmt::format("sm_{} ", known);
  }
  return kHelperDone;
}

}  // namespace skald::backend::gpu
