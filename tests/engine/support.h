// Fixtures, engines and whole runs for the tests of the engine.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "audio/npy.h"
#include "engine/core.h"
#include "skald/diagnosis.h"
#include "skald/skald.h"

namespace skald::test {

std::filesystem::path model_dir(const std::string& name);

/// An engine over a tiny model: two slots, one thread. Opened once per program.
Engine& tiny(const std::string& name);
/// The same one level below, for what the public interface refuses.
std::shared_ptr<engine::Core> tiny_core(const std::string& name);

/// A reference case: the official package's call and its outcome; python/reference/README.md explains the
/// members.
struct Case {
  std::string name;
  std::filesystem::path folder;
  std::set<std::string> arrays;                       ///< by name, whether lists or files
  std::map<std::string, std::vector<int32_t>> lists;  ///< those that case.json itself holds
  std::string model, mode;
  int64_t frames = 0, samples = 0;

  // Calls; absent strings are empty.
  std::string text, language, speaker, instruct, ref_text, layout, stop;
  int32_t max_new_tokens = 0, prompt_rows = 0;
  Sampling sampling;
  int64_t clip_samples = 0;  ///< the reference as audio (clip.h), 0 = none
  uint64_t clip_seed = 0;

  // Codec cases.
  size_t window_frames = 0, stride = 0;
  std::vector<size_t> window_starts;

  bool has(const std::string& array) const { return arrays.contains(array); }
  std::vector<float> floats(const std::string& array) const;
  std::vector<int32_t> ints(const std::string& array) const;
};
/// Cases by name; `codec` picks the codec cases or the others.
std::vector<Case> load_cases(bool codec);

/// The request of a case: same text, voice, settings; raw tokens, official decode and cut.
SpeechRequest request_of(const Case& c);

/// A whole run.
struct Outcome {
  std::vector<int32_t> codes;
  std::vector<float> samples;
  std::vector<int32_t> chunks;  ///< frames of each
  SpeechResult result;
  std::optional<Error> error;

  std::vector<int32_t> code0(int32_t groups = 16) const;
};
Outcome drain(SpeechStream& stream, int32_t chunk = 8);
Outcome speak(Engine& engine, const SpeechRequest& request, const Diagnosis* diagnosis = nullptr,
              int32_t chunk = 8);

/// A text stream fed with the pieces as it asks for text, then finished.
Outcome speak_pieces(Engine& engine, const SpeechRequest& request, const std::vector<std::string>& pieces,
                     int32_t chunk = 8);

/// The code of the error that `body` throws; fails the test and gives `internal` if it throws none.
Error error_of(const std::function<void()>& body);

/// A request that speaks with the model, greedy, with a limit.
SpeechRequest simple(const std::string& text, int32_t max_frames = 12);

}  // namespace skald::test
