// The one place where request bodies are parsed.
#include "server/json_text.h"

#include <nlohmann/json.hpp>

#include "server/api_error.h"

namespace skald::server {

std::string to_text(const nlohmann::ordered_json& value) {
  return value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

nlohmann::json parse_object(std::string_view body) {
  constexpr int kDepth = 16;
  bool deep = false;
  const auto watch = [&](int depth, nlohmann::json::parse_event_t, nlohmann::json&) {
    deep |= depth > kDepth;
    return !deep;
  };
  nlohmann::json value;
  try {
    value = nlohmann::json::parse(body, watch);
  } catch (const nlohmann::json::parse_error& error) {
    // The library's own sentence quotes the body, which may hold what nobody should read in a log.
    throw ApiError(400, "invalid_json",
                   "the body is not JSON (at byte " + std::to_string(error.byte) + "); send one object");
  } catch (const nlohmann::json::exception&) {
    throw ApiError(400, "invalid_json", "the body holds a number or text that JSON cannot carry");
  }
  if (deep) throw ApiError(400, "invalid_json", "the body is nested too deeply");
  if (!value.is_object()) throw ApiError(400, "invalid_json", "the body must be one JSON object");
  return value;
}

}  // namespace skald::server
