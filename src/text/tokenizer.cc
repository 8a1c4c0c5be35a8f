// Encoding and the chat templates; loading is in tokenizer_load.cc.
#include "text/tokenizer.h"

#include "text/normalize.h"
#include "text/tokenizer_data.h"
#include "text/utf8.h"

namespace skald::text {

void detail::TokenizerData::encode_ordinary(std::string_view utf8, SplitRule rule,
                                            std::vector<int32_t>& out) const {
  std::string text;
  append_nfc(utf8, text);
  Splitter::Scratch scratch(splitter);
  for (size_t pos = 0; pos < text.size();) {
    const size_t length = splitter.piece_length(rule, text, pos, false, scratch).value();
    bpe.encode(std::string_view(text).substr(pos, length), out);
    pos += length;
  }
}

void detail::TokenizerData::encode_with_added(std::string_view utf8, SplitRule rule,
                                              std::vector<int32_t>& out) const {
  for (size_t pos = 0; pos < utf8.size();) {
    const AddedTokens::Match match = added.find(utf8, pos, false);
    encode_ordinary(utf8.substr(pos, match.begin - pos), rule, out);
    if (match.length > 0) out.push_back(match.id);
    pos = match.begin + match.length;
  }
}

std::vector<int32_t> Tokenizer::encode(std::string_view utf8, SplitRule rule, bool special_tokens) const {
  require_utf8(utf8);
  std::vector<int32_t> ids;
  if (special_tokens) {
    data_->encode_with_added(utf8, rule, ids);
  } else {
    data_->encode_ordinary(utf8, rule, ids);
  }
  return ids;
}

/// <|im_start|> role text <|im_end|> \n, and <|im_start|> tail_role if there is one.
std::vector<int32_t> Tokenizer::encode_wrapped(std::string_view role, std::string_view text,
                                               std::string_view tail_role, SplitRule rule,
                                               bool raw_tokens) const {
  require_utf8(text);
  std::vector<int32_t> ids;
  std::string body(role);
  body += text;
  if (raw_tokens) {
    std::string whole(kImStart);
    whole.append(body).append(kImEnd).append("\n");
    if (!tail_role.empty()) whole.append(kImStart).append(tail_role);
    data_->encode_with_added(whole, rule, ids);
    return ids;
  }
  ids.push_back(data_->im_start);
  data_->encode_ordinary(body, rule,
                         ids);  // the role's newline may fuse with white space of the text (model-spec 2.5)
  ids.push_back(data_->im_end);
  data_->encode_ordinary("\n", rule, ids);
  if (!tail_role.empty()) {
    ids.push_back(data_->im_start);
    data_->encode_ordinary(tail_role, rule, ids);
  }
  return ids;
}

std::vector<int32_t> Tokenizer::encode_text(std::string_view text, SplitRule rule, bool raw_tokens) const {
  return encode_wrapped(kAssistant, text, kAssistant, rule, raw_tokens);
}

std::vector<int32_t> Tokenizer::encode_reference(std::string_view text, SplitRule rule,
                                                 bool raw_tokens) const {
  return encode_wrapped(kAssistant, text, {}, rule, raw_tokens);
}

std::vector<int32_t> Tokenizer::encode_instruction(std::string_view text, SplitRule rule,
                                                   bool raw_tokens) const {
  return encode_wrapped(kUser, text, {}, rule, raw_tokens);
}

size_t Tokenizer::vocabulary_size() const noexcept { return data_->bytes_of.size(); }

std::optional<int32_t> Tokenizer::token_id(std::string_view bytes) const {
  const auto it = data_->ids.find(std::string(bytes));
  if (it == data_->ids.end()) return std::nullopt;
  return it->second;
}

std::string Tokenizer::token_bytes(int32_t id) const {
  const auto index = static_cast<size_t>(id);
  return id >= 0 && index < data_->bytes_of.size() ? data_->bytes_of[index] : std::string();
}

}  // namespace skald::text
