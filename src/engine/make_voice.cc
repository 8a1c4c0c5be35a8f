// A recording made a voice: checks, resampling, both encoders.
#include "engine/make_voice.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <mutex>
#include <utility>

#include "audio/clip_check.h"
#include "audio/resample.h"
#include "base/sha256.h"
#include "engine/memory.h"
#include "engine/prepare.h"
#include "engine/voices.h"
#include "model/speaker_encoder.h"
#include "text/utf8.h"

namespace skald::engine {
namespace {

std::string now() {
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}",
                     fmt::gmtime(std::chrono::system_clock::to_time_t(std::chrono::system_clock::now())));
}

void check_request(const model::ModelConfig& config, const VoiceRequest& r) {
  if (config.type != model::ModelType::base)
    throw Error(ErrorCode::unsupported,
                fmt::format("a voice is made with a Base model, and this is a {} model",
                            model::model_type_name(config.type)));
  if (!valid_voice_name(r.name))
    throw Error(
        ErrorCode::invalid_argument,
        "the name of a voice is 1 to 64 letters, digits, '-' and '_', and begins with a letter or digit");
  if (r.trailing_silence_ms < 0 || r.trailing_silence_ms > 2000)
    throw Error(ErrorCode::invalid_argument,
                fmt::format("trailing_silence_ms is {}, but must be within 0..2000", r.trailing_silence_ms));
  const std::pair<const char*, const std::string*> texts[] = {{"ref_text", &r.ref_text},
                                                              {"consent", &r.consent},
                                                              {"description", &r.description},
                                                              {"language", &r.language},
                                                              {"source", &r.source}};
  for (const auto& [name, text] : texts) check_length(*text, name), text::require_utf8(*text);
}

/// The voice without its sound, so that consent is asked before any work.
Voice begin_voice(const Core& core, const VoiceRequest& r) {
  Voice v;
  v.name = r.name, v.ref_text = r.ref_text, v.description = r.description, v.identity = r.identity;
  v.consent = r.consent, v.source = r.source, v.created = now();
  std::vector<std::string> unused;
  if (!r.language.empty()) v.language = find_language(core.config(), r.language, false, unused);
  require_consent(v);
  return v;
}

/// 24 kHz mono, checked.
std::vector<float> prepare_clip(const VoiceRequest& r, MadeVoice& made) {
  const std::vector<float> mono = audio::check_clip(r.recording, made.warnings);
  made.voice.seconds = static_cast<double>(mono.size()) / r.recording.sample_rate;
  if (made.voice.seconds > kMostReferenceSeconds)
    throw Error(ErrorCode::audio_invalid,
                fmt::format("the clip is {:.1f} s long, and at most {} s can be used; 5 to 15 s of "
                            "speech are best",
                            made.voice.seconds, kMostReferenceSeconds));
  std::vector<float> clip = audio::resample(mono, r.recording.sample_rate, kCodecRate);
  if (clip.size() < static_cast<size_t>(model::SpeakerEncoder::kLeastSamples))
    throw Error(
        ErrorCode::audio_invalid,
        fmt::format(
            "the clip is {:.4f} s long, and at least {:.4f} s are needed; 5 to 15 s of speech are best",
            made.voice.seconds, static_cast<double>(model::SpeakerEncoder::kLeastSamples) / kCodecRate));
  if (made.voice.seconds < kShortReference)
    made.warnings.push_back(
        fmt::format("the clip is only {:.1f} s long; 5 to 15 s of speech are best", made.voice.seconds));
  if (made.voice.seconds > kLongReference)
    made.warnings.push_back(
        fmt::format("the clip is {:.1f} s long; beyond {:.0f} s words may be swallowed, and 5 to 15 s of "
                    "speech are best",
                    made.voice.seconds, kLongReference));
  clip.insert(clip.end(), static_cast<size_t>(r.trailing_silence_ms) * kCodecRate / 1000, 0.0f);
  return clip;
}

/// For long work under the compute lock: lets everyone who waits for it have a turn.
auto turns_of_others(Core& core) {
  return [&core] { core.compute.unlock(), core.compute.lock(); };
}

/// Loads the encoders at their first use, if there is memory for them.
void ready_encoders(Core& core) {
  const std::lock_guard lock(core.compute);
  if (core.encoders_loaded) return;
  if (core.options.device == "cpu")
    check_memory(core.model->encoder_memory(), available_memory(), core.options);
  core.model->load_encoders(turns_of_others(core));
  core.encoders_loaded = true;
}

/// Runs the stream of samples that `next` hands out, a chunk at a time under the compute lock.
template <class Next>
std::vector<int32_t> encode_chunks(Core& core, Next&& next) {
  std::vector<int32_t> codes;
  bool begun = false;
  for (std::span<const float> chunk = next(); !chunk.empty(); chunk = next()) {
    const std::lock_guard lock(core.compute);
    if (!begun) core.model->encode_reset();
    begun = true;
    core.model->encode(chunk, codes);
  }
  return codes;
}

/// Of the next chunk: short while somebody speaks, as nobody else has the device meanwhile.
size_t chunk_samples(const Core& core) {
  constexpr int32_t kShort = 16;
  const int32_t most = core.model->encode_chunk(),
                frames = core.slots.any_taken() ? std::min(kShort, most) : most;
  return static_cast<size_t>(frames) * static_cast<size_t>(core.samples_per_frame());
}

std::string hash_of(const Recording& r) {
  Sha256 hash;
  hash.add(fmt::format("{} Hz, {} channels\n", r.sample_rate, r.channels));
  hash.add(std::as_bytes(std::span(r.samples)));
  return hex(hash.finish());
}

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (static_cast<unsigned char>(c) < ' ')
      out += fmt::format("\\u{:04x}", static_cast<int>(c));
    else
      out += c;
  }
  return out + '"';
}

}  // namespace

std::string doubt_transcript(const std::string& text, double seconds) {
  constexpr double kSlow = 4, kFast = 35;
  double weight = 0;
  for (size_t at = 0; at < text.size();) {
    const text::CodePoint c = text::code_point_at(text, at);
    at += c.length;
    const bool wide = c.value >= 0x2E80;  // Chinese, Japanese, Korean: about a syllable each
    if (c.value > U' ') weight += wide ? 3 : 1;
  }
  const double rate = weight / std::max(seconds, 1e-3);
  if (rate >= kSlow && rate <= kFast) return {};
  return fmt::format(
      "the text has {:.0f} characters for {:.1f} s of speech, which is {} than anybody speaks; it must be "
      "word for "
      "word what the clip says, or leave it out to use the speaker vector alone",
      weight, seconds, rate < kSlow ? "less" : "more");
}

std::string audit_line(const char* event, const std::string& request_id, const Voice& voice) {
  return fmt::format(
      "{{\"event\":{},\"time\":{},\"request_id\":{},\"voice\":{},\"voice_hash\":{},\"audio_hash\":{},"
      "\"identity\":{},\"source\":{},\"consent\":{}}}",
      quoted(event), quoted(now()), quoted(request_id), quoted(voice.name), quoted(voice_hash(voice)),
      quoted(voice.audio_hash), quoted(std::string(speaker_identity_name(voice.identity))),
      quoted(voice.source), quoted(voice.consent));
}

MadeVoice make_voice(Core& core, const VoiceRequest& r) {
  check_request(core.config(), r);
  MadeVoice made;
  made.voice = begin_voice(core, r);
  const std::vector<float> clip = prepare_clip(r, made);
  if (const std::string doubt = r.ref_text.empty() ? "" : doubt_transcript(r.ref_text, made.voice.seconds);
      !doubt.empty())
    made.warnings.push_back(doubt);
  const std::lock_guard one_at_a_time(core.encoding);
  ready_encoders(core);
  const auto from = Clock::now();
  {
    const std::lock_guard lock(core.compute);
    made.voice.x_vector = core.model->speaker_vector(clip, turns_of_others(core));
  }
  if (!r.ref_text.empty())
    made.voice.codes = encode_chunks(core, [&, left = std::span(clip)]() mutable {
      const auto chunk = left.first(std::min(left.size(), chunk_samples(core)));
      left = left.subspan(chunk.size());
      return std::span<const float>(chunk);
    });
  made.encode_ms = milliseconds(from, Clock::now());
  made.voice.model = model_name(core.config());
  made.voice.model_hash = core.model->speaker_encoder_hash();
  made.voice.audio_hash = hash_of(r.recording);
  require_fit(core.config(), made.voice);  // among them: no codes from a clip
  if (core.options.on_audit) core.options.on_audit(audit_line("voice_made", r.request_id, made.voice));
  return made;
}

std::vector<int32_t> encode(Core& core, const SampleSource& source) {
  const std::lock_guard one_at_a_time(core.encoding);
  ready_encoders(core);
  std::vector<float> buffer;
  uint64_t before = 0;
  return encode_chunks(core, [&] {
    buffer.resize(chunk_samples(core));
    size_t filled = 0;
    for (size_t got = 1; filled < buffer.size() && got > 0; filled += got)
      got = source(std::span(buffer).subspan(filled));
    const auto part = std::span<const float>(buffer).first(filled);
    const auto odd = std::find_if(part.begin(), part.end(), [](float x) { return !std::isfinite(x); });
    if (odd != part.end())
      throw Error(
          ErrorCode::audio_invalid,
          fmt::format(
              "sample {} is not a finite number: the file is damaged, or louder than can be computed with",
              before + static_cast<uint64_t>(odd - part.begin())));
    before += filled;
    return part;
  });
}

}  // namespace skald::engine
