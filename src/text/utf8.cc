// UTF-8 validation and recoding.
#include "text/utf8.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "skald/error.h"

namespace skald::text {
namespace {

uint8_t byte_at(std::string_view s, size_t i) { return static_cast<uint8_t>(s[i]); }

/// Bytes of the code point that a lead byte announces, 0 for a byte that cannot lead.
size_t lead_length(uint8_t lead) {
  if (lead < 0x80) return 1;
  if (lead < 0xC2) return 0;  // continuation bytes and the overlong leads C0, C1
  if (lead < 0xE0) return 2;
  if (lead < 0xF0) return 3;
  return lead < 0xF5 ? 4 : 0;
}

/// Allowed range of the byte after the lead: this is where overlong forms, surrogates and values past
/// U+10FFFF show.
bool second_byte_ok(uint8_t lead, uint8_t second) {
  switch (lead) {
    case 0xE0: return second >= 0xA0 && second <= 0xBF;
    case 0xED: return second >= 0x80 && second <= 0x9F;
    case 0xF0: return second >= 0x90 && second <= 0xBF;
    case 0xF4: return second >= 0x80 && second <= 0x8F;
    default: return (second & 0xC0) == 0x80;
  }
}

[[noreturn]] void fail_utf8(size_t offset, uint8_t byte) {
  throw Error(
      ErrorCode::invalid_text,
      fmt::format(
          "the text is not valid UTF-8: byte 0x{:02X} at byte offset {}; convert the text to UTF-8, or "
          "to UTF-16 or UTF-32 with a byte order mark",
          byte, offset));
}

[[noreturn]] void fail_unit(const char* encoding, const char* what, size_t offset) {
  throw Error(ErrorCode::invalid_text,
              fmt::format("the text is not valid {}: {} at byte offset {}; save it again as UTF-8", encoding,
                          what, offset));
}

uint32_t read_unit(std::string_view s, size_t at, size_t width, bool big) {
  uint32_t value = 0;
  for (size_t i = 0; i < width; ++i) {
    const size_t shift = 8 * (big ? width - 1 - i : i);
    value |= static_cast<uint32_t>(byte_at(s, at + i)) << shift;
  }
  return value;
}

/// Recodes as many whole code points of UTF-16 as there are; returns the bytes taken.
size_t recode_utf16(std::string_view in, bool big, bool at_end, size_t base, std::string& out) {
  const char* const encoding = big ? "UTF-16BE" : "UTF-16LE";
  size_t pos = 0;
  while (in.size() - pos >= 2) {
    const uint32_t unit = read_unit(in, pos, 2, big);
    if (unit >= 0xDC00 && unit <= 0xDFFF) fail_unit(encoding, "a low surrogate stands alone", base + pos);
    if (unit < 0xD800 || unit > 0xDBFF) {
      append_utf8(out, unit);
      pos += 2;
      continue;
    }
    if (in.size() - pos < 4) break;
    const uint32_t low = read_unit(in, pos + 2, 2, big);
    if (low < 0xDC00 || low > 0xDFFF) fail_unit(encoding, "a high surrogate stands alone", base + pos);
    append_utf8(out, 0x10000 + ((unit - 0xD800) << 10) + (low - 0xDC00));
    pos += 4;
  }
  if (at_end && pos < in.size()) fail_unit(encoding, "the last character is cut off", base + pos);
  return pos;
}

size_t recode_utf32(std::string_view in, bool big, bool at_end, size_t base, std::string& out) {
  const char* const encoding = big ? "UTF-32BE" : "UTF-32LE";
  size_t pos = 0;
  for (; in.size() - pos >= 4; pos += 4) {
    const uint32_t value = read_unit(in, pos, 4, big);
    if (value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF)) {
      fail_unit(encoding, "a value that is no character", base + pos);
    }
    append_utf8(out, value);
  }
  if (at_end && pos < in.size()) fail_unit(encoding, "the last character is cut off", base + pos);
  return pos;
}

}  // namespace

Utf8Scan scan_utf8(std::string_view bytes) noexcept {
  size_t pos = 0;
  while (pos < bytes.size()) {
    const uint8_t lead = byte_at(bytes, pos);
    const size_t length = lead_length(lead);
    if (length == 0) return {pos, false};
    const size_t have = std::min(length, bytes.size() - pos);
    for (size_t i = 1; i < have; ++i) {
      const uint8_t next = byte_at(bytes, pos + i);
      const bool ok = i == 1 ? second_byte_ok(lead, next) : (next & 0xC0) == 0x80;
      if (!ok) return {pos, false};
    }
    if (have < length) return {pos, true};
    pos += length;
  }
  return {pos, false};
}

void require_utf8(std::string_view bytes, size_t base) {
  const Utf8Scan scan = scan_utf8(bytes);
  if (!scan.ok(bytes.size())) fail_utf8(base + scan.valid, byte_at(bytes, scan.valid));
}

CodePoint code_point_at(std::string_view utf8, size_t offset) noexcept {
  const uint8_t lead = byte_at(utf8, offset);
  if (lead < 0x80) return {lead, 1};
  const size_t length = lead_length(lead);
  char32_t value = lead & (0x7Fu >> length);
  for (size_t i = 1; i < length; ++i) value = (value << 6) | (byte_at(utf8, offset + i) & 0x3Fu);
  return {value, length};
}

void append_utf8(std::string& out, char32_t value) {
  if (value < 0x80) {
    out += static_cast<char>(value);
  } else if (value < 0x800) {
    out += static_cast<char>(0xC0 | (value >> 6));
    out += static_cast<char>(0x80 | (value & 0x3F));
  } else if (value < 0x10000) {
    out += static_cast<char>(0xE0 | (value >> 12));
    out += static_cast<char>(0x80 | ((value >> 6) & 0x3F));
    out += static_cast<char>(0x80 | (value & 0x3F));
  } else {
    out += static_cast<char>(0xF0 | (value >> 18));
    out += static_cast<char>(0x80 | ((value >> 12) & 0x3F));
    out += static_cast<char>(0x80 | ((value >> 6) & 0x3F));
    out += static_cast<char>(0x80 | (value & 0x3F));
  }
}

size_t count_code_points(std::string_view utf8) noexcept {
  return static_cast<size_t>(std::count_if(utf8.begin(), utf8.end(),
                                           [](char c) { return (static_cast<uint8_t>(c) & 0xC0) != 0x80; }));
}

std::string printable(std::string_view bytes) {
  std::string out;
  while (!bytes.empty()) {
    const size_t valid = scan_utf8(bytes).valid;
    for (size_t at = 0; at < valid;) {
      const CodePoint c = code_point_at(bytes, at);
      const bool control = c.value < U' ' || (c.value >= 0x7F && c.value < 0xA0);
      out += control ? std::string_view("?") : bytes.substr(at, c.length);
      at += c.length;
    }
    bytes.remove_prefix(valid);
    if (bytes.empty()) break;
    out += '?';
    bytes.remove_prefix(1);
  }
  return out;
}

std::u32string to_utf32(std::string_view utf8) {
  std::u32string out;
  out.reserve(utf8.size());
  for (size_t pos = 0; pos < utf8.size();) {
    const CodePoint cp = code_point_at(utf8, pos);
    out += cp.value;
    pos += cp.length;
  }
  return out;
}

void TextDecoder::detect(bool at_end) {
  struct Mark {
    Encoding encoding;
    std::string_view bytes;
  };
  using namespace std::string_view_literals;
  static constexpr std::array<Mark, 5> kMarks{
      {{Encoding::utf32le, "\xFF\xFE\0\0"sv},  // before its prefix, UTF-16LE
       {Encoding::utf32be, "\0\0\xFE\xFF"sv},
       {Encoding::utf8, "\xEF\xBB\xBF"sv},
       {Encoding::utf16le, "\xFF\xFE"sv},
       {Encoding::utf16be, "\xFE\xFF"sv}}};
  for (const Mark& mark : kMarks) {
    const std::string_view pending = pending_;
    if (pending.substr(0, mark.bytes.size()) == mark.bytes) {
      encoding_ = mark.encoding;
      consumed_ += mark.bytes.size();
      pending_.erase(0, mark.bytes.size());
      return;
    }
    if (!at_end && pending.size() < mark.bytes.size() && mark.bytes.substr(0, pending.size()) == pending)
      return;
  }
  encoding_ = Encoding::utf8;
}

/// Text of two or four bytes a character without its mark is valid UTF-8 as long as it is English; the zero
/// bytes between its letters tell.
void TextDecoder::refuse_wide(std::string_view bytes, size_t base) {
  for (size_t i = bytes.find('\0'); i != std::string_view::npos; i = bytes.find('\0', i + 1)) {
    const size_t at = base + i;
    if (last_zero_ && at - *last_zero_ == 2)
      throw Error(
          ErrorCode::invalid_text,
          fmt::format("the text looks like UTF-16 or UTF-32 without a byte order mark: zero bytes between "
                      "letters up to byte offset {}; save it as UTF-8, or with a mark",
                      at));
    last_zero_ = at;
  }
}

std::string TextDecoder::take(bool at_end) {
  if (encoding_ == Encoding::unknown) detect(at_end);
  std::string out;
  size_t taken = 0;
  switch (encoding_) {
    case Encoding::unknown: break;
    case Encoding::utf8: {
      const Utf8Scan scan = scan_utf8(pending_);
      refuse_wide(std::string_view(pending_).substr(0, scan.valid), consumed_);
      const bool broken = scan.valid < pending_.size() && (at_end || !scan.incomplete);
      if (broken) fail_utf8(consumed_ + scan.valid, byte_at(pending_, scan.valid));
      taken = scan.valid;
      out = pending_.substr(0, taken);
      break;
    }
    case Encoding::utf16le: taken = recode_utf16(pending_, false, at_end, consumed_, out); break;
    case Encoding::utf16be: taken = recode_utf16(pending_, true, at_end, consumed_, out); break;
    case Encoding::utf32le: taken = recode_utf32(pending_, false, at_end, consumed_, out); break;
    case Encoding::utf32be: taken = recode_utf32(pending_, true, at_end, consumed_, out); break;
  }
  pending_.erase(0, taken);
  consumed_ += taken;
  return out;
}

std::string TextDecoder::push(std::string_view bytes) {
  pending_ += bytes;
  return take(false);
}

std::string TextDecoder::finish() { return take(true); }

std::string decode_text(std::string_view bytes) {
  TextDecoder decoder;
  std::string text = decoder.push(bytes);
  text += decoder.finish();
  return text;
}

}  // namespace skald::text
