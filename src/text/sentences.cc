// The sentence splitter: one pass over code points that remembers the best places to cut, and cuts when a
// spoken character would pass the limit. Every decision depends on the text before that character only, so
// the pieces do not depend on how the text arrives.
#include "text/sentences.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <deque>

#include "skald/error.h"
#include "text/inspect.h"
#include "text/sentence_marks.h"
#include "text/utf8.h"

namespace skald::text {
namespace {

constexpr size_t kCompact = 1 << 16;  // pieces already cut are dropped from the buffer in steps of this size

/// Where a piece may end, from the best to the worst.
enum Level : size_t { kSentence, kClause, kSpace, kGrapheme, kLevels };

/// A place between two code points.
struct Place {
  size_t offset = 0;  // in the buffer
  size_t count = 0;   // code points of the piece before it
  bool valid = false;
};

/// Scans one piece: gets its code points in order and keeps the places where it may end.
class PieceScan {
 public:
  PieceScan(size_t limit, size_t begin) : limit_(limit), begin_(begin), offset_(begin), word_(begin) {}

  /// Looks at the next code point; true if the piece must end at cut() before it is taken.
  bool overflows(char32_t c) {
    look(c);
    return is_spoken(c) && spoken_seen_ && count_ >= limit_ && any_place();
  }

  /// Takes the code point that was looked at.
  void take(std::string_view buffer, CodePoint cp) {
    if (is_spoken(cp.value)) {
      // A long run of characters that nobody says, before the first spoken one, does not use up the limit.
      if (!spoken_seen_ && count_ > limit_ / 2) count_ = 0;
      spoken_seen_ = true;
      after_unspaced_ = is_unspaced_letter(cp.value);
    }
    const size_t at = offset_;
    offset_ += cp.length;
    ++count_;
    previous_ = cp.value;
    if (is_space(cp.value)) {
      note_space(cp.value);
    } else {
      lines_ = 0;
      note_mark(buffer.substr(word_, at - word_), mark_kind(cp.value));
    }
  }

  size_t offset() const { return offset_; }

  /// The best end of the piece.
  size_t cut() const {
    if (places_[kSentence].valid) return places_[kSentence].offset;
    const Place& clause = places_[kClause];
    const Place& space = places_[kSpace];
    if (late(clause)) return clause.offset;
    if (late(space)) return space.offset;
    if (clause.valid || space.valid) return std::max(clause.offset, space.offset);
    return places_[kGrapheme].offset;
  }

  /// The piece certainly reaches up to here: later places are later in the text, except the tentative one.
  size_t committed() const {
    const bool marked = places_[kSentence].valid || places_[kClause].valid || places_[kSpace].valid;
    if (!marked) return begin_;
    return tentative_.valid ? std::min(tentative_.offset, cut()) : cut();
  }

 private:
  Place here() const { return {offset_, count_, true}; }

  bool any_place() const {
    return std::any_of(places_.begin(), places_.end(), [](const Place& place) { return place.valid; });
  }

  /// In the second half of the piece: a good place even without a sentence end.
  bool late(const Place& place) const { return place.valid && place.count >= limit_ / 2; }

  void record(Level level, const Place& place) {
    if (!spoken_seen_) return;  // nothing to speak before it
    if (!places_[level].valid || places_[level].offset < place.offset) places_[level] = place;
  }

  /// "Dr. Smith" and "No. 5" are kept together if any other space is at hand.
  Level space_level() const {
    const bool abbreviated = mark_ == MarkKind::stop && stop_word_ != StopWord::ordinary;
    return abbreviated ? kGrapheme : kSpace;
  }

  bool may_end_sentence() const {
    return mark_ == MarkKind::stop || mark_ == MarkKind::exclaim || mark_ == MarkKind::ellipsis;
  }

  /// Places before the next character, and what it makes of an open mark.
  void look(char32_t c) {
    if (offset_ > begin_ &&
        utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(previous_),
                                         static_cast<utf8proc_int32_t>(c), &grapheme_state_)) {
      record(kGrapheme, here());
    }
    if (is_space(c)) {
      look_at_space(c);
    } else if (is_spoken(c)) {
      if (!spaced_ && is_unspaced_letter(c)) look_at_unspaced();
      if (tentative_.valid) resolve(c);
      close_mark();
    } else if (!tentative_.valid) {
      const bool belongs = !spaced_ && (closes_after(mark_, c) || mark_kind(c) != MarkKind::none);
      if (!belongs) close_mark();
    } else if (spaced_) {
      opened_ = true;  // a quote or bracket; the sentence end stays before it
    }
  }

  void look_at_space(char32_t c) {
    if (is_breaking_space(c) && !is_space(previous_)) record(space_level(), here());
    if (mark_ == MarkKind::none || spaced_) return;
    if (mark_ == MarkKind::comma) record(kClause, here());
    if (may_end_sentence()) tentative_ = here();
    spaced_ = true;
  }

  /// A letter of a script without spaces directly after the mark.
  void look_at_unspaced() {
    if (mark_ == MarkKind::exclaim || (mark_ == MarkKind::stop && after_unspaced_)) record(kSentence, here());
    if (mark_ == MarkKind::ellipsis) record(kClause, here());
  }

  /// The first spoken character after a mark and white space decides whether a sentence ended there.
  void resolve(char32_t c) {
    const bool goes_on = mark_ == MarkKind::stop && (stop_word_ == StopWord::abbreviation ||
                                                     (stop_word_ == StopWord::before_number && is_number(c)));
    if (!goes_on) record(is_lower_case(c) ? kClause : kSentence, tentative_);
  }

  void close_mark() {
    mark_ = MarkKind::none;
    spaced_ = opened_ = tentative_.valid = false;
  }

  /// Places after a visible character.
  void note_mark(std::string_view word, MarkKind kind) {
    if (tentative_.valid) return;  // marks between two sentences
    if (kind == MarkKind::clause || kind == MarkKind::comma) {
      if (mark_ != MarkKind::end) mark_ = kind;  // "etc.," goes on
    } else if (kind != MarkKind::none && mark_ == MarkKind::none) {
      mark_ = kind;
      if (kind == MarkKind::stop) stop_word_ = stop_word(word);
    } else if (kind != MarkKind::none) {
      mark_ = joined(mark_, kind);
    }
    if (mark_ == MarkKind::end) record(kSentence, here());
    if (mark_ == MarkKind::clause) record(kClause, here());
  }

  /// Two marks in a row: "..", "?!", "。。".
  static MarkKind joined(MarkKind first, MarkKind second) {
    if (first == MarkKind::end || second == MarkKind::end) return MarkKind::end;
    const bool dots = first != MarkKind::exclaim && second != MarkKind::exclaim;
    return dots ? MarkKind::ellipsis : MarkKind::exclaim;
  }

  void note_space(char32_t c) {
    word_ = offset_;
    lines_ += line_ends(c);
    if (is_breaking_space(c)) record(space_level(), here());
    if (mark_ == MarkKind::comma || mark_ == MarkKind::clause || lines_ == 1) record(kClause, here());
    if (mark_ == MarkKind::end || lines_ >= 2) record(kSentence, here());
    if (tentative_.valid && !opened_) tentative_ = here();
  }

  size_t limit_;
  size_t begin_;
  size_t offset_;     // of the next code point
  size_t count_ = 0;  // code points taken, see take()
  size_t word_;       // where the current word began
  std::array<Place, kLevels> places_{};
  MarkKind mark_ = MarkKind::none;  // the last mark, while only closers and white space have followed
  StopWord stop_word_ = StopWord::ordinary;
  bool spaced_ = false;  // white space came after mark_
  Place tentative_;      // end of a sentence if the next spoken character agrees
  bool opened_ = false;  // something visible but not spoken came after tentative_
  int lines_ = 0;        // line ends since the last visible character
  bool spoken_seen_ = false;
  bool after_unspaced_ = false;  // the last spoken character was of a script without spaces
  char32_t previous_ = 0;
  utf8proc_int32_t grapheme_state_ = 0;
};

}  // namespace

struct SentenceSplitter::Impl {
  explicit Impl(size_t max_code_points) : limit(max_code_points), scan(limit, 0) {
    if (limit == 0)
      throw Error(ErrorCode::invalid_argument, "the longest piece of text must allow at least 1 code point");
  }

  void push(std::string_view bytes) {
    if (done)
      throw Error(ErrorCode::invalid_argument,
                  "text was pushed after the end of the text; start a new splitter");
    buffer += bytes;
    const std::string_view fresh = std::string_view(buffer).substr(valid_end);
    const Utf8Scan found = scan_utf8(fresh);
    if (found.valid < fresh.size() && !found.incomplete) require_utf8(fresh, dropped + valid_end);
    valid_end += found.valid;
    while (scan.offset() < valid_end) {
      const CodePoint cp = code_point_at(buffer, scan.offset());
      if (scan.overflows(cp.value)) {
        close_piece(scan.cut());
      } else {
        scan.take(buffer, cp);
      }
    }
  }

  void finish() {
    if (done) return;
    if (valid_end < buffer.size())
      require_utf8(std::string_view(buffer).substr(valid_end), dropped + valid_end);
    if (begin < buffer.size()) close_piece(buffer.size());
    done = true;
  }

  void close_piece(size_t end) {
    closed.push_back(buffer.substr(begin, end - begin));
    begin = end;
    if (begin >= kCompact && begin >= buffer.size() / 2) {
      buffer.erase(0, begin);
      valid_end -= begin;
      dropped += begin;
      begin = 0;
    }
    scan = PieceScan(limit, begin);
  }

  size_t limit;
  std::string buffer;
  size_t dropped = 0;    // bytes before the buffer
  size_t valid_end = 0;  // the buffer is valid UTF-8 up to here
  size_t begin = 0;      // of the open piece
  PieceScan scan;
  std::deque<std::string> closed;
  size_t handed_out = 0;  // bytes of the first piece not yet returned as a whole that fragments gave already
  bool done = false;
};

SentenceSplitter::SentenceSplitter(size_t max_code_points) : impl_(std::make_unique<Impl>(max_code_points)) {}
SentenceSplitter::~SentenceSplitter() = default;
SentenceSplitter::SentenceSplitter(SentenceSplitter&&) noexcept = default;
SentenceSplitter& SentenceSplitter::operator=(SentenceSplitter&&) noexcept = default;

void SentenceSplitter::push(std::string_view bytes) { impl_->push(bytes); }
void SentenceSplitter::finish() { impl_->finish(); }

std::optional<std::string> SentenceSplitter::next() {
  if (impl_->closed.empty()) return std::nullopt;
  std::string piece = std::move(impl_->closed.front()).substr(impl_->handed_out);
  impl_->closed.pop_front();
  impl_->handed_out = 0;
  return piece;
}

std::optional<SentenceSplitter::Fragment> SentenceSplitter::next_fragment() {
  if (auto rest = next()) return Fragment{std::move(*rest), true};
  if (impl_->done) return std::nullopt;
  const size_t from = impl_->begin + impl_->handed_out;
  const size_t to = impl_->scan.committed();
  if (to <= from) return std::nullopt;
  impl_->handed_out = to - impl_->begin;
  return Fragment{impl_->buffer.substr(from, to - from), false};
}

std::vector<Piece> split_sentences(std::string_view text, size_t max_code_points) {
  SentenceSplitter splitter(max_code_points);
  splitter.push(text);
  splitter.finish();
  std::vector<Piece> pieces;
  size_t offset = 0;
  while (const auto piece = splitter.next()) {
    pieces.push_back({offset, piece->size()});
    offset += piece->size();
  }
  return pieces;
}

}  // namespace skald::text
