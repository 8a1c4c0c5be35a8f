// Conversions of the C interface.
#include "capi/convert.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/to_error.h"

namespace skald::capi {
namespace {

/// A copy of the caller's structure in today's size: members it does not have keep their defaults.
template <class Struct>
Struct known_part(const Struct* from, void (*fill)(Struct*, size_t), const char* name) {
  Struct out;
  fill(&out, sizeof out);
  if (from->size < sizeof(size_t) || from->size > 4096)
    throw Error(
        ErrorCode::invalid_argument,
        std::string(name) + ".size is not the size of the structure; fill it with the _default function");
  std::memcpy(&out, from, std::min(from->size, sizeof out));
  return out;
}

std::string text(const char* s) { return s ? s : ""; }

std::optional<float> optional(float value) { return std::isnan(value) ? std::nullopt : std::optional(value); }
std::optional<int32_t> optional(int32_t value) {
  return value == SKALD_UNSET ? std::nullopt : std::optional(value);
}

template <class Enum>
Enum choice(int32_t value, Enum last, const char* name) {
  if (value < 0 || value > static_cast<int32_t>(last))
    throw Error(ErrorCode::invalid_argument, std::string(name) + " is " + std::to_string(value) +
                                                 ", which is none of the values of skald_c.h");
  return static_cast<Enum>(value);
}

// The numbers of skald_c.h are those of the C++ enumerations (errors: one more), so that values pass by cast.
static_assert(SKALD_ERROR_INTERNAL == static_cast<int>(ErrorCode::internal) + 1);
static_assert(SKALD_ERROR_UNKNOWN_VOICE == static_cast<int>(ErrorCode::unknown_voice) + 1);
static_assert(SKALD_ERROR_RUNAWAY == static_cast<int>(ErrorCode::runaway) + 1);
static_assert(SKALD_ERROR_IO == static_cast<int>(ErrorCode::io) + 1);
static_assert(SKALD_ERROR_DEVICE_FUNCTION == static_cast<int>(ErrorCode::device_function) + 1);
static_assert(SKALD_ERROR_CONSENT_REQUIRED == static_cast<int>(ErrorCode::consent_required) + 1);
static_assert(SKALD_LAYOUT_WHOLE == static_cast<int>(TextLayout::whole));
static_assert(SKALD_LAYOUT_STREAM == static_cast<int>(TextLayout::stream));
static_assert(SKALD_LAYOUT_AHEAD == static_cast<int>(TextLayout::ahead));
static_assert(SKALD_SPLIT_MISTRAL == static_cast<int>(TextSplit::mistral));
static_assert(SKALD_DECODE_WHOLE == static_cast<int>(DecodeMode::whole));
static_assert(SKALD_DECODE_OFFICIAL == static_cast<int>(DecodeMode::official));
static_assert(SKALD_CUT_OFFICIAL == static_cast<int>(CutMode::official));
static_assert(SKALD_STOP_EOS == static_cast<int>(StopReason::eos));
static_assert(SKALD_STOP_LENGTH == static_cast<int>(StopReason::length));
static_assert(SKALD_STOP_RUNAWAY == static_cast<int>(StopReason::runaway));
static_assert(SKALD_STOP_CANCELLED == static_cast<int>(StopReason::cancelled));
static_assert(SKALD_STOP_ERROR == static_cast<int>(StopReason::error));
static_assert(SKALD_EVENT_CHUNK == static_cast<int>(StreamEvent::chunk));
static_assert(SKALD_EVENT_FINISHED == static_cast<int>(StreamEvent::finished));
static_assert(SKALD_EVENT_ERROR == static_cast<int>(StreamEvent::error));
static_assert(SKALD_IDENTITY_REAL == static_cast<int>(SpeakerIdentity::real));
static_assert(SKALD_IDENTITY_SYNTHETIC == static_cast<int>(SpeakerIdentity::synthetic));

/// At most `size` - 1 bytes of `from`, not cut inside a code point.
void copy_message(const char* from, char* to, size_t size) noexcept {
  size_t length = std::strlen(from);
  if (length >= size) {
    length = size - 1;
    while (length > 0 && (static_cast<unsigned char>(from[length]) & 0xC0) == 0x80) --length;
  }
  std::memcpy(to, from, length);
  to[length] = '\0';
}

skald_status write(int32_t status, const char* message, skald_error* out) noexcept {
  if (out) {
    out->status = status;
    copy_message(message, out->message, sizeof out->message);
  }
  return static_cast<skald_status>(status);
}

Sampling sampling_of(const skald_request& r) {
  Sampling s;
  s.temperature = optional(r.temperature), s.top_p = optional(r.top_p);
  s.repetition_penalty = optional(r.repetition_penalty);
  s.sub_temperature = optional(r.sub_temperature), s.sub_top_p = optional(r.sub_top_p);
  s.top_k = optional(r.top_k), s.min_new_tokens = optional(r.min_new_tokens),
  s.sub_top_k = optional(r.sub_top_k);
  s.greedy = r.greedy != 0, s.sub_greedy = r.sub_greedy != 0;
  return s;
}

template <class T>
std::vector<T> array(const T* data, size_t count, const char* name) {
  if (count > 0) require(data, name);
  return count > 0 ? std::vector<T>(data, data + count) : std::vector<T>();
}

}  // namespace

skald_status report(const Error& error, skald_error* out) noexcept {
  return write(static_cast<int32_t>(error.code()) + 1, error.what(), out);
}

skald_status report(std::exception_ptr error, skald_error* out) noexcept {
  return report(to_error(std::move(error)), out);
}

void require(const void* pointer, const char* name) {
  if (!pointer) throw Error(ErrorCode::invalid_argument, std::string(name) + " is a null pointer");
}

EngineOptions to_cpp(const skald_engine_options* options) {
  EngineOptions out;
  if (!options) return out;
  const auto o = known_part(options, skald_engine_options_default, "skald_engine_options");
  if (o.device) out.device = o.device;
  out.cpu_target = text(o.cpu_target);
  if (o.weights) out.weights = o.weights;
  if (o.compute) out.compute = o.compute;
  out.threads = o.threads, out.slots = o.slots, out.cache_capacity = o.cache_capacity,
  out.codec_chunk = o.codec_chunk, out.kept_voices = o.kept_voices;
  for (size_t i = 0; i < o.gpu_library_count; ++i) {
    require(o.gpu_libraries, "gpu_libraries"), require(o.gpu_libraries[i], "gpu_libraries");
    out.gpu_libraries.emplace_back(o.gpu_libraries[i]);
  }
  out.gpu_code = text(o.gpu_code), out.gpu_cache = text(o.gpu_cache), out.gpu_helper = text(o.gpu_helper);
  out.gpu_deadline_ms = o.gpu_deadline_ms;
  if (o.on_audit)
    out.on_audit = [call = o.on_audit, context = o.audit_context](const std::string& line) {
      call(context, line.c_str());
    };
  return out;
}

SpeechRequest to_cpp(const skald_request* request) {
  require(request, "request");
  const auto r = known_part(request, skald_request_default, "skald_request");
  SpeechRequest out;
  out.text = text(r.text), out.voice = text(r.voice), out.language = text(r.language),
  out.instruct = text(r.instruct);
  out.request_id = text(r.request_id), out.ref_text = text(r.ref_text);
  out.x_vector = array(r.x_vector, r.x_vector_count, "x_vector");
  out.ref_codes = array(r.ref_codes, r.ref_codes_count, "ref_codes");
  if (r.has_seed) out.seed = r.seed;
  out.layout = choice(r.layout, TextLayout::ahead, "layout");
  out.split = choice(r.split, TextSplit::mistral, "split");
  out.decode = decode_mode(r.decode);
  out.cut = choice(r.cut, CutMode::official, "cut");
  out.ahead_tokens = r.ahead_tokens, out.stall_frames = r.stall_frames;
  out.raw_tokens = r.raw_tokens != 0, out.strict = r.strict != 0;
  out.max_frames = optional(r.max_frames), out.max_new_tokens = optional(r.max_new_tokens);
  out.sampling = sampling_of(r);
  out.x_vector_only = r.x_vector_only != 0, out.consent = text(r.consent);
  if (r.clone) out.clone = std::make_shared<const Voice>(r.clone->voice);
  return out;
}

VoiceRequest to_cpp(const skald_voice_request* request) {
  require(request, "request");
  const auto r = known_part(request, skald_voice_request_default, "skald_voice_request");
  VoiceRequest out;
  out.name = text(r.name), out.ref_text = text(r.ref_text), out.language = text(r.language),
  out.consent = text(r.consent), out.description = text(r.description), out.request_id = text(r.request_id);
  if (r.source) out.source = r.source;
  out.recording.samples = array(r.samples, r.sample_count, "samples");
  out.recording.channels = r.channels, out.recording.sample_rate = r.sample_rate;
  out.identity = choice(r.identity, SpeakerIdentity::synthetic, "identity");
  out.trailing_silence_ms = r.trailing_silence_ms;
  return out;
}

DecodeMode decode_mode(int32_t value) { return choice(value, DecodeMode::official, "decode mode"); }

void StringList::assign(std::vector<std::string> strings) {
  strings_ = std::move(strings);
  pointers_.clear();
  for (const std::string& s : strings_) pointers_.push_back(s.c_str());
}

void Handed::give(AudioChunk next, skald_audio* audio) {
  chunk = std::move(next);
  *audio = {chunk.samples.data(), chunk.samples.size(), chunk.frames, chunk.last};
}

void Handed::give(SpeechResult next, skald_result* out) {
  result = std::move(next);
  warnings.assign(result.warnings);
  skald_result r = {};
  r.frames = result.frames, r.samples = result.samples, r.seed = result.seed;
  r.request_id = result.request_id.c_str();
  r.warnings = warnings.data(), r.warning_count = warnings.size();
  r.first_audio_ms = result.first_audio_ms, r.compute_ms = result.compute_ms, r.rtf = result.rtf;
  r.stop = static_cast<int32_t>(result.stop), r.instruct_ignored = result.instruct_ignored;
  r.prompt_rows = result.prompt_rows, r.text_tokens = result.text_tokens, r.frame_bound = result.frame_bound;
  r.reused_rows = result.reused_rows, r.reused_reference = result.reused_reference;
  copy_known(r, out, "skald_result");
}

void copy_codes(const std::vector<int32_t>& from, int32_t* codes, size_t capacity, size_t* count) {
  require(count, "count");
  if (capacity > 0) require(codes, "codes");
  *count = from.size();
  std::copy_n(from.begin(), std::min(capacity, from.size()), codes);
}

}  // namespace skald::capi
