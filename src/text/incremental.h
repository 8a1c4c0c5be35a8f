// Tokens of a text that arrives in pieces: only ids that no later text can change.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"

namespace skald::text {

/// Grows the list encode_text(whole text)[kTextHead : -kTextTail] while the text arrives. For every way to
/// cut the text into pushes the list after finish() is the same, and at every moment it is a prefix of it.
/// Held back are: an unfinished code point, a possible start of an added token (raw mode), characters that
/// later marks could compose with (NFC), and the last piece of the split expression while more text could
/// lengthen it. So a word is released when the next one begins. Total work is linear in the text, up to a
/// constant bound for the retries of one piece.
class IncrementalTokenizer {
 public:
  IncrementalTokenizer(const Tokenizer& tokenizer, SplitRule rule, bool raw_tokens);
  ~IncrementalTokenizer();
  IncrementalTokenizer(IncrementalTokenizer&&) noexcept;
  IncrementalTokenizer& operator=(IncrementalTokenizer&&) noexcept;

  /// Adds bytes of UTF-8; they may end anywhere. Throws Error(invalid_text) with the absolute byte offset;
  /// the object then stays failed and every later push or finish throws the same error.
  void push(std::string_view bytes);
  /// Ends the text and releases everything. Throws Error(invalid_text) if it ends inside a code point.
  void finish();
  bool finished() const noexcept;

  /// Ids released so far; only ever grows.
  const std::vector<int32_t>& ids() const noexcept;
  /// Code points pushed so far (for bounds that depend on the length of the text).
  size_t code_points() const noexcept;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace skald::text
