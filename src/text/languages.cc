// The table of languages and its look-up.
#include "text/languages.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <vector>

#include "text/utf8.h"

namespace skald::text {
namespace {

constexpr std::array<Language, 10> kLanguages{{
    {"english", "en", "eng"},
    {"german", "de", "deu ger deutsch"},
    {"spanish", "es", "spa español espanol castilian castellano"},
    {"chinese", "zh", "zho chi cmn mandarin 中文 汉语 普通话"},
    {"japanese", "ja", "jpn 日本語"},
    {"french", "fr", "fra fre français francais"},
    {"korean", "ko", "kor 한국어"},
    {"russian", "ru", "rus русский"},
    {"italian", "it", "ita italiano"},
    {"portuguese", "pt", "por português portugues"},
}};

constexpr std::array<std::string_view, 5> kAutomatic{"", "auto", "null", "none", "und"};

std::string_view trim(std::string_view s) {
  const auto blank = [](char c) { return c == ' ' || (c >= '\t' && c <= '\r'); };
  while (!s.empty() && blank(s.front())) s.remove_prefix(1);
  while (!s.empty() && blank(s.back())) s.remove_suffix(1);
  return s;
}

std::string lower_case(std::string_view s) {
  if (!scan_utf8(s).ok(s.size())) return std::string(s);  // unknown either way; the caller refuses it
  std::string out;
  for (size_t pos = 0; pos < s.size();) {
    const CodePoint cp = code_point_at(s, pos);
    append_utf8(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(cp.value))));
    pos += cp.length;
  }
  return out;
}

bool has_word(std::string_view words, std::string_view word) {
  for (size_t pos = 0; pos < words.size();) {
    const size_t end = std::min(words.find(' ', pos), words.size());
    if (words.substr(pos, end - pos) == word) return true;
    pos = end + 1;
  }
  return false;
}

const Language* find_spelling(std::string_view word) {
  if (word.empty() || word.find(' ') != std::string_view::npos) return nullptr;
  for (const Language& language : kLanguages) {
    if (language.name == word || language.code == word || has_word(language.aliases, word)) return &language;
  }
  return nullptr;
}

bool is_subtag(std::string_view s) {
  return !s.empty() && s.size() <= 8 && std::all_of(s.begin(), s.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
  });
}

/// The language of a BCP-47 tag or POSIX locale in lower case ("zh-hans-cn", "en_gb.utf-8"), or null.
const Language* find_tag(std::string_view tag) {
  tag = tag.substr(0, tag.find_first_of(".@"));
  std::vector<std::string_view> parts;
  for (size_t pos = 0; pos <= tag.size();) {
    const size_t end = std::min(tag.find_first_of("-_", pos), tag.size());
    parts.push_back(tag.substr(pos, end - pos));
    if (!is_subtag(parts.back())) return nullptr;
    pos = end + 1;
  }
  if (parts[0].size() > 3) return nullptr;  // names take no region
  // An extended language names the real one: zh-yue is Cantonese, which the models do not have, and zh-cmn is
  // Mandarin.
  const bool extended =
      parts.size() > 1 && parts[1].size() == 3 && parts[1].find_first_of("0123456789") == parts[1].npos;
  return find_spelling(extended ? parts[1] : parts[0]);
}

}  // namespace

std::span<const Language> known_languages() noexcept { return kLanguages; }

std::string canonical_language(std::string_view spelling) {
  std::string word = lower_case(trim(spelling));
  if (std::find(kAutomatic.begin(), kAutomatic.end(), word) != kAutomatic.end()) return "auto";
  if (const Language* language = find_spelling(word)) return std::string(language->name);
  if (const Language* language = find_tag(word)) return std::string(language->name);
  return word;
}

std::string_view language_code(std::string_view canonical_name) noexcept {
  for (const Language& language : kLanguages) {
    if (language.name == canonical_name) return language.code;
  }
  return {};
}

}  // namespace skald::text
