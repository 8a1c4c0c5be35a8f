// Feeds the configuration readers JSON of any kind: faults, or values whose tensors can be listed without
// overflow. The first byte chooses the file.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "model/checkpoint.h"
#include "model/config_parts.h"

namespace {

using namespace skald::model;

/// Lists are long for many layers, so only configurations of a plausible size are listed.
constexpr int32_t kListable = 64;

void check(const std::vector<ExpectedTensor>& tensors) {
  for (const ExpectedTensor& tensor : tensors) {
    int64_t elements = 1;
    for (const int64_t dimension : tensor.shape) {
      if (dimension < 1 || __builtin_mul_overflow(elements, dimension, &elements)) std::abort();
    }
  }
}

void fuzz_model(std::string_view text) {
  Faults faults;
  ModelConfig config;
  parse_model_config(text, "config.json", config, faults);
  if (count_errors(faults) > 0) return;
  check_model_config(config, "config.json", faults);
  if (count_errors(faults) > 0) return;
  language_names(config);
  if (config.talker.layers <= kListable && config.predictor.layers <= kListable)
    check(expected_tensors(config));
}

void fuzz_codec(std::string_view text) {
  Faults faults;
  CodecConfig config;
  parse_codec_config(text, "config.json", config, faults);
  if (count_errors(faults) > 0) return;
  check_codec_config(config, "config.json", faults);
  if (count_errors(faults) > 0) return;
  if (config.decoder.layers <= kListable && config.encoder.layers <= kListable)
    check(expected_codec_tensors(config));
}

void fuzz_generation(std::string_view text) {
  Faults faults;
  GenerationConfig config;
  parse_generation_config(text, "generation_config.json", config, faults);
  if (config.top_k < 0 || config.max_new_tokens < 2 || !(config.temperature > 0) || !(config.top_p <= 1))
    std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] % 3) {
    case 0: fuzz_model(text); break;
    case 1: fuzz_codec(text); break;
    default: fuzz_generation(text); break;
  }
  return 0;
}
