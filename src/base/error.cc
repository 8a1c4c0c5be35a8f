// Names of the error codes.
#include "skald/error.h"

namespace skald {

std::string_view error_code_name(ErrorCode code) noexcept {
  switch (code) {
    case ErrorCode::internal: return "internal";
    case ErrorCode::invalid_argument: return "invalid_argument";
    case ErrorCode::invalid_text: return "invalid_text";
    case ErrorCode::nothing_to_speak: return "nothing_to_speak";
    case ErrorCode::unknown_voice: return "unknown_voice";
    case ErrorCode::unknown_language: return "unknown_language";
    case ErrorCode::text_too_long: return "text_too_long";
    case ErrorCode::model_not_found: return "model_not_found";
    case ErrorCode::model_invalid: return "model_invalid";
    case ErrorCode::unsupported: return "unsupported";
    case ErrorCode::out_of_memory: return "out_of_memory";
    case ErrorCode::device: return "device";
    case ErrorCode::runaway: return "runaway";
    case ErrorCode::non_finite: return "non_finite";
    case ErrorCode::cancelled: return "cancelled";
    case ErrorCode::io: return "io";
    case ErrorCode::device_lost: return "device_lost";
    case ErrorCode::device_wedged: return "device_wedged";
    case ErrorCode::device_code: return "device_code";
    case ErrorCode::device_function: return "device_function";
    case ErrorCode::audio_invalid: return "audio_invalid";
    case ErrorCode::voice_invalid: return "voice_invalid";
    case ErrorCode::voice_exists: return "voice_exists";
    case ErrorCode::consent_required: return "consent_required";
  }
  return "internal";
}

}  // namespace skald
