// A stream over text that arrives in pieces.
#include "engine/streams.h"
#include "engine/text_queue.h"
#include "text/incremental.h"
#include "text/utf8.h"

namespace skald::engine {
namespace {

/// Tokens of the text so far, and what else the utterance must know about it. One thread.
class TextFeed {
 public:
  TextFeed(const text::Tokenizer& tokenizer, const SpeechRequest& request)
      : tokenizer_(tokenizer),
        rule_(split_rule(request.split)),
        raw_(request.raw_tokens),
        ids_(tokenizer, rule_, raw_) {}

  /// Takes what the queue has, as long as the utterance can use it, and hands the new ids over.
  void pull(TextQueue& queue, Utterance& utterance) {
    std::string bytes;
    while (utterance.wants_text() && queue.take(kPiece, bytes)) {
      ids_.push(bytes);
      watch_.push(bytes);
      if (role_.empty()) head_ += bytes;
      hand_over(utterance, false);
    }
    if (utterance.wants_text() && queue.exhausted()) end(utterance);
  }

 private:
  static constexpr size_t kPiece = 512;

  void end(Utterance& utterance) {
    ids_.finish();
    watch_.require_spoken();
    if (auto warning = watch_.warning()) utterance.warn(*std::move(warning));
    hand_over(utterance, true);
  }

  /// Nothing starts before something is there to speak, so that the outcome does not depend on the pieces.
  void hand_over(Utterance& utterance, bool complete) {
    if (role_.empty() && (complete || !ids_.ids().empty())) find_role();
    if (watch_.anything_spoken()) utterance.set_text(ids_.ids(), role_, ids_.code_points(), complete);
  }

  /// The role rows of the wrapped text. White space at its start fuses with the template (specification 2.5),
  /// so they are read off the text itself; they are certain once the first id after them is.
  void find_role() {
    const std::string_view text = std::string_view(head_).substr(0, text::scan_utf8(head_).valid);
    role_ = tokenizer_.encode_text(text, rule_, raw_);
    role_.resize(text::kTextHead);
    head_ = {};
  }

  const text::Tokenizer& tokenizer_;
  text::SplitRule rule_;
  bool raw_;
  text::IncrementalTokenizer ids_;
  TextWatch watch_;
  std::string head_;  // the text until role_ is known
  std::vector<int32_t> role_;
};

class PiecewiseTextStream final : public TextStream {
 public:
  PiecewiseTextStream(std::shared_ptr<Core> core, const SpeechRequest& request, const Diagnosis* diagnosis,
                      Clock::time_point started)
      : feed_(core->tokenizer, request),
        utterance_(core, request, prepare(core->config(), core->tokenizer, request, true), diagnosis,
                   started) {
    utterance_.pull_text = [this] { pull(); };
    if (!request.text.empty()) queue_.push(request.text);
  }

  bool push(std::string_view text) override { return queue_.push(text); }
  bool try_push(std::string_view text) override { return queue_.try_push(text); }
  void finish() override { queue_.finish(); }
  void cancel() noexcept override {
    utterance_.cancel();
    queue_.close();
  }

  StreamReply poll(int32_t max_frames) override {
    StreamReply reply;
    try {
      reply.chunk = utterance_.next(max_frames);
      // CutMode::official may leave samples of the reference without any frame.
      reply.event = !reply.chunk.samples.empty() ? StreamEvent::chunk
                    : reply.chunk.last           ? StreamEvent::finished
                                                 : StreamEvent::need_text;
    } catch (...) {
      reply.event = StreamEvent::error;
      reply.error = to_error(std::current_exception());
    }
    if (utterance_.over()) queue_.close();
    return reply;
  }

  StreamReply next(int32_t max_frames) override {
    for (;;) {
      StreamReply reply = poll(max_frames);
      if (reply.event != StreamEvent::need_text) return reply;
      queue_.wait();
    }
  }

  SpeechResult result() const override { return utterance_.result(); }
  std::vector<int32_t> codes() const override { return utterance_.codes(); }

 private:
  /// A fault of the text ends the utterance after what was spoken before it.
  void pull() {
    try {
      feed_.pull(queue_, utterance_);
    } catch (...) {
      utterance_.fail(std::current_exception());
    }
  }

  TextQueue queue_;
  TextFeed feed_;
  Utterance utterance_;
};

}  // namespace

std::unique_ptr<TextStream> make_text_stream(std::shared_ptr<Core> core, const SpeechRequest& request,
                                             const Diagnosis* diagnosis) {
  const auto started = Clock::now();
  return std::make_unique<PiecewiseTextStream>(std::move(core), request, diagnosis, started);
}

}  // namespace skald::engine
