// Opening a model: options, memory, files, device.
#include <fmt/format.h>

#include "backend/cpu/cpu.h"
#include "backend/gpu/gpu.h"
#include "engine/core.h"
#include "engine/memory.h"
#include "engine/verify.h"

namespace skald::engine {
namespace {

void check_range(const char* name, int64_t value, int64_t least, int64_t most) {
  if (value < least || value > most)
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{} is {}, but must be within {}..{}", name, value, least, most));
}

void check_options(const EngineOptions& o) {
  check_range("gpu_deadline_ms", o.gpu_deadline_ms, 100, 3600000);
  check_range("threads", o.threads, 0, 1024);
  backend::cpu_matrix_bytes(o.weights, true);  // throws when the name is unknown
  check_range("slots", o.slots, 1, 1024);
  check_range("codec_chunk", o.codec_chunk, 1, 4096);
  check_range("kept_voices", o.kept_voices, 0, 1024);
}

backend::GpuOptions gpu_options(const EngineOptions& o) {
  return {.device = o.device == "auto" ? "discrete" : o.device,
          .weights = o.weights,
          .library_folders = o.gpu_libraries,
          .code_folder = o.gpu_code,
          .cache_folder = o.gpu_cache,
          .helper = o.gpu_helper,
          .deadline_ms = o.gpu_deadline_ms};
}

/// The GPU that is asked for, or null = the CPU. A GPU that was named and cannot be used is an error; one
/// that was only looked for is a note.
std::unique_ptr<backend::Backend> open_gpu(const EngineOptions& o, std::vector<std::string>& notes) {
  if (o.device == "cpu") return nullptr;
  try {
    return backend::make_gpu_backend(gpu_options(o));
  } catch (const Error& e) {
    if (o.device != "auto") throw;
    notes.push_back(fmt::format("no GPU is used: {}", e.what()));
    return nullptr;
  }
}

model::ModelOptions model_options(const EngineOptions& o) {
  model::ModelOptions m;
  m.slots = o.slots, m.cache_capacity = o.cache_capacity, m.codec_chunk = o.codec_chunk;
  m.prefix_entries = o.kept_voices;
  return m;
}

}  // namespace

std::shared_ptr<Core> load_core(const std::filesystem::path& dir, const EngineOptions& options,
                                const DeviceWrap& wrap) {
  check_options(options);
  const model::ModelConfig config = model::load_config(dir);
  check_range("cache_capacity", options.cache_capacity, 32, config.talker.max_position_embeddings);
  model::ModelOptions sizes = model_options(options);
  sizes.matrix_bytes = backend::cpu_matrix_bytes(options.weights, model::has_bf16_matrices(dir));
  std::vector<std::string> notes;
  auto device = open_gpu(options, notes);
  if (!device) check_memory(model::estimate_memory(config, sizes), available_memory(), options);
  text::Tokenizer tokenizer = text::Tokenizer::load(dir);
  check_tokens(dir.string(), config, tokenizer);
  if (!device)
    device = backend::make_cpu_backend(
        {.threads = options.threads, .target = options.cpu_target, .weights = options.weights});
  if (wrap) device = wrap(std::move(device));
  auto model = model::Model::load(dir, *device, model_options(options));
  auto core = std::make_shared<Core>(options, std::move(device), std::move(model), std::move(tokenizer));
  core->device_notes = std::move(notes);
  return core;
}

}  // namespace skald::engine
