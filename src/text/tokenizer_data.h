// The tables of a loaded tokenizer, shared by Tokenizer and IncrementalTokenizer.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/added_tokens.h"
#include "text/byte_pair.h"
#include "text/splitter.h"

namespace skald::text {

// Strings of the chat templates (model-spec 2.4).
inline constexpr std::string_view kImStart = "<|im_start|>";
inline constexpr std::string_view kImEnd = "<|im_end|>";
inline constexpr std::string_view kAssistant = "assistant\n";
inline constexpr std::string_view kUser = "user\n";

namespace detail {

struct TokenizerData {
  BytePair bpe;
  AddedTokens added;
  Splitter splitter;
  std::vector<std::string> bytes_of;             // per id; empty if unused
  std::unordered_map<std::string, int32_t> ids;  // inverse of bytes_of
  int32_t im_start = 0;
  int32_t im_end = 0;

  /// Appends the ids of valid UTF-8 without added tokens: NFC, split, BPE.
  void encode_ordinary(std::string_view utf8, SplitRule rule, std::vector<int32_t>& out) const;
  /// The same with added tokens recognised.
  void encode_with_added(std::string_view utf8, SplitRule rule, std::vector<int32_t>& out) const;
};

}  // namespace detail
}  // namespace skald::text
