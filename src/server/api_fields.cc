// The table, and what is made of it.
#include "server/api_fields.h"

#include <array>
#include <limits>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "audio/encode/tempo.h"
#include "server/json_text.h"
#include "server/routes.h"

namespace skald::server {
namespace {

using Json = nlohmann::ordered_json;
using T = FieldType;

constexpr double kInt = std::numeric_limits<int32_t>::max();
constexpr double kSeed = 9.2e18;

constexpr std::array kFields{
    ApiField{.names = "input",
             .type = T::text,
             .meaning = "the text, at most 4096 characters (`--max-input`); long text is spoken in pieces of "
                        "whole sentences",
             .required = true},
    ApiField{.names = "voice, speaker",
             .type = T::voice,
             .meaning = "a voice of the model in any case, one of the cloud's names, or an object with `id`; "
                        "a design model and a request with `ref_audio` need none"},
    ApiField{.names = "model",
             .type = T::text,
             .meaning = "the model's name, or `tts-1`, `tts-1-hd`, `gpt-4o-mini-tts`, "
                        "`gpt-4o-mini-tts-2025-12-15` for the first one; a language may follow: `tts-1-zh`. "
                        "Missing = the first"},
    ApiField{.names = "instructions, instruct",
             .type = T::text,
             .meaning = "how to speak, at most 4096 characters; the voice itself for a design model"},
    ApiField{.names = "response_format",
             .type = T::choice,
             .choices = "mp3, opus, aac, flac, wav, pcm, f32",
             .meaning =
                 "`mp3` (default), `opus` (Ogg Opus), `aac` (ADTS), `flac`, `wav` (16 bits), `pcm` (24 "
                 "kHz, 16 bits, mono, little endian), `f32`"},
    ApiField{.names = "speed",
             .type = T::number,
             .least = audio::kLeastSpeed,
             .most = audio::kMostSpeed,
             .meaning = "the pitch stays"},
    ApiField{.names = "stream_format",
             .type = T::choice,
             .choices = "audio, sse",
             .meaning = "`audio`: bytes as they are made; `sse`: server-sent events"},
    ApiField{.names = "stream",
             .type = T::flag,
             .meaning = "`false`: one body of known length; `true` without `stream_format`: events"},
    ApiField{.names = "language, target_lang, lang",
             .type = T::text,
             .meaning = "name, code or tag; goes before the language in the model's name"},
    ApiField{.names = "seed", .type = T::whole, .most = kSeed, .meaning = "repeats a run"},
    ApiField{
        .names = "temperature",
        .type = T::number,
        .most = 100,
        .meaning =
            "of the talker, as all of the sampling up to `greedy`; missing = the model's own; 0 = greedy"},
    ApiField{.names = "top_k", .type = T::whole, .most = kInt, .meaning = "0 = off"},
    ApiField{.names = "top_p", .type = T::number, .least = 1e-9, .most = 1, .meaning = "1 = off"},
    ApiField{.names = "repetition_penalty, rep_penalty",
             .type = T::number,
             .least = 0.01,
             .most = 100,
             .meaning = "1 = off"},
    ApiField{.names = "min_new_tokens",
             .type = T::whole,
             .most = kInt,
             .meaning = "draws before the stop token is allowed"},
    ApiField{.names = "do_sample", .type = T::flag, .meaning = "`false` = greedy"},
    ApiField{.names = "greedy", .type = T::flag, .meaning = "no sampling at all"},
    ApiField{.names = "subtalker_temperature, sub_temperature",
             .type = T::number,
             .most = 100,
             .meaning = "of the code predictor, as the next four"},
    ApiField{.names = "subtalker_top_k, sub_top_k", .type = T::whole, .most = kInt, .meaning = "0 = off"},
    ApiField{.names = "subtalker_top_p, sub_top_p",
             .type = T::number,
             .least = 1e-9,
             .most = 1,
             .meaning = "1 = off"},
    ApiField{.names = "subtalker_dosample", .type = T::flag, .meaning = "`false` = greedy"},
    ApiField{.names = "sub_greedy", .type = T::flag, .meaning = "greedy while the talker samples"},
    ApiField{.names = "max_frames",
             .type = T::whole,
             .least = 1,
             .most = kInt,
             .meaning = "the speech ends there (80 ms a frame), with the stop reason `length`"},
    ApiField{.names = "max_new_tokens",
             .type = T::whole,
             .least = 2,
             .most = kInt,
             .meaning = "the official count: one frame less"},
    ApiField{.names = "text_layout",
             .type = T::choice,
             .choices = "auto, whole, stream, ahead",
             .meaning = "where the text stands in the prompt ([prompt.md](prompt.md))"},
    ApiField{.names = "non_streaming_mode",
             .type = T::flag,
             .meaning = "the official switch: `whole` or `stream`"},
    ApiField{.names = "ahead_tokens, text_lookahead_tokens",
             .type = T::whole,
             .least = 1,
             .most = 1024,
             .meaning = "text ahead of the speech in the layout `ahead`"},
    ApiField{.names = "ref_audio",
             .type = T::text,
             .meaning = "a recording in base64 or as a data URI: the voice of this request, see \"Voices\""},
    ApiField{.names = "ref_text", .type = T::text, .meaning = "what the recording says, word for word"},
    ApiField{.names = "x_vector_only_mode",
             .type = T::flag,
             .meaning = "the sound of the speaker alone, without the recording as an example"},
    ApiField{.names = "consent, consent_attestation",
             .type = T::text,
             .meaning = "that the speaker of the recording allowed it"},
    ApiField{.names = "split", .type = T::flag, .meaning = "long text may be spoken in pieces (default)"},
    ApiField{.names = "pause_ms",
             .type = T::whole,
             .most = 10000,
             .meaning = "silence between the pieces (default 120)"},
    ApiField{.names = "clean_text",
             .type = T::flag,
             .meaning = "soft hyphens, zero-width spaces and direction marks are removed, odd spaces mapped"},
    ApiField{
        .names = "wav_gain", .type = T::number, .most = 100, .meaning = "factor of the samples (default 1)"},
    ApiField{.names = "task_type",
             .type = T::text,
             .meaning = "known and of no effect: it follows from the model"},
    ApiField{.names = "strict",
             .type = T::flag,
             .meaning = "unknown fields and warnings that change the result are errors"},
};

std::vector<std::string> words_of(std::string_view list) {
  std::vector<std::string> out;
  while (!list.empty()) {
    const size_t end = std::min(list.find(", "), list.size());
    out.emplace_back(list.substr(0, end));
    list.remove_prefix(std::min(end + 2, list.size()));
  }
  return out;
}

std::string range_of(const ApiField& f) {
  const auto bound = [](double v) {
    return v == kInt ? std::string("2^31 - 1") : v == kSeed ? "2^63 - 1" : fmt::format("{}", v);
  };
  switch (f.type) {
    case T::number: return fmt::format("number, {} to {}", bound(f.least), bound(f.most));
    case T::whole: return fmt::format("whole, {} to {}", bound(f.least), bound(f.most));
    case T::flag: return "true, false";
    case T::choice: return std::string(f.choices);
    case T::voice: return "text or object";
    case T::text: break;
  }
  return "text";
}

Json schema_of(const ApiField& f, std::string_view formats) {
  Json schema;
  switch (f.type) {
    case T::text: schema = {{"type", "string"}}; break;
    case T::number: schema = {{"type", "number"}, {"minimum", f.least}, {"maximum", f.most}}; break;
    case T::whole:
      schema = {
          {"type", "integer"},
          {"minimum", static_cast<int64_t>(f.least)},
          {"maximum", f.most == kSeed ? std::numeric_limits<int64_t>::max() : static_cast<int64_t>(f.most)}};
      break;
    case T::flag: schema = {{"type", "boolean"}}; break;
    case T::choice:
      schema = {{"type", "string"}, {"enum", words_of(f.names == "response_format" ? formats : f.choices)}};
      break;
    case T::voice:
      schema = {
          {"oneOf",
           {{{"type", "string"}},
            {{"type", "object"}, {"properties", {{"id", {{"type", "string"}}}}}, {"required", {"id"}}}}}};
      break;
  }
  schema["description"] = f.meaning;
  return schema;
}

Json speech_schema(std::string_view formats) {
  Json properties = Json::object(), required = Json::array();
  for (const ApiField& f : kFields) {
    for (const std::string& name : words_of(f.names)) properties[name] = schema_of(f, formats);
    if (f.required) required.push_back(f.names);
  }
  return {{"type", "object"}, {"properties", std::move(properties)}, {"required", std::move(required)}};
}

Json operation_of(const Route& route) {
  Json operation{
      {"summary", route.summary},
      {"tags", {route.label}},
      {"responses",
       {{"default", {{"description", "the result, or an error with error.message and error.code"}}}}}};
  if (route.guard == Guard::key) operation["security"] = {{{"key", Json::array()}}};
  if (route.path.find('{') != std::string_view::npos) {
    const size_t brace = route.path.find('{');
    operation["parameters"] = {{{"name", route.path.substr(brace + 1, route.path.size() - brace - 2)},
                                {"in", "path"},
                                {"required", true},
                                {"schema", {{"type", "string"}}}}};
  }
  const Json speech{{"schema", {{"$ref", "#/components/schemas/Speech"}}}},
      any{{"schema", {{"type", "object"}}}};
  if (route.body == BodyKind::json)
    operation["requestBody"] = {{"content", {{"application/json", route.label == "batch" ? any : speech}}}};
  if (route.body == BodyKind::form)
    operation["requestBody"] = {{"content", {{"application/x-www-form-urlencoded", any}}}};
  if (route.body == BodyKind::upload)
    operation["requestBody"] = {{"content", {{"multipart/form-data", any}, {"application/json", any}}}};
  return operation;
}

}  // namespace

std::span<const ApiField> api_fields() { return kFields; }

std::string field_table() {
  std::string out = "| field | value | meaning |\n|---|---|---|\n";
  for (const ApiField& f : kFields) {
    std::string names;
    for (const std::string& name : words_of(f.names)) names += (names.empty() ? "`" : ", `") + name + "`";
    out += fmt::format("| {}{} | {} | {} |\n", names, f.required ? " (needed)" : "", range_of(f), f.meaning);
  }
  return out;
}

std::string openapi_document(std::string_view formats) {
  Json paths = Json::object();
  for (const Route& route : all_routes()) {
    std::string method(route.method);
    for (char& c : method) c = static_cast<char>(c - 'A' + 'a');
    paths[std::string(route.path)][method] = operation_of(route);
  }
  return to_text({{"openapi", "3.1.0"},
                  {"info", {{"title", "skald"}, {"version", "1"}}},
                  {"paths", std::move(paths)},
                  {"components",
                   {{"schemas", {{"Speech", speech_schema(formats)}}},
                    {"securitySchemes", {{"key", {{"type", "http"}, {"scheme", "bearer"}}}}}}}});
}

}  // namespace skald::server
