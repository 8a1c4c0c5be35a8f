// Long text over an Engine: piece by piece, one voice, no clicks at the joins, and a second try for a runaway
// piece.
//
// Why pieces: quality falls off within one long generation (speech gets faster, words are swallowed), and one
// request is bounded by the cache. A text below the limit is always exactly one request, with the samples of
// that request untouched.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "model/config.h"
#include "skald/diagnosis.h"
#include "skald/skald.h"

namespace skald::engine {

/// Code points of a piece by default: about 25 s of speech; less for clones, whose pace drifts sooner.
inline constexpr int32_t kPieceLimit = 400, kPieceLimitClone = 200;
/// Characters in a row that nobody says and that are kept where a text is cut into pieces: no cut can stand
/// among them, since every piece needs something to speak, and a request must fit the cache.
inline constexpr size_t kLongestSilentRun = 512;
/// Length of the fades at internal joins.
inline constexpr int32_t kFadeMs = 5;
/// Added to the seed of a piece for its second try.
inline constexpr uint64_t kRetrySeedStep = 1'000'000;

/// The limit that max_piece = 0 stands for: the model's own, else one of those.
int32_t piece_limit_of(const model::ModelConfig& config);

/// Joins pieces: every internal edge is faded with a raised cosine of `fade` samples. The last `fade` samples
/// are held back until it is known whether another piece follows. One piece passes through unchanged.
class PieceJoiner {
 public:
  explicit PieceJoiner(size_t fade) : fade_(fade) {}
  void begin_piece(size_t pause_samples);    ///< before every piece; the pause of the first is ignored
  void add(std::span<const float> samples);  ///< of the current piece
  std::vector<float> take();                 ///< what is ready: all but the last `fade` samples of the piece
  std::vector<float> finish();               ///< the rest; no piece follows
  uint64_t total() const { return total_; }  ///< samples in, pauses included = samples out after finish()

 private:
  float gain(size_t i) const;
  size_t fade_;
  std::vector<float> ready_;
  size_t piece_start_ = 0;  // first sample of the current piece that is still in ready_
  size_t faded_in_ = 0;     // samples of the current piece that were faded in
  uint64_t total_ = 0;
  bool any_ = false;
};

/// Text that arrives: complete code points of UTF-8.
struct TextArrival {
  std::string text;
  bool end = false;  ///< nothing follows
  bool quiet =
      false;  ///< the writer has paused: speak the complete sentences at hand instead of filling a piece
};
/// Blocks until there is something to report. May throw, e.g. Error(cancelled) or Error(invalid_text).
using TextSource = std::function<TextArrival()>;

struct LongTextOptions {
  int32_t max_piece = 0;   ///< code points of a piece; 0 = ModelInfo::piece_limit
  bool split = true;       ///< false: one request, whatever its length and whatever is in it
  int32_t pause_ms = 120;  ///< silence between pieces, where a sentence or paragraph ends
  bool hold_pieces =
      false;  ///< give out no sample of a piece before it is whole, so that a runaway can be tried again
  bool retry = true;  ///< try a runaway piece once more with another seed while none of it has been given out
  bool clean_text = false;  ///< text::clean_invisible over the text of every piece
  bool quote_text = true;   ///< errors quote the first words of the piece; not where they end up in a log
  /// Before a clone speaks it says what it is: a piece of its own, with index -1, bound by no limit of the
  /// request. Other voices say nothing.
  bool disclaimer = false;
  std::string disclaimer_text;      ///< empty = default_disclaimer
  std::string disclaimer_language;  ///< empty = that of the request, else of the voice, else English
  /// Called on the speaking thread after every few frames: index of the piece, frames spoken so far in all.
  std::function<void(int32_t piece, int64_t frames)> on_progress;
};

/// One piece of the text, spoken or being spoken.
struct PieceReport {
  int32_t index = 0;  ///< -1 = the disclaimer
  std::string text;
  uint64_t seed = 0;
  int32_t attempts = 1;
  SpeechResult result;
};

struct LongTextResult {
  SpeechResult total;  ///< sums over the pieces; `seed` is the seed of piece 0, `samples` include pauses
  std::vector<PieceReport> pieces;
};

/// Sees every request that is made, e.g. to record its numbers.
class PieceObserver {
 public:
  virtual ~PieceObserver() = default;
  /// Before attempt 0 or 1 of a piece. The Diagnosis must stay valid until `end`; null = none.
  virtual const Diagnosis* begin(int32_t piece, int32_t attempt, const SpeechRequest& request) = 0;
  /// After a piece was spoken (not after a failed attempt). `codes` [frames * groups].
  virtual void end(const PieceReport& report, const std::vector<int32_t>& codes) = 0;
};

/// A text being spoken. Used from one thread, but for cancel().
///
/// Piece i uses seed + i (modulo 2^64), its second try kRetrySeedStep more; everything else of the request is
/// the same for every piece. `max_frames` and `max_new_tokens` bound the whole text: where they end it, the
/// rest is not spoken. Layout `ahead` over a TextSource feeds each piece to a TextStream while it arrives;
/// such a piece is not tried again. Where the model ends the speech of a piece, the rest of that piece is not
/// spoken, whether it had arrived by then or not.
class LongText {
 public:
  LongText(Engine& engine, SpeechRequest request, LongTextOptions options, PieceObserver* observer = nullptr);
  /// The text follows from `source`, after request.text.
  LongText(Engine& engine, SpeechRequest request, LongTextOptions options, TextSource source,
           PieceObserver* observer = nullptr);
  ~LongText();

  /// The next samples, computing about `max_frames` frames at a time (a whole piece with hold_pieces);
  /// `frames` counts speech only, `samples` also hold pauses and lag by the fade. Errors name the piece when
  /// there are several.
  AudioChunk next_audio(int32_t max_frames);
  /// From any thread: next_audio throws Error(cancelled) within one frame. A waiting TextSource must be woken
  /// by its owner.
  void cancel() noexcept;
  LongTextResult result() const;
  /// After an error: the samples that were computed but not given out.
  std::vector<float> salvage();
  /// Number of pieces, or 0 while it is not known.
  int32_t piece_count() const;

 private:
  struct Feed;
  struct Running;
  bool begin_piece();
  void begin_disclaimer();
  std::string disclaimer_language() const;
  void start(int32_t attempt);
  AudioChunk pull(int32_t max_frames);
  AudioChunk pull_text_stream(int32_t max_frames);
  void gather_text();
  AudioChunk end_text_stream(AudioChunk last);
  bool try_again(const Error& error);
  void end_piece();
  bool limit_reached();
  void merge(const PieceReport& report);
  [[noreturn]] void rethrow(const Error& error);
  AudioChunk pull_chunk(int32_t max_frames);
  void set_running(std::unique_ptr<Running> running);

  Engine& engine_;
  SpeechRequest request_;
  LongTextOptions options_;
  PieceObserver* observer_;
  std::unique_ptr<Feed> feed_;
  PieceJoiner joiner_;
  std::vector<float> piece_samples_;  // of the current piece, not yet in the joiner
  int32_t piece_frames_ = 0;
  bool piece_given_out_ = false;
  bool in_piece_ = false;  // errors concern current_
  bool disclaimer_due_ = false;
  int64_t disclaimer_frames_ = 0;
  PieceReport current_;
  std::unique_ptr<Running> running_;
  std::mutex running_mutex_;  // cancel() against the exchange of running_
  std::atomic<bool> cancelled_ = false;
  bool over_ = false;
  std::exception_ptr error_;      ///< what ended it, for every later call
  double failed_compute_ms_ = 0;  // attempts that were thrown away
  LongTextResult result_;
};

}  // namespace skald::engine
