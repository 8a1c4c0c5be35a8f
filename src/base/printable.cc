// Replacing what is no text.
#include "base/printable.h"

namespace skald {
namespace {

/// Bytes of the UTF-8 character that starts here; 0 = there is none.
size_t character_at(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(at);
  const size_t length = first < 0x80                    ? 1
                        : first >= 0xC2 && first < 0xE0 ? 2
                        : first >= 0xE0 && first < 0xF0 ? 3
                        : first >= 0xF0 && first < 0xF5 ? 4
                                                        : 0;
  if (length == 0 || at + length > text.size()) return 0;
  for (size_t i = 1; i < length; ++i)
    if (byte(at + i) < 0x80 || byte(at + i) > 0xBF) return 0;
  return length;
}

}  // namespace

std::string printable(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t length = character_at(text, at);
    const auto first = static_cast<unsigned char>(text[at]);
    const bool control =
        length == 1 ? first < ' ' || first == 0x7F
                    : length == 2 && first == 0xC2 && static_cast<unsigned char>(text[at + 1]) < 0xA0;
    if (length == 0 || control)
      out += '?';
    else
      out += text.substr(at, length);
    at += length == 0 ? 1 : length;
  }
  return out;
}

}  // namespace skald
