// The steps of reading a configuration, one per file and one per kind of check; internal to config*.cc,
// verify and fuzzing.
#pragma once

#include <string>
#include <string_view>

#include "model/config.h"
#include "model/fault.h"

namespace skald::model {

/// Keys of config.json into everything of `config` but codec and generation. `file` is named in messages.
void parse_model_config(std::string_view text, const std::string& file, ModelConfig& config, Faults& faults);
/// Keys of speech_tokenizer/config.json.
void parse_codec_config(std::string_view text, const std::string& file, CodecConfig& config, Faults& faults);
/// Keys of generation_config.json; missing ones keep the defaults of specification 6.1.
void parse_generation_config(std::string_view text, const std::string& file, GenerationConfig& config,
                             Faults& faults);

/// Contradictions inside config.json, inside the codec's file, and between the two; specification 13.1. Only
/// for configurations that were read without errors.
void check_model_config(const ModelConfig& config, const std::string& file, Faults& faults);
void check_codec_config(const CodecConfig& config, const std::string& file, Faults& faults);
void check_model_against_codec(const ModelConfig& config, const std::string& file,
                               const std::string& codec_file, Faults& faults);

}  // namespace skald::model
