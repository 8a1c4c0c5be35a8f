// Parts between boundaries.
#include "server/multipart.h"

#include "server/api_error.h"
#include "server/ascii.h"

namespace skald::server {
namespace {

[[noreturn]] void refuse(const char* why) { throw ApiError(400, "invalid_form", why); }

bool starts_with(std::string_view text, std::string_view start) {
  if (text.size() < start.size()) return false;
  for (size_t i = 0; i < start.size(); ++i)
    if (lower(text[i]) != start[i]) return false;
  return true;
}

/// The value of a parameter, "name=value" or name="value" with backslashes before quotes.
std::string parameter(std::string_view header, std::string_view name) {
  size_t at = header.find(';');
  while (at != std::string_view::npos) {
    std::string_view rest = trim(header.substr(at + 1));
    const size_t equals = rest.find('=');
    if (equals == std::string_view::npos) return {};
    const bool wanted = equals == name.size() && starts_with(rest, name);
    rest.remove_prefix(equals + 1);
    std::string value;
    size_t end = 0;
    if (!rest.empty() && rest.front() == '"') {
      for (end = 1; end < rest.size() && rest[end] != '"'; ++end) {
        if (rest[end] == '\\' && end + 1 < rest.size()) ++end;
        value += rest[end];
      }
    } else {
      end = std::min(rest.find(';'), rest.size());
      value = std::string(trim(rest.substr(0, end)));
    }
    if (wanted) return value;
    at = rest.find(';', end);
    if (at != std::string_view::npos) at += static_cast<size_t>(rest.data() - header.data());
  }
  return {};
}

/// Name and file name from the lines above the content.
FormPart part_of(std::string_view head, std::string_view content) {
  FormPart part;
  part.content = content;
  while (!head.empty()) {
    const size_t end = std::min(head.find("\r\n"), head.size());
    const std::string_view line = head.substr(0, end);
    head.remove_prefix(std::min(end + 2, head.size()));
    if (!starts_with(line, "content-disposition:")) continue;
    part.name = parameter(line, "name");
    part.filename = parameter(line, "filename");
  }
  if (part.name.empty()) refuse("a part of the form has no name");
  return part;
}

}  // namespace

std::vector<FormPart> parse_multipart(std::string_view content_type, std::string_view body) {
  constexpr size_t kParts = 32, kBoundary = 200;
  const std::string boundary = parameter(content_type, "boundary");
  if (boundary.empty() || boundary.size() > kBoundary) refuse("the form's type names no boundary");
  const std::string mark = "--" + boundary, next = "\r\n" + mark;
  if (body.substr(0, mark.size()) != mark) {
    const size_t first = body.find(next);  // a preamble is allowed
    if (first == std::string_view::npos) refuse("the form does not begin with its boundary");
    body.remove_prefix(first + 2);
  }
  std::vector<FormPart> parts;
  for (;;) {
    body.remove_prefix(mark.size());
    if (body.substr(0, 2) == "--") return parts;
    const size_t line = body.find("\r\n");
    if (line == std::string_view::npos || !trim(body.substr(0, line)).empty())
      refuse("a boundary is malformed");
    body.remove_prefix(line + 2);
    const size_t end = body.find(next);
    if (end == std::string_view::npos) refuse("a part of the form does not end");
    const std::string_view part = body.substr(0, end);
    const size_t blank = part.substr(0, 2) == "\r\n" ? 0 : part.find("\r\n\r\n");
    if (blank == std::string_view::npos) refuse("a part of the form has no blank line after its head");
    if (parts.size() == kParts) refuse("the form has too many parts");
    const size_t skipped = part.substr(0, 2) == "\r\n" ? 2 : blank + 4;
    parts.push_back(part_of(part.substr(0, blank), part.substr(skipped)));
    body.remove_prefix(end + 2);
  }
}

}  // namespace skald::server
