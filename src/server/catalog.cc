// Look-ups of models and voices.
#include "server/catalog.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "server/api_error.h"
#include "text/languages.h"

namespace skald::server {
namespace {

struct CloudVoice {
  std::string_view name;
  std::array<std::string_view, 2> preferred;  ///< voices of the published models, best first
};

// The two speakers whose automatic language is a dialect of Chinese stand for nobody.
constexpr std::array<CloudVoice, 13> kCloudVoices{{{"alloy", {"serena", "vivian"}},
                                                   {"ash", {"aiden", "ryan"}},
                                                   {"ballad", {"ryan", "aiden"}},
                                                   {"coral", {"vivian", "serena"}},
                                                   {"echo", {"ryan", "aiden"}},
                                                   {"fable", {"aiden", "ryan"}},
                                                   {"onyx", {"uncle_fu", "ryan"}},
                                                   {"nova", {"vivian", "serena"}},
                                                   {"sage", {"serena", "vivian"}},
                                                   {"shimmer", {"ono_anna", "serena"}},
                                                   {"verse", {"aiden", "ryan"}},
                                                   {"marin", {"sohee", "serena"}},
                                                   {"cedar", {"ryan", "aiden"}}}};
constexpr std::array<std::string_view, 4> kCloudModels{"tts-1", "tts-1-hd", "gpt-4o-mini-tts",
                                                       "gpt-4o-mini-tts-2025-12-15"};

/// What decides whether two spellings are the same voice, as the engine has it.
std::string voice_key(std::string_view name) {
  std::string key;
  for (const char c : name) {
    if (c == '_' || c == '-' || c == ' ' || c == '\t') continue;
    key += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  }
  return key;
}

bool is_language(std::string_view word) {
  const std::string name = text::canonical_language(word);
  const auto known = text::known_languages();
  return std::any_of(known.begin(), known.end(), [&](const text::Language& l) { return l.name == name; });
}

}  // namespace

std::vector<std::string_view> cloud_voices() {
  std::vector<std::string_view> out;
  for (const CloudVoice& v : kCloudVoices) out.push_back(v.name);
  return out;
}

std::vector<std::string_view> cloud_models() { return {kCloudModels.begin(), kCloudModels.end()}; }

ModelChoice Catalog::find_model(std::string_view name) const {
  const auto index_of = [&](std::string_view id) -> std::optional<size_t> {
    for (size_t i = 0; i < models_.size(); ++i)
      if (models_[i].id == id) return i;
    if (aliases_.enabled && std::find(kCloudModels.begin(), kCloudModels.end(), id) != kCloudModels.end())
      return 0;
    return std::nullopt;
  };
  if (!models_.empty()) {
    if (name.empty()) return {};
    if (const auto index = index_of(name)) return {*index, {}};
    const size_t cut = name.find_last_of("-_");
    if (cut != std::string_view::npos && is_language(name.substr(cut + 1)))
      if (const auto index = index_of(name.substr(0, cut)))
        return {*index, std::string(name.substr(cut + 1))};
  }
  std::vector<std::string_view> ids;
  for (const ServedModel& m : models_) ids.push_back(m.id);
  throw ApiError(404, "model_not_found",
                 fmt::format("there is no model of that name; this server has: {}", fmt::join(ids, ", ")),
                 "model");
}

std::string Catalog::alias_target(const ServedModel& model, std::string_view name) const {
  const std::string key = voice_key(name);
  for (const auto& [alias, voice] : aliases_.voices)
    if (voice_key(alias) == key) return voice;
  if (!aliases_.enabled || model.info.voices.empty()) return {};
  const auto& own = model.info.voices;
  for (size_t i = 0; i < kCloudVoices.size(); ++i) {
    if (kCloudVoices[i].name != key) continue;
    for (const std::string_view preferred : kCloudVoices[i].preferred)
      for (const std::string& voice : own)
        if (voice_key(voice) == voice_key(preferred)) return voice;
    return own[i % own.size()];
  }
  return {};
}

std::string Catalog::find_voice(size_t index, std::string_view name) const {
  const ServedModel& m = models_[index];
  const std::string key = voice_key(name);
  for (const std::string& voice : m.info.voices)
    if (voice_key(voice) == key) return voice;
  if (m.kept)
    if (auto kept = m.kept->find(name)) return *std::move(kept);
  if (std::string target = alias_target(m, name); !target.empty()) return target;
  const bool cloud = std::any_of(kCloudVoices.begin(), kCloudVoices.end(),
                                 [&](const CloudVoice& v) { return v.name == key; });
  // A model that is told the voice in words has none by name; clients that always send one may.
  if (m.info.voices.empty() && m.info.type == "voice_design" && cloud && aliases_.enabled) return {};
  std::vector<VoiceEntry> kept;
  if (m.kept)
    for (std::string& known : m.kept->names()) kept.push_back({.name = std::move(known)});
  std::vector<std::string> names;
  for (const VoiceEntry& v : with_own(m, std::move(kept))) names.push_back(v.name);
  throw ApiError(400, "unknown_voice",
                 names.empty() ? fmt::format("the model {} has no voices of its own", m.id)
                               : fmt::format("there is no voice of that name; the model {} has: {}", m.id,
                                             fmt::join(names, ", ")),
                 "voice");
}

std::vector<VoiceEntry> Catalog::voices(size_t index) const {
  const ServedModel& m = models_[index];
  return with_own(m, m.kept ? m.kept->list() : std::vector<VoiceEntry>());
}

std::vector<VoiceEntry> Catalog::with_own(const ServedModel& m, std::vector<VoiceEntry> kept) const {
  std::vector<VoiceEntry> out;
  for (const std::string& voice : m.info.voices) out.push_back({.name = voice});
  out.insert(out.end(), kept.begin(), kept.end());
  const auto taken = [&](std::string_view name) {
    return std::any_of(out.begin(), out.end(),
                       [&](const VoiceEntry& v) { return voice_key(v.name) == voice_key(name); });
  };
  for (const auto& [alias, voice] : aliases_.voices)
    if (!taken(alias)) out.push_back({.name = alias, .alias_of = voice});
  if (aliases_.enabled && !m.info.voices.empty())
    for (const CloudVoice& v : kCloudVoices)
      if (!taken(v.name)) out.push_back({.name = std::string(v.name), .alias_of = alias_target(m, v.name)});
  return out;
}

}  // namespace skald::server
