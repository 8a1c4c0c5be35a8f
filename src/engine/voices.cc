// Voices that requests may name, and what a voice must be to fit a model.
#include "engine/voices.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "engine/prepare.h"
#include "text/utf8.h"
#include "voice/voice_checks.h"

namespace skald::engine {
namespace {

[[noreturn]] void refuse(const Voice& voice, const std::string& why) {
  throw Error(ErrorCode::voice_invalid, fmt::format("voice \"{}\" {}", voice.name, why));
}

}  // namespace

std::string model_name(const model::ModelConfig& config) {
  return fmt::format("{} {}", model::model_type_name(config.type), config.size_tag);
}

void require_fit(const model::ModelConfig& config, const Voice& voice) {
  if (config.type != model::ModelType::base)
    throw Error(ErrorCode::unsupported, fmt::format("voice \"{}\" is for Base models, and this is a {} model",
                                                    voice.name, model::model_type_name(config.type)));
  const auto width = static_cast<size_t>(config.talker.hidden_size);
  if (voice.x_vector.size() != width)
    refuse(voice,
           fmt::format(
               "was made for {} (speaker vectors of {} numbers) and cannot be used with this {} model ({} "
               "numbers); make it again with this model",
               voice.model.empty() ? "another model" : fmt::format("a {} model", voice.model),
               voice.x_vector.size(), model_name(config), width));
  const auto odd =
      std::find_if(voice.x_vector.begin(), voice.x_vector.end(), [](float x) { return !std::isfinite(x); });
  if (odd != voice.x_vector.end())
    refuse(voice,
           fmt::format("has a speaker vector whose number {} is not finite", odd - voice.x_vector.begin()));
  if (voice.codes.empty() != voice.ref_text.empty())
    refuse(voice, voice.codes.empty() ? "has the text of a reference, but no codes of it"
                                      : "has codes of a reference, but not what it says");
  try {
    if (!voice.codes.empty()) check_codes(config, voice.codes, "codes");
    text::require_utf8(voice.ref_text);
  } catch (const Error& e) {
    refuse(voice, fmt::format("does not fit this model: {}", e.what()));
  }
  require_consent(voice);
}

void check_length(std::string_view text, const char* name) {
  if (text.size() > voice::kMostTextBytes)
    throw Error(ErrorCode::invalid_argument, fmt::format("{} has {} bytes, but at most {} are taken", name,
                                                         text.size(), voice::kMostTextBytes));
}

void VoiceRegistry::add(std::shared_ptr<const Voice> voice, bool replace) {
  const std::lock_guard lock(mutex_);
  const auto [at, fresh] = voices_.emplace(voice->name, voice);
  if (!fresh && !replace)
    throw Error(ErrorCode::voice_exists,
                fmt::format("a voice \"{}\" is there; it stays as it is unless replacing it is asked for",
                            voice->name));
  at->second = std::move(voice);
}

void VoiceRegistry::remove(std::string_view name) {
  const std::lock_guard lock(mutex_);
  const auto found = voices_.find(name);
  if (found == voices_.end())
    throw Error(ErrorCode::unknown_voice, fmt::format("there is no voice \"{}\" to remove", name));
  voices_.erase(found);
}

std::shared_ptr<const Voice> VoiceRegistry::find(std::string_view name) const {
  const std::lock_guard lock(mutex_);
  const auto found = voices_.find(name);
  return found == voices_.end() ? nullptr : found->second;
}

std::vector<std::string> VoiceRegistry::names() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> names;
  for (const auto& [name, voice] : voices_) names.push_back(name);
  return names;
}

SpeechRequest with_voice(const model::ModelConfig& config, const VoiceRegistry& voices,
                         SpeechRequest request) {
  if (config.type != model::ModelType::base || request.clone || request.voice.empty()) return request;
  request.clone = voices.find(request.voice);
  if (request.clone) return request;
  const std::vector<std::string> names = voices.names();
  throw Error(
      ErrorCode::unknown_voice,
      names.empty()
          ? fmt::format("unknown voice \"{}\": a Base model has no voices of its own, and none was added",
                        request.voice)
          : fmt::format("unknown voice \"{}\"; there are: {}", request.voice, fmt::join(names, ", ")));
}

}  // namespace skald::engine
