// URL-encoded text.
#include "server/form.h"

#include "server/api_error.h"
#include "text/utf8.h"

namespace skald::server {
namespace {

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

std::optional<std::string> percent_decode(std::string_view text, bool plus_is_blank) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '+' && plus_is_blank) {
      out += ' ';
    } else if (text[i] != '%') {
      out += text[i];
    } else {
      const int high = i + 1 < text.size() ? hex_digit(text[i + 1]) : -1;
      const int low = i + 2 < text.size() ? hex_digit(text[i + 2]) : -1;
      if (high < 0 || low < 0) return std::nullopt;
      out += static_cast<char>(high << 4 | low);
      i += 2;
    }
  }
  return out;
}

std::map<std::string, std::string, std::less<>> parse_form(std::string_view text) {
  constexpr size_t kFields = 100;
  std::map<std::string, std::string, std::less<>> out;
  while (!text.empty()) {
    const std::string_view pair = text.substr(0, text.find('&'));
    text.remove_prefix(std::min(pair.size() + 1, text.size()));
    if (pair.empty()) continue;
    const size_t equals = pair.find('=');
    const auto name = percent_decode(pair.substr(0, equals), true);
    const auto value =
        percent_decode(equals == std::string_view::npos ? std::string_view() : pair.substr(equals + 1), true);
    if (!name || !value || !text::scan_utf8(*name).ok(name->size()) ||
        !text::scan_utf8(*value).ok(value->size()))
      throw ApiError(400, "invalid_form", "the form holds a broken escape or bytes that are no UTF-8");
    if (out.size() == kFields && !out.contains(*name))
      throw ApiError(400, "invalid_form", "the form has too many fields");
    out[*name] = *value;
  }
  return out;
}

}  // namespace skald::server
