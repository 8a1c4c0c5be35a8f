// Voices on disk, recordings to voices.
#include "server/voice_shelf.h"

#include <fmt/format.h>

#include <algorithm>

#include "audio/decode.h"
#include "server/api_error.h"
#include "server/ascii.h"

namespace skald::server {
namespace {

constexpr std::string_view kSuffix = ".safetensors";

}  // namespace

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

std::vector<std::string> VoiceShelf::names() const {
  std::vector<std::string> out;
  std::error_code failure;
  if (options_.folder.empty()) return out;
  // A folder that is not there yet is empty; what else is wrong with it, a voice's own request will say.
  for (std::filesystem::directory_iterator at(options_.folder, failure), end; !failure && at != end;
       at.increment(failure)) {
    std::string name = at->path().filename().string();
    if (!name.ends_with(kSuffix)) continue;
    name.resize(name.size() - kSuffix.size());
    if (valid_voice_name(name)) out.push_back(std::move(name));
  }
  std::sort(out.begin(), out.end());
  return out;
}

std::optional<std::string> VoiceShelf::find(std::string_view name) const {
  if (options_.folder.empty() || !valid_voice_name(name)) return std::nullopt;
  std::error_code absent;
  const auto file = options_.folder / (std::string(name) + std::string(kSuffix));
  if (std::filesystem::exists(std::filesystem::symlink_status(file, absent))) return std::string(name);
  for (std::string& known : names())
    if (lower(known) == lower(name)) return std::move(known);
  return std::nullopt;
}

std::shared_ptr<const Voice> VoiceShelf::load(std::string_view name) const {
  try {
    if (!options_.folder.empty() && valid_voice_name(name) && folder_.has(name))
      return std::make_shared<const Voice>(folder_.load(name));
  } catch (const Error& error) {
    if (error.code() != ErrorCode::unknown_voice) throw;  // taken away meanwhile
  }
  throw ApiError(400, "unknown_voice", "there is no voice of that name; GET /v1/audio/voices lists them",
                 "voice");
}

void VoiceShelf::require_place(std::string_view name, bool replace) const {
  require_folder();
  const std::lock_guard lock(mutex_);
  find_place(name, replace);
}

/// The stored name that the voice takes the place of, if there is one.
std::optional<std::string> VoiceShelf::find_place(std::string_view name, bool replace) const {
  auto there = find(name);
  if (there && !replace)
    throw ApiError(409, "voice_exists", "a voice of that name is there; send force=true to replace it",
                   "name");
  if (!there && names().size() >= options_.most)
    throw ApiError(403, "voice_quota", fmt::format("this server keeps at most {} voices", options_.most));
  return there;
}

std::string VoiceShelf::save(const Voice& voice, bool replace) {
  require_folder();
  const std::lock_guard lock(mutex_);
  const auto there = find_place(voice.name, replace);
  folder_.save(voice, replace);
  return there.value_or(voice.name);
}

void VoiceShelf::remove(std::string_view name) {
  require_folder();
  const std::lock_guard lock(mutex_);
  try {
    if (valid_voice_name(name) && folder_.has(name)) return folder_.remove(name);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::unknown_voice) throw;  // taken away meanwhile
  }
  throw ApiError(404, "unknown_voice", "there is no voice of that name", "name");
}

MadeVoice VoiceShelf::make(Engine& engine, const std::string& name, const Reference& reference,
                           const std::string& language, const std::string& description,
                           const std::string& request_id) const {
  if (!options_.cloning)
    throw ApiError(403, "cloning_disabled", "this server makes no voices from recordings");
  VoiceRequest request;
  const auto reader = audio::AudioReader::parse(
      *reference.audio, "the recording", {.bytes = options_.upload_bytes, .seconds = options_.seconds});
  request.recording = audio::read_all(*reader);
  const std::string early =
      audio::ends_early(*reader, request.recording.samples.size() / static_cast<size_t>(reader->channels()));
  request.name = name;
  request.ref_text = reference.x_vector_only ? std::string() : reference.ref_text;
  request.language = language;
  request.description = description;
  request.consent = reference.consent;
  request.request_id = request_id;
  MadeVoice made = engine.make_voice(request);
  if (!early.empty()) made.warnings.insert(made.warnings.begin(), "the recording " + early);
  return made;
}

std::string without_voice_names(std::string_view text) {
  constexpr std::string_view kSuffix = ".safetensors";
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find(kSuffix, at);
    const size_t name = end == text.npos ? text.npos : text.substr(0, end).find_last_of("/'");
    if (name == text.npos || name < at) return out += text.substr(at);
    out += text.substr(at, name + 1 - at), out += '*', out += kSuffix;
    at = end + kSuffix.size();
  }
  return out;
}

}  // namespace skald::server
