// What a voice is: its name, its hash, its consent.
#include "skald/voice.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "base/sha256.h"

namespace skald {

std::string_view speaker_identity_name(SpeakerIdentity identity) noexcept {
  switch (identity) {
    case SpeakerIdentity::unknown: return "unknown";
    case SpeakerIdentity::real: return "real";
    case SpeakerIdentity::synthetic: return "synthetic";
  }
  return "unknown";
}

std::string voice_hash(const Voice& voice) {
  Sha256 hash;
  hash.field(std::as_bytes(std::span(voice.x_vector)));
  hash.field(std::as_bytes(std::span(voice.codes)));
  hash.field(voice.ref_text);
  return hex(hash.finish());
}

bool valid_voice_name(std::string_view name) noexcept {
  constexpr size_t kLongest = 64;
  const auto plain = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
  };
  return !name.empty() && name.size() <= kLongest && plain(name[0]) &&
         std::all_of(name.begin(), name.end(), [&](char c) { return plain(c) || c == '-' || c == '_'; });
}

bool states_consent(std::string_view statement) noexcept {
  return statement.find_first_not_of(" \t\r\n") != std::string_view::npos;
}

void require_consent(const Voice& voice) {
  if (!voice.is_clone() || states_consent(voice.consent)) return;
  throw Error(
      ErrorCode::consent_required,
      fmt::format(
          "voice \"{}\" is a clone, and no statement says that its speaker allowed it; state that you "
          "have the rights to it (--i-have-rights, or a consent statement)",
          voice.name));
}

}  // namespace skald
