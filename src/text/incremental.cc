// The incremental tokenizer: bytes -> code points -> added tokens -> NFC -> pieces -> ids, each stage holding
// back what later text could still change.
#include "text/incremental.h"

#include <algorithm>
#include <optional>
#include <string>

#include "skald/error.h"
#include "text/normalize.h"
#include "text/tokenizer_data.h"
#include "text/utf8.h"

namespace skald::text {
namespace {

constexpr size_t kAlwaysRetry = 1024;  // an open piece up to this size is matched again on every push
constexpr size_t kRetryFraction = 8;   // a longer one only after growing by 1/8, which keeps the work linear
constexpr size_t kCompact = 4096;      // consumed text is dropped in steps of at least this size

/// Ordinary text between two added tokens.
class Segment {
 public:
  Segment(const detail::TokenizerData& data, SplitRule rule)
      : data_(data), rule_(rule), scratch_(data.splitter) {}

  void push(std::string_view utf8, std::vector<int32_t>& out) {
    raw_ += utf8;
    release(stable_raw_end(), out);
  }

  /// Ends the segment; the next push starts a new one.
  void end(std::vector<int32_t>& out) {
    append_nfc(raw_, text_);
    raw_.clear();
    scanned_ = stable_ = 0;
    take_pieces(false, out);
    text_.clear();
    start_ = 0;
    retry_at_ = 0;
  }

 private:
  /// How much of raw_ no later character can compose with or reorder.
  size_t stable_raw_end() {
    char32_t last = 0;
    bool any = false;
    while (scanned_ < raw_.size()) {
      const CodePoint cp = code_point_at(raw_, scanned_);
      if (nfc_starts(cp.value)) stable_ = scanned_;
      scanned_ += cp.length;
      last = cp.value;
      any = true;
    }
    return any && nfc_closed(last) ? raw_.size() : stable_;
  }

  void release(size_t end, std::vector<int32_t>& out) {
    if (end == 0) return;
    append_nfc(std::string_view(raw_).substr(0, end), text_);
    raw_.erase(0, end);
    scanned_ -= end;
    stable_ = 0;
    if (text_.size() - start_ >= retry_at_) take_pieces(true, out);
  }

  void take_pieces(bool more_may_follow, std::vector<int32_t>& out) {
    retry_at_ = 0;
    while (start_ < text_.size()) {
      const auto length = data_.splitter.piece_length(rule_, text_, start_, more_may_follow, scratch_);
      if (!length) {
        const size_t open = text_.size() - start_;
        if (open > kAlwaysRetry) retry_at_ = open + open / kRetryFraction;
        break;
      }
      data_.bpe.encode(std::string_view(text_).substr(start_, *length), out);
      start_ += *length;
    }
    if (start_ >= kCompact && start_ >= text_.size() / 2) {
      text_.erase(0, start_);
      start_ = 0;
    }
  }

  const detail::TokenizerData& data_;
  SplitRule rule_;
  Splitter::Scratch scratch_;
  std::string raw_;     // not yet normalised
  size_t scanned_ = 0;  // code points of raw_ looked at
  size_t stable_ = 0;   // last place where raw_ can be cut
  std::string text_;    // normalised; from start_ on not yet in pieces
  size_t start_ = 0;
  size_t retry_at_ = 0;  // open size at which a match is worth another try
};

}  // namespace

struct IncrementalTokenizer::Impl {
  Impl(const Tokenizer& tokenizer, SplitRule rule, bool raw)
      : data(tokenizer.data_), raw_tokens(raw), segment(*data, rule) {
    if (raw_tokens) {
      feed_raw(std::string(kImStart).append(kAssistant), true);
    } else {
      all.push_back(data->im_start);
      segment.push(kAssistant, all);
    }
  }

  /// Text with added tokens recognised.
  void feed_raw(std::string_view utf8, bool more_may_follow) {
    undecided += utf8;
    size_t pos = 0;
    while (pos < undecided.size()) {
      const AddedTokens::Match match = data->added.find(undecided, pos, more_may_follow);
      segment.push(std::string_view(undecided).substr(pos, match.begin - pos), all);
      pos = match.begin;
      if (match.length == 0) break;
      segment.end(all);
      all.push_back(match.id);
      pos += match.length;
    }
    undecided.erase(0, pos);
  }

  void feed(std::string_view utf8) {
    points += count_code_points(utf8);
    if (raw_tokens) {
      feed_raw(utf8, true);
    } else {
      segment.push(utf8, all);
    }
  }

  void feed_tail() {
    if (raw_tokens) {
      feed_raw(std::string(kImEnd).append("\n").append(kImStart).append(kAssistant), false);
      segment.end(all);
      return;
    }
    segment.end(all);
    all.push_back(data->im_end);
    segment.push("\n", all);
    segment.end(all);
    all.push_back(data->im_start);
    segment.push(kAssistant, all);
    segment.end(all);
  }

  /// Moves what is past the head from `all` to `text_ids`.
  void publish() {
    for (; published < all.size(); ++published) {
      if (published >= kTextHead) text_ids.push_back(all[published]);
    }
  }

  void require_open() const {
    if (failure) throw *failure;
    if (done)
      throw Error(ErrorCode::invalid_argument,
                  "text was pushed after the end of the text; start a new stream");
  }

  /// Takes the complete code points from the bytes; keeps the start of an unfinished one.
  void decode(std::string_view bytes, bool at_end) {
    partial += bytes;
    const Utf8Scan scan = scan_utf8(partial);
    if (scan.valid < partial.size() && (at_end || !scan.incomplete)) {
      try {
        require_utf8(partial, consumed);
      } catch (const Error& error) {
        failure = error;
        throw;
      }
    }
    feed(std::string_view(partial).substr(0, scan.valid));
    partial.erase(0, scan.valid);
    consumed += scan.valid;
  }

  std::shared_ptr<const detail::TokenizerData> data;
  bool raw_tokens;
  Segment segment;
  std::string partial;       // bytes of an unfinished code point
  size_t consumed = 0;       // bytes before `partial`
  std::string undecided;     // raw mode: may be the start of an added token
  std::vector<int32_t> all;  // ids of the wrapped text so far
  size_t published = 0;      // of `all`
  std::vector<int32_t> text_ids;
  size_t points = 0;
  bool done = false;
  std::optional<Error> failure;
};

IncrementalTokenizer::IncrementalTokenizer(const Tokenizer& tokenizer, SplitRule rule, bool raw_tokens)
    : impl_(std::make_unique<Impl>(tokenizer, rule, raw_tokens)) {}
IncrementalTokenizer::~IncrementalTokenizer() = default;
IncrementalTokenizer::IncrementalTokenizer(IncrementalTokenizer&&) noexcept = default;
IncrementalTokenizer& IncrementalTokenizer::operator=(IncrementalTokenizer&&) noexcept = default;

void IncrementalTokenizer::push(std::string_view bytes) {
  impl_->require_open();
  impl_->decode(bytes, false);
  impl_->publish();
}

void IncrementalTokenizer::finish() {
  impl_->require_open();
  impl_->decode({}, true);
  impl_->feed_tail();
  impl_->done = true;
  // The tail is at least kTextTail ids, so this never takes back an id that was released (its first token is
  // an added one, which no text before it can swallow).
  impl_->all.resize(impl_->all.size() - std::min(impl_->all.size(), kTextTail));
  impl_->publish();
}

bool IncrementalTokenizer::finished() const noexcept { return impl_->done; }
const std::vector<int32_t>& IncrementalTokenizer::ids() const noexcept { return impl_->text_ids; }
size_t IncrementalTokenizer::code_points() const noexcept { return impl_->points; }

}  // namespace skald::text
