// JSON values to and from text, with the limits of a server.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace skald::server {

/// One line; bytes that are no UTF-8 become U+FFFD instead of an error.
std::string to_text(const nlohmann::ordered_json& value);

/// Parses a whole body: one object, nested at most 16 deep. Throws ApiError(400, invalid_json).
nlohmann::json parse_object(std::string_view body);

}  // namespace skald::server
