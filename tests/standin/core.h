// A GPU driver that runs kernels on the CPU: the part that HIP's and CUDA's faces share.
//
// Kernels come from the same source as on a GPU, compiled by a host compiler (rtc.cc) and run one fiber a
// lane (simt/). One executor thread works the streams off in order, asynchronously. Memory starts as NaNs and
// ends at a guard page; host memory has another address on the "device" than on the host. Faults are switched
// on by name, see parse_faults().
//
// Configuration: the variables <PREFIX>_DEVICES and <PREFIX>_FAULTS when the library is first used (PREFIX is
// STANDIN_HIP or STANDIN_CUDA), and standin_configure() at any time. FAULTS may be "@FILE", whose first line
// is followed whenever it changes.
//
//   DEVICES  "gfx1100:24576:d,gfx1036:512:i"    architecture : MiB : d(iscrete) or i(ntegrated) [: warp
//            [: serial]]; "" = none. The serial number (hex; else the device's place) is in UUID and bus id.
//            May be "@FILE", read once.
//   FAULTS   ';' between them; N counts from the moment of configuration:
//     lost@launch=N    the Nth launch runs, then nothing on its stream ever starts or completes again
//     blind@launch=N   from the Nth launch on, its stream works but never tells that anything is complete
//     hang@launch=N    as lost, and the launch itself never runs
//     dead@launch=N    the device is lost: every call answers 999 from then on
//     oom@malloc=N     the Nth allocation finds no memory
//     nobin=ARCH       images do not load on that architecture (209)
//     nofunc=KERNEL    launches of that kernel answer 98
//     fail=CALL:CODE   the call (its name in core.cc) answers CODE, always
//     crash@init, hang@init   in the driver's start
//     rtcabort=ARCH, rtchang=ARCH   in the run-time compiler
//     skew=EPS:KERNEL  what that kernel changes in f32 buffers is multiplied by 1 + EPS
//     slow=MICROSECONDS   before every launch
//     nouuid           UUIDs are zeros
//     newest           of several streams with work, the one whose work came last goes first
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#define STANDIN_API extern "C" __attribute__((visibility("default")))

namespace standin {

enum : int {
  kOk = 0,
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kInvalidFunction = 98,
  kNoDevice = 100,
  kInvalidDevice = 101,
  kInvalidImage = 200,
  kNoBinary = 209,
  kInvalidHandle = 400,
  kNotFound = 500,
  kNotReady = 600,
  kIllegalAddress = 700,
  kLaunchFailure = 719,
  kUnsupported = 801,
  kCaptureUnsupported = 900,
  kCaptureInvalid = 901,
  kUnknown = 999,
};

/// What a device tells about itself.
struct Properties {
  std::string architecture;
  size_t memory = 0;
  bool integrated = false;
  int warp = 32, compute_units = 0;
  unsigned serial = 0;
};

/// Set by each face.
extern const char* const kPrefix;  ///< "STANDIN_HIP"
extern const char* const kDefaultDevices;

int init();
int device_count(int* count);
/// Null when there is no such device.
const Properties* device(int index);
/// Whether devices tell UUIDs of their own.
bool has_uuid();
/// "0000:03:00.0" of the device with serial number 3.
int bus_id(char* to, int bytes, int index);
int set_device(int index);
int current_device();
int memory_info(size_t* free, size_t* total);

int allocate(uint64_t* address, size_t bytes);
int free_device(uint64_t address);
int allocate_host(void** host, size_t bytes);
int free_host(void* host);
int host_address(uint64_t* address, void* host);
int copy(uint64_t to, const void* from, size_t bytes, void* stream);

int create_stream(void** stream, int priority = 0);
int destroy_stream(void* stream);
int query_stream(void* stream);
int create_event(void** event);
int destroy_event(void* event);
int record_event(void* event, void* stream);
int query_event(void* event);
int elapsed(float* ms, void* from, void* to);

int load_module(void** module, const void* image);
int unload_module(void* module);
int get_function(void** function, void* module, const char* name);
/// What CUDA wants before a launch with more than 48 KB of dynamic shared memory.
int allow_shared(void* function, int bytes);
int launch(void* function, unsigned grid, unsigned block, unsigned dynamic_shared, void* stream,
           void** arguments);

int begin_capture(void* stream);
int end_capture(void* stream, void** graph);
int instantiate(void** exec, void* graph);
int launch_graph(void* exec, void* stream);
int destroy_graph(void* graph);

const char* error_name(int status);
const char* error_text(int status);

}  // namespace standin

/// Sets devices (null = as they are) and faults anew, forgets counts and lost devices.
STANDIN_API void standin_configure(const char* devices, const char* faults);
/// Calls since the last configuration of: "launch", "graph", "query", "copy", "synchronize", "allocate",
/// "module"; "urgent": streams made to go before others.
STANDIN_API unsigned long standin_count(const char* what);
