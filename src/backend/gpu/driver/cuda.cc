// The table over CUDA's driver interface. Attribute numbers and flags are those of the public headers.
#include "backend/gpu/driver/driver.h"
#include "backend/gpu/driver/resolve.h"

namespace skald::backend::gpu {

int cuda_attribute(Attribute attribute) {
  switch (attribute) {
    case Attribute::warp: return 10;
    case Attribute::compute_units: return 16;
    case Attribute::integrated: return 18;
    case Attribute::shared_per_block: return 8;
    case Attribute::major: return 75;
    case Attribute::minor: return 76;
  }
  return -1;
}

std::string fill_cuda(const Library& library, DriverApi& api) {
  Resolver r(library);
  r.need(api.init, "cuInit");
  r.need(api.driver_version, "cuDriverGetVersion");
  r.need(api.device_count, "cuDeviceGetCount");
  r.need(api.device_name, "cuDeviceGetName");
  r.need(api.device_memory, "cuDeviceTotalMem_v2");
  r.need(api.device_attribute, "cuDeviceGetAttribute");
  r.need(api.device_uuid, "cuDeviceGetUuid_v2", "cuDeviceGetUuid");
  r.want(api.device_bus_id, "cuDeviceGetPCIBusId");
  r.need(api.retain_context, "cuDevicePrimaryCtxRetain");
  r.need(api.release_context, "cuDevicePrimaryCtxRelease_v2", "cuDevicePrimaryCtxRelease");
  r.need(api.set_context, "cuCtxSetCurrent");
  r.need(api.memory_info, "cuMemGetInfo_v2");
  r.need(api.allocate, "cuMemAlloc_v2");
  r.need(api.free, "cuMemFree_v2");
  r.need(api.allocate_host, "cuMemHostAlloc");
  r.need(api.free_host, "cuMemFreeHost");
  r.need(api.host_address, "cuMemHostGetDevicePointer_v2");
  r.need(api.copy_in, "cuMemcpyHtoDAsync_v2");
  r.need(api.create_stream, "cuStreamCreate");
  r.want(api.create_stream_with_priority, "cuStreamCreateWithPriority");
  r.need(api.destroy_stream, "cuStreamDestroy_v2");
  r.need(api.query_stream, "cuStreamQuery");
  r.need(api.create_event, "cuEventCreate");
  r.need(api.destroy_event, "cuEventDestroy_v2");
  r.need(api.record_event, "cuEventRecord");
  r.need(api.query_event, "cuEventQuery");
  r.need(api.elapsed, "cuEventElapsedTime");
  r.need(api.load_module, "cuModuleLoadData");
  r.need(api.unload_module, "cuModuleUnload");
  r.need(api.get_function, "cuModuleGetFunction");
  r.need(api.set_function, "cuFuncSetAttribute");
  r.need(api.launch, "cuLaunchKernel");
  r.want(api.launch_with, "cuLaunchKernelEx");
  r.need(api.begin_capture, "cuStreamBeginCapture_v2");
  r.need(api.end_capture, "cuStreamEndCapture");
  r.need(api.instantiate, "cuGraphInstantiateWithFlags");
  r.need(api.launch_graph, "cuGraphLaunch");
  r.need(api.destroy_graph, "cuGraphDestroy");
  r.need(api.destroy_graph_exec, "cuGraphExecDestroy");
  r.need(api.get_error_name, "cuGetErrorName");
  r.need(api.get_error_text, "cuGetErrorString");
  api.host_flags = 0x1u | 0x2u;  // portable, mapped; page-locked host memory is coherent
  api.stream_flags = 0x1u;       // non-blocking
  api.event_flags = 0;
  return r.missing();
}

std::string fill_nvrtc(const Library& library, CompilerApi& api) {
  Resolver r(library);
  r.need(api.version, "nvrtcVersion");
  r.need(api.create, "nvrtcCreateProgram");
  r.need(api.destroy, "nvrtcDestroyProgram");
  r.need(api.compile, "nvrtcCompileProgram");
  r.need(api.log_size, "nvrtcGetProgramLogSize");
  r.need(api.log, "nvrtcGetProgramLog");
  r.need(api.code_size, "nvrtcGetCUBINSize");
  r.need(api.code, "nvrtcGetCUBIN");
  r.need(api.ptx_size, "nvrtcGetPTXSize");
  r.need(api.ptx, "nvrtcGetPTX");
  r.want(api.architecture_count, "nvrtcGetNumSupportedArchs");
  r.want(api.architectures, "nvrtcGetSupportedArchs");
  r.need(api.error_text, "nvrtcGetErrorString");
  return r.missing();
}

}  // namespace skald::backend::gpu
