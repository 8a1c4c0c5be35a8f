// Keys, hosts, origins.
#include "server/door.h"

#include <algorithm>

#include "server/ascii.h"

namespace skald::server {
namespace {

bool has_key(const DoorRules& rules, const Knock& knock) {
  std::string_view given = knock.api_key;
  constexpr std::string_view kBearer = "bearer ";
  if (knock.authorization.size() > kBearer.size() &&
      lower(knock.authorization.substr(0, kBearer.size())) == kBearer)
    given = trim(knock.authorization.substr(kBearer.size()));
  bool found = false;
  for (const std::string& key : rules.keys) found |= same_secret(key, given);
  return found;
}

/// "scheme://host[:port]" without the scheme; empty for "null" and anything else.
std::string_view origin_authority(std::string_view origin) {
  const size_t at = origin.find("://");
  return at == std::string_view::npos ? std::string_view() : origin.substr(at + 3);
}

bool known_host(const DoorRules& rules, std::string_view name) {
  return is_loopback(name) || std::any_of(rules.hosts.begin(), rules.hosts.end(),
                                          [&](const std::string& h) { return h == "*" || lower(h) == name; });
}

}  // namespace

bool same_secret(std::string_view a, std::string_view b) noexcept {
  unsigned different = a.size() == b.size() ? 0 : 1;
  for (size_t i = 0; i < a.size(); ++i)
    different |= static_cast<unsigned char>(a[i]) ^ (i < b.size() ? static_cast<unsigned char>(b[i]) : 0u);
  return different == 0;
}

std::string host_name(std::string_view host) {
  if (host.empty()) return {};
  std::string_view name = host, port;
  if (host.front() == '[') {
    const size_t close = host.find(']');
    if (close == std::string_view::npos) return {};
    name = host.substr(1, close - 1);
    port = host.substr(close + 1);
    if (!port.empty() && port.front() != ':') return {};
    if (!port.empty()) port.remove_prefix(1);
  } else if (const size_t colon = host.find(':'); colon != std::string_view::npos) {
    name = host.substr(0, colon);
    port = host.substr(colon + 1);
  }
  const auto digit = [](char c) { return c >= '0' && c <= '9'; };
  if (!std::all_of(port.begin(), port.end(), digit)) return {};
  if (name.size() > 1 && name.back() == '.') name.remove_suffix(1);
  return lower(name);
}

bool is_loopback(std::string_view host) {
  constexpr std::string_view kSuffix = ".localhost";
  if (host == "localhost" || host == "::1") return true;
  if (host.size() > kSuffix.size() && host.substr(host.size() - kSuffix.size()) == kSuffix) return true;
  // Four numbers, the first of them 127; "127.evil.example" is a name.
  int parts = 0, value = -1;
  for (size_t i = 0; i <= host.size(); ++i) {
    if (i < host.size() && host[i] >= '0' && host[i] <= '9') {
      value = std::max(value, 0) * 10 + (host[i] - '0');
      if (value > 255) return false;
    } else if (i == host.size() || host[i] == '.') {
      if (value < 0 || (parts == 0 && value != 127)) return false;
      ++parts, value = -1;
    } else {
      return false;
    }
  }
  return parts == 4;
}

std::string allowed_origin(const DoorRules& rules, std::string_view origin) {
  if (origin.empty()) return {};
  for (const std::string& o : rules.origins)
    if (o == "*" || lower(o) == lower(origin)) return o == "*" ? o : std::string(origin);
  return {};
}

std::optional<ApiError> refuse_entry(const DoorRules& rules, const Knock& knock, Guard guard) {
  const std::string host = host_name(knock.host);
  const bool allowed = !allowed_origin(rules, knock.origin).empty();
  const bool own_page =
      !knock.origin.empty() && !host.empty() && lower(origin_authority(knock.origin)) == lower(knock.host);
  if (!knock.origin.empty() && !allowed && !own_page)
    return ApiError(
        403, "forbidden_origin",
        "requests of pages from other sites are refused; the server's operator can allow an origin");
  if (rules.keys.empty()) {
    if (!known_host(rules, host))
      return ApiError(403, "forbidden_host",
                      "this server has no key, so it answers under the names of its own machine only; its "
                      "operator can add a name or set a key");
    return std::nullopt;
  }
  const bool free = guard == Guard::open || (guard == Guard::listing && rules.open_lists);
  if (!free && !has_key(rules, knock))
    return ApiError(401, "invalid_api_key",
                    "a key is needed: send it in the header Authorization: Bearer KEY");
  return std::nullopt;
}

bool is_media_type(std::string_view content_type, std::string_view type) {
  return lower(trim(content_type.substr(0, content_type.find(';')))) == type;
}

bool is_json_type(std::string_view content_type) {
  const std::string type = lower(trim(content_type.substr(0, content_type.find(';'))));
  constexpr std::string_view kStart = "application/", kEnd = "+json";
  return type == "application/json" ||
         (type.size() > kStart.size() + kEnd.size() && type.compare(0, kStart.size(), kStart) == 0 &&
          type.compare(type.size() - kEnd.size(), kEnd.size(), kEnd) == 0);
}

}  // namespace skald::server
