// Text in pieces becomes ids.
#include "engine/text_feed.h"

#include <exception>

#include "engine/prepare.h"
#include "text/utf8.h"

namespace skald::engine {

TextFeed::TextFeed(const text::Tokenizer& tokenizer, const SpeechRequest& request)
    : tokenizer_(tokenizer),
      rule_(split_rule(request.split)),
      raw_(request.raw_tokens),
      ids_(tokenizer, rule_, raw_) {}

void TextFeed::pull(TextQueue& queue, Utterance& utterance) {
  try {
    take(queue, utterance);
  } catch (...) {
    utterance.fail(std::current_exception());
  }
}

void TextFeed::take(TextQueue& queue, Utterance& utterance) {
  std::string bytes;
  while (utterance.wants_text() && queue.take(kPiece, bytes)) {
    ids_.push(bytes);
    watch_.push(bytes);
    if (role_.empty()) head_ += bytes;
    hand_over(utterance, false);
  }
  if (utterance.wants_text() && queue.exhausted()) end(utterance);
}

void TextFeed::end(Utterance& utterance) {
  ids_.finish();
  watch_.require_spoken();
  if (auto warning = watch_.warning()) utterance.warn(*std::move(warning));
  hand_over(utterance, true);
}

/// Nothing starts before something is there to speak, so that the outcome does not depend on the pieces.
void TextFeed::hand_over(Utterance& utterance, bool complete) {
  if (role_.empty() && (complete || !ids_.ids().empty())) find_role();
  if (watch_.anything_spoken()) utterance.set_text(ids_.ids(), role_, ids_.code_points(), complete);
}

/// The role rows of the wrapped text. White space at its start fuses with the template (specification 2.5),
/// so they are read off the text itself; they are certain once the first id after them is.
void TextFeed::find_role() {
  const std::string_view text = std::string_view(head_).substr(0, text::scan_utf8(head_).valid);
  role_ = tokenizer_.encode_text(text, rule_, raw_);
  role_.resize(text::kTextHead);
  head_ = {};
}

}  // namespace skald::engine
