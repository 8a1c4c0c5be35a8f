// Spoken and invisible characters.
#include "text/inspect.h"

#include <utf8proc.h>

#include <array>
#include <map>

#include "text/utf8.h"

namespace skald::text {
namespace {

utf8proc_category_t category(char32_t c) { return utf8proc_category(static_cast<utf8proc_int32_t>(c)); }

bool between(char32_t c, char32_t first, char32_t last) { return c >= first && c <= last; }

bool is_hangul_filler(char32_t c) { return c == 0x115F || c == 0x1160 || c == 0x3164 || c == 0xFFA0; }
bool is_joiner(char32_t c) { return c == 0x200C || c == 0x200D; }
bool is_variation_selector(char32_t c) {
  return between(c, 0xFE00, 0xFE0F) || between(c, 0xE0100, 0xE01EF) || between(c, 0x180B, 0x180D) ||
         c == 0x180F;
}

struct Named {
  char32_t code_point;
  std::string_view name;
};
constexpr std::array<Named, 35> kNames{{
    {0x0085, "next line"},
    {0x00A0, "no-break space"},
    {0x00AD, "soft hyphen"},
    {0x034F, "combining grapheme joiner"},
    {0x061C, "Arabic letter mark"},
    {0x1680, "Ogham space"},
    {0x180E, "Mongolian vowel separator"},
    {0x2002, "en space"},
    {0x2003, "em space"},
    {0x2007, "figure space"},
    {0x2009, "thin space"},
    {0x200A, "hair space"},
    {0x200B, "zero width space"},
    {0x200C, "zero width non-joiner"},
    {0x200D, "zero width joiner"},
    {0x200E, "left-to-right mark"},
    {0x200F, "right-to-left mark"},
    {0x2028, "line separator"},
    {0x2029, "paragraph separator"},
    {0x202A, "left-to-right embedding"},
    {0x202B, "right-to-left embedding"},
    {0x202C, "pop directional formatting"},
    {0x202D, "left-to-right override"},
    {0x202E, "right-to-left override"},
    {0x202F, "narrow no-break space"},
    {0x205F, "medium mathematical space"},
    {0x2060, "word joiner"},
    {0x2066, "left-to-right isolate"},
    {0x2067, "right-to-left isolate"},
    {0x2068, "first strong isolate"},
    {0x2069, "pop directional isolate"},
    {0x3000, "ideographic space"},
    {0x3164, "Hangul filler"},
    {0xFE0F, "emoji variation selector"},
    {0xFEFF, "byte order mark"},
}};

/// What an invisible character is called; empty for a visible one.
std::string_view invisible_name(char32_t c) {
  if (c == ' ' || c == '\t' || c == '\n' || c == '\r') return {};
  for (const Named& entry : kNames) {
    if (entry.code_point == c) return entry.name;
  }
  if (is_hangul_filler(c)) return "Hangul filler";
  if (is_variation_selector(c)) return "variation selector";
  switch (category(c)) {
    case UTF8PROC_CATEGORY_CC: return "control character";
    case UTF8PROC_CATEGORY_CF: return "format character";
    case UTF8PROC_CATEGORY_ZS: return "space";
    default: return {};
  }
}

/// Characters next to which a joiner has a meaning: scripts from Arabic to the Indic and South-East Asian
/// ones, the newer blocks of the same kind, supplementary planes (emoji and further Indic scripts), symbols
/// used as emoji.
bool takes_joiners(char32_t c) {
  if (between(c, 0x10A0, 0x11FF) || between(c, 0x20000, 0x3FFFF))
    return false;  // Georgian, Hangul, ideographs
  return between(c, 0x0600, 0x1CFF) || between(c, 0x2190, 0x2BFF) || between(c, 0xA800, 0xABFF) ||
         between(c, 0xFB50, 0xFDFF) || between(c, 0xFE70, 0xFEFC) || c >= 0x10000 || is_variation_selector(c);
}

enum class CleanUp { keep, remove, space, line_end };

CleanUp clean_up_of(char32_t c) {
  if (c == '\v' || c == '\f' || c == 0x85 || c == 0x2028 || c == 0x2029) return CleanUp::line_end;
  if (c == '\t' || c == '\n' || c == '\r' || c == ' ') return CleanUp::keep;
  if (c == 0xAD || c == 0x61C || c == 0xFEFF || c == 0x200B || between(c, 0x200E, 0x200F) ||
      between(c, 0x202A, 0x202E) || between(c, 0x2060, 0x206F) || between(c, 0xFFF9, 0xFFFB)) {
    return CleanUp::remove;
  }
  if (category(c) == UTF8PROC_CATEGORY_CC) return CleanUp::remove;
  return category(c) == UTF8PROC_CATEGORY_ZS ? CleanUp::space : CleanUp::keep;
}

}  // namespace

bool is_spoken(char32_t code_point) noexcept {
  if (is_hangul_filler(code_point)) return false;
  switch (category(code_point)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO: return true;
    default: return false;
  }
}

std::string RunShortener::push(std::string_view utf8) {
  const size_t valid = scan_utf8(utf8).valid;
  std::string out;
  out.reserve(utf8.size());
  for (size_t at = 0; at < valid;) {
    const CodePoint c = code_point_at(utf8, at);
    run_ = is_spoken(c.value) ? 0 : run_ + 1;
    if (run_ <= most_)
      out += utf8.substr(at, c.length);
    else
      ++left_out_;
    at += c.length;
  }
  return out += utf8.substr(valid);
}

bool anything_to_speak(std::string_view utf8) noexcept {
  for (size_t pos = 0; pos < utf8.size();) {
    const CodePoint cp = code_point_at(utf8, pos);
    if (is_spoken(cp.value)) return true;
    pos += cp.length;
  }
  return false;
}

std::vector<InvisibleCount> invisible_code_points(std::string_view utf8) {
  std::map<char32_t, size_t> counts;
  for (size_t pos = 0; pos < utf8.size();) {
    const CodePoint cp = code_point_at(utf8, pos);
    if (!invisible_name(cp.value).empty()) ++counts[cp.value];
    pos += cp.length;
  }
  std::vector<InvisibleCount> found;
  for (const auto& [c, count] : counts) found.push_back({c, std::string(invisible_name(c)), count});
  return found;
}

std::string clean_invisible(std::string_view utf8) {
  std::string out;
  char32_t previous = 0;  // last character that is no joiner
  for (size_t pos = 0; pos < utf8.size();) {
    const CodePoint cp = code_point_at(utf8, pos);
    pos += cp.length;
    if (is_joiner(cp.value)) {
      const char32_t next = pos < utf8.size() ? code_point_at(utf8, pos).value : 0;
      if (takes_joiners(previous) || takes_joiners(next)) append_utf8(out, cp.value);
      continue;
    }
    previous = cp.value;
    switch (clean_up_of(cp.value)) {
      case CleanUp::keep: append_utf8(out, cp.value); break;
      case CleanUp::space: out += ' '; break;
      case CleanUp::line_end: out += '\n'; break;
      case CleanUp::remove: break;
    }
  }
  return out;
}

}  // namespace skald::text
