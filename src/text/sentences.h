// Cuts long text into pieces of whole sentences, losing nothing.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace skald::text {

/// A byte range of the text.
struct Piece {
  size_t offset = 0;
  size_t length = 0;
  friend bool operator==(const Piece&, const Piece&) = default;
};

/// The pieces of valid UTF-8, in order; joined they are the whole text. Neighbouring sentences are merged
/// while the piece, counted up to its last spoken character (see inspect.h), stays within `max_code_points`:
/// the marks, quotes and white space after it always stay with it, and a long run of such characters before
/// its first one does not count. A longer sentence is cut after a clause mark or line end, else at white
/// space, else between two grapheme clusters. Every piece has something to speak, unless the whole text has
/// nothing: then it is one piece. No pieces for an empty text. Throws Error(invalid_argument) for a limit of
/// 0 and Error(invalid_text) for bad UTF-8.
std::vector<Piece> split_sentences(std::string_view text, size_t max_code_points);

/// The same pieces for text that arrives in chunks cut anywhere.
class SentenceSplitter {
 public:
  /// Part of the current piece; `ends_piece` closes it (the text may then be empty).
  struct Fragment {
    std::string text;
    bool ends_piece = false;
  };

  explicit SentenceSplitter(size_t max_code_points);
  ~SentenceSplitter();
  SentenceSplitter(SentenceSplitter&&) noexcept;
  SentenceSplitter& operator=(SentenceSplitter&&) noexcept;

  /// Adds bytes of UTF-8. Throws Error(invalid_text) with the absolute byte offset.
  void push(std::string_view bytes);
  /// Ends the text. Throws Error(invalid_text) if it ends inside a code point.
  void finish();

  /// The next whole piece, once its end is certain. Use either this or next_fragment(), not both.
  std::optional<std::string> next();
  /// The next part of a piece as soon as it is certain which piece it belongs to; for speaking while text
  /// arrives.
  std::optional<Fragment> next_fragment();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace skald::text
