// Between the C structures and the C++ types; private to the C interface.
#pragma once

#include <algorithm>
#include <cstring>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "skald/skald.h"
#include "skald/skald_c.h"

namespace skald::capi {

/// Writes the error (when asked for) and returns its status; never throws.
skald_status report(std::exception_ptr error, skald_error* out) noexcept;
skald_status report(const Error& error, skald_error* out) noexcept;

/// Runs `body` and turns whatever it throws into a status.
template <class Body>
skald_status guarded(skald_error* error, Body&& body) noexcept {
  if (error) error->status = SKALD_OK, error->message[0] = '\0';
  try {
    return body();
  } catch (...) {
    return report(std::current_exception(), error);
  }
}

/// Throws Error(invalid_argument) for a null pointer.
void require(const void* pointer, const char* name);

EngineOptions to_cpp(const skald_engine_options* options);
SpeechRequest to_cpp(const skald_request* request);
VoiceRequest to_cpp(const skald_voice_request* request);
DecodeMode decode_mode(int32_t value);

/// Strings as an array of C strings that lives as long as this object.
class StringList {
 public:
  void assign(std::vector<std::string> strings);
  const char* const* data() const { return pointers_.data(); }
  size_t size() const { return pointers_.size(); }

 private:
  std::vector<std::string> strings_;
  std::vector<const char*> pointers_;
};

/// The default structure, cut to the size that the caller knows.
template <class Struct>
void fill_default(Struct from, Struct* to, size_t size) {
  if (!to || size < sizeof(size_t)) return;
  const size_t known = std::min(size, sizeof from);
  std::memset(static_cast<void*>(to), 0, size);
  from.size = size;
  std::memcpy(static_cast<void*>(to), &from, known);
}

/// Copies the part of `from` that the caller's structure has room for; both begin with `size`, which stays
/// the caller's.
template <class Struct>
void copy_known(Struct from, Struct* to, const char* name) {
  require(to, name);
  const size_t size = to->size;
  if (size < sizeof(size_t) || size > 4096)
    throw Error(ErrorCode::invalid_argument,
                std::string(name) + ".size must be set to the size of the structure");
  from.size = size;
  std::memcpy(to, &from, std::min(size, sizeof from));
}

/// What the last call on a stream handed out.
struct Handed {
  AudioChunk chunk;
  SpeechResult result;
  StringList warnings;

  void give(AudioChunk next, skald_audio* audio);
  void give(SpeechResult next, skald_result* out);
};

void copy_codes(const std::vector<int32_t>& from, int32_t* codes, size_t capacity, size_t* count);

}  // namespace skald::capi

struct skald_engine {
  std::unique_ptr<skald::Engine> engine;
  skald::capi::StringList voices, languages, device_notes;
};

struct skald_voice {
  skald::Voice voice;
  std::string hash;
  skald::capi::StringList warnings;
};
