// The trained model of the repository, opened once per program, and whole runs of it.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "skald/skald.h"

namespace skald::test {

/// models/small-en, one thread, one slot.
inline Engine& small_voice() {
  static const std::unique_ptr<Engine> engine = [] {
    EngineOptions options;
    options.threads = 1;
    return Engine::open(std::filesystem::path(SKALD_SOURCE_DIR) / "models" / "small-en", options);
  }();
  return *engine;
}

struct Spoken {
  std::vector<float> samples;
  std::vector<int32_t> codes;
  SpeechResult result;
};

/// Speaks, `chunk` frames at a time.
inline Spoken speak(const SpeechRequest& request, int32_t chunk = 8) {
  const auto stream = small_voice().start_stream(request);
  Spoken out;
  for (bool last = false; !last;) {
    const AudioChunk got = stream->next_audio(chunk);
    out.samples.insert(out.samples.end(), got.samples.begin(), got.samples.end());
    last = got.last;
  }
  out.codes = stream->codes();
  out.result = stream->result();
  return out;
}

}  // namespace skald::test
