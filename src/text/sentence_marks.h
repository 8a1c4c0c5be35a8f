// What punctuation means for cutting text: sentence marks, clause marks, closers, abbreviations.
#pragma once

#include <string_view>

namespace skald::text {

enum class MarkKind {
  none,
  end,      ///< ends a sentence whatever follows: ideographic, Indic, Arabic and similar full stops
  stop,     ///< '.', ends a sentence before white space unless it belongs to an abbreviation or number
  exclaim,  ///< '!', '?' and the like: before white space, or directly before a script written without spaces
  ellipsis,  ///< three dots: as exclaim, but only a clause mark where no space follows
  clause,    ///< clause mark whatever follows: ideographic and Arabic commas, the em dash
  comma,     ///< ',' ';' ':' and the en dash: a clause mark before white space
};
MarkKind mark_kind(char32_t c) noexcept;

/// Quotes and brackets that close, and Markdown emphasis; they belong to the sentence whose mark they follow.
/// After MarkKind::end an opening quote starts the next sentence; after a full stop before white space it
/// closes („…“).
bool closes_after(MarkKind mark, char32_t c) noexcept;

/// White space; `breaks` is false for the no-break kinds.
bool is_space(char32_t c) noexcept;
bool is_breaking_space(char32_t c) noexcept;
/// LF, NEL, line separator. The paragraph separator counts as two.
int line_ends(char32_t c) noexcept;

/// Letters of scripts that put no space between sentences (Han, Kana, Thai, Lao, Khmer, Myanmar, Tibetan).
bool is_unspaced_letter(char32_t c) noexcept;
bool is_lower_case(char32_t c) noexcept;
bool is_number(char32_t c) noexcept;

/// What the word before a full stop says about it.
enum class StopWord {
  ordinary,       ///< the full stop may end a sentence
  abbreviation,   ///< it does not: "Dr", "z", "e.g", an initial, a number of one or two digits
  before_number,  ///< it does not if a number follows: "No", "Fig"
};
/// `word` is what stands between the last white space and the full stop, in valid UTF-8.
StopWord stop_word(std::string_view word);

}  // namespace skald::text
