// Base64 (RFC 4648, section 4), strict.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace skald::server {

std::string to_base64(std::string_view bytes);
/// None where the text is not exactly base64 with its padding; line ends are not allowed either.
std::optional<std::string> from_base64(std::string_view text);

}  // namespace skald::server
