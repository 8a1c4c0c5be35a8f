// Literal added tokens such as <|im_end|>: which one stands where in a text.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace skald::text {

/// Longest literal that is accepted, in bytes; it bounds the work per character.
inline constexpr size_t kMaxAddedToken = 256;

/// A trie over the literals. Matches are leftmost, and longest among those (model-spec 2.1 step 1).
class AddedTokens {
 public:
  /// Adds a literal of 1..kMaxAddedToken bytes. False if it is known already.
  bool add(std::string_view literal, int32_t id);

  struct Match {
    size_t begin = 0;   ///< text before it is ordinary
    size_t length = 0;  ///< 0: no token; everything before `begin` is ordinary, the rest is undecided
    int32_t id = 0;
  };
  /// The first token at or after `from`. Without one, begin is the size of the text or, with
  /// `more_may_follow`, the place where a token may just be starting.
  Match find(std::string_view text, size_t from, bool more_may_follow) const;

 private:
  static constexpr int32_t kNoToken = -1;
  int32_t child(int32_t node, char byte) const;

  std::unordered_map<uint64_t, int32_t> edges_;  // node * 256 + byte -> node
  std::vector<int32_t> token_of_{kNoToken};      // per node: id of the literal that ends here
};

}  // namespace skald::text
