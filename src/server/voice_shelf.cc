// Voices on disk, recordings to voices.
#include "server/voice_shelf.h"

#include <fmt/format.h>

#include "audio/decode.h"
#include "server/api_error.h"

namespace skald::server {

void VoiceShelf::require_folder() const {
  if (options_.folder.empty())
    throw ApiError(403, "voices_not_kept", "this server keeps no voices; its operator can give it a folder");
}

std::vector<VoiceEntry> VoiceShelf::list() const {
  std::vector<VoiceEntry> out;
  if (options_.folder.empty()) return out;
  for (const VoiceFolder::Entry& entry : folder_.list()) {
    if (!entry.problem.empty()) continue;
    out.push_back({.name = entry.name, .kind = entry.voice.is_clone() ? "clone" : "designed"});
  }
  return out;
}

std::shared_ptr<const Voice> VoiceShelf::load(std::string_view name) const {
  if (!options_.folder.empty() && valid_voice_name(name) && folder_.has(name))
    return std::make_shared<const Voice>(folder_.load(name));
  throw ApiError(400, "unknown_voice", "there is no voice of that name; GET /v1/audio/voices lists them",
                 "voice");
}

void VoiceShelf::save(const Voice& voice, bool replace) {
  require_folder();
  const std::lock_guard lock(mutex_);
  const bool there = folder_.has(voice.name);
  if (there && !replace)
    throw ApiError(409, "voice_exists", "a voice of that name is there; send force=true to replace it",
                   "name");
  if (!there && folder_.list().size() >= options_.most)
    throw ApiError(403, "voice_quota", fmt::format("this server keeps at most {} voices", options_.most));
  folder_.save(voice, replace);
}

void VoiceShelf::remove(std::string_view name) {
  require_folder();
  const std::lock_guard lock(mutex_);
  if (!valid_voice_name(name) || !folder_.has(name))
    throw ApiError(404, "unknown_voice", "there is no voice of that name", "name");
  folder_.remove(name);
}

MadeVoice VoiceShelf::make(Engine& engine, const std::string& name, const Reference& reference,
                           const std::string& language, const std::string& description,
                           const std::string& request_id) const {
  if (!options_.cloning)
    throw ApiError(403, "cloning_disabled", "this server makes no voices from recordings");
  VoiceRequest request;
  const auto reader = audio::AudioReader::parse(
      reference.audio, "the recording", {.bytes = options_.upload_bytes, .seconds = options_.seconds});
  request.recording = audio::read_all(*reader);
  request.name = name;
  request.ref_text = reference.x_vector_only ? std::string() : reference.ref_text;
  request.language = language;
  request.description = description;
  request.consent = reference.consent;
  request.request_id = request_id;
  return engine.make_voice(request);
}

}  // namespace skald::server
