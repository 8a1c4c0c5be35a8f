// Voice files: safetensors with everything about the voice in the metadata.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>

#include "model/safetensors.h"
#include "skald/voice.h"
#include "voice/voice_checks.h"

namespace skald {
namespace {

using nlohmann::ordered_json;
using voice::refuse;

constexpr const char* kFormat = "skald.voice";
constexpr const char* kVersion = "1";

/// The strings of a voice under their names in the file.
template <class VoiceType, class F>
void each_text(VoiceType& v, F&& f) {
  f("name", v.name);
  f("language", v.language);
  f("ref_text", v.ref_text);
  f("description", v.description);
  f("consent", v.consent);
  f("created", v.created);
  f("source", v.source);
  f("model", v.model);
  f("model_hash", v.model_hash);
  f("audio_hash", v.audio_hash);
}

int64_t groups_of(const Voice& v) {
  constexpr int64_t kGroups = 16;  // of every 12 Hz model
  return v.codes.empty() ? 0 : kGroups;
}

SpeakerIdentity parse_identity(const std::string& name, const std::string& file) {
  for (const SpeakerIdentity i :
       {SpeakerIdentity::unknown, SpeakerIdentity::real, SpeakerIdentity::synthetic})
    if (name == speaker_identity_name(i)) return i;
  refuse(file, fmt::format("has the identity \"{}\", expected unknown, real or synthetic", name));
}

double parse_seconds(const std::string& text, const std::string& file) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !(value >= 0 && value < 1e6))
    refuse(file, fmt::format("has \"{}\" as its seconds", text));
  return value;
}

template <class T>
std::vector<T> numbers(std::string_view bytes, const model::TensorEntry& entry) {
  std::vector<T> values(entry.bytes / sizeof(T));
  std::memcpy(values.data(), bytes.data() + entry.offset, values.size() * sizeof(T));
  return values;
}

void read_tensors(std::string_view bytes, const std::vector<model::TensorEntry>& entries,
                  const std::string& file, Voice& v, int64_t& groups) {
  for (const model::TensorEntry& e : entries) {
    if (e.name == "xvector" && e.type == "F32" && e.shape.size() == 1)
      v.x_vector = numbers<float>(bytes, e);
    else if (e.name == "codes" && e.type == "I32" && e.shape.size() == 2)
      v.codes = numbers<int32_t>(bytes, e), groups = e.shape[1];
    else
      refuse(file, fmt::format("holds a tensor that a voice does not have: '{}', {} of {} dimensions", e.name,
                               e.type, e.shape.size()));
  }
}

Voice parse(std::string_view bytes, const std::string& file) {
  std::map<std::string, std::string> metadata;
  const auto entries = model::parse_safetensors(std::as_bytes(std::span(bytes)), file, &metadata);
  if (metadata["format"] != kFormat) refuse(file, "is no voice file of skald: its metadata do not say so");
  if (metadata["version"] != kVersion)
    refuse(file, fmt::format("is a voice file of version \"{}\", and this build reads version {}",
                             metadata["version"], kVersion));
  Voice v;
  each_text(v, [&](const char* key, std::string& text) { text = metadata[key]; });
  v.identity = parse_identity(metadata["identity"], file);
  v.seconds = parse_seconds(metadata["seconds"], file);
  int64_t groups = 0;
  read_tensors(bytes, entries, file, v, groups);
  voice::check_voice(v, groups, file);
  if (metadata["hash"] != voice_hash(v)) refuse(file, "is damaged: its contents do not fit their hash");
  return v;
}

}  // namespace

std::string write_voice(const Voice& v) {
  voice::check_voice(v, groups_of(v), v.name);
  ordered_json metadata{{"format", kFormat}, {"version", kVersion}};
  each_text(v, [&](const char* key, const std::string& text) { metadata[key] = text; });
  metadata["identity"] = speaker_identity_name(v.identity);
  metadata["kind"] = v.in_context() ? "in_context" : "x_vector";
  metadata["seconds"] = fmt::format("{}", v.seconds);
  metadata["hash"] = voice_hash(v);
  const size_t vector_bytes = v.x_vector.size() * sizeof(float),
               code_bytes = v.codes.size() * sizeof(int32_t);
  ordered_json header{{"__metadata__", std::move(metadata)}};
  if (v.in_context())
    header["codes"] = {{"dtype", "I32"},
                       {"shape", {static_cast<int64_t>(v.codes.size()) / groups_of(v), groups_of(v)}},
                       {"data_offsets", {0, code_bytes}}};
  header["xvector"] = {{"dtype", "F32"},
                       {"shape", {v.x_vector.size()}},
                       {"data_offsets", {code_bytes, code_bytes + vector_bytes}}};
  std::string text;
  try {
    text = header.dump();
  } catch (const nlohmann::json::exception&) {
    refuse(v.name, "has a text that is not UTF-8");
  }
  text.append((8 - text.size() % 8) % 8, ' ');
  std::string bytes(8, '\0');
  for (size_t i = 0; i < 8; ++i) bytes[i] = static_cast<char>(text.size() >> (8 * i));
  bytes += text;
  bytes.append(reinterpret_cast<const char*>(v.codes.data()), code_bytes);
  bytes.append(reinterpret_cast<const char*>(v.x_vector.data()), vector_bytes);
  return bytes;
}

Voice read_voice(std::string_view bytes, const std::string& file) {
  if (bytes.size() > voice::kMostFileBytes) refuse(file, "is larger than any voice");
  try {
    return parse(bytes, file);
  } catch (const Error& e) {
    if (e.code() == ErrorCode::voice_invalid) throw;
    throw Error(ErrorCode::voice_invalid, e.what());  // of the container
  }
}

}  // namespace skald
