// A request checked, looked up and tokenised: everything that must be known before any work. Pure functions.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backend/ops.h"
#include "model/config.h"
#include "model/prompt.h"
#include "skald/skald.h"
#include "text/tokenizer.h"

namespace skald::engine {

/// A request in the model's terms.
struct Prepared {
  std::vector<int32_t> ids;        ///< of the wrapped text; empty while the text is still to come
  model::PromptInput input;        ///< text_ids empty and text_complete false while the text is still to come
  std::vector<float> x_vector;     ///< Base: the voice's
  backend::SlotSettings settings;  ///< without seed and frame limit
  std::optional<int32_t> frame_limit;  ///< the caller's own
  uint64_t code_points = 0;            ///< of the text
  std::string language;                ///< effective name, dialects included; "auto" = none
  std::vector<std::string> warnings;
  bool instruct_ignored = false;
};

/// Checks the whole request and resolves it. With `text_follows` the text arrives later: request.text is not
/// looked at, and TextLayout::automatic means `ahead`; otherwise it means what the official call of the
/// model's type uses. Throws Error with the code of the first fault found: invalid_argument, invalid_text,
/// nothing_to_speak, unknown_voice, unknown_language, unsupported.
Prepared prepare(const model::ModelConfig& config, const text::Tokenizer& tokenizer,
                 const SpeechRequest& request, bool text_follows);

/// The tokenizer's name of a split expression.
text::SplitRule split_rule(TextSplit split);

/// The model's name of a voice: compared without case, blanks, '_' and '-'; empty stays empty where the model
/// speaks without one. Throws Error(unknown_voice) with the valid names, or with the reason why a name cannot
/// be used.
std::string find_voice(const model::ModelConfig& config, const std::string& spelling);

/// The table's name of a language in any spelling, or "auto". Dialects cannot be asked for, as in the
/// official package: they follow from the voice. A model without a language table adds a warning and gives
/// "auto", or throws Error(unsupported) if `strict`. Throws Error(unknown_language) with names and codes.
std::string find_language(const model::ModelConfig& config, const std::string& spelling, bool strict,
                          std::vector<std::string>& warnings);

/// Codes [frames * groups]: whole frames, each code within its group's range. Throws Error(invalid_argument)
/// that calls them `name`.
void check_codes(const model::ModelConfig& config, std::span<const int32_t> codes, const char* name);

/// Rows that the cache leaves for frames. Throws Error(text_too_long) when a prompt of `rows` rows leaves too
/// few for the text: at least min(240, bound) frames, and one frame for each of the `trailing` text ids
/// unless the caller set a limit.
int32_t check_room(int32_t capacity, size_t rows, size_t trailing, int32_t bound, bool caller_limit);

/// Collects what the warning about invisible characters and the blank-text error need, for text in pieces.
class TextWatch {
 public:
  /// Adds bytes; a code point may be cut. Invalid bytes are left for the tokenizer to refuse.
  void push(std::string_view bytes);
  bool anything_spoken() const { return spoken_; }
  /// Throws Error(nothing_to_speak) when nothing of the text is said.
  void require_spoken() const;
  /// One sentence that lists every invisible character with its count; none if there was none.
  std::optional<std::string> warning() const;

 private:
  struct Seen {
    std::string name;
    size_t count = 0;
  };
  std::string held_;  // an unfinished code point
  bool spoken_ = false;
  std::map<char32_t, Seen> invisible_;
};

}  // namespace skald::engine
