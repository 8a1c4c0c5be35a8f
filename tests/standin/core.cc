// The driver that runs kernels on the CPU.
#include "core.h"

#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <sstream>
#include <thread>
#include <vector>

#include "simt/simt_rt.h"

namespace standin {
namespace {

// ---- configuration

struct Device : Properties {
  size_t used = 0;
  int sticky = 0;  ///< answered to every call once it is set
};

struct Faults {
  long lost = -1, blind = -1, hang = -1, dead = -1, oom = -1, slow_us = 0;
  bool crash_init = false, hang_init = false;
  std::string nobin, nofunc, fail_call, skew_kernel;
  int fail_code = 0;
  float skew = 0;
};

struct Event {
  uint64_t recorded = 0, done = 0;
  std::chrono::steady_clock::time_point time;
};

struct Op {
  std::function<void(int device)> run;
  std::shared_ptr<Event> event;
  uint64_t event_number = 0;
  bool is_launch = false, stuck = false;
};
using Graph = std::vector<Op>;

struct Stream {
  int device = 0;
  std::deque<Op> queue;
  bool busy = false;
  bool stuck = false;  ///< nothing starts any more
  bool blind = false;  ///< works, but never tells
  std::shared_ptr<Graph> capture;
  bool idle() const { return queue.empty() && !busy && !stuck; }
};

struct Block {
  char* map = nullptr;
  size_t mapped = 0, bytes = 0;
  int device = 0;
  char* host = nullptr;  ///< host memory: the other mapping
};

struct LoadedModule {
  explicit LoadedModule(const std::string& path) : code(path) {}
  simt::Module code;
};
struct Function {
  LoadedModule* module;
  const simt_kernel* kernel;
};

/// Everything. Never destroyed: the executor thread outlives static destructors.
struct World {
  std::recursive_mutex mutex;
  std::condition_variable_any work, done;
  bool configured = false;
  std::vector<Device> devices;
  Faults faults;
  std::map<std::string, unsigned long> counts;
  std::map<uintptr_t, Block> blocks;
  std::set<Stream*> streams;
  std::once_flag started;
};
World& world() {
  static World& w = *new World;
  return w;
}
thread_local int current = 0;

std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> parts;
  std::stringstream in(text);
  for (std::string part; std::getline(in, part, at);) parts.push_back(part);
  return parts;
}

void parse_devices(const std::string& text) {
  World& w = world();
  w.devices.clear();
  for (const std::string& item : split(text, ',')) {
    const std::vector<std::string> fields = split(item, ':');
    Device d;
    d.architecture = fields[0];
    d.memory = (fields.size() > 1 ? std::stoul(fields[1]) : 4096) << 20;
    d.integrated = fields.size() > 2 && fields[2] == "i";
    d.warp = fields.size() > 3 ? std::stoi(fields[3]) : d.architecture.rfind("gfx9", 0) == 0 ? 64 : 32;
    d.compute_units = d.integrated ? 2 : 8;
    w.devices.push_back(d);
  }
}

void parse_faults(const std::string& text) {
  Faults f;
  for (const std::string& item : split(text, ';')) {
    const size_t equals = item.find('=');
    const std::string name = item.substr(0, equals),
                      value = equals == std::string::npos ? "" : item.substr(equals + 1);
    const std::vector<std::string> parts = split(value, ':');
    if (name == "lost@launch")
      f.lost = std::stol(value);
    else if (name == "blind@launch")
      f.blind = std::stol(value);
    else if (name == "hang@launch")
      f.hang = std::stol(value);
    else if (name == "dead@launch")
      f.dead = std::stol(value);
    else if (name == "oom@malloc")
      f.oom = std::stol(value);
    else if (name == "slow")
      f.slow_us = std::stol(value);
    else if (name == "nobin")
      f.nobin = value;
    else if (name == "nofunc")
      f.nofunc = value;
    else if (name == "crash@init")
      f.crash_init = true;
    else if (name == "hang@init")
      f.hang_init = true;
    else if (name == "fail")
      f.fail_call = parts.at(0), f.fail_code = std::stoi(parts.at(1));
    else if (name == "skew")
      f.skew = std::stof(parts.at(0)), f.skew_kernel = parts.at(1);
    else if (name != "rtcabort" && name != "rtchang" && !name.empty())
      std::fprintf(stderr, "standin: unknown fault '%s'\n", item.c_str()), std::abort();
  }
  world().faults = f;
}

std::string variable(const char* suffix, const char* otherwise) {
  const char* value = std::getenv((std::string(kPrefix) + suffix).c_str());
  return value ? value : otherwise;
}

void configure_once() {
  World& w = world();
  if (w.configured) return;
  w.configured = true;
  parse_devices(variable("_DEVICES", kDefaultDevices));
  parse_faults(variable("_FAULTS", ""));
}

/// What every call begins with: the lock, the configuration, planted answers.
class Call {
 public:
  explicit Call(const char* name) : lock_(world().mutex) {
    configure_once();
    World& w = world();
    if (w.faults.fail_call == name)
      status_ = w.faults.fail_code;
    else if (w.devices.empty())
      status_ = kNoDevice;
    else if (Device& d = w.devices.at(static_cast<size_t>(current) % w.devices.size()); d.sticky)
      status_ = d.sticky;
  }
  int status() const { return status_; }

 private:
  std::lock_guard<std::recursive_mutex> lock_;
  int status_ = kOk;
};
#define STANDIN_CALL(name) \
  const Call call(name);   \
  if (call.status() != kOk) return call.status()

Device& here() { return world().devices.at(static_cast<size_t>(current)); }
unsigned long& count(const char* what) { return world().counts[what]; }

// ---- memory

constexpr size_t kPage = 4096, kAlignment = 256;

Block* find_block(uintptr_t address, uintptr_t* base = nullptr) {
  auto it = world().blocks.upper_bound(address);
  if (it == world().blocks.begin()) return nullptr;
  --it;
  if (address >= it->first + it->second.bytes) return nullptr;
  if (base) *base = it->first;
  return &it->second;
}

void fill_nan(char* at, size_t bytes) {
  const uint32_t pattern = 0x7fc0dead;
  for (size_t i = 0; i + 4 <= bytes; i += 4) std::memcpy(at + i, &pattern, 4);
}

// ---- the executor

void execute_forever() {
  World& w = world();
  std::unique_lock lock(w.mutex);
  for (;;) {
    const auto ready = std::find_if(w.streams.begin(), w.streams.end(),
                                    [](Stream* s) { return !s->stuck && !s->busy && !s->queue.empty(); });
    if (ready == w.streams.end()) {
      w.work.wait(lock);
      continue;
    }
    Stream* s = *ready;
    Op op = s->queue.front();
    s->busy = true;
    lock.unlock();
    if (op.run) op.run(s->device);
    lock.lock();
    s->busy = false;
    s->queue.pop_front();
    if (op.stuck)
      s->stuck = true;
    else if (op.event)
      op.event->done = std::max(op.event->done, op.event_number),
      op.event->time = std::chrono::steady_clock::now();
    w.done.notify_all();
  }
}

/// Faults that strike at a launch, decided when it is handed over.
void apply_launch_faults(Stream* s, Op& op) {
  if (!op.is_launch) return;
  World& w = world();
  const auto number = static_cast<long>(++count("launch"));
  const Faults& f = w.faults;
  if (number == f.hang) op.run = nullptr;
  if (number == f.hang || number == f.lost) op.stuck = true;
  if (number == f.blind) s->blind = true;
  if (number == f.dead)
    op.run = [](int device) {
      const std::lock_guard lock(world().mutex);
      world().devices.at(static_cast<size_t>(device)).sticky = kUnknown;
    };
}

int submit(void* handle, Op op) {
  World& w = world();
  std::call_once(w.started, [] { std::thread(execute_forever).detach(); });
  auto* s = static_cast<Stream*>(handle);
  if (!w.streams.count(s)) return kInvalidHandle;
  if (s->capture) {
    s->capture->push_back(std::move(op));
    return kOk;
  }
  apply_launch_faults(s, op);
  if (op.event) op.event_number = ++op.event->recorded;
  s->queue.push_back(std::move(op));
  w.work.notify_all();
  return kOk;
}

using EventHandle = std::shared_ptr<Event>;
EventHandle& event_of(void* handle) { return *static_cast<EventHandle*>(handle); }

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
                std::vector<char> arguments, int device, float factor, long slow_us) {
  if (slow_us) std::this_thread::sleep_for(std::chrono::microseconds(slow_us));
  std::vector<Snapshot> before;
  if (factor != 1) before = snapshot(arguments);
  static thread_local simt::Runner runner;
  const std::string error = runner.run(f.module->code, *f.kernel, arguments.data(), static_cast<int>(grid),
                                       static_cast<int>(block), dynamic_shared, 0);
  if (!error.empty()) {
    std::fprintf(stderr, "standin: %s\n", error.c_str());
    const std::lock_guard lock(world().mutex);
    world().devices.at(static_cast<size_t>(device)).sticky =
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

// ---- devices

int init() {
  const std::lock_guard lock(world().mutex);
  configure_once();
  const Faults& f = world().faults;
  if (f.crash_init) std::abort();
  if (f.hang_init)
    for (;;) std::this_thread::sleep_for(std::chrono::seconds(1));
  if (f.fail_call == "init") return f.fail_code;
  return world().devices.empty() ? kNoDevice : kOk;
}

int device_count(int* n) {
  const std::lock_guard lock(world().mutex);
  configure_once();
  *n = static_cast<int>(world().devices.size());
  if (world().faults.fail_call == "device_count") return world().faults.fail_code;
  return *n ? kOk : kNoDevice;
}

const Properties* device(int index) {
  const std::lock_guard lock(world().mutex);
  configure_once();
  const auto& all = world().devices;
  return index < 0 || index >= static_cast<int>(all.size()) ? nullptr : &all[static_cast<size_t>(index)];
}

int set_device(int index) {
  STANDIN_CALL("set_device");
  if (!device(index)) return kInvalidDevice;
  current = index;
  return kOk;
}

int current_device() { return current; }

int memory_info(size_t* free, size_t* total) {
  STANDIN_CALL("memory_info");
  *total = here().memory, *free = here().memory - std::min(here().memory, here().used);
  return kOk;
}

// ---- memory

int allocate(uint64_t* address, size_t bytes) {
  STANDIN_CALL("allocate");
  *address = 0;
  if (bytes == 0) return kInvalidValue;
  if (static_cast<long>(++count("allocate")) == world().faults.oom || here().used + bytes > here().memory)
    return kOutOfMemory;
  const size_t body = (bytes + kAlignment - 1) / kAlignment * kAlignment,
               pages = (body + kPage - 1) / kPage * kPage;
  auto* map = static_cast<char*>(
      mmap(nullptr, pages + 2 * kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  if (map == MAP_FAILED) return kOutOfMemory;
  mprotect(map + kPage, pages, PROT_READ | PROT_WRITE);
  char* at = map + kPage + pages - body;             // its end touches the guard page
  if (body <= size_t{64} << 20) fill_nan(at, body);  // larger ones stay untouched, to be quick
  world().blocks[reinterpret_cast<uintptr_t>(at)] = {map, pages + 2 * kPage, bytes, current, nullptr};
  here().used += bytes;
  *address = reinterpret_cast<uintptr_t>(at);
  return kOk;
}

int free_device(uint64_t address) {
  STANDIN_CALL("free");
  const auto it = world().blocks.find(address);
  if (it == world().blocks.end() || it->second.host) return kInvalidValue;
  world().devices.at(static_cast<size_t>(it->second.device)).used -= it->second.bytes;
  munmap(it->second.map, it->second.mapped);
  world().blocks.erase(it);
  return kOk;
}

int allocate_host(void** host, size_t bytes) {
  STANDIN_CALL("allocate_host");
  if (static_cast<long>(++count("allocate")) == world().faults.oom) return kOutOfMemory;
  const size_t pages = (bytes + kPage - 1) / kPage * kPage;
  const int fd = memfd_create("standin", MFD_CLOEXEC);
  if (fd < 0 || ftruncate(fd, static_cast<off_t>(pages)) != 0) return kOutOfMemory;
  void* a = mmap(nullptr, pages, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  void* b = mmap(nullptr, pages, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (a == MAP_FAILED || b == MAP_FAILED) return kOutOfMemory;
  world().blocks[reinterpret_cast<uintptr_t>(b)] = {static_cast<char*>(b), pages, bytes, current,
                                                    static_cast<char*>(a)};
  *host = a;
  return kOk;
}

namespace {
auto find_host(void* host) {
  auto& all = world().blocks;
  return std::find_if(all.begin(), all.end(), [&](const auto& b) { return b.second.host == host; });
}
}  // namespace

int free_host(void* host) {
  STANDIN_CALL("free_host");
  const auto it = find_host(host);
  if (it == world().blocks.end()) return kInvalidValue;
  munmap(it->second.host, it->second.mapped);
  munmap(it->second.map, it->second.mapped);
  world().blocks.erase(it);
  return kOk;
}

int host_address(uint64_t* address, void* host) {
  STANDIN_CALL("host_address");
  const auto it = find_host(host);
  if (it == world().blocks.end()) return kInvalidValue;
  *address = it->first;
  return kOk;
}

int copy(uint64_t to, const void* from, size_t bytes, void* stream) {
  STANDIN_CALL("copy");
  ++count("copy");
  uintptr_t base = 0;
  const Block* block = find_block(to, &base);
  if (!block || to + bytes > base + block->bytes) return kInvalidValue;
  Op op;
  op.run = [=](int) { std::memcpy(reinterpret_cast<void*>(to), from, bytes); };
  return submit(stream, std::move(op));
}

// ---- streams and events

int create_stream(void** stream) {
  STANDIN_CALL("create_stream");
  auto* s = new Stream;
  s->device = current;
  world().streams.insert(s);
  *stream = s;
  return kOk;
}

int destroy_stream(void* stream) {
  STANDIN_CALL("destroy_stream");
  auto* s = static_cast<Stream*>(stream);
  if (!world().streams.count(s)) return kInvalidHandle;
  if (!s->idle()) return kOk;  // real ones linger until their work is done
  world().streams.erase(s);
  delete s;
  return kOk;
}

int query_stream(void* stream) {
  STANDIN_CALL("query_stream");
  ++count("query");
  auto* s = static_cast<Stream*>(stream);
  if (!world().streams.count(s)) return kInvalidHandle;
  if (s->capture) return kCaptureUnsupported;
  return s->idle() && !s->blind ? kOk : kNotReady;
}

int create_event(void** event) {
  STANDIN_CALL("create_event");
  *event = new EventHandle(std::make_shared<Event>());
  return kOk;
}

int destroy_event(void* event) {
  delete static_cast<EventHandle*>(event);
  return kOk;
}

int record_event(void* event, void* stream) {
  STANDIN_CALL("record_event");
  Op op;
  op.event = event_of(event);
  return submit(stream, std::move(op));
}

int query_event(void* event) {
  STANDIN_CALL("query_event");
  ++count("query");
  return event_of(event)->done >= event_of(event)->recorded ? kOk : kNotReady;
}

int elapsed(float* ms, void* from, void* to) {
  STANDIN_CALL("elapsed");
  if (!event_of(from)->done || !event_of(to)->done) return kNotReady;
  *ms = std::chrono::duration<float, std::milli>(event_of(to)->time - event_of(from)->time).count();
  return kOk;
}

// ---- modules

int load_module(void** module, const void* image) {
  STANDIN_CALL("load_module");
  ++count("module");
  const auto* elf = static_cast<const unsigned char*>(image);
  if (!elf || std::memcmp(elf, "\177ELF", 4) != 0) return kInvalidImage;
  if (here().architecture == world().faults.nobin) return kNoBinary;
  // A name of its own: the loader takes the same name for the same library.
  std::string path = "/tmp/standin-module-XXXXXX";
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
  *module = m.release();
  return kOk;
}

int unload_module(void* module) {
  STANDIN_CALL("unload_module");
  auto* m = static_cast<LoadedModule*>(module);
  delete m;
  return kOk;
}

int get_function(void** function, void* module, const char* name) {
  STANDIN_CALL("get_function");
  auto* m = static_cast<LoadedModule*>(module);
  const simt_kernel* kernel = m->code.find(name);
  if (!kernel) return kNotFound;
  *function = new Function{m, kernel};
  return kOk;
}

int launch(void* function, unsigned grid, unsigned block, unsigned dynamic_shared, void* stream,
           void** arguments) {
  STANDIN_CALL("launch");
  const auto* f = static_cast<Function*>(function);
  if (!f) return kInvalidHandle;
  const World& w = world();
  if (w.faults.nofunc == f->kernel->name) return kInvalidFunction;
  if (grid == 0 || block == 0 || block > 1024 || dynamic_shared > 65536) return kInvalidValue;
  const auto* bytes = static_cast<const char*>(arguments[0]);
  std::vector<char> values(bytes, bytes + f->kernel->args_size);
  const float factor = w.faults.skew_kernel == f->kernel->name ? 1 + w.faults.skew : 1;
  Op op;
  op.is_launch = true;
  op.run = [=, fn = *f, slow = w.faults.slow_us](int device) {
    run_kernel(fn, grid, block, dynamic_shared, values, device, factor, slow);
  };
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
  *graph = new Graph(*s->capture);
  s->capture.reset();
  return kOk;
}

int instantiate(void** exec, void* graph) {
  STANDIN_CALL("instantiate");
  *exec = new Graph(*static_cast<Graph*>(graph));
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
  delete static_cast<Graph*>(graph);
  return kOk;
}

const char* error_name(int status) {
  switch (status) {
    case kOk: return "Success";
    case kInvalidValue: return "ErrorInvalidValue";
    case kOutOfMemory: return "ErrorOutOfMemory";
    case kInvalidFunction: return "ErrorInvalidDeviceFunction";
    case kNoDevice: return "ErrorNoDevice";
    case kInvalidDevice: return "ErrorInvalidDevice";
    case kInvalidImage: return "ErrorInvalidImage";
    case kNoBinary: return "ErrorNoBinaryForGpu";
    case kInvalidHandle: return "ErrorInvalidHandle";
    case kNotFound: return "ErrorNotFound";
    case kNotReady: return "ErrorNotReady";
    case kIllegalAddress: return "ErrorIllegalAddress";
    case kLaunchFailure: return "ErrorLaunchFailure";
    case kUnsupported: return "ErrorNotSupported";
    default: return "ErrorUnknown";
  }
}

const char* error_text(int status) {
  switch (status) {
    case kNoBinary: return "no kernel image is available for execution on the device";
    case kInvalidFunction: return "invalid device function";
    case kOutOfMemory: return "out of memory";
    case kNoDevice: return "no device is detected";
    default: return "stand-in driver";
  }
}

}  // namespace standin

STANDIN_API void standin_configure(const char* devices, const char* faults) {
  using namespace standin;
  const std::lock_guard lock(world().mutex);
  world().configured = true;
  if (devices)
    parse_devices(devices);
  else
    configure_once();
  parse_faults(faults ? faults : "");
  world().counts.clear();
  for (Device& d : world().devices) d.sticky = 0;
}

STANDIN_API unsigned long standin_count(const char* what) {
  const std::lock_guard lock(standin::world().mutex);
  return standin::world().counts[what];
}
