// Voices that requests may name, and what a voice must be to fit a model.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "model/config.h"
#include "skald/skald.h"

namespace skald::engine {

/// Named voices of a Base model. Voices never change: a request holds the one it found. Any thread.
class VoiceRegistry {
 public:
  void add(std::shared_ptr<const Voice> voice, bool replace);
  void remove(std::string_view name);
  std::shared_ptr<const Voice> find(std::string_view name) const;  ///< null where there is none
  std::vector<std::string> names() const;

 private:
  mutable std::mutex mutex_;
  std::map<std::string, std::shared_ptr<const Voice>, std::less<>> voices_;
};

/// Width, groups, codes, finite numbers, reference text, consent. Throws Error(voice_invalid), naming both
/// models where the widths differ, and Error(consent_required).
void require_fit(const model::ModelConfig& config, const Voice& voice);

/// The request with `clone` set where its voice is one of the registry. Throws Error(unknown_voice) with the
/// names there are.
SpeechRequest with_voice(const model::ModelConfig& config, const VoiceRegistry& voices,
                         SpeechRequest request);

/// A text that becomes part of a voice, or is written to the audit with every clone. Throws
/// Error(invalid_argument) where it is longer than voice files may hold.
void check_length(std::string_view text, const char* name);

/// "base 1b7".
std::string model_name(const model::ModelConfig& config);

}  // namespace skald::engine
