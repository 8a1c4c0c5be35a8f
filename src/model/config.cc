// Reads the configuration files of a snapshot folder.
#include "model/config.h"

#include <fmt/format.h>

#include <utility>

#include "base/file_fault.h"
#include "model/config_parts.h"
#include "model/json_fields.h"

namespace skald::model {
namespace {

namespace fs = std::filesystem;

bool check_folder(const fs::path& dir, Faults& faults) {
  const auto fault = folder_fault(dir);
  if (!fault) return true;
  std::error_code failure;
  const bool absent = fs::symlink_status(dir, failure).type() == fs::file_type::not_found;
  faults.push_back({fault->code,
                    absent ? fmt::format("there is no model folder {}", dir.string()) : fault->what,
                    absent ? "name the folder that holds config.json and model.safetensors" : fault->fix});
  return false;
}

void check_tokenizer_files(const fs::path& dir, Faults& faults) {
  struct File {
    const char *name, *consequence;
  };
  constexpr File kFiles[] = {
      {"vocab.json", "without it text cannot be turned into tokens"},
      {"merges.txt", "without it text cannot be turned into tokens"},
      {"tokenizer_config.json",
       "without it the marks of the chat template would silently be read as plain text and the speech be "
       "wrong"},
  };
  for (const auto& [name, consequence] : kFiles) {
    add_file_fault(dir / name, consequence, faults);
  }
}

/// Reads and checks the codec's file. True without errors in it.
bool read_codec(const fs::path& dir, CodecConfig& config, Faults& faults) {
  const size_t before = count_errors(faults);
  const fs::path path = dir / "config.json";
  const auto text = read_small_file(path, "without the codec there is no audio", faults);
  if (text) parse_codec_config(*text, path.string(), config, faults);
  if (count_errors(faults) == before) check_codec_config(config, path.string(), faults);
  return count_errors(faults) == before;
}

}  // namespace

const char* model_type_name(ModelType type) {
  switch (type) {
    case ModelType::base: return "base";
    case ModelType::custom_voice: return "custom_voice";
    case ModelType::voice_design: return "voice_design";
  }
  return "base";
}

ConfigReading read_config(const fs::path& model_dir, Faults& faults) {
  ConfigReading reading;
  if (!check_folder(model_dir, faults)) return reading;
  ModelConfig& config = reading.config;
  const fs::path path = model_dir / "config.json", codec_dir = model_dir / "speech_tokenizer";
  const size_t before = count_errors(faults);
  const auto text = read_small_file(path, "without it nothing is known about the model", faults);
  if (text) parse_model_config(*text, path.string(), config, faults);
  if (count_errors(faults) == before) check_model_config(config, path.string(), faults);
  reading.model_sound = count_errors(faults) == before;
  reading.codec_sound = read_codec(codec_dir, config.codec, faults);
  if (reading.model_sound && reading.codec_sound) {
    check_model_against_codec(config, path.string(), (codec_dir / "config.json").string(), faults);
  }
  const fs::path generation = model_dir / "generation_config.json";
  const auto settings =
      read_small_file(generation, "without it the model's sampling settings are unknown", faults);
  if (settings) parse_generation_config(*settings, generation.string(), config.generation, faults);
  check_tokenizer_files(model_dir, faults);
  return reading;
}

ModelConfig load_config(const fs::path& model_dir) {
  Faults faults;
  ConfigReading reading = read_config(model_dir, faults);
  throw_first(faults);
  return std::move(reading.config);
}

CodecConfig load_codec_config(const fs::path& dir) {
  Faults faults;
  CodecConfig config;
  if (check_folder(dir, faults)) read_codec(dir, config, faults);
  throw_first(faults);
  return config;
}

bool takes_instruct(const ModelConfig& config) {
  return config.type == ModelType::voice_design ||
         (config.type == ModelType::custom_voice && config.size != ModelSize::size_0b6);
}

std::vector<std::string> language_names(const ModelConfig& config) {
  std::vector<std::string> names{"auto"};
  for (const auto& [name, id] : config.talker.language_ids) {
    if (name.find("dialect") == std::string::npos) names.push_back(name);
  }
  return names;
}

}  // namespace skald::model
