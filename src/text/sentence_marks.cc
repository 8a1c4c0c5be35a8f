// Tables of punctuation and abbreviations.
#include "text/sentence_marks.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <string>

#include "text/inspect.h"
#include "text/utf8.h"

namespace skald::text {
namespace {

utf8proc_category_t category(char32_t c) { return utf8proc_category(static_cast<utf8proc_int32_t>(c)); }

constexpr std::u32string_view kEndMarks =
    U"。｡！？；"                                   // ideographic
    U"\u0964\u0965\u0DF4\u1C7E\u1C7F\uA8CE\uA8CF"  // Indic
    U"\u061F\u06D4\u061B\u0589\u1362\u1367\u1368"  // Arabic, Armenian, Ethiopic
    U"\u104B\u17D4\u17D5\u0E5A\u0E5B\u0F0D\u0F0E\u1803\u1809\uA4FF\uA60E\uA6F3";  // South-East Asian,
                                                                                  // Tibetan, others
constexpr std::u32string_view kExclaimMarks = U"!?\u203C\u203D\u2047\u2048\u2049\u037E\uFF0E";
constexpr std::u32string_view kClauseMarks = U"，、：､\u2014\u060C\u1363\u1365\u104A\u17D6\u1802\u1808";
constexpr std::u32string_view kCommas = U",;:\u2013";
constexpr std::u32string_view kAsciiClosers = U"\"'*_`~";

// Titles and connecting words after which a sentence goes on, in lower case. Initials and dotted letters
// ("U.S", "z.B", "e.g") need no entry.
constexpr std::array<std::string_view, 74> kAbbreviations{
    "mr",   "mrs",  "ms",  "dr",    "prof",   "st",   "rev",  "hon",  "gen",  "col", "capt", "lt",   "sgt",
    "gov",  "sen",  "rep", "pres",  "messrs", "mme",  "mmes", "mlle", "mgr",  "vs",  "cf",   "al",   "approx",
    "dept", "est",  "viz", "resp",  "incl",   "hr",   "hrn",  "fr",   "frl",  "bzw", "ca",   "evtl", "ggf",
    "inkl", "exkl", "sog", "vgl",   "dipl",   "ing",  "str",  "mio",  "mrd",  "sr",  "sra",  "srta", "dra",
    "ud",   "uds",  "lic", "excmo", "av",     "avda", "sig",  "sigg", "dott", "ing", "avv",  "exmo", "eng",
    "г",    "гг",   "ул",  "им",    "проф",   "тов",  "डॉ",   "प्रो",  "श्री"};
constexpr std::array<std::string_view, 20> kBeforeNumber{"no",   "nos", "nr",   "nro", "núm", "num",  "fig",
                                                         "figs", "vol", "vols", "art", "ch",  "chap", "sec",
                                                         "pp",   "par", "abb",  "kap", "bd",  "рис"};

std::string lower(std::u32string_view word) {
  std::string out;
  for (const char32_t c : word) {
    append_utf8(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
  }
  return out;
}

bool is_cased(char32_t c) {
  const auto kind = category(c);
  return kind == UTF8PROC_CATEGORY_LU || kind == UTF8PROC_CATEGORY_LL || kind == UTF8PROC_CATEGORY_LT;
}

/// Initials and dotted abbreviations: groups of at most two cased letters between full stops, the first a
/// single one if it stands alone.
bool is_dotted(std::u32string_view word) {
  size_t group = 0;
  bool dotted = false;
  for (const char32_t c : word) {
    if (c == U'.') {
      if (group == 0) return false;
      dotted = true;
      group = 0;
    } else if (!is_cased(c) || ++group > 2) {
      return false;
    }
  }
  return group > 0 && (dotted || group == 1);
}

}  // namespace

MarkKind mark_kind(char32_t c) noexcept {
  if (c == U'.') return MarkKind::stop;
  if (c == 0x2026) return MarkKind::ellipsis;
  if (kExclaimMarks.find(c) != kExclaimMarks.npos) return MarkKind::exclaim;
  if (kCommas.find(c) != kCommas.npos) return MarkKind::comma;
  if (c < 0x80) return MarkKind::none;
  if (kEndMarks.find(c) != kEndMarks.npos) return MarkKind::end;
  return kClauseMarks.find(c) != kClauseMarks.npos ? MarkKind::clause : MarkKind::none;
}

bool closes_after(MarkKind mark, char32_t c) noexcept {
  if (c < 0x80 && kAsciiClosers.find(c) != kAsciiClosers.npos) return true;
  switch (category(c)) {
    case UTF8PROC_CATEGORY_PE:
    case UTF8PROC_CATEGORY_PF: return true;
    case UTF8PROC_CATEGORY_PI: return mark != MarkKind::end && mark != MarkKind::clause;
    default: return false;
  }
}

bool is_space(char32_t c) noexcept {
  switch (category(c)) {
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP: return true;
    default: return (c >= U'\t' && c <= U'\r') || c == 0x85 || c == 0x200B;
  }
}

bool is_breaking_space(char32_t c) noexcept { return is_space(c) && c != 0xA0 && c != 0x2007 && c != 0x202F; }

int line_ends(char32_t c) noexcept {
  if (c == 0x2029) return 2;
  return c == U'\n' || c == 0x85 || c == 0x2028 ? 1 : 0;
}

bool is_unspaced_letter(char32_t c) noexcept {
  if (!is_spoken(c) || is_number(c)) return false;
  return (c >= 0x0E00 && c <= 0x109F) || (c >= 0x1780 && c <= 0x17FF) || (c >= 0x2E80 && c <= 0x30FF) ||
         (c >= 0x31F0 && c <= 0x9FFF) || (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x20000 && c <= 0x3FFFF);
}

bool is_lower_case(char32_t c) noexcept { return category(c) == UTF8PROC_CATEGORY_LL; }

bool is_number(char32_t c) noexcept {
  const auto kind = category(c);
  return kind == UTF8PROC_CATEGORY_ND || kind == UTF8PROC_CATEGORY_NL || kind == UTF8PROC_CATEGORY_NO;
}

StopWord stop_word(std::string_view word) {
  constexpr size_t kLongest = 48;  // bytes; no abbreviation is longer
  if (word.size() > kLongest) return StopWord::ordinary;
  const std::u32string points = to_utf32(word);
  std::u32string_view core = points;
  while (!core.empty() && !is_spoken(core.front())) core.remove_prefix(1);  // an opening bracket or quote
  if (core.empty()) return StopWord::ordinary;
  const bool digits = std::all_of(core.begin(), core.end(), is_number);
  if (digits)
    return core.size() <= 2 ? StopWord::abbreviation : StopWord::ordinary;  // "3. Oktober", "1. Introduction"
  if (is_dotted(core)) return StopWord::abbreviation;
  const std::string key = lower(core);
  if (std::find(kAbbreviations.begin(), kAbbreviations.end(), key) != kAbbreviations.end())
    return StopWord::abbreviation;
  const bool numbered = std::find(kBeforeNumber.begin(), kBeforeNumber.end(), key) != kBeforeNumber.end();
  return numbered ? StopWord::before_number : StopWord::ordinary;
}

}  // namespace skald::text
