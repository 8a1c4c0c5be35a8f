// Opening a model: options, memory, files, device.
#include <fmt/format.h>

#include "backend/cpu/cpu.h"
#include "base/float_environment.h"
#include "engine/core.h"
#include "engine/devices.h"
#include "engine/memory.h"
#include "engine/settings.h"
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
  check_precision(o);
  check_range("slots", o.slots, 1, 1024);
  check_range("codec_chunk", o.codec_chunk, 1, 4096);
  check_range("kept_voices", o.kept_voices, 0, 1024);
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
  const DefaultFloats floats;
  check_options(options);
  const model::ModelConfig config = model::load_config(dir);
  check_range("cache_capacity", options.cache_capacity, kLeastCacheCapacity,
              config.talker.max_position_embeddings);
  model::ModelOptions sizes = model_options(options);
  sizes.matrix_bytes =
      backend::cpu_matrix_bytes(options.weights, model::has_bf16_matrices(dir), options.compute);
  OpenedDevice opened = open_device(options);
  if (opened.cpu) check_memory(model::estimate_memory(config, sizes), available_memory(), options);
  text::Tokenizer tokenizer = text::Tokenizer::load(dir);
  check_tokens(dir.string(), config, tokenizer);
  auto device = wrap ? wrap(std::move(opened.device)) : std::move(opened.device);
  auto model = model::Model::load(dir, *device, model_options(options));
  auto core = std::make_shared<Core>(options, std::move(device), std::move(model), std::move(tokenizer));
  core->device_notes = std::move(opened.notes);
  return core;
}

}  // namespace skald::engine
