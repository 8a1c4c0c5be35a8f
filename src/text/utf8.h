// UTF-8: validation with byte offsets, recoding of texts that carry a byte order mark, iteration.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace skald::text {

/// One decoded code point and the bytes it took.
struct CodePoint {
  char32_t value = 0;
  size_t length = 0;
};

/// What a scan of possibly broken UTF-8 found.
struct Utf8Scan {
  size_t valid = 0;         ///< bytes at the start that are complete, valid code points
  bool incomplete = false;  ///< the rest is the start of a code point that more bytes could complete
  bool ok(size_t size) const { return valid == size; }
};

/// Length of the longest valid start of `bytes`. Overlong forms, surrogates and values above U+10FFFF are
/// invalid.
Utf8Scan scan_utf8(std::string_view bytes) noexcept;

/// Throws Error(invalid_text) naming the absolute offset of the first bad byte; `base` is the offset of
/// bytes[0].
void require_utf8(std::string_view bytes, size_t base = 0);

/// The code point at `offset` of *valid* UTF-8; offset must be a boundary below the size.
CodePoint code_point_at(std::string_view utf8, size_t offset) noexcept;

/// Appends the UTF-8 form of `value`, which must be a Unicode scalar value.
void append_utf8(std::string& out, char32_t value);

/// Number of code points of valid UTF-8.
size_t count_code_points(std::string_view utf8) noexcept;

/// The text with '?' in the place of what a terminal could take for a command: control characters, U+0080 to
/// U+009F among them, and bytes that are no UTF-8.
std::string printable(std::string_view bytes);

/// All code points of valid UTF-8.
std::u32string to_utf32(std::string_view utf8);

/// A whole text as read from a file or pipe, as UTF-8 without byte order mark. A UTF-8 mark is dropped;
/// UTF-16 and UTF-32 in either byte order are recoded when their mark is present (FF FE 00 00 is UTF-32LE).
/// Everything else must be valid UTF-8, and not look like UTF-16 without its mark: zero bytes at every other
/// place. Throws Error(invalid_text) with the byte offset of the first bad unit.
std::string decode_text(std::string_view bytes);

/// The same for bytes that arrive in pieces; the pieces may end anywhere, also inside a code point or the
/// mark.
class TextDecoder {
 public:
  /// Returns the UTF-8 text that became complete. Throws as decode_text; the offset counts from the first
  /// byte pushed.
  std::string push(std::string_view bytes);
  /// Must be called at the end: returns what was held back, throws if the text ends inside a code point.
  std::string finish();

 private:
  enum class Encoding { unknown, utf8, utf16le, utf16be, utf32le, utf32be };
  void detect(bool at_end);
  std::string take(bool at_end);
  void refuse_wide(std::string_view bytes, size_t base);

  Encoding encoding_ = Encoding::unknown;
  std::string pending_;  // bytes not yet decoded
  size_t consumed_ = 0;  // bytes decoded so far, so the offset of pending_[0]
  std::optional<size_t> last_zero_;
};

}  // namespace skald::text
