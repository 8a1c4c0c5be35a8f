// The driver functions that skald calls, once for both vendors.
//
// CUDA's driver interface and HIP's module interface have the same shape: the names differ, and where a
// signature differs the opener (cuda.cc, hip.cc) puts a small function of its own into the table. Nothing of
// either vendor is needed to build this.
#pragma once

#include <cstddef>
#include <cstdint>

namespace skald::backend::gpu {

enum class Vendor : uint8_t { amd, nvidia };

/// "hip" or "cuda": the prefix of device names such as "cuda:0".
constexpr const char* vendor_prefix(Vendor v) { return v == Vendor::amd ? "hip" : "cuda"; }

/// What a driver function returns. Both vendors use the same numbers for everything we tell apart.
using Status = int;
enum : Status {
  kSuccess = 0,
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kInvalidFunction = 98,
  kNoDevice = 100,
  kInvalidDevice = 101,
  kInvalidImage = 200,
  kNoBinaryForGpu = 209,
  kInvalidPtx = 218,
  kUnsupportedPtx = 222,
  kNotFound = 500,
  kNotReady = 600,
  kIllegalAddress = 700,
  kOutOfResources = 701,
  kUnknownError = 999,
};

using StreamHandle = void*;
using EventHandle = void*;
using ModuleHandle = void*;
using FunctionHandle = void*;
using GraphHandle = void*;
using GraphExecHandle = void*;
using DeviceAddress = uint64_t;

struct Uuid {
  uint8_t bytes[16];
};

/// Properties of a device that both vendors have, by our own numbers.
enum class Attribute : uint8_t { warp, compute_units, integrated, shared_per_block, major, minor };

/// Every member is set once a library is open, save those marked optional. All of them may be called from any
/// thread whose current device was set.
struct DriverApi {
  Status (*init)(unsigned flags) = nullptr;
  Status (*driver_version)(int*) = nullptr;
  Status (*runtime_version)(int*) = nullptr;  ///< optional (HIP)
  Status (*device_count)(int*) = nullptr;
  Status (*device_name)(char* to, int bytes, int device) = nullptr;
  Status (*device_memory)(size_t*, int device) = nullptr;
  Status (*device_attribute)(int*, int vendor_attribute, int device) = nullptr;
  Status (*device_uuid)(Uuid*, int device) = nullptr;                  ///< optional
  Status (*device_bus_id)(char* to, int bytes, int device) = nullptr;  ///< optional
  Status (*device_properties)(void* to, int device) = nullptr;         ///< HIP: hipDeviceProp_tR0600
  Status (*device_properties_old)(void* to, int device) = nullptr;     ///< HIP: the layout before ROCm 6
  Status (*retain_context)(void** context, int device) = nullptr;      ///< CUDA
  Status (*release_context)(int device) = nullptr;                     ///< CUDA
  Status (*set_context)(void* context) = nullptr;                      ///< CUDA
  Status (*set_device)(int device) = nullptr;                          ///< HIP
  Status (*memory_info)(size_t* free, size_t* total) = nullptr;

  Status (*allocate)(DeviceAddress*, size_t bytes) = nullptr;
  Status (*free)(DeviceAddress) = nullptr;
  Status (*allocate_host)(void**, size_t bytes, unsigned flags) = nullptr;
  Status (*free_host)(void*) = nullptr;
  Status (*host_address)(DeviceAddress*, void* host, unsigned flags) = nullptr;
  Status (*copy_in)(DeviceAddress to, const void* from, size_t bytes, StreamHandle) = nullptr;

  Status (*create_stream)(StreamHandle*, unsigned flags) = nullptr;
  /// Optional. Of several streams with blocks that wait for room the one with the lowest number goes first; 0
  /// is that of create_stream, and both vendors limit the number to what the device knows.
  Status (*create_stream_with_priority)(StreamHandle*, unsigned flags, int priority) = nullptr;
  Status (*destroy_stream)(StreamHandle) = nullptr;
  Status (*query_stream)(StreamHandle) = nullptr;
  Status (*create_event)(EventHandle*, unsigned flags) = nullptr;
  Status (*destroy_event)(EventHandle) = nullptr;
  Status (*record_event)(EventHandle, StreamHandle) = nullptr;
  Status (*query_event)(EventHandle) = nullptr;
  Status (*elapsed)(float* ms, EventHandle from, EventHandle to) = nullptr;

  Status (*load_module)(ModuleHandle*, const void* image) = nullptr;
  Status (*unload_module)(ModuleHandle) = nullptr;
  Status (*get_function)(FunctionHandle*, ModuleHandle, const char* name) = nullptr;
  /// CUDA: an attribute of a kernel.
  Status (*set_function)(FunctionHandle, int attribute, int value) = nullptr;
  Status (*launch)(FunctionHandle, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                   unsigned block_y, unsigned block_z, unsigned dynamic_shared, StreamHandle,
                   void** arguments, void** extra) = nullptr;
  /// Optional (CUDA 12 and later): a launch with attributes.
  Status (*launch_with)(const void* configuration, FunctionHandle, void** arguments, void** extra) = nullptr;

  Status (*begin_capture)(StreamHandle, int mode) = nullptr;
  Status (*end_capture)(StreamHandle, GraphHandle*) = nullptr;
  Status (*instantiate)(GraphExecHandle*, GraphHandle, unsigned long long flags) = nullptr;
  /// HIP before ROCm 5.3 has only this one.
  Status (*instantiate_with_log)(GraphExecHandle*, GraphHandle, void** node, char* log,
                                 size_t bytes) = nullptr;
  Status (*launch_graph)(GraphExecHandle, StreamHandle) = nullptr;
  Status (*destroy_graph)(GraphHandle) = nullptr;
  Status (*destroy_graph_exec)(GraphExecHandle) = nullptr;

  const char* (*error_name)(Status) = nullptr;               ///< HIP
  const char* (*error_text)(Status) = nullptr;               ///< HIP
  Status (*get_error_name)(Status, const char**) = nullptr;  ///< CUDA
  Status (*get_error_text)(Status, const char**) = nullptr;  ///< CUDA
  Status (*last_error)() = nullptr;                          ///< HIP: clears what a failed call left behind

  unsigned host_flags = 0;    ///< for allocate_host: coherent, mapped, usable from every device
  unsigned stream_flags = 0;  ///< no implicit order with the null stream
  unsigned event_flags = 0;
};

/// NVRTC or HIPRTC. All members are set once the library is open, save those marked optional.
struct CompilerApi {
  Status (*version)(int* major, int* minor) = nullptr;
  Status (*create)(void** program, const char* source, const char* name, int headers,
                   const char** header_texts, const char** header_names) = nullptr;
  Status (*destroy)(void** program) = nullptr;
  Status (*compile)(void* program, int options, const char** option_texts) = nullptr;
  Status (*log_size)(void* program, size_t*) = nullptr;
  Status (*log)(void* program, char*) = nullptr;
  Status (*code_size)(void* program, size_t*) = nullptr;
  Status (*code)(void* program, char*) = nullptr;
  Status (*ptx_size)(void* program, size_t*) = nullptr;  ///< NVRTC
  Status (*ptx)(void* program, char*) = nullptr;         ///< NVRTC
  Status (*architecture_count)(int*) = nullptr;          ///< NVRTC, optional
  Status (*architectures)(int*) = nullptr;               ///< NVRTC, optional
  const char* (*error_text)(Status) = nullptr;
};

}  // namespace skald::backend::gpu
