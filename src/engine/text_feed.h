// Text that arrives in pieces, on its way from a queue into an utterance.
#pragma once

#include <string>
#include <vector>

#include "engine/text_queue.h"
#include "engine/utterance.h"
#include "text/incremental.h"

namespace skald::engine {

/// Tokens of the text so far, and what else the utterance must know about it. One thread.
class TextFeed {
 public:
  TextFeed(const text::Tokenizer& tokenizer, const SpeechRequest& request);

  /// Takes what the queue has, as long as the utterance can use it, and hands the new ids over. A fault of
  /// the text ends the utterance after what was spoken before it.
  void pull(TextQueue& queue, Utterance& utterance);

 private:
  static constexpr size_t kPiece = 512;

  void take(TextQueue& queue, Utterance& utterance);
  void end(Utterance& utterance);
  void hand_over(Utterance& utterance, bool complete);
  void find_role();

  const text::Tokenizer& tokenizer_;
  text::SplitRule rule_;
  bool raw_;
  text::IncrementalTokenizer ids_;
  TextWatch watch_;
  std::string head_;  // the text until role_ is known
  std::vector<int32_t> role_;
};

}  // namespace skald::engine
