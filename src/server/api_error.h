// Refusals and failures as the clients of the OpenAI interface expect them.
#pragma once

#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

#include "skald/error.h"

namespace skald::server {

/// An answer that is an error: {"error": {"message", "type", "param", "code"}} under an HTTP status. Codes
/// are stable; docs/server.md lists them.
class ApiError : public std::runtime_error {
 public:
  ApiError(int status, std::string code, const std::string& message, std::string param = {})
      : std::runtime_error(message), status_(status), code_(std::move(code)), param_(std::move(param)) {}

  int status() const { return status_; }
  const std::string& code() const { return code_; }
  const std::string& param() const { return param_; }  ///< the field at fault; empty = none
  /// "invalid_request_error", "rate_limit_error" or "server_error", from the status.
  std::string_view type() const;

  std::optional<int> retry_after;  ///< seconds, for 429 and 503

 private:
  int status_;
  std::string code_, param_;
};

/// An error of the library under the status that docs/errors.md gives it. Messages that may hold file names
/// or other details of the server become a general sentence; the log has the details.
ApiError to_api_error(const Error& error);

/// The HTTP status of a library error.
int http_status(ErrorCode code);

/// The body of an error answer.
std::string error_body(const ApiError& error, std::string_view request_id);

}  // namespace skald::server
