// The table over HIP. Attribute numbers and flags are those of the public headers since ROCm 5.
#include "backend/gpu/driver/driver.h"
#include "backend/gpu/driver/resolve.h"

namespace skald::backend::gpu {

int hip_attribute(Attribute attribute) {
  switch (attribute) {
    case Attribute::warp: return 87;
    case Attribute::compute_units: return 63;
    case Attribute::integrated: return 16;
    case Attribute::shared_per_block: return 74;
    case Attribute::major: return 23;
    case Attribute::minor: return 61;
  }
  return -1;
}

std::string fill_hip(const Library& library, DriverApi& api) {
  Resolver r(library);
  r.need(api.init, "hipInit");
  r.need(api.driver_version, "hipDriverGetVersion");
  r.want(api.runtime_version, "hipRuntimeGetVersion");
  r.need(api.device_count, "hipGetDeviceCount");
  r.need(api.device_name, "hipDeviceGetName");
  r.need(api.device_memory, "hipDeviceTotalMem");
  r.need(api.device_attribute, "hipDeviceGetAttribute");
  r.want(api.device_uuid, "hipDeviceGetUuid");
  r.want(api.device_bus_id, "hipDeviceGetPCIBusId");
  // The plain name fills the layout before ROCm 6 even in ROCm 6 and 7.
  r.want(api.device_properties, "hipGetDevicePropertiesR0600");
  r.need(api.device_properties_old, "hipGetDeviceProperties");
  r.need(api.set_device, "hipSetDevice");
  r.need(api.memory_info, "hipMemGetInfo");
  r.need(api.allocate, "hipMalloc");
  r.need(api.free, "hipFree");
  r.need(api.allocate_host, "hipHostMalloc");
  r.need(api.free_host, "hipHostFree");
  r.need(api.host_address, "hipHostGetDevicePointer");
  r.need(api.copy_in, "hipMemcpyHtoDAsync");
  r.need(api.create_stream, "hipStreamCreateWithFlags");
  r.want(api.create_stream_with_priority, "hipStreamCreateWithPriority");
  r.need(api.destroy_stream, "hipStreamDestroy");
  r.need(api.query_stream, "hipStreamQuery");
  r.need(api.create_event, "hipEventCreateWithFlags");
  r.need(api.destroy_event, "hipEventDestroy");
  r.need(api.record_event, "hipEventRecord");
  r.need(api.query_event, "hipEventQuery");
  r.need(api.elapsed, "hipEventElapsedTime");
  r.need(api.load_module, "hipModuleLoadData");
  r.need(api.unload_module, "hipModuleUnload");
  r.need(api.get_function, "hipModuleGetFunction");
  r.need(api.launch, "hipModuleLaunchKernel");
  r.need(api.begin_capture, "hipStreamBeginCapture");
  r.need(api.end_capture, "hipStreamEndCapture");
  r.want(api.instantiate, "hipGraphInstantiateWithFlags");
  r.need(api.instantiate_with_log, "hipGraphInstantiate");
  r.need(api.launch_graph, "hipGraphLaunch");
  r.need(api.destroy_graph, "hipGraphDestroy");
  r.need(api.destroy_graph_exec, "hipGraphExecDestroy");
  r.need(api.error_name, "hipGetErrorName");
  r.need(api.error_text, "hipGetErrorString");
  r.need(api.last_error, "hipGetLastError");
  api.host_flags = 0x1u | 0x2u | 0x40000000u;  // portable, mapped, coherent
  api.stream_flags = 0x1u;                     // non-blocking
  api.event_flags = 0;
  return r.missing();
}

std::string fill_hiprtc(const Library& library, CompilerApi& api) {
  Resolver r(library);
  r.need(api.version, "hiprtcVersion");
  r.need(api.create, "hiprtcCreateProgram");
  r.need(api.destroy, "hiprtcDestroyProgram");
  r.need(api.compile, "hiprtcCompileProgram");
  r.need(api.log_size, "hiprtcGetProgramLogSize");
  r.need(api.log, "hiprtcGetProgramLog");
  r.need(api.code_size, "hiprtcGetCodeSize");
  r.need(api.code, "hiprtcGetCode");
  r.need(api.error_text, "hiprtcGetErrorString");
  return r.missing();
}

}  // namespace skald::backend::gpu
