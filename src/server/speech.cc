// Samples to bytes while they are made.
#include "server/speech.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace skald::server {
namespace {

engine::LongTextOptions options_of(const SpeechCall& call, bool live) {
  engine::LongTextOptions o;
  o.split = call.split;
  o.pause_ms = call.pause_ms;
  o.hold_pieces = !live;
  o.clean_text = call.clean_text;
  o.quote_text = false;  // the log has errors of the server in full, and nothing of a text
  return o;
}

/// Frames asked for at once; the scheduler gives fewer where the listener needs them sooner.
constexpr int32_t kFrames = 16;

}  // namespace

Speech::Speech(engine::Scheduler& scheduler, const SpeechCall& call, Clock::time_point arrived,
               std::chrono::seconds most, engine::TextSource source)
    : live_(call.delivery != Delivery::whole),
      arrived_(arrived),
      deadline_(arrived + most),
      engine_(scheduler.client(live_)),
      text_(source ? std::make_unique<engine::LongText>(*engine_, call.request, options_of(call, live_),
                                                        std::move(source))
                   : std::make_unique<engine::LongText>(*engine_, call.request, options_of(call, live_))),
      sample_rate_(engine_->info().sample_rate),
      gain_(call.gain),
      format_(call.format),
      tempo_(static_cast<uint32_t>(sample_rate_), call.speed) {
  if (live_)
    encoder_ = audio::make_encoder({.format = format_, .sample_rate = static_cast<uint32_t>(sample_rate_)});
}

AudioChunk Speech::pull(int32_t frames) {
  if (Clock::now() > deadline_) throw ApiError(503, "request_timeout", "the speech took too long");
  AudioChunk chunk = text_->next_audio(frames);
  if (!chunk.samples.empty()) note_audio(chunk.samples.size());
  if (gain_ != 1)
    for (float& sample : chunk.samples) sample = std::clamp(sample * gain_, -1.0f, 1.0f);
  return chunk;
}

void Speech::note_audio(size_t samples) {
  const auto now = Clock::now();
  if (samples_ == 0) {
    first_audio_ = now;
    first_audio_ms_ = std::chrono::duration<double, std::milli>(now - arrived_).count();
  } else {
    const double heard = std::chrono::duration<double>(now - first_audio_).count();
    lateness_ = std::max(lateness_, heard - static_cast<double>(samples_) / sample_rate_);
  }
  samples_ += samples;
}

Speech::Part Speech::next() {
  Part part;
  while (part.bytes.empty() && !part.last) {
    const AudioChunk chunk = pull(kFrames);
    std::vector<float> samples;
    tempo_.add(chunk.samples, samples);
    if (chunk.last) tempo_.finish(samples);
    out_samples_ += samples.size();
    if (!samples.empty()) encoder_->add(samples, part.bytes);
    part.last = chunk.last;
  }
  // A speech without a sample has no file either: the caller has to say so.
  if (part.last && samples_ > 0) encoder_->finish(part.bytes);
  return part;
}

std::string Speech::all() {
  std::vector<float> samples;
  for (bool last = false; !last;) {
    const AudioChunk chunk = pull(kFrames);
    tempo_.add(chunk.samples, samples);
    last = chunk.last;
  }
  tempo_.finish(samples);
  out_samples_ = samples.size();
  std::string bytes;
  if (samples_ == 0) return bytes;
  const auto encoder = audio::make_encoder(
      {.format = format_, .sample_rate = static_cast<uint32_t>(sample_rate_), .samples = samples.size()});
  encoder->add(samples, bytes);
  encoder->finish(bytes);
  return bytes;
}

double Speech::audio_seconds() const { return static_cast<double>(out_samples_) / sample_rate_; }

Headers speech_headers(const SpeechCall& call, const Speech& speech, const std::string& device, bool over) {
  const SpeechResult r = speech.result();
  Headers out{{"X-Skald-Seed", std::to_string(r.seed)},
              {"X-Skald-Device", device},
              {"X-Skald-Sample-Rate", std::to_string(speech.sample_rate())},
              {"X-Skald-First-Audio-Ms", fmt::format("{:.1f}", speech.first_audio_ms())}};
  if (!call.ignored.empty())
    out.emplace_back("X-Skald-Ignored-Fields", fmt::format("{}", fmt::join(call.ignored, ", ")));
  if (r.instruct_ignored) out.emplace_back("X-Skald-Instruct-Ignored", "true");
  if (!over) return out;
  const Usage usage = usage_of(r);
  out.emplace_back("X-Skald-Frames", std::to_string(r.frames));
  out.emplace_back("X-Skald-Stop", stop_reason_name(r.stop));
  out.emplace_back("X-Skald-Rtf", fmt::format("{:.4f}", r.rtf));
  out.emplace_back("X-Skald-Audio-Seconds", fmt::format("{:.3f}", speech.audio_seconds()));
  out.emplace_back("X-Skald-Input-Tokens", std::to_string(usage.input_tokens));
  out.emplace_back("X-Skald-Output-Tokens", std::to_string(usage.output_tokens));
  out.emplace_back("X-Skald-Total-Tokens", std::to_string(usage.input_tokens + usage.output_tokens));
  if (!r.warnings.empty()) out.emplace_back("X-Skald-Warnings", std::to_string(r.warnings.size()));
  return out;
}

Headers api_headers(const SpeechCall& call, const Speech& speech, double load_seconds, bool over) {
  const SpeechResult r = speech.result();
  const Sampling& s = call.request.sampling;
  const auto seconds = [](double value) { return fmt::format("{:.6f}", value); };
  const auto flag = [](bool value) { return std::string(value ? "true" : "false"); };
  Headers out{
      {"Cache-Control", "no-store"}, {"X-TTS-Voice-Clone", "false"}, {"X-TTS-Seed", std::to_string(r.seed)}};
  if (!over) {
    out.emplace_back("X-TTS-Sample-Rate", std::to_string(speech.sample_rate()));
    out.emplace_back("X-TTS-Sample-Format", "s16le");
    out.emplace_back("X-TTS-Text-Lookahead-Tokens", std::to_string(call.request.ahead_tokens));
    out.emplace_back("X-TTS-Time-To-First-Audio-Seconds", seconds(speech.first_audio_ms() / 1000));
    return out;
  }
  const double compute = r.compute_ms / 1000, audio = speech.audio_seconds();
  for (auto& [name, value] :
       Headers{{"X-TTS-Load-Seconds", seconds(load_seconds)},
               {"X-TTS-Generation-Seconds", seconds(compute)},
               {"X-TTS-Inference-Seconds", seconds(compute)},
               {"X-TTS-Time-To-First-Audio-Seconds", seconds(speech.first_audio_ms() / 1000)},
               {"X-TTS-Audio-Seconds", seconds(audio)},
               {"X-TTS-Inference-RTF", seconds(r.rtf)},
               {"X-TTS-Frames", std::to_string(r.frames)},
               {"X-TTS-Samples", std::to_string(r.samples)},
               {"X-TTS-Ended-By-EOS", flag(r.stop == StopReason::eos)},
               {"X-TTS-Do-Sample", flag(!s.greedy && s.temperature != 0.0f)},
               {"X-TTS-Subtalker-Do-Sample", flag(!s.greedy && !s.sub_greedy)}})
    out.emplace_back(name, value);
  const auto given = [&](const char* name, const auto& value) {
    if (value) out.emplace_back(name, fmt::format("{}", *value));
  };
  given("X-TTS-Repetition-Penalty", s.repetition_penalty), given("X-TTS-Temperature", s.temperature);
  given("X-TTS-Top-K", s.top_k), given("X-TTS-Top-P", s.top_p);
  given("X-TTS-Subtalker-Temperature", s.sub_temperature), given("X-TTS-Subtalker-Top-K", s.sub_top_k);
  given("X-TTS-Subtalker-Top-P", s.sub_top_p);
  return out;
}

}  // namespace skald::server
