// Speaks long text piece by piece.
#include "engine/long_text.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include <fmt/format.h>

#include "base/to_error.h"
#include "engine/disclaimer.h"
#include "engine/settings.h"
#include "text/inspect.h"
#include "text/languages.h"
#include "text/sentence_marks.h"
#include "text/sentences.h"
#include "text/utf8.h"

namespace skald::engine {
namespace {

/// Whether a sentence or paragraph ends with this piece, and not only a clause: such joins get a pause.
bool ends_sentence(std::string_view piece) {
  const std::u32string code_points = text::to_utf32(piece);
  for (auto it = code_points.rbegin(); it != code_points.rend() && !text::is_spoken(*it); ++it) {
    switch (text::mark_kind(*it)) {
      case text::MarkKind::end:
      case text::MarkKind::stop:
      case text::MarkKind::exclaim:
      case text::MarkKind::ellipsis: return true;
      default: break;
    }
    if (text::line_ends(*it) > 0) return true;
  }
  return false;
}

/// The first words of a piece, for error sentences.
std::string first_words(const std::string& piece) {
  constexpr size_t kShown = 32;
  std::u32string code_points = text::to_utf32(piece);
  const size_t start = std::min(code_points.find_first_not_of(U" \t\r\n"), code_points.size());
  const bool cut = code_points.size() - start > kShown;
  std::string out;
  for (const char32_t c : code_points.substr(start, kShown)) {
    text::append_utf8(out, c < U' ' ? U' ' : c);
  }
  while (out.ends_with(' ')) out.pop_back();
  return cut ? out + "…" : out;
}

}  // namespace

int32_t piece_limit_of(const model::ModelConfig& config) {
  if (config.generation.piece_limit > 0) return config.generation.piece_limit;
  return config.type == model::ModelType::base ? kPieceLimitClone : kPieceLimit;
}

// ---- PieceJoiner

float PieceJoiner::gain(size_t i) const {
  const double phase = static_cast<double>(i + 1) / static_cast<double>(fade_ + 1);
  return static_cast<float>(0.5 - 0.5 * std::cos(std::numbers::pi * phase));
}

void PieceJoiner::begin_piece(size_t pause_samples) {
  if (!std::exchange(any_, true)) {
    faded_in_ = fade_;  // the outer edge stays as it is
    return;
  }
  const size_t tail = std::min(fade_, ready_.size() - piece_start_);
  for (size_t i = 0; i < tail; ++i) ready_[ready_.size() - 1 - i] *= gain(i);
  ready_.resize(ready_.size() + pause_samples, 0.0f);
  total_ += pause_samples;
  piece_start_ = ready_.size();
  faded_in_ = 0;
}

void PieceJoiner::add(std::span<const float> samples) {
  const size_t start = ready_.size();
  ready_.insert(ready_.end(), samples.begin(), samples.end());
  total_ += samples.size();
  for (size_t i = start; i < ready_.size() && faded_in_ < fade_; ++i) ready_[i] *= gain(faded_in_++);
}

std::vector<float> PieceJoiner::take() {
  const size_t held = std::min(fade_, ready_.size() - piece_start_);
  std::vector<float> out(ready_.begin(), ready_.end() - static_cast<std::ptrdiff_t>(held));
  ready_.erase(ready_.begin(), ready_.end() - static_cast<std::ptrdiff_t>(held));
  piece_start_ = 0;
  return out;
}

std::vector<float> PieceJoiner::finish() {
  piece_start_ = 0;
  return std::exchange(ready_, {});
}

// ---- Where the pieces come from

struct LongText::Feed {
  std::vector<std::string> whole;  // of a text known from the start
  size_t given = 0;                // pieces handed out

  TextSource source;  // of a text that arrives
  std::optional<text::SentenceSplitter> splitter;
  std::string unsplit;  // arrived text without a splitter
  text::RunShortener shortener{kLongestSilentRun};
  std::string pending;  // of the piece that is being gathered
  bool ended = false;

  void take(const std::string& text) {
    splitter ? splitter->push(shortener.push(text)) : void(unsplit += text);
  }

  /// The next fragment of arriving text. Nothing: the writer paused (`quiet`), or the text is over.
  std::optional<text::SentenceSplitter::Fragment> fragment(bool& quiet) {
    quiet = false;
    for (;;) {
      if (splitter) {
        if (auto next = splitter->next_fragment()) return next;
      } else if (!unsplit.empty()) {
        return text::SentenceSplitter::Fragment{std::exchange(unsplit, {}), false};
      }
      if (ended) return std::nullopt;
      const TextArrival arrival = source();
      take(arrival.text);
      if (arrival.end) {
        ended = true;
        if (splitter) splitter->finish();
      } else if (arrival.quiet) {
        quiet = true;
        return std::nullopt;
      }
    }
  }

  /// The next whole piece; nothing at the end. A text that holds nothing at all is one empty piece, which the
  /// engine refuses with the right error.
  std::optional<std::string> next_piece() {
    if (!source) return given < whole.size() ? std::optional(whole[given++]) : std::nullopt;
    for (;;) {
      bool quiet = false;
      const auto next = fragment(quiet);
      if (next) pending += next->text;
      const bool over = !next && !quiet;
      const bool complete = next ? next->ends_piece : quiet ? splitter && ends_sentence(pending) : true;
      if (complete && (text::anything_to_speak(pending) || (over && given == 0))) {
        ++given;
        return std::exchange(pending, {});
      }
      if (over) return std::nullopt;
    }
  }

  /// The start of the next piece of arriving text, as soon as there is something to speak; `ended_piece` if
  /// it is all.
  std::optional<std::string> next_start(bool& ended_piece) {
    for (;;) {
      bool quiet = false;
      const auto next = fragment(quiet);
      if (next) pending += next->text;
      const bool over = !next && !quiet;
      ended_piece = over || (next && next->ends_piece);
      if (text::anything_to_speak(pending) || (over && given == 0)) {
        ++given;
        return std::exchange(pending, {});
      }
      if (over) return std::nullopt;
    }
  }
};

/// The request in work: one of the two kinds of stream.
struct LongText::Running {
  std::unique_ptr<SpeechStream> speech;
  std::unique_ptr<TextStream> text;
  std::string unpushed;      // text the queue had no room for
  bool last_text = false;    // nothing follows `unpushed`
  bool finished = false;     // finish() was called
  bool speech_over = false;  // the model ended before the text of the piece had arrived

  void cancel() noexcept { speech ? speech->cancel() : text->cancel(); }
  SpeechResult result() const { return speech ? speech->result() : text->result(); }
  std::vector<int32_t> codes() const { return speech ? speech->codes() : text->codes(); }
};

// ---- LongText

LongText::LongText(Engine& engine, SpeechRequest request, LongTextOptions options, PieceObserver* observer)
    : LongText(engine, std::move(request), std::move(options), nullptr, observer) {}

LongText::LongText(Engine& engine, SpeechRequest request, LongTextOptions options, TextSource source,
                   PieceObserver* observer)
    : engine_(engine),
      request_(std::move(request)),
      options_(std::move(options)),
      observer_(observer),
      feed_(std::make_unique<Feed>()),
      joiner_(static_cast<size_t>(engine.info().sample_rate * kFadeMs / 1000)) {
  if (!request_.seed) request_.seed = draw_seed();
  // Once for all pieces: the voice may be replaced while they are spoken.
  if (!request_.clone && !request_.voice.empty()) request_.clone = engine.find_voice(request_.voice);
  disclaimer_due_ =
      options_.disclaimer && (request_.clone ? request_.clone->is_clone() : !request_.x_vector.empty());
  if (options_.max_piece == 0) options_.max_piece = engine.info().piece_limit;
  if (options_.max_piece < 1) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("the piece limit is {}, but must be at least 1", options_.max_piece));
  }
  const size_t limit = static_cast<size_t>(options_.max_piece);
  if (source) {
    feed_->source = std::move(source);
    if (options_.split) feed_->splitter.emplace(limit);
    feed_->take(request_.text);
    return;
  }
  if (options_.split) {
    const std::string text = feed_->shortener.push(request_.text);
    for (const text::Piece& piece : text::split_sentences(text, limit))
      feed_->whole.push_back(text.substr(piece.offset, piece.length));
  }
  if (feed_->whole.empty()) feed_->whole.push_back(request_.text);
}

LongText::~LongText() = default;

int32_t LongText::piece_count() const {
  return feed_->source && !over_ ? 0
                                 : static_cast<int32_t>(feed_->source ? feed_->given : feed_->whole.size());
}

void LongText::set_running(std::unique_ptr<Running> running) {
  const std::lock_guard lock(running_mutex_);
  running_ = std::move(running);
  if (running_ && cancelled_) running_->cancel();
}

void LongText::cancel() noexcept {
  cancelled_ = true;
  const std::lock_guard lock(running_mutex_);
  if (running_) running_->cancel();
}

bool LongText::limit_reached() {
  const int64_t spoken = result_.total.frames - disclaimer_frames_;
  return result_.total.stop == StopReason::length ||
         (request_.max_frames && *request_.max_frames <= spoken && spoken > 0) ||
         (request_.max_new_tokens && *request_.max_new_tokens - spoken < 2 && spoken > 0);
}

void LongText::begin_disclaimer() {
  disclaimer_due_ = false;
  joiner_.begin_piece(0);
  current_ = PieceReport{};
  in_piece_ = true;
  current_.index = -1;
  current_.text = options_.disclaimer_text;
  if (current_.text.empty())
    current_.text = default_disclaimer(text::canonical_language(disclaimer_language()));
  piece_given_out_ = false;
  start(0);
}

std::string LongText::disclaimer_language() const {
  if (!options_.disclaimer_language.empty()) return options_.disclaimer_language;
  const std::string& asked =
      request_.language.empty() && request_.clone ? request_.clone->language : request_.language;
  return text::canonical_language(asked) == "auto" ? "english" : asked;
}

bool LongText::begin_piece() {
  if (disclaimer_due_) {
    begin_disclaimer();
    return true;
  }
  const size_t index = feed_->given;
  const bool arriving = feed_->source && request_.layout == TextLayout::ahead;
  bool ended_piece = false;
  if (result_.total.stop == StopReason::length && feed_->source)
    return false;  // do not wait for text nobody speaks
  auto piece = arriving ? feed_->next_start(ended_piece) : feed_->next_piece();
  if (!piece) return false;
  if (limit_reached()) {
    result_.total.stop = StopReason::length;
    result_.total.warnings.push_back(
        fmt::format("the frame limit ended the speech; the text from piece {} on was not spoken", index + 1));
    return false;
  }
  const bool after_disclaimer = index == 0 && current_.index < 0;
  if (index > 0 || after_disclaimer) {
    const bool pause = after_disclaimer || ends_sentence(current_.text);
    joiner_.begin_piece(pause ? static_cast<size_t>(engine_.info().sample_rate) * options_.pause_ms / 1000
                              : 0);
  } else {
    joiner_.begin_piece(0);
  }
  current_ = PieceReport{};
  in_piece_ = true;
  current_.index = static_cast<int32_t>(index);
  current_.text = options_.clean_text ? text::clean_invisible(*piece) : std::move(*piece);
  piece_given_out_ = false;
  start(0);
  if (arriving && ended_piece) {
    running_->text->finish();
    running_->last_text = running_->finished = true;
  }
  return true;
}

void LongText::start(int32_t attempt) {
  SpeechRequest request = request_;
  request.text = current_.text;
  request.seed = *request_.seed + static_cast<uint64_t>(current_.index) +
                 static_cast<uint64_t>(attempt) * kRetrySeedStep;
  const auto spoken = static_cast<int32_t>(result_.total.frames - disclaimer_frames_);
  const bool disclaimer = current_.index < 0;
  if (request.max_frames) *request.max_frames -= spoken;
  if (request.max_new_tokens) *request.max_new_tokens -= spoken;
  if (!request.request_id.empty() && current_.index > 0)
    request.request_id += fmt::format(".{}", current_.index);
  if (disclaimer) {
    request.language = disclaimer_language();
    request.max_frames.reset(), request.max_new_tokens.reset();
    if (!request.request_id.empty()) request.request_id += ".disclaimer";
  }
  current_.seed = *request.seed;
  current_.attempts = attempt + 1;
  set_running(nullptr);  // gives its slot back first
  const Diagnosis* diagnosis = observer_ ? observer_->begin(current_.index, attempt, request) : nullptr;
  auto running = std::make_unique<Running>();
  if (!disclaimer && feed_->source && request.layout == TextLayout::ahead) {
    running->text = engine_.start_text_stream(request, diagnosis);
  } else {
    running->speech = engine_.start_stream(request, diagnosis);
  }
  set_running(std::move(running));
}

/// Waits for more text of the running piece.
void LongText::gather_text() {
  bool quiet = false;
  const auto next = feed_->fragment(quiet);
  if (cancelled_) throw Error(ErrorCode::cancelled, "the speech was cancelled");
  if (next) {
    running_->unpushed = options_.clean_text ? text::clean_invisible(next->text) : next->text;
    current_.text += running_->unpushed;
  }
  running_->last_text = next ? next->ends_piece : !quiet;
}

/// When the model ends the speech early, the rest of the piece goes unspoken, as it does when all of it was
/// there from the start: what had arrived by then must not decide what is spoken.
AudioChunk LongText::end_text_stream(AudioChunk last) {
  if (running_->last_text || running_->text->result().stop == StopReason::length) return last;
  running_->speech_over = true;  // the samples go out first: the rest of the text may take its time
  last.last = false;
  return last;
}

AudioChunk LongText::pull_text_stream(int32_t max_frames) {
  if (running_->speech_over) {
    while (!running_->last_text) gather_text();
    return AudioChunk{{}, 0, true};
  }
  TextStream& stream = *running_->text;
  for (;;) {
    StreamReply reply = stream.poll(max_frames);
    switch (reply.event) {
      case StreamEvent::chunk:
        return reply.chunk.last ? end_text_stream(std::move(reply.chunk)) : std::move(reply.chunk);
      case StreamEvent::finished: return end_text_stream(AudioChunk{{}, 0, true});
      case StreamEvent::error: throw *reply.error;
      case StreamEvent::need_text: break;
    }
    if (running_->unpushed.empty() && !running_->last_text) gather_text();
    // A refused push means that the queue is full: the next poll makes room.
    if (!running_->unpushed.empty() && stream.try_push(running_->unpushed)) running_->unpushed.clear();
    if (running_->unpushed.empty() && running_->last_text && !std::exchange(running_->finished, true))
      stream.finish();
  }
}

AudioChunk LongText::pull(int32_t max_frames) {
  return running_->text ? pull_text_stream(max_frames) : running_->speech->next_audio(max_frames);
}

bool LongText::try_again(const Error& error) {
  const bool possible = options_.retry && running_ && running_->speech && current_.attempts == 1 &&
                        !piece_given_out_ && !request_.sampling.greedy &&
                        error.code() == ErrorCode::runaway && !cancelled_;
  if (!possible) return false;
  failed_compute_ms_ += running_->result().compute_ms;
  piece_samples_.clear();
  piece_frames_ = 0;
  start(1);
  return true;
}

void LongText::merge(const PieceReport& report) {
  SpeechResult& total = result_.total;
  const SpeechResult& piece = report.result;
  if (report.index <= 0) total.request_id = piece.request_id;  // not the disclaimer's, once there is another
  if (result_.pieces.empty()) {
    total.seed = *request_.seed;
    total.first_audio_ms = piece.first_audio_ms + failed_compute_ms_;
  }
  for (const std::string& warning : piece.warnings) {
    if (std::find(total.warnings.begin(), total.warnings.end(), warning) == total.warnings.end()) {
      total.warnings.push_back(warning);
    }
  }
  total.frames += piece.frames;
  if (report.index < 0) disclaimer_frames_ += piece.frames;
  total.stop = piece.stop;
  total.instruct_ignored |= piece.instruct_ignored;
  total.prompt_rows += piece.prompt_rows;
  total.text_tokens += piece.text_tokens;
  total.frame_bound += piece.frame_bound;
  total.compute_ms += piece.compute_ms + std::exchange(failed_compute_ms_, 0);
  const double audio_ms = 1000.0 * static_cast<double>(total.frames) * engine_.info().samples_per_frame /
                          std::max(1, engine_.info().sample_rate);
  total.rtf = audio_ms > 0 ? total.compute_ms / audio_ms : 0;
  result_.pieces.push_back(report);
}

void LongText::end_piece() {
  current_.result = running_->result();
  const std::vector<int32_t> codes = observer_ ? running_->codes() : std::vector<int32_t>();
  merge(current_);
  set_running(nullptr);
  in_piece_ = false;
  if (observer_) observer_->end(current_, codes);
}

void LongText::rethrow(const Error& error) {
  over_ = true;
  if (running_) {
    current_.result = running_->result();
    merge(current_);
    set_running(nullptr);
  } else {  // no request was in work
    result_.total.stop = error.code() == ErrorCode::cancelled ? StopReason::cancelled : StopReason::error;
  }
  std::string where;
  const bool one = feed_->source ? feed_->given <= 1 : feed_->whole.size() == 1;
  if (in_piece_ && current_.index < 0 && error.code() != ErrorCode::cancelled) {
    where = "disclaimer: ";
  } else if (!one && in_piece_ && error.code() != ErrorCode::cancelled) {
    where = fmt::format("piece {}{}{}: ", current_.index + 1,
                        feed_->source ? "" : fmt::format(" of {}", feed_->whole.size()),
                        options_.quote_text ? fmt::format(" (\"{}\")", first_words(current_.text)) : "");
  }
  const bool twice = current_.attempts > 1 && error.code() == ErrorCode::runaway;
  const std::string tried =
      twice ? fmt::format("; seeds {} and {} both failed", current_.seed - kRetrySeedStep, current_.seed)
            : "";
  if (where.empty() && tried.empty()) throw Error(error);
  throw Error(error.code(), where + error.what() + tried);
}

AudioChunk LongText::next_audio(int32_t max_frames) {
  if (error_) std::rethrow_exception(error_);
  if (over_) return AudioChunk{{}, 0, true};
  try {
    return pull_chunk(max_frames);
  } catch (...) {
    error_ = std::current_exception();
  }
  try {
    rethrow(to_error(error_));
  } catch (...) {
    error_ = std::current_exception();
    throw;
  }
}

AudioChunk LongText::pull_chunk(int32_t max_frames) {
  AudioChunk out;
  while (out.samples.empty()) {
    if (cancelled_) throw Error(ErrorCode::cancelled, "the speech was cancelled");
    if (!running_ && !begin_piece()) {
      over_ = out.last = true;
      out.samples = joiner_.finish();
      return out;
    }
    AudioChunk chunk;
    try {
      chunk = pull(max_frames);
    } catch (const Error& error) {
      if (!try_again(error)) throw;
      continue;
    }
    piece_samples_.insert(piece_samples_.end(), chunk.samples.begin(), chunk.samples.end());
    piece_frames_ += chunk.frames;
    if (chunk.last || !options_.hold_pieces) {
      joiner_.add(std::exchange(piece_samples_, {}));
      out.frames += std::exchange(piece_frames_, 0);
      piece_given_out_ |= chunk.frames > 0;
    }
    if (options_.on_progress) {
      options_.on_progress(current_.index, result_.total.frames + running_->result().frames);
    }
    if (chunk.last) end_piece();
    out.samples = joiner_.take();
  }
  return out;
}

std::vector<float> LongText::salvage() {
  joiner_.add(std::exchange(piece_samples_, {}));
  return joiner_.finish();
}

LongTextResult LongText::result() const {
  LongTextResult out = result_;
  out.total.samples = static_cast<int64_t>(joiner_.total());
  if (out.pieces.empty()) out.total.seed = *request_.seed;
  if (const size_t count = feed_->shortener.left_out(); count > 0)
    out.total.warnings.push_back(fmt::format(
        "{} characters were left out: of more than {} in a row that nobody says, only the first {} are kept",
        count, kLongestSilentRun, kLongestSilentRun));
  return out;
}

}  // namespace skald::engine
