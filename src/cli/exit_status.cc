// The table of exit statuses.
#include "cli/exit_status.h"

namespace skald::cli {

int exit_status(ErrorCode code) noexcept {
  switch (code) {
    case ErrorCode::internal: return kFailure;
    case ErrorCode::invalid_argument: return kUsage;
    case ErrorCode::invalid_text: return kUsage;
    case ErrorCode::nothing_to_speak: return kUsage;
    case ErrorCode::unknown_voice: return kUsage;
    case ErrorCode::unknown_language: return kUsage;
    case ErrorCode::text_too_long: return kUsage;
    case ErrorCode::model_not_found: return kModel;
    case ErrorCode::model_invalid: return kModel;
    case ErrorCode::unsupported: return kUsage;
    case ErrorCode::out_of_memory: return kDevice;
    case ErrorCode::device: return kDevice;
    case ErrorCode::runaway: return kRunaway;
    case ErrorCode::non_finite: return kFailure;
    case ErrorCode::cancelled: return kInterrupted;
    case ErrorCode::io: return kFailure;
    case ErrorCode::device_lost: return kDevice;
    case ErrorCode::device_wedged: return kDevice;
    case ErrorCode::device_code: return kDevice;
    case ErrorCode::device_function: return kDevice;
    case ErrorCode::audio_invalid: return kUsage;
    case ErrorCode::voice_invalid: return kUsage;
    case ErrorCode::voice_exists: return kFailure;
    case ErrorCode::consent_required: return kUsage;
  }
  return kFailure;
}

}  // namespace skald::cli
