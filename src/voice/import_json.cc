// Prompt JSON of qwen3-tts-hip.
#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "model/json_fields.h"
#include "voice/import.h"
#include "voice/voice_checks.h"

namespace skald::voice {
namespace {

using nlohmann::json;

constexpr size_t kGroups = 16;
constexpr size_t kMostJsonBytes = 8 << 20;  // values in memory take several times their text

const json* find(const json& object, const char* key) {
  const auto at = object.find(key);
  return at == object.end() || at->is_null() ? nullptr : &*at;
}

bool flag(const json& object, const char* key, const std::string& file) {
  const json* value = find(object, key);
  if (value && !value->is_boolean())
    refuse(file, fmt::format("has a '{}' that is neither true nor false", key));
  return value && value->get<bool>();
}

std::vector<float> floats(const json& list, const char* key, const std::string& file) {
  if (!list.is_array() || list.size() > static_cast<size_t>(kMostWidth))
    refuse(file, fmt::format("has a '{}' that is no list of at most {} numbers", key, kMostWidth));
  std::vector<float> out;
  for (const json& v : list) {
    if (!v.is_number()) refuse(file, fmt::format("has a '{}' whose entry {} is no number", key, out.size()));
    out.push_back(static_cast<float>(v.get<double>()));
  }
  return out;
}

std::vector<int32_t> codes(const json& list, const std::string& file) {
  if (!list.is_array() || list.size() > static_cast<size_t>(kMostFrames) * kGroups)
    refuse(file, "has 'ref_codes' that are no list of whole numbers, 16 a frame");
  std::vector<int32_t> out;
  for (const json& v : list) {
    if (!v.is_number_integer() || v.get<int64_t>() < 0 || v.get<int64_t>() >= kMostCode)
      refuse(file, fmt::format("has 'ref_codes' whose entry {} is no code", out.size()));
    out.push_back(static_cast<int32_t>(v.get<int64_t>()));
  }
  return out;
}

}  // namespace

std::vector<Voice> import_json(std::string_view bytes, const std::string& file) {
  if (bytes.size() > kMostJsonBytes)
    refuse(file, fmt::format("is larger than any voice prompt in JSON ({} bytes)", kMostJsonBytes));
  model::Faults faults;
  const model::Document document = model::parse_document(bytes, file, faults);
  if (!document) throw Error(ErrorCode::voice_invalid, faults.at(0).what);
  const json& object = *document;
  const json* vector = find(object, "speaker_embedding");
  if (!vector) refuse(file, "is JSON without a 'speaker_embedding'");
  Voice v;
  v.source = "qwen3-tts-hip prompt";
  v.x_vector = floats(*vector, "speaker_embedding", file);
  const bool alone = flag(object, "x_vector_only_mode", file);
  const bool in_context = flag(object, "icl_mode", file) && !alone;
  const json *text = find(object, "ref_text"), *list = find(object, "ref_codes");
  if (in_context) {
    if (!text || !text->is_string() || !list)
      refuse(file, "asks for in-context cloning without 'ref_text' and 'ref_codes'");
    v.ref_text = text->get<std::string>();
    v.codes = codes(*list, file);
  }
  check_voice(v, kGroups, file);
  return {std::move(v)};
}

}  // namespace skald::voice
