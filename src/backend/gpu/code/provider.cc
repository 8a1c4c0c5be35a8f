// Where machine code comes from.
#include "backend/gpu/code/provider.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <fstream>
#include <iterator>
#include <mutex>
#include <optional>
#include <sstream>
#include <thread>

#include "backend/gpu/code/cache.h"
#include "backend/gpu/code/child.h"
#include "backend/gpu/code/job.h"

namespace skald::backend {

namespace fs = std::filesystem;

fs::path find_helper() {
  std::error_code failure;
  std::vector<fs::path> folders;
  Dl_info here{};
  if (dladdr(reinterpret_cast<void*>(&find_helper), &here) && here.dli_fname)
    folders.push_back(fs::weakly_canonical(here.dli_fname, failure).parent_path());
  folders.push_back(fs::read_symlink("/proc/self/exe", failure).parent_path());
  for (const fs::path& folder : folders)
    for (const fs::path& path : {folder / "skald-rtc", folder.parent_path() / "libexec/skald/skald-rtc",
                                 folder.parent_path().parent_path() / "libexec/skald/skald-rtc"})
      if (fs::is_regular_file(path, failure)) return path;
  return {};
}

namespace gpu {
namespace {

fs::path helper_of(const GpuOptions& options) {
  return options.helper.empty() ? find_helper() : options.helper;
}

std::vector<std::string> folder_names(const GpuOptions& options) {
  std::vector<std::string> names;
  for (const fs::path& folder : options.library_folders) names.push_back(folder.string());
  return names;
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

/// The words of the second line.
std::vector<std::string> second_line(const std::string& text) {
  const size_t at = text.find('\n');
  std::istringstream in(at == std::string::npos ? "" : first_line(text.substr(at + 1)));
  return {std::istream_iterator<std::string>(in), {}};
}

/// The end of a log in one line, since errors are one sentence.
std::string shortened(std::string text) {
  constexpr size_t kMost = 600;
  std::replace(text.begin(), text.end(), '\n', ' ');
  while (!text.empty() && text.back() == ' ') text.pop_back();
  return text.size() <= kMost ? text : text.substr(0, kMost) + " ...";
}

/// A library is another one when its file is: path, size and time are part of the cache's key.
std::string compiler_identity(const std::string& compiler, const Driver& driver) {
  std::string text = compiler;
  for (const fs::path& file : {fs::path(compiler.substr(compiler.find(' ') + 1)), driver.library().file()}) {
    std::error_code failure;
    const auto size = fs::file_size(file, failure);
    const auto time = fs::last_write_time(file, failure).time_since_epoch().count();
    text += fmt::format(" {} {} {}", file.string(), size, time);
  }
  return text;
}

class Provider {
 public:
  Provider(const Driver& driver, const GpuInfo& device, std::string compiler, const GpuOptions& options)
      : driver_(driver),
        device_(device),
        compiler_(std::move(compiler)),
        options_(options),
        helper_(helper_of(options)),
        cache_(options.cache_folder) {}

  bool has_prepared(const SourceModule& module) const { return prepared(module).has_value(); }
  bool has_kept(const SourceModule& module) const { return cache_.find(key_of(module)).has_value(); }

  DeviceCode get(const SourceModule& module) const {
    if (auto image = prepared(module)) return {module.name, DeviceCode::prepared, std::move(*image)};
    require_compiler();
    const CodeKey key = key_of(module);
    if (auto image = cache_.find(key)) return {module.name, DeviceCode::kept, std::move(*image)};
    std::vector<std::byte> image = compile(module);
    cache_.keep(key, image);
    return {module.name, DeviceCode::compiled, std::move(image)};
  }

 private:
  CodeKey key_of(const SourceModule& module) const {
    return {device_.architecture, module.name, module.digest,
            fmt::format("{}", fmt::join(compile_options(driver_.vendor()), " ")),
            compiler_identity(compiler_, driver_)};
  }

  std::optional<std::vector<std::byte>> prepared(const SourceModule& module) const {
    if (options_.code_folder.empty()) return std::nullopt;
    std::ifstream in(
        options_.code_folder / fmt::format("{}-{}-{}.co", device_.architecture, module.name, module.digest),
        std::ios::binary);
    if (!in) return std::nullopt;
    const std::string bytes{std::istreambuf_iterator<char>(in), {}};
    const auto* first = reinterpret_cast<const std::byte*>(bytes.data());
    return std::vector<std::byte>(first, first + bytes.size());
  }

  [[noreturn]] void fail(const std::string& why, const std::string& remedy) const {
    throw Error(ErrorCode::device_code,
                fmt::format("no machine code for {} ({}, {}): none is prepared{}, and {}; {}", device_.id,
                            device_.name, device_.architecture,
                            options_.code_folder.empty() ? "" : " in '" + options_.code_folder.string() + "'",
                            why, remedy));
  }

  void require_compiler() const {
    const bool nvidia = driver_.vendor() == Vendor::nvidia;
    if (compiler_.empty())
      fail(fmt::format("there is no run-time compiler ({})", nvidia ? "libnvrtc" : "libhiprtc"),
           nvidia ? "install NVRTC of the driver's CUDA version (package libnvrtc or cuda-nvrtc)"
                  : "install hiprtc of the same ROCm as the driver library");
    if (helper_.empty())
      fail("the program skald-rtc, which runs the compiler, is not beside this one",
           "install skald whole, or name its folder");
  }

  std::vector<std::byte> compile(const SourceModule& module) const {
    const MemoryFile job("skald-job"), code("skald-code");
    job.write(encode({.vendor = driver_.vendor(),
                      .driver_library = driver_.library().file().string(),
                      .folders = folder_names(options_),
                      .architecture = device_.architecture,
                      .options = compile_options(driver_.vendor()),
                      .name = module.name,
                      .source = module.text}));
    const ChildResult child =
        run_child(helper_, {"compile"}, {job.fd(), code.fd()}, options_.compile_deadline_ms);
    if (!child.ok()) explain(child, module);
    const std::string bytes = code.read();
    const auto* first = reinterpret_cast<const std::byte*>(bytes.data());
    return {first, first + bytes.size()};
  }

  [[noreturn]] void explain(const ChildResult& child, const SourceModule& module) const {
    const std::string output = shortened(child.output);
    if (child.exit_code == kHelperUnknownArchitecture)
      fail(output, "use a newer ROCm, or a build of skald that has code for this card");
    if (child.exit_code == kHelperCompileError)
      fail(fmt::format("the compiler refuses '{}': {}", module.name, output), "please report this");
    fail(fmt::format("the compiler's process {} on '{}'{}", child.describe(options_.compile_deadline_ms),
                     module.name, output.empty() ? "" : ": " + output),
         "use another version of the GPU software, or a build of skald that has code for this card");
  }

  const Driver& driver_;
  const GpuInfo& device_;
  const std::string compiler_;
  const GpuOptions& options_;
  const fs::path helper_;
  const CodeCache cache_;
};

}  // namespace

ProbeResult probe_driver(const Driver& driver, const GpuOptions& options) {
  ProbeResult result;
  const fs::path helper = helper_of(options);
  if (helper.empty()) {
    std::vector<Attempt> attempts;
    DriverSearch search{options.library_folders, options.root};
    if (const auto compiler = open_compiler(driver, search, attempts))
      result.compiler =
          fmt::format("{}.{} {}", compiler->major, compiler->minor, compiler->library.file().string());
    return result;
  }
  std::vector<std::string> arguments{"probe", vendor_prefix(driver.vendor()),
                                     driver.library().file().string()};
  for (std::string& folder : folder_names(options)) arguments.push_back(std::move(folder));
  constexpr int kAgain = 4000;  // a driver that hangs once does not keep a server from its work for long
  const ChildResult child = run_child_again(helper, arguments, options.probe_deadline_ms, kAgain);
  if (child.ok()) {
    result.compiler = first_line(child.output), result.architectures = second_line(child.output);
  } else if (child.exit_code == kHelperNoLibrary) {
    result.problem = shortened(child.output);
  } else {
    result.problem = fmt::format("starting {} in a process of its own failed: it {}{}",
                                 driver.library().file().string(), child.describe(options.probe_deadline_ms),
                                 child.output.empty() ? "" : ": " + shortened(child.output));
  }
  return result;
}

std::vector<DeviceCode> device_code(const std::vector<SourceModule>& modules, const Driver& driver,
                                    const GpuInfo& device, const std::string& compiler,
                                    const GpuOptions& options) {
  const Provider provider(driver, device, compiler, options);
  std::vector<DeviceCode> all(modules.size());
  std::mutex mutex;
  size_t next = 0;
  std::exception_ptr failure;
  const auto work = [&] {
    for (;;) {
      size_t i = 0;
      {
        const std::lock_guard lock(mutex);
        if (failure || next == modules.size()) return;
        i = next++;
      }
      try {
        all[i] = provider.get(modules[i]);
        all[i].image.push_back(std::byte{0});
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!failure) failure = std::current_exception();
      }
    }
  };
  // Each compiler is a process of its own; a few at once shorten the very first start.
  std::vector<std::thread> threads;
  const size_t most =
      std::min<size_t>({modules.size(), 4, std::max(1u, std::thread::hardware_concurrency())});
  for (size_t i = 1; i < most; ++i) threads.emplace_back(work);
  work();
  for (std::thread& t : threads) t.join();
  if (failure) std::rethrow_exception(failure);
  return all;
}

void count_code(const std::vector<SourceModule>& modules, const Driver& driver, const std::string& compiler,
                const GpuOptions& options, GpuInfo& device) {
  const Provider provider(driver, device, compiler, options);
  device.code_pieces = static_cast<int>(modules.size());
  for (const SourceModule& module : modules) {
    const bool prepared = provider.has_prepared(module);
    device.code_prepared += prepared;
    device.code_kept += !prepared && provider.has_kept(module);
  }
}

}  // namespace gpu
}  // namespace skald::backend
