// `skald verify` with everything that loading reads: the model's files and the tokenizer's.
#pragma once

#include <filesystem>
#include <string>

#include "model/config.h"
#include "model/verify.h"
#include "text/tokenizer.h"

namespace skald::engine {

/// The tokenizer fits the text embedding, and the ids of the chat template in config.json are the
/// tokenizer's. Throws Error(model_invalid), or the files are of two models.
void check_tokens(const std::string& dir, const model::ModelConfig& config, const text::Tokenizer& tokenizer);

/// model::verify_model, and what loading would refuse about vocab.json, merges.txt and tokenizer_config.json.
/// Never throws for what it finds in files.
model::VerifyReport verify_snapshot(const std::filesystem::path& model_dir);

}  // namespace skald::engine
