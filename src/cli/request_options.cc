// Options of a request: names, ranges, and the files they name.
#include "cli/request_options.h"

#include <cmath>
#include <cstdlib>
#include <limits>
#include <map>
#include <utility>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "audio/npy.h"
#include "cli/arguments.h"

namespace skald::cli {
namespace {

constexpr int32_t kMost = std::numeric_limits<int32_t>::max();

void whole_number(CLI::App& app, const std::string& name, int32_t least, int32_t most,
                  std::function<void(int32_t)> set, const std::string& help, const char* group) {
  app.add_option_function<int64_t>(
         name,
         [=](const int64_t& value) {
           if (value < least || value > most) {
             throw UsageError(fmt::format("{} is {}, but must be {}", name, value,
                                          most == kMost ? fmt::format("at least {}", least)
                                                        : fmt::format("within {}..{}", least, most)));
           }
           set(static_cast<int32_t>(value));
         },
         help)
      ->group(group)
      ->type_name("N");
}

enum class Range { at_least_zero, above_zero, share };

void real_number(CLI::App& app, const std::string& name, Range range, std::function<void(float)> set,
                 const std::string& help, const char* group) {
  app.add_option_function<float>(
         name,
         [=](const float& value) {
           const bool low = range == Range::at_least_zero ? value >= 0 : value > 0;
           if (!std::isfinite(value) || !low || (range == Range::share && value > 1)) {
             throw UsageError(fmt::format("{} is {}, but must be {}", name, value,
                                          range == Range::at_least_zero ? "a finite number of at least 0"
                                          : range == Range::share       ? "above 0 and at most 1"
                                                                        : "a finite number above 0"));
           }
           set(value);
         },
         help)
      ->group(group)
      ->type_name("X");
}

template <class Enum>
void choice(CLI::App& app, const std::string& name, Enum& to, const std::map<std::string, Enum>& values,
            const std::string& help, const char* group) {
  std::string names;
  for (const auto& [value, unused] : values) names += (names.empty() ? "" : "|") + value;
  app.add_option_function<std::string>(
         name,
         [name, names, values, &to](const std::string& value) {
           const auto found = values.find(value);
           if (found == values.end())
             throw UsageError(fmt::format("{} is '{}', but must be one of {}", name, value, names));
           to = found->second;
         },
         help)
      ->group(group)
      ->type_name(names);
}

CLI::Option* text(CLI::App& app, const std::string& name, std::string& to, const char* type,
                  const std::string& help, const char* group) {
  return app.add_option(name, to, help)->group(group)->type_name(type);
}

}  // namespace

void add_engine_options(CLI::App& app, RequestOptions& o) {
  constexpr const char* kGroup = "Model and machine";
  text(app, "--model,-m", o.model, "DIR", "Snapshot folder of a Qwen3-TTS 12 Hz model; else $SKALD_MODEL",
       kGroup);
  whole_number(
      app, "--threads", 1, 1024, [&o](int32_t v) { o.threads = v; },
      "Threads to compute with; else $SKALD_THREADS, else what the process may use", kGroup);
  text(app, "--cpu-target", o.engine.cpu_target, "NAME", "SIMD target to force; `skald --version` lists them",
       kGroup);
  whole_number(
      app, "--cache-capacity", 32, kMost, [&o](int32_t v) { o.engine.cache_capacity = v; },
      "Positions of the talker's cache: prompt rows + frames (default 4096)", kGroup);
}

void add_request_options(CLI::App& app, RequestOptions& o) {
  constexpr const char* kVoice = "Voice";
  constexpr const char* kText = "Text";
  SpeechRequest& r = o.request;
  text(app, "--voice", r.voice, "NAME", "Speaker of a CustomVoice model, any case", kVoice);
  text(app, "--language", r.language, "L",
       "Language by name, code or tag (english, en, en-US); default: automatic", kVoice);
  text(app, "--instruct", r.instruct, "TEXT", "How to speak; the voice itself with a VoiceDesign model",
       kVoice);
  text(app, "--x-vector", o.x_vector, "FILE.npy", "Speaker vector for a Base model", kVoice);
  text(app, "--ref-codes", o.ref_codes, "FILE.npy",
       "Codes [frames, 16] of a reference clip, for a Base model", kVoice);
  text(app, "--ref-text", r.ref_text, "T", "What the reference clip says", kVoice);
  choice(app, "--cut", r.cut, {{"exact", CutMode::exact}, {"official", CutMode::official}},
         "Where the reference part ends: by frames (default), or by the official arithmetic", kVoice);

  text(app, "--file,-f", o.file, "FILE", "Read the text from FILE; - is standard input", kText);
  choice(app, "--text-layout", r.layout,
         {{"whole", TextLayout::whole}, {"stream", TextLayout::stream}, {"ahead", TextLayout::ahead}},
         "Where the text stands in the prompt; default: as the official call of the model's type", kText);
  choice(app, "--text-split", r.split, {{"qwen", TextSplit::qwen}, {"mistral", TextSplit::mistral}},
         "Split expression of the tokenizer (default qwen)", kText);
  app.add_flag("--raw-tokens", r.raw_tokens, "Special tokens in the text keep their meaning")->group(kText);
  app.add_flag("--clean-text", o.clean_text,
               "Remove soft hyphens, zero-width spaces, direction marks; map odd spaces")
      ->group(kText);
  app.add_flag("--strict", r.strict, "Warnings that change the result are errors")->group(kText);
}

void add_sampling_options(CLI::App& app, RequestOptions& o) {
  constexpr const char* kSampling = "Sampling (default: the model's generation_config.json)";
  constexpr const char* kLimits = "Limits";
  SpeechRequest& r = o.request;
  Sampling& s = r.sampling;
  app.add_flag("--greedy", s.greedy, "No sampling at all")->group(kSampling);
  app.add_flag("--sub-greedy", s.sub_greedy, "Code predictor greedy while the talker samples")
      ->group(kSampling);
  real_number(
      app, "--temperature", Range::at_least_zero, [&s](float v) { s.temperature = v; }, "Talker; 0 = greedy",
      kSampling);
  whole_number(
      app, "--top-k", 0, kMost, [&s](int32_t v) { s.top_k = v; }, "Talker; 0 = off", kSampling);
  real_number(
      app, "--top-p", Range::share, [&s](float v) { s.top_p = v; }, "Talker; 1 = off", kSampling);
  real_number(
      app, "--repetition-penalty", Range::above_zero, [&s](float v) { s.repetition_penalty = v; },
      "Talker; 1 = off", kSampling);
  whole_number(
      app, "--min-new-tokens", 0, kMost, [&s](int32_t v) { s.min_new_tokens = v; },
      "Draws before the stop token is allowed (default 2)", kSampling);
  real_number(
      app, "--sub-temperature", Range::at_least_zero, [&s](float v) { s.sub_temperature = v; },
      "Code predictor; 0 = greedy", kSampling);
  whole_number(
      app, "--sub-top-k", 0, kMost, [&s](int32_t v) { s.sub_top_k = v; }, "Code predictor; 0 = off",
      kSampling);
  real_number(
      app, "--sub-top-p", Range::share, [&s](float v) { s.sub_top_p = v; }, "Code predictor; 1 = off",
      kSampling);
  app.add_option_function<uint64_t>(
         "--seed", [&r](const uint64_t& v) { r.seed = v; }, "Repeats a run; default: drawn and printed")
      ->group(kSampling)
      ->type_name("N");

  whole_number(
      app, "--max-frames", 1, kMost, [&r](int32_t v) { r.max_frames = v; },
      "End after exactly N frames of 80 ms at the latest", kLimits);
  whole_number(
      app, "--max-new-tokens", 2, kMost, [&r](int32_t v) { r.max_new_tokens = v; },
      "The official count: N - 1 frames at the latest", kLimits);
  whole_number(
      app, "--stall-frames", 0, kMost, [&r](int32_t v) { r.stall_frames = v; },
      "Frames in a row with at most 3 distinct codes that count as a runaway; 0 = off (default 75)", kLimits);
}

void complete(RequestOptions& o) {
  if (o.model.empty()) {
    if (const char* model = std::getenv("SKALD_MODEL")) o.model = model;
  }
  if (o.model.empty()) throw UsageError("no model: give --model DIR or set SKALD_MODEL");
  if (const char* threads = std::getenv("SKALD_THREADS");
      threads != nullptr && *threads != '\0' && !o.threads) {
    char* end = nullptr;
    const long value = std::strtol(threads, &end, 10);
    if (*end != '\0' || value < 1 || value > 1024) {
      throw UsageError(fmt::format("SKALD_THREADS is '{}', but must be within 1..1024", threads));
    }
    o.threads = static_cast<int32_t>(value);
  }
  o.engine.threads = o.threads.value_or(0);
}

std::vector<int32_t> load_codes(const std::string& path, int32_t groups) {
  const audio::NpyArray array = audio::read_npy(path);
  if (array.shape.size() != 2 || (groups > 0 && array.shape[1] != static_cast<uint64_t>(groups))) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("'{}' must have the shape [frames, {}]", path, groups > 0 ? groups : 16));
  }
  return array.ints();
}

void load_reference(RequestOptions& o) {
  if (!o.ref_codes.empty()) o.request.ref_codes = load_codes(o.ref_codes, 0);
  if (!o.x_vector.empty()) o.request.x_vector = audio::read_npy(o.x_vector).floats();
}

}  // namespace skald::cli
