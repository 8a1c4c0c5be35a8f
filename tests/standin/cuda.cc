// The CUDA driver interface's face over the core.
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "core.h"

namespace standin {
const char* const kPrefix = "STANDIN_CUDA";
const char* const kDefaultDevices = "sm_90:8192:d";

namespace {
struct LaunchConfiguration {
  unsigned grid[3], block[3], shared;
  void* stream;
  const void* attributes;
  unsigned count;
};
thread_local bool has_context = false;
}  // namespace
}  // namespace standin

using namespace standin;

STANDIN_API int cuInit(unsigned) { return init(); }
STANDIN_API int cuDriverGetVersion(int* v) { return *v = 13000, kOk; }
STANDIN_API int cuDeviceGetCount(int* n) { return device_count(n); }
STANDIN_API int cuDeviceGetName(char* to, int bytes, int index) {
  const Properties* p = device(index);
  if (!p) return kInvalidDevice;
  std::snprintf(to, static_cast<size_t>(bytes), "Stand-in NVIDIA %s", p->architecture.c_str());
  return kOk;
}
STANDIN_API int cuDeviceTotalMem_v2(size_t* bytes, int index) {
  const Properties* p = device(index);
  return p ? (*bytes = p->memory, kOk) : kInvalidDevice;
}
STANDIN_API int cuDeviceGetAttribute(int* value, int attribute, int index) {
  const Properties* p = device(index);
  if (!p) return kInvalidDevice;
  const int capability = std::atoi(p->architecture.c_str() + 3);
  switch (attribute) {
    case 10: *value = p->warp; break;
    case 16: *value = p->compute_units; break;
    case 18: *value = p->integrated; break;
    case 8: *value = 49152; break;
    case 75: *value = capability / 10; break;
    case 76: *value = capability % 10; break;
    default: return kInvalidValue;
  }
  return kOk;
}
STANDIN_API int cuDeviceGetUuid_v2(unsigned char* to, int index) {
  const Properties* p = device(index);
  if (!p) return kInvalidDevice;
  for (unsigned i = 0; i < 16; ++i)
    to[i] = static_cast<unsigned char>(has_uuid() ? 0x80 + 16 * p->serial + i : 0);
  return kOk;
}
STANDIN_API int cuDeviceGetPCIBusId(char* to, int bytes, int index) { return bus_id(to, bytes, index); }
STANDIN_API int cuDevicePrimaryCtxRetain(void** context, int index) {
  if (!device(index)) return kInvalidDevice;
  *context = reinterpret_cast<void*>(static_cast<intptr_t>(index) + 1);
  return kOk;
}
STANDIN_API int cuDevicePrimaryCtxRelease_v2(int) { return kOk; }
STANDIN_API int cuCtxSetCurrent(void* context) {
  has_context = context != nullptr;
  return set_device(static_cast<int>(reinterpret_cast<intptr_t>(context)) - 1);
}
// Every call below needs a current context, as the real ones do.
#define NEED_CONTEXT() \
  if (!has_context) return 201
STANDIN_API int cuMemGetInfo_v2(size_t* free, size_t* total) {
  NEED_CONTEXT();
  return memory_info(free, total);
}
STANDIN_API int cuMemAlloc_v2(uint64_t* p, size_t n) {
  NEED_CONTEXT();
  return allocate(p, n);
}
STANDIN_API int cuMemFree_v2(uint64_t p) {
  NEED_CONTEXT();
  return free_device(p);
}
STANDIN_API int cuMemHostAlloc(void** p, size_t n, unsigned flags) {
  NEED_CONTEXT();
  if (!(flags & 2u)) return kInvalidValue;
  return allocate_host(p, n);
}
STANDIN_API int cuMemFreeHost(void* p) {
  NEED_CONTEXT();
  return free_host(p);
}
STANDIN_API int cuMemHostGetDevicePointer_v2(uint64_t* d, void* h, unsigned) {
  NEED_CONTEXT();
  return host_address(d, h);
}
STANDIN_API int cuMemcpyHtoDAsync_v2(uint64_t to, const void* from, size_t n, void* stream) {
  NEED_CONTEXT();
  return copy(to, from, n, stream);
}
STANDIN_API int cuStreamCreate(void** s, unsigned) {
  NEED_CONTEXT();
  return create_stream(s);
}
STANDIN_API int cuStreamCreateWithPriority(void** s, unsigned, int priority) {
  NEED_CONTEXT();
  return create_stream(s, priority);
}
STANDIN_API int cuStreamDestroy_v2(void* s) { return destroy_stream(s); }
STANDIN_API int cuStreamQuery(void* s) {
  NEED_CONTEXT();
  return query_stream(s);
}
STANDIN_API int cuEventCreate(void** e, unsigned) { return create_event(e); }
STANDIN_API int cuEventDestroy_v2(void* e) { return destroy_event(e); }
STANDIN_API int cuEventRecord(void* e, void* s) { return record_event(e, s); }
STANDIN_API int cuEventQuery(void* e) { return query_event(e); }
STANDIN_API int cuEventElapsedTime(float* ms, void* a, void* b) { return elapsed(ms, a, b); }
STANDIN_API int cuModuleLoadData(void** m, const void* image) {
  NEED_CONTEXT();
  return load_module(m, image);
}
STANDIN_API int cuModuleUnload(void* m) { return unload_module(m); }
STANDIN_API int cuModuleGetFunction(void** f, void* m, const char* name) { return get_function(f, m, name); }
STANDIN_API int cuFuncSetAttribute(void* f, int attribute, int value) {
  return attribute == 8 ? allow_shared(f, value) : attribute == 9 ? kOk : kInvalidValue;
}
STANDIN_API int cuLaunchKernel(void* f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                               unsigned bz, unsigned shared, void* s, void** arguments, void**) {
  NEED_CONTEXT();
  if (gy != 1 || gz != 1 || by != 1 || bz != 1) return kInvalidValue;
  return launch(f, gx, bx, shared, s, arguments);
}
STANDIN_API int cuLaunchKernelEx(const void* configuration, void* f, void** arguments, void**) {
  NEED_CONTEXT();
  const auto* c = static_cast<const LaunchConfiguration*>(configuration);
  if (c->grid[1] != 1 || c->block[1] != 1 || c->count != 1 || *static_cast<const int*>(c->attributes) != 6)
    return kInvalidValue;
  return launch(f, c->grid[0], c->block[0], c->shared, c->stream, arguments);
}
STANDIN_API int cuStreamBeginCapture_v2(void* s, int) { return begin_capture(s); }
STANDIN_API int cuStreamEndCapture(void* s, void** g) { return end_capture(s, g); }
STANDIN_API int cuGraphInstantiateWithFlags(void** exec, void* graph, unsigned long long) {
  return instantiate(exec, graph);
}
STANDIN_API int cuGraphLaunch(void* exec, void* s) {
  NEED_CONTEXT();
  return launch_graph(exec, s);
}
STANDIN_API int cuGraphDestroy(void* g) { return destroy_graph(g); }
STANDIN_API int cuGraphExecDestroy(void* g) { return destroy_graph(g); }
STANDIN_API int cuGetErrorName(int e, const char** text) { return *text = error_name(e), kOk; }
STANDIN_API int cuGetErrorString(int e, const char** text) { return *text = error_text(e), kOk; }
STANDIN_API int cuStreamSynchronize(void*) { return std::abort(), kUnknown; }
STANDIN_API int cuCtxSynchronize() { return std::abort(), kUnknown; }
STANDIN_API int cuEventSynchronize(void*) { return std::abort(), kUnknown; }
