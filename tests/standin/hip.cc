// HIP's face over the core: names, signatures, numbers and layouts of the public headers.
#include <cstdio>
#include <cstring>

#include "core.h"

namespace standin {
const char* const kPrefix = "STANDIN_HIP";
const char* const kDefaultDevices = "gfx1100:8192:d";

namespace {

std::string display_name(const Properties& p) { return "Stand-in Radeon " + p.architecture; }

/// gcnArchName of either layout; the rest of the structure stays zero, as skald reads nothing else.
int properties(char* to, int index, size_t bytes, size_t architecture_at) {
  const Properties* p = device(index);
  if (!p) return kInvalidDevice;
  std::memset(to, 0, bytes);
  std::snprintf(to, 256, "%s", display_name(*p).c_str());
  std::snprintf(to + architecture_at, 256, "%s%s", p->architecture.c_str(),
                p->architecture.rfind("gfx9", 0) == 0 ? ":sramecc-:xnack-" : "");
  return kOk;
}

}  // namespace
}  // namespace standin

using namespace standin;

STANDIN_API int hipInit(unsigned) { return init(); }
STANDIN_API int hipDriverGetVersion(int* v) { return *v = 60241134, kOk; }
STANDIN_API int hipRuntimeGetVersion(int* v) { return *v = 60241134, kOk; }
STANDIN_API int hipGetDeviceCount(int* n) { return device_count(n); }
STANDIN_API int hipDeviceGetName(char* to, int bytes, int index) {
  const Properties* p = device(index);
  if (!p) return kInvalidDevice;
  std::snprintf(to, static_cast<size_t>(bytes), "%s", display_name(*p).c_str());
  return kOk;
}
STANDIN_API int hipDeviceTotalMem(size_t* bytes, int index) {
  const Properties* p = device(index);
  return p ? (*bytes = p->memory, kOk) : kInvalidDevice;
}
STANDIN_API int hipDeviceGetAttribute(int* value, int attribute, int index) {
  const Properties* p = device(index);
  if (!p) return kInvalidDevice;
  switch (attribute) {
    case 16: *value = p->integrated; break;
    case 87: *value = p->warp; break;
    case 63: *value = p->compute_units; break;
    case 74: *value = 65536; break;
    default: return kInvalidValue;
  }
  return kOk;
}
STANDIN_API int hipDeviceGetUuid(char* to, int index) {
  const Properties* p = device(index);
  if (!p) return kInvalidDevice;
  char text[17];
  std::snprintf(text, sizeof text, "%016x", has_uuid() ? 0xabc0 + p->serial : 0);
  std::memcpy(to, text, 16);
  return kOk;
}
STANDIN_API int hipDeviceGetPCIBusId(char* to, int bytes, int index) { return bus_id(to, bytes, index); }
STANDIN_API int hipGetDeviceProperties(void* to, int index) {
  return properties(static_cast<char*>(to), index, 792, 396);
}
#ifndef STANDIN_OLD
STANDIN_API int hipGetDevicePropertiesR0600(void* to, int index) {
  return properties(static_cast<char*>(to), index, 1472, 1160);
}
STANDIN_API int hipGraphInstantiateWithFlags(void** exec, void* graph, unsigned long long) {
  return instantiate(exec, graph);
}
#endif
STANDIN_API int hipSetDevice(int index) { return set_device(index); }
STANDIN_API int hipMemGetInfo(size_t* free, size_t* total) { return memory_info(free, total); }
STANDIN_API int hipMalloc(void** p, size_t n) { return allocate(reinterpret_cast<uint64_t*>(p), n); }
STANDIN_API int hipFree(void* p) { return free_device(reinterpret_cast<uint64_t>(p)); }
STANDIN_API int hipHostMalloc(void** p, size_t n, unsigned flags) {
  // Without these the memory is not coherent, or not seen by the device.
  if ((flags & 0x40000002u) != 0x40000002u) return kInvalidValue;
  return allocate_host(p, n);
}
STANDIN_API int hipHostFree(void* p) { return free_host(p); }
STANDIN_API int hipHostGetDevicePointer(void** d, void* h, unsigned) {
  return host_address(reinterpret_cast<uint64_t*>(d), h);
}
STANDIN_API int hipMemcpyHtoDAsync(void* to, void* from, size_t n, void* stream) {
  return copy(reinterpret_cast<uint64_t>(to), from, n, stream);
}
STANDIN_API int hipStreamCreateWithFlags(void** s, unsigned) { return create_stream(s); }
#ifndef STANDIN_OLD  // a driver may lack it
STANDIN_API int hipStreamCreateWithPriority(void** s, unsigned, int priority) {
  return create_stream(s, priority);
}
#endif
STANDIN_API int hipStreamDestroy(void* s) { return destroy_stream(s); }
STANDIN_API int hipStreamQuery(void* s) { return query_stream(s); }
STANDIN_API int hipEventCreateWithFlags(void** e, unsigned) { return create_event(e); }
STANDIN_API int hipEventDestroy(void* e) { return destroy_event(e); }
STANDIN_API int hipEventRecord(void* e, void* s) { return record_event(e, s); }
STANDIN_API int hipEventQuery(void* e) { return query_event(e); }
STANDIN_API int hipEventElapsedTime(float* ms, void* a, void* b) { return elapsed(ms, a, b); }
STANDIN_API int hipModuleLoadData(void** m, const void* image) { return load_module(m, image); }
STANDIN_API int hipModuleUnload(void* m) { return unload_module(m); }
STANDIN_API int hipModuleGetFunction(void** f, void* m, const char* name) { return get_function(f, m, name); }
STANDIN_API int hipModuleLaunchKernel(void* f, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                                      unsigned by, unsigned bz, unsigned shared, void* s, void** arguments,
                                      void**) {
  if (gy != 1 || gz != 1 || by != 1 || bz != 1) return kInvalidValue;
  return launch(f, gx, bx, shared, s, arguments);
}
STANDIN_API int hipStreamBeginCapture(void* s, int) { return begin_capture(s); }
STANDIN_API int hipStreamEndCapture(void* s, void** g) { return end_capture(s, g); }
STANDIN_API int hipGraphInstantiate(void** exec, void* graph, void**, char*, size_t) {
  return instantiate(exec, graph);
}
STANDIN_API int hipGraphLaunch(void* exec, void* s) { return launch_graph(exec, s); }
STANDIN_API int hipGraphDestroy(void* g) { return destroy_graph(g); }
STANDIN_API int hipGraphExecDestroy(void* g) { return destroy_graph(g); }
STANDIN_API const char* hipGetErrorName(int e) {
  static thread_local char name[64];
  std::snprintf(name, sizeof name, "hip%s", error_name(e));
  return name;
}
STANDIN_API const char* hipGetErrorString(int e) { return error_text(e); }
STANDIN_API int hipGetLastError() { return kOk; }
// What skald must never call: they would wait without a deadline.
STANDIN_API int hipStreamSynchronize(void*) { return std::abort(), kUnknown; }
STANDIN_API int hipDeviceSynchronize() { return std::abort(), kUnknown; }
STANDIN_API int hipEventSynchronize(void*) { return std::abort(), kUnknown; }
