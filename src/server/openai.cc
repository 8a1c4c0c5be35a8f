// Bodies to requests, results to bodies.
#include "server/openai.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "audio/encode/tempo.h"
#include "server/base64.h"
#include "server/fields.h"
#include "server/json_text.h"
#include "text/languages.h"
#include "text/utf8.h"

namespace skald::server {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kAnyInt = std::numeric_limits<int32_t>::max();

void check_length(const std::string& text, size_t most, const char* field) {
  const size_t count = text::count_code_points(text);
  if (most > 0 && count > most)
    throw ApiError(400, "text_too_long",
                   fmt::format("{} has {} characters, but at most {} are allowed", field, count, most),
                   field);
}

void read_input(Fields& fields, const ApiRules& rules, SpeechCall& call) {
  const auto input = fields.text({"input"});
  if (!input) throw ApiError(400, "invalid_argument", "input is missing: the text to speak", "input");
  if (input->empty()) throw ApiError(400, "nothing_to_speak", "input is empty", "input");
  check_length(*input, rules.max_input, "input");
  call.request.text = *input;
}

/// The name in `voice`, which is a string or an object with an id.
std::string voice_name(Fields& fields) {
  const nlohmann::json* value = fields.find({"voice", "speaker"});
  if (!value)
    throw ApiError(400, "invalid_argument", "voice is missing: GET /v1/audio/voices lists them", "voice");
  if (value->is_object()) {
    for (const char* key : {"id", "name"})
      if (const auto it = value->find(key); it != value->end() && it->is_string()) value = &*it;
  }
  if (!value->is_string())
    throw ApiError(400, "invalid_argument", "voice must be a string, or an object with the string id",
                   "voice");
  std::string name = value->get<std::string>();
  if (name.empty()) throw ApiError(400, "invalid_argument", "voice is empty", "voice");
  return name;
}

void read_voice(Fields& fields, const Catalog& catalog, SpeechCall& call) {
  const ModelInfo& info = catalog.model(call.model).info;
  const bool by_words = info.type == "voice_design";
  const bool named = fields.find({"voice", "speaker"}) != nullptr;
  if (call.reference || (by_words && !named)) return;  // gateways fill in a voice beside a recording
  call.request.voice = catalog.find_voice(call.model, voice_name(fields));
}

void read_format(Fields& fields, SpeechCall& call) {
  const auto name = fields.text({"response_format"});
  if (!name) return;
  const auto format = audio::find_format(*name);
  if (!format || !audio::format_available(*format))
    throw ApiError(400, "unsupported_response_format",
                   fmt::format("response_format must be one of {}", format_list()), "response_format");
  call.format = *format;
}

void read_delivery(Fields& fields, SpeechCall& call) {
  const auto format = fields.choice({"stream_format"}, {"audio", "sse"});
  const auto stream = fields.flag({"stream"});
  if (format) {
    call.delivery = *format == 1 ? Delivery::events : Delivery::chunked;
    if (stream == false) {
      if (*format == 1)
        throw ApiError(400, "invalid_argument", "stream is false, but stream_format \"sse\" is a stream",
                       "stream");
      call.delivery = Delivery::whole;
    }
  } else if (stream) {
    call.delivery = *stream ? Delivery::events : Delivery::whole;
  }
}

void read_language(Fields& fields, const std::string& of_model_name, SpeechCall& call) {
  const nlohmann::json* explicit_one = fields.find({"language", "target_lang", "lang"});
  const auto language = fields.text({"language", "target_lang", "lang"});
  call.request.language = explicit_one ? *language : of_model_name;
}

void read_sampling(Fields& fields, SpeechRequest& request) {
  Sampling& s = request.sampling;
  const auto real = [&](Fields::Names names, double least, double most, std::optional<float>& to) {
    if (const auto v = fields.number(names, least, most)) to = static_cast<float>(*v);
  };
  const auto whole = [&](Fields::Names names, int64_t least, std::optional<int32_t>& to) {
    if (const auto v = fields.whole(names, least, kAnyInt)) to = static_cast<int32_t>(*v);
  };
  constexpr double kLeastShare = 1e-9, kMostTemperature = 100, kMostPenalty = 100;
  real({"temperature"}, 0, kMostTemperature, s.temperature);
  real({"top_p"}, kLeastShare, 1, s.top_p);
  whole({"top_k"}, 0, s.top_k);
  real({"repetition_penalty", "rep_penalty"}, 0.01, kMostPenalty, s.repetition_penalty);
  whole({"min_new_tokens"}, 0, s.min_new_tokens);
  real({"subtalker_temperature", "sub_temperature"}, 0, kMostTemperature, s.sub_temperature);
  real({"subtalker_top_p", "sub_top_p"}, kLeastShare, 1, s.sub_top_p);
  whole({"subtalker_top_k", "sub_top_k"}, 0, s.sub_top_k);
  const auto greedy = fields.flag({"greedy"}), sample = fields.flag({"do_sample"});
  if (sample == false) s.temperature = 0.0f;
  s.greedy = greedy.value_or(false);
  const auto sub_greedy = fields.flag({"sub_greedy"}), sub_sample = fields.flag({"subtalker_dosample"});
  s.sub_greedy = sub_greedy.value_or(false) || sub_sample == false;
  if (const auto seed = fields.whole({"seed"}, 0, std::numeric_limits<int64_t>::max()))
    request.seed = static_cast<uint64_t>(*seed);
}

void read_limits(Fields& fields, const ApiRules& rules, SpeechRequest& request) {
  if (const auto v = fields.whole({"max_frames"}, 1, kAnyInt)) request.max_frames = static_cast<int32_t>(*v);
  if (const auto v = fields.whole({"max_new_tokens"}, 2, kAnyInt))
    request.max_new_tokens = static_cast<int32_t>(*v);
  const auto check = [&](std::optional<int32_t> frames, const char* field) {
    if (rules.max_frames > 0 && frames && *frames > rules.max_frames)
      throw ApiError(400, "invalid_argument",
                     fmt::format("{} is {}, but this server allows {}", field, *frames, rules.max_frames),
                     field);
  };
  check(request.max_frames, "max_frames");
  check(request.max_new_tokens, "max_new_tokens");
}

/// Where the text stands in the prompt: the official switch, or the name of a layout.
void read_layout(Fields& fields, SpeechRequest& request) {
  if (const auto whole = fields.flag({"non_streaming_mode"}))
    request.layout = *whole ? TextLayout::whole : TextLayout::stream;
  if (const auto layout = fields.choice({"text_layout"}, {"auto", "whole", "stream", "ahead"}))
    request.layout = static_cast<TextLayout>(*layout);
  if (const auto tokens = fields.whole({"ahead_tokens", "text_lookahead_tokens"}, 1, 1024))
    request.ahead_tokens = static_cast<int32_t>(*tokens);
}

/// A recording in the request itself. What the model cannot do is said before the recording is looked at.
void read_recording(Fields& fields, const ModelInfo& info, const ApiRules& rules, SpeechCall& call) {
  if (fields.find({"ref_audio"})) {
    if (info.type != "base")
      throw ApiError(400, "cloning_not_supported",
                     fmt::format("a {} model takes no recording; name a Base model, or a voice", info.type),
                     "ref_audio");
    if (!rules.cloning)
      throw ApiError(403, "cloning_disabled", "this server makes no voices from recordings", "ref_audio");
  }
  call.reference = read_reference(fields, rules.max_reference);
  call.request.x_vector_only = fields.flag({"x_vector_only_mode"}).value_or(false);
}

}  // namespace

std::string format_list() {
  std::vector<std::string_view> names;
  for (const audio::Format format : audio::all_formats())
    if (audio::format_available(format)) names.push_back(audio::format_name(format));
  return fmt::format("{}", fmt::join(names, ", "));
}

SpeechCall read_speech(const nlohmann::json& object, const Catalog& catalog, const ApiRules& rules,
                       TextField text) {
  Fields fields(object);
  SpeechCall call;
  const ModelChoice choice = catalog.find_model(fields.text({"model"}).value_or(""));
  call.model = choice.index;
  call.request.strict = fields.flag({"strict"}).value_or(rules.strict);
  if (text == TextField::required) read_input(fields, rules, call);
  read_recording(fields, catalog.model(call.model).info, rules, call);
  read_voice(fields, catalog, call);
  call.request.instruct = fields.text({"instructions", "instruct"}).value_or("");
  check_length(call.request.instruct, rules.max_instructions, "instructions");
  read_format(fields, call);
  call.speed = fields.number({"speed"}, audio::kLeastSpeed, audio::kMostSpeed).value_or(1);
  read_delivery(fields, call);
  read_language(fields, choice.language, call);
  read_sampling(fields, call.request);
  read_limits(fields, rules, call.request);
  read_layout(fields, call.request);
  call.split = fields.flag({"split"}).value_or(true);
  call.clean_text = fields.flag({"clean_text"}).value_or(false);
  call.pause_ms = static_cast<int32_t>(fields.whole({"pause_ms"}, 0, 10000).value_or(120));
  call.gain = static_cast<float>(fields.number({"wav_gain"}, 0, 100).value_or(1));
  fields.find({"task_type"});  // follows from the model
  call.ignored = fields.unread();
  if (call.request.strict && !call.ignored.empty())
    throw ApiError(400, "unknown_field", fmt::format("unknown fields: {}", fmt::join(call.ignored, ", ")),
                   call.ignored.front());
  return call;
}

nlohmann::json object_of_form(const std::map<std::string, std::string, std::less<>>& form) {
  nlohmann::json object{{"voice", "ryan"}, {"language", "english"}, {"max_frames", 120}};
  for (const auto& [name, value] : form) {
    if (name == "text" || name == "speaker" || name == "language") {
      object[name == "text" ? "input" : name == "speaker" ? "voice" : name] = value;
    } else if (value == "true" || value == "false") {
      object[name] = value == "true";
    } else {
      const nlohmann::json number = nlohmann::json::parse(value, nullptr, false);
      if (!number.is_number())
        throw ApiError(400, "invalid_argument", fmt::format("{} must be a number, true or false", name),
                       name);
      object[name] = number;
    }
  }
  if (object.contains("text_lookahead_tokens")) object["text_layout"] = "ahead";
  return object;
}

SpeechCall parse_speech(std::string_view body, const Catalog& catalog, const ApiRules& rules) {
  return read_speech(parse_object(body), catalog, rules);
}

// ---- answers

namespace {

Json model_entry(const std::string& id, int64_t created) {
  return {{"id", id}, {"object", "model"}, {"created", created}, {"owned_by", "skald"}};
}

Json model_list(const Catalog& catalog) {
  Json list = Json::array();
  for (const ServedModel& m : catalog.models()) list.push_back(model_entry(m.id, m.created));
  if (catalog.aliases_enabled() && !catalog.models().empty())
    for (const std::string_view name : cloud_models())
      list.push_back(model_entry(std::string(name), catalog.models()[0].created));
  return list;
}

}  // namespace

Usage usage_of(const SpeechResult& result) { return {result.text_tokens, result.frames}; }

Json usage_json(const Usage& usage) {
  return {{"input_tokens", usage.input_tokens},
          {"output_tokens", usage.output_tokens},
          {"total_tokens", usage.input_tokens + usage.output_tokens}};
}

std::string models_body(const Catalog& catalog) {
  return to_text({{"object", "list"}, {"data", model_list(catalog)}});
}

std::string model_body(const Catalog& catalog, std::string_view id) {
  if (id.empty()) throw ApiError(404, "model_not_found", "name a model", "model");
  const ModelChoice choice = catalog.find_model(id);
  return to_text(model_entry(std::string(id), catalog.model(choice.index).created));
}

std::string audio_models_body(const Catalog& catalog) {
  Json models = Json::array(), data = model_list(catalog);
  for (const Json& m : data) models.push_back({{"id", m["id"]}, {"name", m["id"]}});
  return to_text({{"object", "list"}, {"data", std::move(data)}, {"models", std::move(models)}});
}

std::string voices_body(const Catalog& catalog, std::string_view model) {
  Json list = Json::array();
  std::vector<size_t> indexes;
  if (!model.empty()) {
    indexes.push_back(catalog.find_model(model).index);
  } else {
    for (size_t i = 0; i < catalog.models().size(); ++i) indexes.push_back(i);
  }
  for (const size_t i : indexes) {
    for (const VoiceEntry& v : catalog.voices(i)) {
      Json entry{{"id", v.name},
                 {"name", v.name},
                 {"object", "voice"},
                 {"model", catalog.model(i).id},
                 {"kind", v.alias_of.empty() ? v.kind : "alias"},
                 {"clone", v.kind == "clone"},
                 {"languages", catalog.model(i).info.languages}};
      if (!v.alias_of.empty()) entry["alias_of"] = v.alias_of;
      list.push_back(std::move(entry));
    }
  }
  return to_text({{"object", "list"}, {"data", list}, {"voices", list}});
}

namespace {

std::string event(const Json& value) { return "data: " + to_text(value) + "\n\n"; }

}  // namespace

std::string event_of_audio(std::string_view bytes) {
  return event({{"type", "speech.audio.delta"}, {"audio", to_base64(bytes)}});
}

std::string event_of_end(const Usage& usage, const SpeechResult& result) {
  return event({{"type", "speech.audio.done"},
                {"usage", usage_json(usage)},
                {"request_id", result.request_id},
                {"seed", result.seed},
                {"frames", result.frames},
                {"finish_reason", stop_reason_name(result.stop)},
                {"rtf", result.rtf},
                {"first_audio_ms", result.first_audio_ms},
                {"warnings", result.warnings}});
}

std::string event_of_error(const ApiError& error, std::string_view request_id) {
  Json value = Json::parse(error_body(error, request_id));
  Json out{{"type", "speech.audio.error"}};
  out.update(value);
  return event(out);
}

}  // namespace skald::server
