// The driver that runs kernels on the CPU.
#include "core.h"

#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <sstream>
#include <thread>
#include <vector>

#include "world.h"

namespace standin {

World& world() {
  static World& w = *new World;
  return w;
}

namespace {

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
    if (item.empty()) continue;
    const std::vector<std::string> fields = split(item, ':');
    Device d;
    d.architecture = fields[0];
    d.memory = (fields.size() > 1 ? std::stoul(fields[1]) : 4096) << 20;
    d.integrated = fields.size() > 2 && fields[2] == "i";
    d.warp = fields.size() > 3 ? std::stoi(fields[3]) : d.architecture.rfind("gfx9", 0) == 0 ? 64 : 32;
    d.compute_units = d.integrated ? 1 : 2;
    d.serial = fields.size() > 4 ? static_cast<unsigned>(std::stoul(fields[4], nullptr, 16))
                                 : static_cast<unsigned>(w.devices.size());
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
    else if (name == "newest")
      f.newest = true;
    else if (name == "nouuid")
      f.nouuid = true;
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

std::string first_line(const std::string& file) {
  std::ifstream in(file);
  std::string text;
  std::getline(in, text);
  return text;
}

/// "@FILE": the faults are those that the file holds now, and counts begin anew whenever it changes.
void follow_file() {
  World& w = world();
  struct stat now {};
  if (w.fault_file.empty() || ::stat(w.fault_file.c_str(), &now) != 0) return;
  const int64_t stamp = now.st_mtim.tv_sec * 1'000'000'000 + now.st_mtim.tv_nsec;
  if (stamp == w.fault_stamp) return;
  w.fault_stamp = stamp;
  parse_faults(first_line(w.fault_file));
  w.counts.clear();
}

void configure_once() {
  World& w = world();
  if (w.configured) return follow_file();
  w.configured = true;
  const std::string devices = variable("_DEVICES", kDefaultDevices);
  parse_devices(devices.starts_with('@') ? first_line(devices.substr(1)) : devices);
  const std::string faults = variable("_FAULTS", "");
  if (!faults.starts_with('@')) return parse_faults(faults);
  w.fault_file = faults.substr(1);
  follow_file();
}

}  // namespace

Call::Call(const char* name) : lock_(world().mutex) {
  configure_once();
  World& w = world();
  if (w.faults.fail_call == name) {
    status_ = w.faults.fail_code;
  } else if (w.devices.empty()) {
    status_ = kNoDevice;
  } else if (const Device& d = w.devices.at(static_cast<size_t>(current) % w.devices.size()); d.sticky) {
    status_ = d.sticky;
  }
}

Device& here() { return world().devices.at(static_cast<size_t>(current)); }

namespace {

// ---- memory

constexpr size_t kPage = 4096, kAlignment = 256;

void fill_nan(char* at, size_t bytes) {
  const uint32_t pattern = 0x7fc0dead;
  for (size_t i = 0; i + 4 <= bytes; i += 4) std::memcpy(at + i, &pattern, 4);
}

// ---- the executor

/// The stream whose first piece of work was handed over first, or last.
Stream* next_stream(World& w) {
  Stream* best = nullptr;
  for (Stream* s : w.streams) {
    if (s->stuck || s->busy || s->queue.empty()) continue;
    if (!best || (s->queue.front().number < best->queue.front().number) != w.faults.newest) best = s;
  }
  return best;
}

void execute_forever() {
  World& w = world();
  std::unique_lock lock(w.mutex);
  for (;;) {
    Stream* s = next_stream(w);
    if (!s) {
      w.work.wait(lock);
      continue;
    }
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

}  // namespace

Block* find_block(uintptr_t address, uintptr_t* base) {
  auto it = world().blocks.upper_bound(address);
  if (it == world().blocks.begin()) return nullptr;
  --it;
  if (address >= it->first + it->second.bytes) return nullptr;
  if (base) *base = it->first;
  return &it->second;
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
  op.number = ++w.submitted;
  s->queue.push_back(std::move(op));
  w.work.notify_all();
  return kOk;
}

namespace {

using EventHandle = std::shared_ptr<Event>;
EventHandle& event_of(void* handle) { return *static_cast<EventHandle*>(handle); }

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

bool has_uuid() {
  const std::lock_guard lock(world().mutex);
  configure_once();
  return !world().faults.nouuid;
}

int bus_id(char* to, int bytes, int index) {
  const Properties* p = device(index);
  if (!p) return kInvalidDevice;
  std::snprintf(to, static_cast<size_t>(bytes), "0000:%02x:00.0", p->serial);
  return kOk;
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

namespace {

/// Frees wait for the device, as the real ones do. On one that stands still they would never return.
void wait_until_idle() {
  World& w = world();
  std::unique_lock lock(w.mutex);
  const auto running = [&](bool stuck) {
    return std::any_of(w.streams.begin(), w.streams.end(), [&](const Stream* s) {
      return s->stuck == stuck && (s->busy || !s->queue.empty() || stuck) &&
             !w.devices.at(static_cast<size_t>(s->device) % w.devices.size()).sticky;
    });
  };
  if (running(true)) {
    std::fprintf(stderr, "standin: memory is freed while a stream stands still: this would never return\n");
    std::abort();
  }
  w.done.wait(lock, [&] { return w.devices.empty() || !running(false); });
}

}  // namespace

int free_device(uint64_t address) {
  wait_until_idle();
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
  wait_until_idle();
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

int create_stream(void** stream, int priority) {
  STANDIN_CALL("create_stream");
  if (priority < 0) ++count("urgent");
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
  for (Stream* s : world().streams)
    if (s->stuck) s->queue.clear(), s->stuck = false;  // left behind by whoever gave them up
  for (Device& d : world().devices) d.sticky = 0;
}

STANDIN_API unsigned long standin_count(const char* what) {
  const std::lock_guard lock(standin::world().mutex);
  return standin::world().counts[what];
}
