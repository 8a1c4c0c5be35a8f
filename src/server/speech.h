// One request being spoken: text to samples, to another speed, to bytes.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "audio/encode/encoder.h"
#include "audio/encode/tempo.h"
#include "engine/long_text.h"
#include "engine/scheduler.h"
#include "server/http.h"
#include "server/openai.h"

namespace skald::server {

/// Used from one thread, but for cancel().
class Speech {
 public:
  using Clock = std::chrono::steady_clock;

  /// `arrived` is when the request came in, and `most` how long it may take from then on: later next() throws
  /// ApiError(503, request_timeout). With a source the text follows from it. Throws Error before any work for
  /// what can be known by then.
  Speech(engine::Scheduler& scheduler, const SpeechCall& call, Clock::time_point arrived,
         std::chrono::seconds most, engine::TextSource source = {});

  /// Bytes of the next samples; empty bytes only at the end. Throws Error.
  struct Part {
    std::string bytes;
    bool last = false;
  };
  Part next();
  /// Everything at once, with its length stated. Throws Error.
  std::string all();

  /// From any thread: next() throws Error(cancelled) within one frame.
  void cancel() noexcept { text_->cancel(); }

  SpeechResult result() const { return text_->result().total; }
  double first_audio_ms() const { return first_audio_ms_; }  ///< from the arrival
  double lateness_seconds() const { return lateness_; }      ///< longest wait of a listener for more
  double audio_seconds() const;                              ///< at the asked speed
  int32_t sample_rate() const { return sample_rate_; }

 private:
  AudioChunk pull(int32_t frames);
  void note_audio(size_t samples);

  bool live_;
  Clock::time_point arrived_, deadline_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<engine::LongText> text_;
  int32_t sample_rate_;
  float gain_;
  audio::Format format_;
  audio::Tempo tempo_;
  std::unique_ptr<audio::Encoder> encoder_;
  double first_audio_ms_ = 0, lateness_ = 0;
  Clock::time_point first_audio_;
  uint64_t samples_ = 0, out_samples_ = 0;
};

/// What headers say about a speech; the numbers of its end only when it is over.
Headers speech_headers(const SpeechCall& call, const Speech& speech, const std::string& device, bool over);
/// The same in the names of the /api routes.
Headers api_headers(const SpeechCall& call, const Speech& speech, double load_seconds, bool over);

}  // namespace skald::server
