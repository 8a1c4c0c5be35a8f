// The tokenizer's part of `skald verify`.
#include "engine/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "skald/error.h"

namespace skald::engine {
namespace {

/// Errors stand before warnings. The sentence carries its own advice behind the last semicolon. One that
/// verify_model found as well, of a file that cannot be read, is there already.
void add_error(model::VerifyReport& report, const std::string& sentence) {
  const size_t cut = sentence.rfind("; ");
  const bool told = std::any_of(report.findings.begin(), report.findings.end(), [&](const auto& finding) {
    return finding.severity == "error" && finding.what.starts_with(sentence.substr(0, cut));
  });
  if (told) return;
  const auto warning =
      std::find_if(report.findings.begin(), report.findings.end(),
                   [](const model::Finding& finding) { return finding.severity != "error"; });
  report.findings.insert(warning,
                         {"error", sentence.substr(0, cut),
                          cut == std::string::npos ? "download the file again" : sentence.substr(cut + 2)});
}

/// Nothing if the configuration has faults of its own, which are reported already.
std::optional<model::ModelConfig> sound_config(const std::filesystem::path& dir) {
  try {
    return model::load_config(dir);
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace

void check_tokens(const std::string& dir, const model::ModelConfig& config,
                  const text::Tokenizer& tokenizer) {
  if (tokenizer.vocabulary_size() > static_cast<size_t>(config.talker.text_vocab_size))
    throw Error(
        ErrorCode::model_invalid,
        fmt::format(
            "{}: the tokenizer has {} tokens, but the model's text embedding only {} (text_vocab_size); "
            "the files are from different models",
            dir, tokenizer.vocabulary_size(), config.talker.text_vocab_size));
  const auto check = [&](const char* key, int32_t id, const char* token) {
    const int32_t found = tokenizer.token_id(token).value_or(-1);
    if (found != id)
      throw Error(ErrorCode::model_invalid,
                  fmt::format("{}: {} of config.json is {}, but the tokenizer gives {} the id {}; the files "
                              "are from different models",
                              dir, key, id, token, found));
  };
  check("im_start_token_id", config.im_start_id, "<|im_start|>");
  check("im_end_token_id", config.im_end_id, "<|im_end|>");
  check("assistant_token_id", config.assistant_id, "assistant");
}

model::VerifyReport verify_snapshot(const std::filesystem::path& model_dir) {
  model::VerifyReport report = model::verify_model(model_dir);
  try {
    const text::Tokenizer tokenizer = text::Tokenizer::load(model_dir);
    if (const auto config = sound_config(model_dir)) check_tokens(model_dir.string(), *config, tokenizer);
  } catch (const Error& error) {
    add_error(report, error.what());
  }
  return report;
}

}  // namespace skald::engine
