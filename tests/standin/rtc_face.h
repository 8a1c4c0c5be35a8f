// The functions of a run-time compiler under a prefix: HIPRTC and NVRTC have the same ones.
#pragma once

#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "core.h"
#include "rtc.h"

namespace standin {

struct RtcProgram {
  std::string source, log, code;
};

inline int rtc_create(void** program, const char* source) {
  if (!program || !source) return 3;
  *program = new RtcProgram{source, "", ""};
  return 0;
}
inline int rtc_destroy(void** program) {
  delete static_cast<RtcProgram*>(*program);
  *program = nullptr;
  return 0;
}
/// `option` begins the one that names the architecture.
inline int rtc_compile(void* program, int count, const char** options, const char* option,
                       const char* variable) {
  auto* p = static_cast<RtcProgram*>(program);
  std::string architecture;
  std::vector<std::string> others;
  for (int i = 0; i < count; ++i) {
    if (std::strncmp(options[i], option, std::strlen(option)) == 0)
      architecture = options[i] + std::strlen(option);
    else
      others.emplace_back(options[i]);
  }
  if (architecture.empty()) return 5;
  const char* faults = std::getenv(variable);
  return compile(p->source, architecture, others, faults ? faults : "", p->code, p->log) ? 0 : 6;
}
inline int rtc_size(const std::string& text, size_t extra, size_t* size) {
  *size = text.size() + extra;
  return 0;
}
inline int rtc_copy(const std::string& text, size_t extra, char* to) {
  std::memcpy(to, text.c_str(), text.size() + extra);
  return 0;
}
inline const char* rtc_error(int status) {
  switch (status) {
    case 0: return "success";
    case 5: return "invalid option";
    case 6: return "compilation error";
    default: return "error";
  }
}

}  // namespace standin
