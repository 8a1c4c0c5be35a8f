// The folder of voices that a server keeps. Files are read anew for every request: what another process put
// there or took away counts at once.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "server/catalog.h"
#include "server/reference.h"
#include "skald/skald.h"
#include "skald/voice.h"

namespace skald::server {

struct ShelfOptions {
  std::filesystem::path folder;      ///< empty = no voices are kept
  size_t most = 100;                 ///< voices
  size_t upload_bytes = 10'000'000;  ///< of one recording
  double seconds = 60;               ///< of one recording
  bool cloning = true;               ///< recordings are taken at all
};

/// Any thread.
class VoiceShelf final : public KeptVoices {
 public:
  explicit VoiceShelf(ShelfOptions options) : options_(std::move(options)), folder_(options_.folder) {}
  const ShelfOptions& options() const { return options_; }

  // KeptVoices
  std::vector<VoiceEntry> list() const override;
  std::vector<std::string> names() const override;
  std::optional<std::string> find(std::string_view name) const override;

  /// Throws ApiError(400, unknown_voice) without naming a path, Error(voice_invalid).
  std::shared_ptr<const Voice> load(std::string_view name) const;
  /// Keeps a voice and returns its name, which is the old one's where that differs in case. Throws
  /// ApiError(403, voice_quota), ApiError(409, voice_exists), Error.
  std::string save(const Voice& voice, bool replace);
  /// Throws as save() where a voice of that name could not be kept now.
  void require_place(std::string_view name, bool replace) const;
  /// Throws ApiError(404, unknown_voice).
  void remove(std::string_view name);

  /// A recording made a voice: decoded, checked, encoded. Throws ApiError(403, cloning_disabled), Error.
  MadeVoice make(Engine& engine, const std::string& name, const Reference& reference,
                 const std::string& language, const std::string& description,
                 const std::string& request_id) const;

 private:
  void require_folder() const;

  const ShelfOptions options_;
  std::optional<std::string> find_place(std::string_view name, bool replace) const;  ///< under `mutex_`

  mutable std::mutex mutex_;  ///< quota and folder together
  VoiceFolder folder_;
};

/// A sentence about files with '*' in the place of a voice's name: "cannot write '/voices/*.safetensors':
/// ...".
std::string without_voice_names(std::string_view text);

}  // namespace skald::server
