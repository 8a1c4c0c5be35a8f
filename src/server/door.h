// Who may come in: decided from the head of a request, before routing and before its body is read.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/api_error.h"

namespace skald::server {

struct DoorRules {
  std::vector<std::string> keys;  ///< any of them opens; empty = none is asked for
  bool open_lists = false;        ///< listings of models and voices need no key
  std::vector<std::string>
      hosts;  ///< names beside loopback that a request without a key may be for ("*" = any)
  std::vector<std::string> origins;  ///< pages of other sites that may call ("*" = any); none = CORS is off
};

/// What the decision rests on; absent headers are empty.
struct Knock {
  std::string_view method, host, origin, authorization, api_key;
};

/// What a route asks for.
enum class Guard : uint8_t {
  open,     ///< health, the page: no key
  listing,  ///< no key with open_lists
  key,      ///< everything that costs or tells something
};

/// Why a request may not come in, or nothing: 403 forbidden_origin, 403 forbidden_host, 401 invalid_api_key.
///
/// A page of a foreign site can make a browser send requests to a loopback server, by name rebinding (its own
/// name in Host) or as a form (its own name in Origin). Without a key only the names of this machine and
/// those of the rules are taken.
std::optional<ApiError> refuse_entry(const DoorRules& rules, const Knock& knock, Guard guard);

/// The value of Access-Control-Allow-Origin for this origin; empty = no such header.
std::string allowed_origin(const DoorRules& rules, std::string_view origin);

/// Host without port and brackets, in lower case: "[::1]:8080" gives "::1"; empty where it is malformed.
std::string host_name(std::string_view host);
/// Whether a host name or address means this machine itself: localhost, *.localhost, 127.0.0.0/8, ::1.
bool is_loopback(std::string_view host);

/// Whether the media type of a Content-Type header is `type`, parameters aside.
bool is_media_type(std::string_view content_type, std::string_view type);
/// application/json and application/*+json.
bool is_json_type(std::string_view content_type);

/// Equal, in a time that depends on the lengths alone.
bool same_secret(std::string_view a, std::string_view b) noexcept;

}  // namespace skald::server
