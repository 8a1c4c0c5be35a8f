// The text tokenizer of Qwen3-TTS: added tokens, NFC, split expression, byte-level BPE, chat templates.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace skald::text {

/// Which expression cuts text into pieces before BPE (model-spec 2.2). `qwen` is what the vocabulary was
/// trained with and what the official package uses for a hub id; `mistral` is what it uses for a local folder
/// of the real model.
enum class SplitRule { qwen, mistral };

/// Rows of the wrapped text that belong to the template (model-spec 2.5): ids[3:-5] are the text's own.
inline constexpr size_t kTextHead = 3;
inline constexpr size_t kTextTail = 5;
/// The same for the reference text: ids[3:-2].
inline constexpr size_t kReferenceTail = 2;

namespace detail {
struct TokenizerData;
}

/// Immutable once loaded; copies share the tables, and all methods may be called from several threads at
/// once.
class Tokenizer {
 public:
  /// Reads vocab.json, merges.txt and the added tokens of tokenizer_config.json from a model folder. Line
  /// ends may be CRLF; a byte order mark and blank lines are ignored; of merges.txt only a first line
  /// starting with "#version" is a comment. Throws Error(model_not_found) for a missing file,
  /// Error(model_invalid) naming file and line otherwise.
  static Tokenizer load(const std::filesystem::path& model_dir);

  /// The same from the contents of the three files (used by fuzzing and by containers that embed the files).
  static Tokenizer from_contents(std::string_view vocab_json, std::string_view merges_txt,
                                 std::string_view tokenizer_config_json);

  /// Ids of valid UTF-8 without any template. With `special_tokens`, the literal strings of added tokens
  /// become their ids (leftmost, longest); otherwise they are ordinary text. Throws Error(invalid_text) for
  /// bad UTF-8.
  std::vector<int32_t> encode(std::string_view utf8, SplitRule rule, bool special_tokens) const;

  /// Ids of the whole wrapped assistant text (model-spec 2.4); callers slice [kTextHead, -kTextTail). With
  /// `raw_tokens` added tokens typed in `text` keep their meaning, as in the official package; without, they
  /// are plain text.
  std::vector<int32_t> encode_text(std::string_view text, SplitRule rule, bool raw_tokens) const;
  /// Ids of the whole wrapped reference text; callers slice [kTextHead, -kReferenceTail).
  std::vector<int32_t> encode_reference(std::string_view text, SplitRule rule, bool raw_tokens) const;
  /// Ids of the wrapped instruction, used unsliced.
  std::vector<int32_t> encode_instruction(std::string_view text, SplitRule rule, bool raw_tokens) const;

  /// Largest id + 1, added tokens included; the embedding table must have at least so many rows.
  size_t vocabulary_size() const noexcept;
  /// Id of an added token's literal text or of a vocabulary entry given as its bytes ("assistant", " the",
  /// "\n").
  std::optional<int32_t> token_id(std::string_view bytes) const;
  /// The bytes an id stands for (the literal text of an added token); empty for an unused id.
  std::string token_bytes(int32_t id) const;

 private:
  friend class IncrementalTokenizer;
  explicit Tokenizer(std::shared_ptr<const detail::TokenizerData> data) : data_(std::move(data)) {}
  std::vector<int32_t> encode_wrapped(std::string_view role, std::string_view text,
                                      std::string_view tail_role, SplitRule rule, bool raw_tokens) const;

  std::shared_ptr<const detail::TokenizerData> data_;
};

}  // namespace skald::text
