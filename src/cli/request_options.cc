// Options of a request: names, ranges, and the files they name.
#include "cli/request_options.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string_view>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "audio/npy.h"
#include "cli/arguments.h"
#include "cli/option_types.h"
#include "engine/devices.h"
#include "engine/settings.h"
#include "engine/streams.h"

namespace skald::cli {
void add_engine_options(CLI::App& app, RequestOptions& o) {
  constexpr const char* kGroup = "Model and machine";
  add_name(app, "--model,-m", "DIR", o.model, "Snapshot folder of a Qwen3-TTS 12 Hz model; else $SKALD_MODEL",
           kGroup);
  add_whole_number(
      app, "--threads", 1, 1024, [&o](int32_t v) { o.threads = v; },
      "Threads to compute with; else $SKALD_THREADS, else what the process may use", kGroup);
  add_name(
      app, "--device", "NAME", o.engine.device,
      "Device to compute on: cpu (default), auto, gpu, hip:0, cuda:0, gfx1100, a UUID, a PCI bus id or a "
      "name",
      kGroup);
  add_name(app, "--cpu-target", "NAME", o.engine.cpu_target,
           "SIMD target to force; `skald --version` lists them", kGroup);
  add_name(app, "--weights", "TYPE", o.engine.weights,
           "Hold the language model's matrices as f32, bf16 or int8; default: as the files are", kGroup);
  add_name(app, "--compute", "MODE", o.engine.compute,
           "exact (default), or fast: products of 16-bit integers, less than 1e-3 off", kGroup);
  add_whole_number(
      app, "--gpu-deadline", 1, 3600, [&o](int32_t v) { o.engine.gpu_deadline_ms = 1000 * v; },
      "Seconds without progress after which a GPU counts as standing still (default 20)", kGroup);
  add_whole_number(
      app, "--cache-capacity", engine::kLeastCacheCapacity, kModelLimit,
      [&o](int32_t v) { o.engine.cache_capacity = v; },
      "Positions of the talker's cache: prompt rows + frames (default 4096)", kGroup);
}

void add_request_options(CLI::App& app, RequestOptions& o) {
  constexpr const char* kVoice = "Voice";
  constexpr const char* kText = "Text";
  SpeechRequest& r = o.request;
  add_text(app, "--voice", "NAME", r.voice,
           "Speaker of a CustomVoice model, any case; a stored voice with a Base model", kVoice);
  add_text(app, "--language", "L", r.language,
           "Language by name, code or tag (english, en, en-US); default: automatic", kVoice);
  add_text(app, "--instruct", "TEXT", r.instruct, "How to speak; the voice itself with a VoiceDesign model",
           kVoice);
  add_name(app, "--x-vector", "FILE.npy", o.x_vector, "Speaker vector for a Base model", kVoice);
  add_name(app, "--ref-codes", "FILE.npy", o.ref_codes,
           "Codes [frames, 16] of a reference clip, for a Base model", kVoice);
  add_text(app, "--ref-text", "T", r.ref_text, "What the reference clip says", kVoice);
  app.add_flag("--x-vector-only", r.x_vector_only, "Use the speaker vector of the stored voice alone")
      ->group(kVoice);
  add_store_options(app, o.store, kVoice);
  add_choice(app, "--cut", r.cut, CutMode::exact, {"exact", "official"},
             "Where the reference part ends: by frames (default), or by the official arithmetic", kVoice);

  add_name(app, "--file,-f", "FILE", o.file, "Read the text from FILE; - is standard input", kText);
  add_choice(app, "--text-layout", r.layout, TextLayout::whole, {"whole", "stream", "ahead"},
             "Where the text stands in the prompt; default: as the official call of the model's type", kText);
  add_choice(app, "--text-split", r.split, TextSplit::qwen, {"qwen", "mistral"},
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
  add_real_number(
      app, "--temperature", Range::temperature, [&s](float v) { s.temperature = v; }, "Talker; 0 = greedy",
      kSampling);
  add_whole_number(
      app, "--top-k", 0, kAnyInt, [&s](int32_t v) { s.top_k = v; }, "Talker; 0 = off", kSampling);
  add_real_number(
      app, "--top-p", Range::share, [&s](float v) { s.top_p = v; }, "Talker; 1 = off", kSampling);
  add_real_number(
      app, "--repetition-penalty", Range::factor, [&s](float v) { s.repetition_penalty = v; },
      "Talker; 1 = off", kSampling);
  add_whole_number(
      app, "--min-new-tokens", 0, kAnyInt, [&s](int32_t v) { s.min_new_tokens = v; },
      "Draws before the stop token is allowed (default 2)", kSampling);
  add_real_number(
      app, "--sub-temperature", Range::temperature, [&s](float v) { s.sub_temperature = v; },
      "Code predictor; 0 = greedy", kSampling);
  add_whole_number(
      app, "--sub-top-k", 0, kAnyInt, [&s](int32_t v) { s.sub_top_k = v; }, "Code predictor; 0 = off",
      kSampling);
  add_real_number(
      app, "--sub-top-p", Range::share, [&s](float v) { s.sub_top_p = v; }, "Code predictor; 1 = off",
      kSampling);
  add_seed(
      app, "--seed", [&r](uint64_t v) { r.seed = v; }, "Repeats a run; default: drawn and printed",
      kSampling);

  add_whole_number(
      app, "--max-frames", 1, kAnyInt, [&r](int32_t v) { r.max_frames = v; },
      "End after exactly N frames of 80 ms at the latest", kLimits);
  add_whole_number(
      app, "--max-new-tokens", 2, kAnyInt, [&r](int32_t v) { r.max_new_tokens = v; },
      "The official count: N - 1 frames at the latest", kLimits);
  add_whole_number(
      app, "--stall-frames", 0, kAnyInt, [&r](int32_t v) { r.stall_frames = v; },
      "Frames in a row with at most 3 distinct codes that count as a runaway; 0 = off (default 75)", kLimits);
}

namespace {

/// Folders of a variable with ':' between them.
std::vector<std::filesystem::path> folders_of(const char* variable, const char* below) {
  std::vector<std::filesystem::path> folders;
  const char* value = std::getenv(variable);
  for (std::string_view rest = value ? value : ""; !rest.empty();) {
    const std::string_view one = rest.substr(0, rest.find(':'));
    if (!one.empty()) folders.push_back(std::filesystem::path(one) / below);
    rest.remove_prefix(std::min(rest.size(), one.size() + 1));
  }
  return folders;
}

std::filesystem::path cache_folder() {
  const char *cache = std::getenv("XDG_CACHE_HOME"), *home = std::getenv("HOME");
  if (cache != nullptr && *cache == '/') return std::filesystem::path(cache) / "skald";
  if (home != nullptr && *home == '/') return std::filesystem::path(home) / ".cache/skald";
  return {};
}

/// Where GPU libraries and code are, as the environment tells: the library itself does not read it.
void complete_gpu(EngineOptions& o) {
  if (o.device == "cpu") return;
  for (const auto& [variable, below] : {std::pair{"SKALD_GPU_LIBRARIES", ""},
                                        {"ROCM_PATH", "lib"},
                                        {"HIP_PATH", "lib"},
                                        {"CUDA_PATH", "lib64"}})
    for (std::filesystem::path& folder : folders_of(variable, below))
      o.gpu_libraries.push_back(std::move(folder));
  o.gpu_cache = cache_folder();
  std::error_code failure;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", failure);
  const auto beside = program.parent_path().parent_path() / "lib/skald/gpu";
  if (std::filesystem::is_directory(beside, failure)) o.gpu_code = beside;
}

}  // namespace

void complete(RequestOptions& o) {
  if (o.model.empty()) {
    if (const char* model = std::getenv("SKALD_MODEL")) o.model = model;
  }
  if (o.model.empty()) throw UsageError("no model: give --model DIR or set SKALD_MODEL");
  if (const char* threads = std::getenv("SKALD_THREADS");
      threads != nullptr && *threads != '\0' && !o.threads) {
    int32_t value = 0;
    const char* const end = threads + std::strlen(threads);
    if (std::from_chars(threads, end, value).ptr != end || value < 1 || value > 1024) {
      throw UsageError(fmt::format("SKALD_THREADS is '{}', but must be within 1..1024", threads));
    }
    o.threads = value;
  }
  o.engine.threads = o.threads.value_or(0);
  engine::check_device_name(o.engine.device);
  engine::check_precision(o.engine);
  complete_gpu(o.engine);
}

std::unique_ptr<Engine> open_engine(const std::string& model, const EngineOptions& options, Log& log) {
  auto engine = Engine::open(model, options);
  for (const std::string& note : engine->info().device_notes) log.warning(note);
  return engine;
}

std::unique_ptr<Engine> open_engine(const RequestOptions& o, Log& log) {
  return open_engine(o.model, o.engine, log);
}

std::vector<int32_t> load_codes(const std::string& path, int32_t groups) {
  const audio::NpyArray array = audio::read_npy(path);
  if (array.shape.size() != 2 || array.shape[1] != static_cast<uint64_t>(groups)) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("'{}' must have the shape [frames, {}]", path, groups));
  }
  if (array.shape[0] == 0) throw Error(ErrorCode::invalid_argument, fmt::format("'{}' holds no frame", path));
  return array.ints();
}

void load_reference(RequestOptions& o, Log& log) {
  constexpr int32_t kGroups = 16;  // of every 12 Hz model; the model itself is not open yet
  if (engine::read_model_info(o.model).type == "base") {
    if (!o.request.voice.empty())
      o.request.clone = std::make_shared<const Voice>(open_store(o.store).load(o.request.voice));
    o.engine.on_audit = audit_to(o.store, log);
  }
  if (!o.ref_codes.empty()) o.request.ref_codes = load_codes(o.ref_codes, kGroups);
  if (o.x_vector.empty()) return;
  o.request.x_vector = audio::read_npy(o.x_vector).floats();
  // Whoever hands over the parts of a voice answers for it; a stored voice carries its own statement.
  o.request.consent = "The user gave the speaker vector itself (--x-vector).";
}

}  // namespace skald::cli
