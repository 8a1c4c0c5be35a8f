// The C interface of voices.
#include <algorithm>
#include <string>

#include "capi/convert.h"
#include "skald/skald.h"
#include "skald/skald_c.h"

using namespace skald;
using capi::guarded;
using capi::require;

namespace {

skald_voice* new_voice(Voice voice, std::vector<std::string> warnings) {
  auto made = std::make_unique<skald_voice>();
  made->hash = voice_hash(voice);
  made->voice = std::move(voice);
  made->warnings.assign(std::move(warnings));
  return made.release();
}

}  // namespace

extern "C" {

void skald_voice_request_default(skald_voice_request* request, size_t size) {
  skald_voice_request r = {};
  r.channels = 1, r.sample_rate = 24000;
  capi::fill_default(r, request, size);
}

skald_status skald_voice_make(skald_engine* engine, const skald_voice_request* request, skald_voice** voice,
                              skald_error* error) {
  return guarded(error, [&] {
    require(voice, "voice");
    *voice = nullptr;
    require(engine, "engine");
    MadeVoice made = engine->engine->make_voice(capi::to_cpp(request));
    *voice = new_voice(std::move(made.voice), std::move(made.warnings));
    return SKALD_OK;
  });
}

skald_status skald_voice_read(const void* bytes, size_t size, const char* file, skald_voice** voice,
                              skald_error* error) {
  return guarded(error, [&] {
    require(voice, "voice");
    *voice = nullptr;
    require(bytes, "bytes");
    *voice = new_voice(read_voice({static_cast<const char*>(bytes), size}, file ? file : "a voice"), {});
    return SKALD_OK;
  });
}

skald_status skald_voice_write(const skald_voice* voice, void* bytes, size_t capacity, size_t* size,
                               skald_error* error) {
  return guarded(error, [&] {
    require(voice, "voice"), require(size, "size");
    if (capacity > 0) require(bytes, "bytes");
    const std::string written = write_voice(voice->voice);
    *size = written.size();
    std::copy_n(written.data(), std::min(capacity, written.size()), static_cast<char*>(bytes));
    return SKALD_OK;
  });
}

skald_status skald_voice_set_consent(skald_voice* voice, const char* statement, skald_error* error) {
  return guarded(error, [&] {
    require(voice, "voice"), require(statement, "statement");
    voice->voice.consent = statement;
    return SKALD_OK;
  });
}

void skald_voice_close(skald_voice* voice) { delete voice; }

skald_status skald_voice_get_info(const skald_voice* voice, skald_voice_info* info, skald_error* error) {
  return guarded(error, [&] {
    require(voice, "voice");
    const Voice& v = voice->voice;
    skald_voice_info out = {};
    out.name = v.name.c_str(), out.language = v.language.c_str(), out.ref_text = v.ref_text.c_str();
    out.description = v.description.c_str(), out.consent = v.consent.c_str(), out.created = v.created.c_str();
    out.source = v.source.c_str(), out.model = v.model.c_str();
    out.hash = voice->hash.c_str(), out.audio_hash = v.audio_hash.c_str();
    out.x_vector = v.x_vector.data(), out.x_vector_count = v.x_vector.size();
    out.codes = v.codes.data(), out.codes_count = v.codes.size();
    out.seconds = v.seconds, out.identity = static_cast<int32_t>(v.identity), out.is_clone = v.is_clone();
    out.warnings = voice->warnings.data(), out.warning_count = voice->warnings.size();
    capi::copy_known(out, info, "skald_voice_info");
    return SKALD_OK;
  });
}

skald_status skald_engine_add_voice(skald_engine* engine, const skald_voice* voice, int32_t replace,
                                    skald_error* error) {
  return guarded(error, [&] {
    require(engine, "engine"), require(voice, "voice");
    engine->engine->add_voice(voice->voice, replace != 0);
    return SKALD_OK;
  });
}

skald_status skald_engine_remove_voice(skald_engine* engine, const char* name, skald_error* error) {
  return guarded(error, [&] {
    require(engine, "engine"), require(name, "name");
    engine->engine->remove_voice(name);
    return SKALD_OK;
  });
}

skald_status skald_engine_find_voice(const skald_engine* engine, const char* name, skald_voice** voice,
                                     skald_error* error) {
  return guarded(error, [&] {
    require(voice, "voice");
    *voice = nullptr;
    require(engine, "engine"), require(name, "name");
    if (const auto found = engine->engine->find_voice(name)) *voice = new_voice(*found, {});
    return SKALD_OK;
  });
}

skald_status skald_engine_voice_names(const skald_engine* engine,
                                      void (*take)(void* context, const char* name), void* context,
                                      skald_error* error) {
  return guarded(error, [&] {
    require(engine, "engine"), require(take ? engine : nullptr, "take");
    for (const std::string& name : engine->engine->voice_names()) take(context, name.c_str());
    return SKALD_OK;
  });
}

}  // extern "C"
