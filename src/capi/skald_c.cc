// The C interface: thin functions over skald.h that let no exception out.
#include "skald/skald_c.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>

#include "capi/convert.h"
#include "skald/skald.h"

using namespace skald;
using capi::fill_default;
using capi::guarded;
using capi::require;

struct skald_stream {
  std::unique_ptr<SpeechStream> stream;
  capi::Handed handed;
};

struct skald_text_stream {
  std::unique_ptr<TextStream> stream;
  capi::Handed handed;
};

namespace {

skald_status reply(skald_text_stream* stream, StreamReply got, int32_t* event, skald_audio* audio,
                   skald_error* error) {
  *event = static_cast<int32_t>(got.event);
  stream->handed.give(got.event == StreamEvent::chunk ? std::move(got.chunk) : AudioChunk{}, audio);
  return got.error ? capi::report(*got.error, error) : SKALD_OK;
}

}  // namespace

extern "C" {

int32_t skald_c_api_version(void) { return SKALD_C_API_VERSION; }

const char* skald_status_name(int32_t status) {
  if (status == SKALD_OK) return "ok";
  if (status < 0) return "internal";
  return error_code_name(static_cast<ErrorCode>(status - 1)).data();
}

const char* skald_stop_name(int32_t stop) { return stop_reason_name(static_cast<StopReason>(stop)).data(); }

void skald_engine_options_default(skald_engine_options* options, size_t size) {
  const EngineOptions defaults;
  skald_engine_options o = {};
  o.threads = defaults.threads, o.slots = defaults.slots;
  o.cache_capacity = defaults.cache_capacity, o.codec_chunk = defaults.codec_chunk;
  o.kept_voices = defaults.kept_voices, o.gpu_deadline_ms = defaults.gpu_deadline_ms;
  fill_default(o, options, size);
}

skald_status skald_engine_open(const char* model_dir, const skald_engine_options* options,
                               skald_engine** engine, skald_error* error) {
  return guarded(error, [&] {
    require(engine, "engine");
    *engine = nullptr;
    require(model_dir, "model_dir");
    auto opened = std::make_unique<skald_engine>();
    opened->engine = Engine::open(model_dir, capi::to_cpp(options));
    opened->voices.assign(opened->engine->info().voices);
    opened->languages.assign(opened->engine->info().languages);
    opened->device_notes.assign(opened->engine->info().device_notes);
    *engine = opened.release();
    return SKALD_OK;
  });
}

void skald_engine_close(skald_engine* engine) { delete engine; }

skald_status skald_engine_info(const skald_engine* engine, skald_model_info* info, skald_error* error) {
  return guarded(error, [&] {
    require(engine, "engine");
    const ModelInfo& m = engine->engine->info();
    skald_model_info out = {};
    out.type = m.type.c_str(), out.model_size = m.size.c_str();
    out.voices = engine->voices.data(), out.voice_count = engine->voices.size();
    out.languages = engine->languages.data(), out.language_count = engine->languages.size();
    out.sample_rate = m.sample_rate, out.samples_per_frame = m.samples_per_frame, out.groups = m.groups;
    out.hidden_size = m.hidden_size, out.vocab_size = m.vocab_size, out.codes = m.codes;
    out.takes_instruct = m.takes_instruct;
    out.device = m.device.c_str(), out.device_notes = engine->device_notes.data(),
    out.device_note_count = engine->device_notes.size();
    capi::copy_known(out, info, "skald_model_info");
    return SKALD_OK;
  });
}

skald_status skald_engine_status(const skald_engine* engine, char* text, size_t capacity, size_t* size,
                                 skald_error* error) {
  return guarded(error, [&] {
    require(engine, "engine"), require(size, "size");
    if (capacity > 0) require(text, "text");
    const std::string status = engine->engine->status();
    *size = status.size() + 1;
    if (capacity == 0) return SKALD_OK;
    const size_t part = std::min(capacity - 1, status.size());
    std::copy_n(status.data(), part, text);
    text[part] = '\0';
    return SKALD_OK;
  });
}

void skald_request_default(skald_request* request, size_t size) {
  const SpeechRequest defaults;
  skald_request r = {};
  r.ahead_tokens = defaults.ahead_tokens, r.stall_frames = defaults.stall_frames;
  r.max_frames = r.max_new_tokens = r.top_k = r.min_new_tokens = r.sub_top_k = SKALD_UNSET;
  r.temperature = r.top_p = r.repetition_penalty = r.sub_temperature = r.sub_top_p = NAN;
  fill_default(r, request, size);
}

skald_status skald_stream_start(skald_engine* engine, const skald_request* request, skald_stream** stream,
                                skald_error* error) {
  return guarded(error, [&] {
    require(stream, "stream");
    *stream = nullptr;
    require(engine, "engine");
    auto started = std::make_unique<skald_stream>();
    started->stream = engine->engine->start_stream(capi::to_cpp(request));
    *stream = started.release();
    return SKALD_OK;
  });
}

skald_status skald_stream_next(skald_stream* stream, int32_t max_frames, skald_audio* audio,
                               skald_error* error) {
  return guarded(error, [&] {
    require(audio, "audio");
    *audio = {};
    require(stream, "stream");
    stream->handed.give(stream->stream->next_audio(max_frames), audio);
    return SKALD_OK;
  });
}

void skald_stream_cancel(skald_stream* stream) {
  if (stream) stream->stream->cancel();
}

skald_status skald_stream_result(skald_stream* stream, skald_result* result, skald_error* error) {
  return guarded(error, [&] {
    require(stream, "stream");
    stream->handed.give(stream->stream->result(), result);
    return SKALD_OK;
  });
}

skald_status skald_stream_codes(skald_stream* stream, int32_t* codes, size_t capacity, size_t* count,
                                skald_error* error) {
  return guarded(error, [&] {
    require(stream, "stream");
    capi::copy_codes(stream->stream->codes(), codes, capacity, count);
    return SKALD_OK;
  });
}

void skald_stream_close(skald_stream* stream) { delete stream; }

skald_status skald_text_stream_start(skald_engine* engine, const skald_request* request,
                                     skald_text_stream** stream, skald_error* error) {
  return guarded(error, [&] {
    require(stream, "stream");
    *stream = nullptr;
    require(engine, "engine");
    auto started = std::make_unique<skald_text_stream>();
    started->stream = engine->engine->start_text_stream(capi::to_cpp(request));
    *stream = started.release();
    return SKALD_OK;
  });
}

skald_status skald_text_stream_push(skald_text_stream* stream, const char* bytes, size_t size,
                                    int32_t* accepted, skald_error* error) {
  return guarded(error, [&] {
    require(stream, "stream");
    if (size > 0) require(bytes, "bytes");
    const bool taken = stream->stream->push({bytes, size});
    if (accepted) *accepted = taken;
    return SKALD_OK;
  });
}

skald_status skald_text_stream_try_push(skald_text_stream* stream, const char* bytes, size_t size,
                                        int32_t* accepted, skald_error* error) {
  return guarded(error, [&] {
    require(stream, "stream");
    require(accepted, "accepted");
    if (size > 0) require(bytes, "bytes");
    *accepted = stream->stream->try_push({bytes, size});
    return SKALD_OK;
  });
}

skald_status skald_text_stream_finish(skald_text_stream* stream, skald_error* error) {
  return guarded(error, [&] {
    require(stream, "stream");
    stream->stream->finish();
    return SKALD_OK;
  });
}

void skald_text_stream_cancel(skald_text_stream* stream) {
  if (stream) stream->stream->cancel();
}

skald_status skald_text_stream_poll(skald_text_stream* stream, int32_t max_frames, int32_t* event,
                                    skald_audio* audio, skald_error* error) {
  return guarded(error, [&] {
    require(stream, "stream"), require(event, "event"), require(audio, "audio");
    return reply(stream, stream->stream->poll(max_frames), event, audio, error);
  });
}

skald_status skald_text_stream_next(skald_text_stream* stream, int32_t max_frames, int32_t* event,
                                    skald_audio* audio, skald_error* error) {
  return guarded(error, [&] {
    require(stream, "stream"), require(event, "event"), require(audio, "audio");
    return reply(stream, stream->stream->next(max_frames), event, audio, error);
  });
}

skald_status skald_text_stream_result(skald_text_stream* stream, skald_result* result, skald_error* error) {
  return guarded(error, [&] {
    require(stream, "stream");
    stream->handed.give(stream->stream->result(), result);
    return SKALD_OK;
  });
}

skald_status skald_text_stream_codes(skald_text_stream* stream, int32_t* codes, size_t capacity,
                                     size_t* count, skald_error* error) {
  return guarded(error, [&] {
    require(stream, "stream");
    capi::copy_codes(stream->stream->codes(), codes, capacity, count);
    return SKALD_OK;
  });
}

void skald_text_stream_close(skald_text_stream* stream) { delete stream; }

skald_status skald_engine_decode(skald_engine* engine, const int32_t* codes, size_t code_count, int32_t mode,
                                 float* samples, size_t capacity, size_t* count, skald_error* error) {
  return guarded(error, [&] {
    require(engine, "engine"), require(count, "count");
    if (code_count > 0) require(codes, "codes");
    const ModelInfo& info = engine->engine->info();
    *count = code_count / static_cast<size_t>(info.groups) * static_cast<size_t>(info.samples_per_frame);
    if (*count > capacity)
      throw Error(ErrorCode::invalid_argument, "the buffer has room for " + std::to_string(capacity) +
                                                   " samples, but " + std::to_string(*count) + " are needed");
    const std::vector<float> decoded = engine->engine->decode({codes, code_count}, capi::decode_mode(mode));
    if (!decoded.empty()) require(samples, "samples");
    std::copy(decoded.begin(), decoded.end(), samples);
    return SKALD_OK;
  });
}

skald_status skald_engine_encode(skald_engine* engine, const float* samples, size_t sample_count,
                                 int32_t* codes, size_t capacity, size_t* count, skald_error* error) {
  return guarded(error, [&] {
    require(engine, "engine"), require(count, "count");
    if (sample_count > 0) require(samples, "samples");
    const ModelInfo& info = engine->engine->info();
    const auto frame = static_cast<size_t>(info.samples_per_frame);
    *count = (sample_count + frame - 1) / frame * static_cast<size_t>(info.groups);
    if (*count > capacity)
      throw Error(ErrorCode::invalid_argument, "the buffer has room for " + std::to_string(capacity) +
                                                   " codes, but " + std::to_string(*count) + " are needed");
    size_t done = 0;
    const std::vector<int32_t> encoded = engine->engine->encode([&](std::span<float> to) {
      const size_t part = std::min(to.size(), sample_count - done);
      std::copy_n(samples + done, part, to.begin());
      done += part;
      return part;
    });
    if (!encoded.empty()) require(codes, "codes");
    std::copy(encoded.begin(), encoded.end(), codes);
    return SKALD_OK;
  });
}

}  // extern "C"
