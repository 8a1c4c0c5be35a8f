// Bounds that every voice keeps.
#include "voice/voice_checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace skald::voice {

void refuse(const std::string& file, const std::string& why) {
  throw Error(ErrorCode::voice_invalid, fmt::format("'{}' {}", file, why));
}

void check_voice(const Voice& voice, int64_t groups, const std::string& file) {
  const auto width = static_cast<int64_t>(voice.x_vector.size());
  if (width < 1 || width > kMostWidth)
    refuse(file, fmt::format("has a speaker vector of {} numbers, expected 1 to {}", width, kMostWidth));
  for (size_t i = 0; i < voice.x_vector.size(); ++i)
    if (!std::isfinite(voice.x_vector[i]))
      refuse(file, fmt::format("has a speaker vector whose number {} is not finite", i));
  const auto count = static_cast<int64_t>(voice.codes.size());
  if (count > 0 &&
      (groups < 1 || groups > kMostGroups || count % groups != 0 || count / groups > kMostFrames))
    refuse(file, fmt::format("has {} codes, which are not 1 to {} frames of {}", count, kMostFrames, groups));
  const auto wrong =
      std::find_if(voice.codes.begin(), voice.codes.end(), [](int32_t c) { return c < 0 || c >= kMostCode; });
  if (wrong != voice.codes.end())
    refuse(file, fmt::format("has the code {} in frame {}", *wrong, (wrong - voice.codes.begin()) / groups));
  if (voice.codes.empty() != voice.ref_text.empty())
    refuse(file, voice.ref_text.empty() ? "has codes of a reference, but not what it says"
                                        : "has the text of a reference, but no codes of it");
  for (const std::string* text :
       {&voice.ref_text, &voice.language, &voice.description, &voice.consent, &voice.source})
    if (text->size() > kMostTextBytes) refuse(file, fmt::format("has a text of {} bytes", text->size()));
}

std::string safe_name(std::string_view name) {
  std::string out;
  for (const char c : name.substr(0, 64)) {
    const bool plain = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
    if (plain || c == '_')
      out += c;
    else if (!out.empty() && out.back() != '-')
      out += '-';
  }
  while (!out.empty() && (out.back() == '-' || out.back() == '_')) out.pop_back();
  const size_t first = out.find_first_not_of("-_");
  return first == std::string::npos ? std::string() : out.substr(first);
}

}  // namespace skald::voice
