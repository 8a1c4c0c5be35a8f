// URL-encoded text: forms and query strings.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace skald::server {

/// Undoes percent encoding; with `plus_is_blank` also '+'. None for a broken escape.
std::optional<std::string> percent_decode(std::string_view text, bool plus_is_blank);

/// Fields by name, the last of equal names counts. At most 100. Throws ApiError(400, invalid_form) for broken
/// escapes, bytes that are no UTF-8, or too many fields.
std::map<std::string, std::string, std::less<>> parse_form(std::string_view text);

}  // namespace skald::server
