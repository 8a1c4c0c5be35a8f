// The trie of added tokens.
#include "text/added_tokens.h"

namespace skald::text {

int32_t AddedTokens::child(int32_t node, char byte) const {
  const auto it = edges_.find(static_cast<uint64_t>(node) * 256 + static_cast<uint8_t>(byte));
  return it == edges_.end() ? -1 : it->second;
}

bool AddedTokens::add(std::string_view literal, int32_t id) {
  int32_t node = 0;
  for (const char byte : literal) {
    const auto next = static_cast<int32_t>(token_of_.size());
    const auto [it, inserted] =
        edges_.emplace(static_cast<uint64_t>(node) * 256 + static_cast<uint8_t>(byte), next);
    if (inserted) token_of_.push_back(kNoToken);
    node = it->second;
  }
  if (token_of_[static_cast<size_t>(node)] != kNoToken) return false;
  token_of_[static_cast<size_t>(node)] = id;
  return true;
}

AddedTokens::Match AddedTokens::find(std::string_view text, size_t from, bool more_may_follow) const {
  for (size_t begin = from; begin < text.size(); ++begin) {
    Match best{begin, 0, 0};
    int32_t node = 0;
    size_t end = begin;
    while (end < text.size() && (node = child(node, text[end])) >= 0) {
      ++end;
      const int32_t id = token_of_[static_cast<size_t>(node)];
      if (id != kNoToken) best = {begin, end - begin, id};
    }
    const bool could_grow = node >= 0 && more_may_follow;  // the text ended inside the trie
    if (could_grow) return {begin, 0, 0};
    if (best.length > 0) return best;
  }
  return {text.size(), 0, 0};
}

}  // namespace skald::text
