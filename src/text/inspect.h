// What a text holds besides words: nothing to speak, invisible characters, and their clean-up.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace skald::text {

/// True for code points that carry speech: letters and numbers of every script (general categories L and N),
/// except the invisible Hangul fillers. Punctuation, marks, symbols, emoji, spaces and format characters
/// carry none.
bool is_spoken(char32_t code_point) noexcept;

/// True if at least one code point is_spoken. So "...", "* * *", emoji alone and zero-width spaces give
/// false; "1", "a" and a keycap emoji (it holds a digit) give true; "+" and "$" alone give false. Needs valid
/// UTF-8.
bool anything_to_speak(std::string_view utf8) noexcept;

/// An invisible character found in a text.
struct InvisibleCount {
  char32_t code_point = 0;
  std::string
      name;  ///< e.g. "soft hyphen", "no-break space"; "format character" if it has no entry of its own
  size_t count = 0;
};

/// Every character one cannot see, by code point: spaces other than U+0020, controls other than tab, LF and
/// CR, format characters (soft hyphen, zero-width and direction marks, joiners), variation selectors,
/// fillers. Valid UTF-8.
std::vector<InvisibleCount> invisible_code_points(std::string_view utf8);

/// Shortens runs of characters that nobody says: of more than `most` in a row the rest is left out. For text
/// that arrives in pieces; bytes that are no valid UTF-8 pass as they are.
class RunShortener {
 public:
  explicit RunShortener(size_t most) : most_(most) {}
  std::string push(std::string_view utf8);
  size_t left_out() const noexcept { return left_out_; }  ///< code points so far

 private:
  size_t most_, run_ = 0, left_out_ = 0;
};

/// The clean-up option. Removes soft hyphens, zero-width spaces and no-break marks, direction marks, byte
/// order marks and control characters; odd spaces become U+0020 and odd line ends (U+0085, U+2028, U+2029,
/// FF, VT) LF. Joiners (U+200C, U+200D) stay next to Arabic, Indic and other joining scripts and to emoji and
/// are removed elsewhere; variation selectors and tags stay. Valid UTF-8 in and out.
std::string clean_invisible(std::string_view utf8);

}  // namespace skald::text
