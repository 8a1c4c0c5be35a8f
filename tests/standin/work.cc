// Modules, launches and graphs of the stand-in driver.
#include <dlfcn.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <thread>

#include "simt/simt_rt.h"
#include "world.h"

namespace standin {
namespace {

struct LoadedModule;
struct Function {
  LoadedModule* module;
  const simt_kernel* kernel;
  unsigned shared = 49152;  ///< most dynamic shared memory of a launch
};
struct LoadedModule {
  explicit LoadedModule(const std::string& path) : code(path) {}
  simt::Module code;
  std::deque<Function> functions;
};

/// What was made and not destroyed: whoever gives a device up leaves it behind.
template <class T>
std::map<void*, std::unique_ptr<T>>& owned() {
  static auto& all = *new std::map<void*, std::unique_ptr<T>>;
  return all;
}
template <class T>
void* own(std::unique_ptr<T> made) {
  void* const handle = made.get();
  owned<T>()[handle] = std::move(made);
  return handle;
}

/// Buffers that the pointers inside a kernel's arguments lead to, as they were before it ran.
struct Snapshot {
  char* at;
  std::vector<char> before;
};
std::vector<Snapshot> snapshot(const std::vector<char>& arguments) {
  const std::lock_guard lock(world().mutex);
  std::vector<Snapshot> all;
  std::set<uintptr_t> seen;
  for (size_t i = 0; i + 8 <= arguments.size(); i += 8) {
    uintptr_t value = 0, base = 0;
    std::memcpy(&value, arguments.data() + i, 8);
    Block* block = find_block(value, &base);
    if (!block || block->host || !seen.insert(base).second) continue;
    all.push_back(
        {reinterpret_cast<char*>(base),
         std::vector<char>(reinterpret_cast<char*>(base), reinterpret_cast<char*>(base) + block->bytes)});
  }
  return all;
}
void skew(const std::vector<Snapshot>& all, float factor) {
  for (const Snapshot& s : all)
    for (size_t i = 0; i + 4 <= s.before.size(); i += 4)
      if (std::memcmp(s.at + i, &s.before[i], 4) != 0) {
        float v = 0;
        std::memcpy(&v, s.at + i, 4);
        v *= factor;
        std::memcpy(s.at + i, &v, 4);
      }
}

void run_kernel(const Function& f, unsigned grid, unsigned block, unsigned dynamic_shared,
                std::vector<char> arguments, int on) {
  float factor = 1;
  long slow_us = 0;
  {
    const std::lock_guard lock(world().mutex);
    const Faults& faults = world().faults;
    if (faults.skew_kernel == f.kernel->name) factor += faults.skew;
    slow_us = faults.slow_us;
  }
  if (slow_us) std::this_thread::sleep_for(std::chrono::microseconds(slow_us));
  std::vector<Snapshot> before;
  if (factor != 1) before = snapshot(arguments);
  static thread_local const auto runner = std::make_unique<simt::Runner>();
  const std::string error = runner->run(f.module->code, *f.kernel, arguments.data(), static_cast<int>(grid),
                                        static_cast<int>(block), dynamic_shared, 0);
  if (!error.empty()) {
    std::fprintf(stderr, "standin: %s\n", error.c_str());
    const std::lock_guard lock(world().mutex);
    world().devices.at(static_cast<size_t>(on)).sticky =
        error.find("memory") != std::string::npos ? kIllegalAddress : kLaunchFailure;
  }
  skew(before, factor);
}

size_t image_size(const unsigned char* elf) {
  uint64_t sections = 0;
  uint16_t entry = 0, entries = 0;
  std::memcpy(&sections, elf + 40, 8), std::memcpy(&entry, elf + 58, 2), std::memcpy(&entries, elf + 60, 2);
  return sections + size_t{entry} * entries;
}

/// Machine code fits its own architecture; portable code fits that one and newer ones.
bool fits(const std::string& code, const std::string& device) {
  if (code == device) return true;
  return code.rfind("compute_", 0) == 0 && device.rfind("sm_", 0) == 0 &&
         std::stoi(code.substr(8)) <= std::stoi(device.substr(3));
}

}  // namespace

// ---- modules

int load_module(void** module, const void* image) {
  STANDIN_CALL("load_module");
  ++count("module");
  const auto* elf = static_cast<const unsigned char*>(image);
  if (!elf || std::memcmp(elf, "\177ELF", 4) != 0) return kInvalidImage;
  if (here().architecture == world().faults.nobin) return kNoBinary;
  // A name of its own: the loader takes the same name for the same library.
  std::string path = (std::filesystem::temp_directory_path() / "standin-module-XXXXXX").string();
  const int fd = mkstemp(path.data());
  if (fd < 0 || write(fd, image, image_size(elf)) != static_cast<ssize_t>(image_size(elf)))
    return kInvalidImage;
  std::unique_ptr<LoadedModule> m;
  try {
    m = std::make_unique<LoadedModule>(path);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "standin: %s\n", e.what());
  }
  void* library = m ? dlopen(path.c_str(), RTLD_NOW | RTLD_NOLOAD) : nullptr;
  close(fd);
  unlink(path.c_str());
  if (!library) return kInvalidImage;
  const auto* architecture = static_cast<const char*>(dlsym(library, "standin_arch"));
  const bool right = architecture && fits(architecture, here().architecture);
  dlclose(library);
  if (!right) return kNoBinary;
  *module = own(std::move(m));
  return kOk;
}

int unload_module(void* module) {
  STANDIN_CALL("unload_module");
  owned<LoadedModule>().erase(module);
  return kOk;
}

int get_function(void** function, void* module, const char* name) {
  STANDIN_CALL("get_function");
  auto* m = static_cast<LoadedModule*>(module);
  const simt_kernel* kernel = m->code.find(name);
  if (!kernel) return kNotFound;
  m->functions.push_back({.module = m, .kernel = kernel});
  *function = &m->functions.back();
  return kOk;
}

int allow_shared(void* function, int bytes) {
  STANDIN_CALL("set_function");
  constexpr int kOptIn = 232448;
  if (bytes < 0 || bytes > kOptIn) return kInvalidValue;
  static_cast<Function*>(function)->shared = static_cast<unsigned>(bytes);
  return kOk;
}

int launch(void* function, unsigned grid, unsigned block, unsigned dynamic_shared, void* stream,
           void** arguments) {
  STANDIN_CALL("launch");
  const auto* f = static_cast<Function*>(function);
  if (!f) return kInvalidHandle;
  const World& w = world();
  if (w.faults.nofunc == f->kernel->name) return kInvalidFunction;
  if (grid == 0 || block == 0 || block > 1024 || dynamic_shared > f->shared) return kInvalidValue;
  const auto* bytes = static_cast<const char*>(arguments[0]);
  std::vector<char> values(bytes, bytes + f->kernel->args_size);
  Op op;
  op.is_launch = true;
  op.run = [=, fn = *f](int on) { run_kernel(fn, grid, block, dynamic_shared, values, on); };
  return submit(stream, std::move(op));
}

// ---- graphs

int begin_capture(void* stream) {
  STANDIN_CALL("begin_capture");
  auto* s = static_cast<Stream*>(stream);
  if (!world().streams.count(s) || s->capture) return kCaptureInvalid;
  s->capture = std::make_shared<Graph>();
  return kOk;
}

int end_capture(void* stream, void** graph) {
  STANDIN_CALL("end_capture");
  auto* s = static_cast<Stream*>(stream);
  if (!s->capture) return kCaptureInvalid;
  *graph = own(std::make_unique<Graph>(*s->capture));
  s->capture.reset();
  return kOk;
}

int instantiate(void** exec, void* graph) {
  STANDIN_CALL("instantiate");
  *exec = own(std::make_unique<Graph>(*static_cast<Graph*>(graph)));
  return kOk;
}

int launch_graph(void* exec, void* stream) {
  STANDIN_CALL("launch_graph");
  ++count("graph");
  for (const Op& op : *static_cast<Graph*>(exec))
    if (const int status = submit(stream, op)) return status;
  return kOk;
}

int destroy_graph(void* graph) {
  const std::lock_guard lock(world().mutex);
  owned<Graph>().erase(graph);
  return kOk;
}

}  // namespace standin
