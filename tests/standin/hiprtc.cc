// HIPRTC's face: libhiprtc, or inside libamdhip64 as up to ROCm 5.
#include "rtc_face.h"

using standin::RtcProgram;

STANDIN_API int hiprtcVersion(int* major, int* minor) {
  *major = 9, *minor = 0;
  return 0;
}
STANDIN_API int hiprtcCreateProgram(void** p, const char* source, const char*, int, const char**,
                                    const char**) {
  return standin::rtc_create(p, source);
}
STANDIN_API int hiprtcDestroyProgram(void** p) { return standin::rtc_destroy(p); }
STANDIN_API int hiprtcCompileProgram(void* p, int n, const char** options) {
  return standin::rtc_compile(p, n, options, "--offload-arch=", "STANDIN_HIP_FAULTS");
}
STANDIN_API int hiprtcGetProgramLogSize(void* p, size_t* n) {
  return standin::rtc_size(static_cast<RtcProgram*>(p)->log, 1, n);
}
STANDIN_API int hiprtcGetProgramLog(void* p, char* to) {
  return standin::rtc_copy(static_cast<RtcProgram*>(p)->log, 1, to);
}
STANDIN_API int hiprtcGetCodeSize(void* p, size_t* n) {
  return standin::rtc_size(static_cast<RtcProgram*>(p)->code, 0, n);
}
STANDIN_API int hiprtcGetCode(void* p, char* to) {
  return standin::rtc_copy(static_cast<RtcProgram*>(p)->code, 0, to);
}
STANDIN_API const char* hiprtcGetErrorString(int status) { return standin::rtc_error(status); }
