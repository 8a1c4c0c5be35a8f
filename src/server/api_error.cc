// Library errors to HTTP.
#include "server/api_error.h"

#include <nlohmann/json.hpp>

#include "server/json_text.h"

namespace skald::server {

std::string_view ApiError::type() const {
  if (status_ == 429) return "rate_limit_error";
  return status_ >= 500 ? "server_error" : "invalid_request_error";
}

int http_status(ErrorCode code) {
  switch (code) {
    case ErrorCode::invalid_argument:
    case ErrorCode::invalid_text:
    case ErrorCode::nothing_to_speak:
    case ErrorCode::unknown_voice:
    case ErrorCode::unknown_language:
    case ErrorCode::text_too_long:
    case ErrorCode::audio_invalid:
    case ErrorCode::voice_invalid:
    case ErrorCode::consent_required:
    case ErrorCode::unsupported: return 400;
    case ErrorCode::voice_exists: return 409;
    case ErrorCode::model_not_found: return 404;
    case ErrorCode::out_of_memory:
    case ErrorCode::device:
    case ErrorCode::device_lost:
    case ErrorCode::device_wedged:
    case ErrorCode::device_code:
    case ErrorCode::device_function: return 503;
    case ErrorCode::cancelled: return 499;
    case ErrorCode::internal:
    case ErrorCode::model_invalid:
    case ErrorCode::runaway:
    case ErrorCode::non_finite:
    case ErrorCode::io: break;
    default: break;  // codes that are newer than this table are failures of the server
  }
  return 500;
}

namespace {

/// The field that a library error of a request is about.
const char* field_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::invalid_text:
    case ErrorCode::nothing_to_speak:
    case ErrorCode::text_too_long: return "input";
    case ErrorCode::unknown_voice:
    case ErrorCode::voice_invalid: return "voice";
    case ErrorCode::audio_invalid: return "ref_audio";
    case ErrorCode::consent_required: return "consent";
    case ErrorCode::unknown_language: return "language";
    default: return "";
  }
}

}  // namespace

ApiError to_api_error(const Error& error) {
  const int status = http_status(error.code());
  const std::string code(error_code_name(error.code()));
  switch (error.code()) {
    case ErrorCode::internal:
    case ErrorCode::io:
    case ErrorCode::model_invalid:
    case ErrorCode::model_not_found:
    case ErrorCode::device:
    case ErrorCode::device_lost:
    case ErrorCode::device_wedged:
    case ErrorCode::device_code:
    case ErrorCode::device_function:
      return ApiError(status, code,
                      "the server failed (" + code + "); its log has the details under the request id");
    default: return ApiError(status, code, error.what(), field_of(error.code()));
  }
}

std::string error_body(const ApiError& error, std::string_view request_id) {
  const auto text_or_null = [](const std::string& text) -> nlohmann::ordered_json {
    return text.empty() ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json(text);
  };
  nlohmann::ordered_json inner{{"message", error.what()},
                               {"type", error.type()},
                               {"param", text_or_null(error.param())},
                               {"code", text_or_null(error.code())}};
  if (!request_id.empty()) inner["request_id"] = request_id;
  return to_text({{"error", std::move(inner)}});
}

}  // namespace skald::server
