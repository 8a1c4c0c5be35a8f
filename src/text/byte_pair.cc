// Byte-level BPE with a heap of candidate merges over a linked list of symbols.
#include "text/byte_pair.h"

#include <queue>
#include <tuple>

namespace skald::text {
namespace {

constexpr size_t kEnd = static_cast<size_t>(-1);
constexpr int32_t kAbsorbed = -1;

uint64_t pair_key(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

struct Symbol {
  int32_t id;
  size_t previous;
  size_t next;
};

/// A merge that was possible when it was queued.
struct Candidate {
  uint32_t rank;
  size_t position;  // index of the left symbol
  int32_t left, right, merged;
};

struct LaterFirst {  // std::priority_queue keeps the greatest on top
  bool operator()(const Candidate& a, const Candidate& b) const {
    return std::tie(a.rank, a.position) > std::tie(b.rank, b.position);
  }
};

}  // namespace

void BytePair::add_merge(int32_t left, int32_t right, int32_t merged) {
  merges_.emplace(pair_key(left, right), Merge{static_cast<uint32_t>(merges_.size()), merged});
}

const BytePair::Merge* BytePair::find(int32_t left, int32_t right) const {
  const auto it = merges_.find(pair_key(left, right));
  return it == merges_.end() ? nullptr : &it->second;
}

void BytePair::encode(std::string_view piece, std::vector<int32_t>& out) const {
  std::vector<Symbol> symbols(piece.size());
  for (size_t i = 0; i < piece.size(); ++i) {
    symbols[i] = {byte_ids[static_cast<uint8_t>(piece[i])], i == 0 ? kEnd : i - 1,
                  i + 1 == piece.size() ? kEnd : i + 1};
  }
  std::priority_queue<Candidate, std::vector<Candidate>, LaterFirst> queue;
  const auto consider = [&](size_t left) {
    if (left == kEnd || symbols[left].next == kEnd) return;
    const int32_t a = symbols[left].id;
    const int32_t b = symbols[symbols[left].next].id;
    if (const Merge* merge = find(a, b)) queue.push({merge->rank, left, a, b, merge->id});
  };
  for (size_t i = 0; i + 1 < symbols.size(); ++i) consider(i);

  while (!queue.empty()) {
    const Candidate best = queue.top();
    queue.pop();
    Symbol& left = symbols[best.position];
    if (left.id != best.left || left.next == kEnd || symbols[left.next].id != best.right)
      continue;  // outdated
    Symbol& right = symbols[left.next];
    left.id = best.merged;
    right.id = kAbsorbed;
    left.next = right.next;
    if (left.next != kEnd) symbols[left.next].previous = best.position;
    consider(left.previous);
    consider(best.position);
  }
  for (size_t i = symbols.empty() ? kEnd : 0; i != kEnd; i = symbols[i].next) out.push_back(symbols[i].id);
}

}  // namespace skald::text
