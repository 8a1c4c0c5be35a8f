// NVRTC's face.
#include "rtc_face.h"

using standin::RtcProgram;

STANDIN_API int nvrtcVersion(int* major, int* minor) {
  *major = STANDIN_NVRTC_MAJOR, *minor = 0;
  return 0;
}
STANDIN_API int nvrtcCreateProgram(void** p, const char* source, const char*, int, const char**,
                                   const char**) {
  return standin::rtc_create(p, source);
}
STANDIN_API int nvrtcDestroyProgram(void** p) { return standin::rtc_destroy(p); }
STANDIN_API int nvrtcCompileProgram(void* p, int n, const char** options) {
  return standin::rtc_compile(p, n, options, "--gpu-architecture=", "STANDIN_CUDA_FAULTS");
}
STANDIN_API int nvrtcGetProgramLogSize(void* p, size_t* n) {
  return standin::rtc_size(static_cast<RtcProgram*>(p)->log, 1, n);
}
STANDIN_API int nvrtcGetProgramLog(void* p, char* to) {
  return standin::rtc_copy(static_cast<RtcProgram*>(p)->log, 1, to);
}
STANDIN_API int nvrtcGetCUBINSize(void* p, size_t* n) {
  return standin::rtc_size(static_cast<RtcProgram*>(p)->code, 0, n);
}
STANDIN_API int nvrtcGetCUBIN(void* p, char* to) {
  return standin::rtc_copy(static_cast<RtcProgram*>(p)->code, 0, to);
}
STANDIN_API int nvrtcGetPTXSize(void* p, size_t* n) { return nvrtcGetCUBINSize(p, n); }
STANDIN_API int nvrtcGetPTX(void* p, char* to) { return nvrtcGetCUBIN(p, to); }
STANDIN_API int nvrtcGetNumSupportedArchs(int* n) {
  *n = 3;
  return 0;
}
STANDIN_API int nvrtcGetSupportedArchs(int* to) {
  to[0] = 75, to[1] = 90, to[2] = 100;
  return 0;
}
STANDIN_API const char* nvrtcGetErrorString(int status) { return standin::rtc_error(status); }
