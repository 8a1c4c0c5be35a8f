// What requests may name: models, voices, and the cloud's names for both. Pure data and look-ups.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "skald/skald.h"

namespace skald::server {

/// A voice of a model as lists show it.
struct VoiceEntry {
  std::string name;
  std::string kind = "preset";  ///< "preset", "clone" or "designed"
  std::string alias_of;         ///< the voice it stands for, empty = itself
};

/// Voices beside a model's own, as they are now. Any thread.
class KeptVoices {
 public:
  virtual ~KeptVoices() = default;
  /// Reads every voice, which takes its time.
  virtual std::vector<VoiceEntry> list() const = 0;
  virtual std::vector<std::string> names() const = 0;
  /// A name in any case as the voice has it; none = there is no such voice.
  virtual std::optional<std::string> find(std::string_view name) const = 0;
};

struct ServedModel {
  std::string id;
  int64_t created = 0;  ///< Unix seconds
  ModelInfo info;
  const KeptVoices* kept = nullptr;  ///< null = the model takes none
};

struct AliasRules {
  bool enabled = true;                        ///< the cloud's names stand for the own ones
  std::map<std::string, std::string> voices;  ///< alias to voice, beside or in place of the built-in ones
};

/// A model as a request named it.
struct ModelChoice {
  size_t index = 0;
  std::string language;  ///< of a suffix ("tts-1-zh"), empty = none
};

class Catalog {
 public:
  Catalog() = default;
  Catalog(std::vector<ServedModel> models, AliasRules aliases)
      : models_(std::move(models)), aliases_(std::move(aliases)) {}

  const std::vector<ServedModel>& models() const { return models_; }
  const ServedModel& model(size_t index) const { return models_[index]; }
  bool aliases_enabled() const { return aliases_.enabled; }

  /// A model by its own name or one of the cloud's, with or without a language behind it; the first model for
  /// an empty name. Throws ApiError(404, model_not_found).
  ModelChoice find_model(std::string_view name) const;

  /// The model's voice that a name stands for: a voice of its own in any case, with or without '_'; a clone;
  /// an alias. A model that speaks without a voice gives an empty name for an alias. Throws ApiError(400,
  /// unknown_voice) that lists the voices.
  std::string find_voice(size_t model, std::string_view name) const;

  /// Own voices, clones, then aliases.
  std::vector<VoiceEntry> voices(size_t model) const;

 private:
  std::string alias_target(const ServedModel& model, std::string_view name) const;
  std::vector<VoiceEntry> with_own(const ServedModel& model, std::vector<VoiceEntry> kept) const;

  std::vector<ServedModel> models_;
  AliasRules aliases_;
};

/// The cloud's voice names, in the order of its documentation.
std::vector<std::string_view> cloud_voices();
/// The cloud's model names.
std::vector<std::string_view> cloud_models();

}  // namespace skald::server
