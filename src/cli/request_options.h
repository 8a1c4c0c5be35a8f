// The options that `say` and `prompt` share: everything that shapes a request.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/voice_options.h"
#include "skald/skald.h"

namespace CLI {
class App;
}

namespace skald::cli {

struct RequestOptions {
  std::string model;  ///< --model, else SKALD_MODEL
  std::string file;   ///< -f; "-" = standard input
  SpeechRequest request;
  EngineOptions engine;
  bool clean_text = false;
  std::string ref_codes, x_vector;
  StoreOptions store;
  std::optional<int32_t> threads;  ///< --threads, else SKALD_THREADS
};

/// Adds --model, --threads, --device, --cpu-target, --weights, --compute, --gpu-deadline and
/// --cache-capacity.
void add_engine_options(CLI::App& app, RequestOptions& options);
/// Adds the options of the text, the voice and the prompt.
void add_request_options(CLI::App& app, RequestOptions& options);
/// Adds sampling, limits and seed.
void add_sampling_options(CLI::App& app, RequestOptions& options);

/// Opens the model, and warns of what there is to say about its device. The log must outlive the engine.
std::unique_ptr<Engine> open_engine(const RequestOptions& options, Log& log);
/// The same with another model.
std::unique_ptr<Engine> open_engine(const std::string& model, const EngineOptions& options, Log& log);

/// After parsing: reads the environment for what was not given. Throws UsageError without a model.
void complete(RequestOptions& options);
/// Reads --ref-codes and --x-vector into the request, or the stored voice that --voice names for a Base
/// model, and writes the audit of clones. The log must outlive the engine. Throws Error(io),
/// Error(invalid_argument), Error(unknown_voice), Error(voice_invalid).
void load_reference(RequestOptions& options, Log& log);
/// Codes of a .npy file, [frames, groups] of any integer type.
std::vector<int32_t> load_codes(const std::string& path, int32_t groups);

}  // namespace skald::cli
