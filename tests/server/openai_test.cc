// Bodies: what is taken, what is refused, and what every refusal says.
#include "server/openai.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "server/base64.h"
#include "server/json_text.h"
#include "support.h"

namespace skald::server {
namespace {

using test::api_error_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Json = nlohmann::json;

SpeechCall parse(const std::string& body, ApiRules rules = {}) {
  return parse_speech(body, test::catalog(), rules);
}

/// The usual body with some fields replaced; null takes one out.
std::string body(const std::string& changes) {
  Json value{{"model", "tts-1"}, {"input", "Hello"}, {"voice", "alloy"}};
  value.update(Json::parse(changes));
  for (const char* key : {"model", "input", "voice"})
    if (value[key] == "-gone-") value.erase(key);
  return value.dump();
}

std::string repeat(const std::string& text, size_t times) {
  std::string out;
  for (size_t i = 0; i < times; ++i) out += text;
  return out;
}

struct BadBody {
  std::string changes;
  int status;
  std::string code, param;
};

// B064, B071
TEST(ParseSpeech, RefusesWithStatusCodeAndField) {
  const std::string long_text = R"({"input":")" + repeat("é", 4097) + "\"}";
  const std::string long_style = R"({"instructions":")" + repeat("好", 4097) + "\"}";
  const std::vector<BadBody> cases{
      {R"({"input":"-gone-"})", 400, "invalid_argument", "input"},
      {R"({"input":null})", 400, "invalid_argument", "input"},
      {R"({"input":""})", 400, "nothing_to_speak", "input"},
      {R"({"input":7})", 400, "invalid_argument", "input"},
      {R"({"input":["a"]})", 400, "invalid_argument", "input"},
      {R"({"input":{"text":"a"}})", 400, "invalid_argument", "input"},
      {long_text, 400, "text_too_long", "input"},
      {R"({"voice":"-gone-"})", 400, "invalid_argument", "voice"},
      {R"({"voice":null})", 400, "invalid_argument", "voice"},
      {R"({"voice":""})", 400, "invalid_argument", "voice"},
      {R"({"voice":3})", 400, "invalid_argument", "voice"},
      {R"({"voice":{}})", 400, "invalid_argument", "voice"},
      {R"({"voice":{"id":5}})", 400, "invalid_argument", "voice"},
      {R"({"voice":{"id":""}})", 400, "invalid_argument", "voice"},
      {R"({"voice":"nobody"})", 400, "unknown_voice", "voice"},
      {R"({"voice":"/etc/passwd"})", 400, "unknown_voice", "voice"},
      {R"({"voice":"..\\..\\x.wav"})", 400, "unknown_voice", "voice"},
      {R"({"voice":"al\u0000loy"})", 400, "unknown_voice", "voice"},
      {R"({"voice":")" + std::string(10000, 'a') + "\"}", 400, "unknown_voice", "voice"},
      {R"({"voice":"alloy","speaker":"ryan"})", 400, "invalid_argument", "voice"},
      {R"({"model":"gpt-9"})", 404, "model_not_found", "model"},
      {R"({"model":"owner/name"})", 404, "model_not_found", "model"},
      {R"({"model":"tts-1-xx"})", 404, "model_not_found", "model"},
      {R"({"model":5})", 400, "invalid_argument", "model"},
      {long_style, 400, "text_too_long", "instructions"},
      {R"({"instructions":["x"]})", 400, "invalid_argument", "instructions"},
      {R"({"instructions":"a","instruct":"b"})", 400, "invalid_argument", "instructions"},
      {R"({"response_format":"mp4"})", 400, "unsupported_response_format", "response_format"},
      {R"({"response_format":""})", 400, "unsupported_response_format", "response_format"},
      {R"({"response_format":1})", 400, "invalid_argument", "response_format"},
      {R"({"speed":0.24})", 400, "invalid_argument", "speed"},
      {R"({"speed":4.01})", 400, "invalid_argument", "speed"},
      {R"({"speed":-1})", 400, "invalid_argument", "speed"},
      {R"({"speed":"fast"})", 400, "invalid_argument", "speed"},
      {R"({"speed":1e999})", 400, "invalid_json", ""},
      {R"({"stream_format":"ogg"})", 400, "invalid_argument", "stream_format"},
      {R"({"stream_format":1})", 400, "invalid_argument", "stream_format"},
      {R"({"stream":"yes"})", 400, "invalid_argument", "stream"},
      {R"({"stream":false,"stream_format":"sse"})", 400, "invalid_argument", "stream"},
      {R"({"seed":-1})", 400, "invalid_argument", "seed"},
      {R"({"seed":1.5})", 400, "invalid_argument", "seed"},
      {R"({"seed":"7"})", 400, "invalid_argument", "seed"},
      {R"({"seed":9223372036854775808})", 400, "invalid_argument", "seed"},
      {R"({"temperature":-0.1})", 400, "invalid_argument", "temperature"},
      {R"({"top_p":0})", 400, "invalid_argument", "top_p"},
      {R"({"top_p":1.1})", 400, "invalid_argument", "top_p"},
      {R"({"top_k":-1})", 400, "invalid_argument", "top_k"},
      {R"({"top_k":2.5})", 400, "invalid_argument", "top_k"},
      {R"({"repetition_penalty":0})", 400, "invalid_argument", "repetition_penalty"},
      {R"({"subtalker_top_p":2})", 400, "invalid_argument", "subtalker_top_p"},
      {R"({"max_frames":0})", 400, "invalid_argument", "max_frames"},
      {R"({"max_frames":3000000000})", 400, "invalid_argument", "max_frames"},
      {R"({"max_new_tokens":1})", 400, "invalid_argument", "max_new_tokens"},
      {R"({"language":5})", 400, "invalid_argument", "language"},
      {R"({"text_layout":"sideways"})", 400, "invalid_argument", "text_layout"},
      {R"({"non_streaming_mode":1})", 400, "invalid_argument", "non_streaming_mode"},
      {R"({"pause_ms":-1})", 400, "invalid_argument", "pause_ms"},
      {R"({"ref_audio":"data:,x"})", 400, "cloning_not_supported", "ref_audio"},
      {R"({"model":"plain","ref_audio":"UklGRg=="})", 400, "consent_required", "consent"},
      {R"({"model":"plain","ref_audio":"UklGRg==","consent":" "})", 400, "consent_required", "consent"},
      {R"({"model":"plain","ref_audio":"http://10.0.0.1/a.wav","consent":"yes"})", 400,
       "reference_not_inline", "ref_audio"},
      {R"({"model":"plain","ref_audio":"file:///etc/passwd","consent":"yes"})", 400, "reference_not_inline",
       "ref_audio"},
      {R"({"model":"plain","ref_audio":"/etc/passwd","consent":"yes"})", 400, "reference_not_inline",
       "ref_audio"},
      {R"({"model":"plain","ref_audio":"../a.wav","consent":"yes"})", 400, "reference_not_inline",
       "ref_audio"},
      {R"({"model":"plain","ref_audio":"data:audio/wav,abc","consent":"yes"})", 400, "invalid_argument",
       "ref_audio"},
      {R"({"model":"plain","ref_audio":"data:audio/wav;base64","consent":"yes"})", 400, "invalid_argument",
       "ref_audio"},
      {R"({"model":"plain","ref_audio":"no base64!","consent":"yes"})", 400, "invalid_argument", "ref_audio"},
      {R"({"model":"plain","ref_audio":"","consent":"yes"})", 400, "invalid_argument", "ref_audio"},
  };
  for (const BadBody& bad : cases) {
    SCOPED_TRACE(bad.changes.substr(0, 80));
    const std::string sent = bad.changes.find("1e999") != std::string::npos
                                 ? R"({"model":"tts-1","input":"a","voice":"alloy","speed":1e999})"
                                 : body(bad.changes);
    const ApiError error = api_error_of([&] { parse(sent); });
    EXPECT_EQ(error.status(), bad.status);
    EXPECT_EQ(error.code(), bad.code);
    EXPECT_EQ(error.param(), bad.param);
    const Json answer = Json::parse(error_body(error, "id-1"))["error"];
    EXPECT_EQ(answer["type"], "invalid_request_error");
    EXPECT_EQ(answer["code"], bad.code);
    EXPECT_EQ(answer["request_id"], "id-1");
    EXPECT_TRUE(bad.param.empty() ? answer["param"].is_null() : answer["param"] == bad.param);
    const bool named = !bad.param.empty() && bad.param != "model" && bad.param != "ref_audio";
    EXPECT_TRUE(!named || std::string(error.what()).find(bad.param) != std::string::npos)
        << "the message names the field";
  }
}

TEST(ParseSpeech, RefusesWhatIsNoObject) {
  for (const char* text :
       {"", "{", "[]", "7", "null", "\"x\"", "{\"a\":1}x", "{\"input\":\"\xff\"}", "{'a':1}"})
    EXPECT_EQ(api_error_of([&] { parse(text); }).code(), "invalid_json") << text;
  EXPECT_EQ(api_error_of([&] { parse(repeat("{\"a\":", 5000) + "1" + repeat("}", 5000)); }).code(),
            "invalid_json");
  EXPECT_EQ(api_error_of([&] { parse(repeat("[", 100000)); }).code(), "invalid_json");
  // What is refused is not repeated: the sentence may end in a log.
  EXPECT_THAT(api_error_of([&] { parse("{\"input\": \"secret words\" oops"); }).what(),
              Not(HasSubstr("secret")));
}

TEST(ParseSpeech, DefaultsAreTheCloudsOwn) {
  const SpeechCall call = parse(body("{}"));
  EXPECT_EQ(call.format, audio::Format::mp3);
  EXPECT_EQ(call.speed, 1);
  EXPECT_EQ(call.delivery, Delivery::chunked);
  EXPECT_EQ(call.request.text, "Hello");
  EXPECT_EQ(call.request.voice, "serena");
  EXPECT_FALSE(call.request.seed);
  EXPECT_FALSE(call.request.strict);
  EXPECT_TRUE(call.ignored.empty());
}

TEST(ParseSpeech, TakesTheUnionOfFields) {
  const SpeechCall call =
      parse(body(R"({"voice":{"id":"Ono Anna"},"instruct":"softly","response_format":" WAV ",
      "speed":2,"stream":false,"seed":9223372036854775807,"temperature":0.5,"top_k":0,"top_p":0.9,
      "rep_penalty":1.1,"min_new_tokens":3,"subtalker_dosample":false,"subtalker_temperature":0.7,
      "max_new_tokens":50,"target_lang":"de","non_streaming_mode":true,"clean_text":true,"split":false,"pause_ms":0})"));
  EXPECT_EQ(call.request.voice, "ono_anna");
  EXPECT_EQ(call.request.instruct, "softly");
  EXPECT_EQ(call.format, audio::Format::wav);
  EXPECT_EQ(call.speed, 2);
  EXPECT_EQ(call.delivery, Delivery::whole);
  EXPECT_EQ(call.request.seed, 9223372036854775807u);
  EXPECT_FLOAT_EQ(*call.request.sampling.temperature, 0.5f);
  EXPECT_EQ(call.request.sampling.top_k, 0);
  EXPECT_FLOAT_EQ(*call.request.sampling.repetition_penalty, 1.1f);
  EXPECT_TRUE(call.request.sampling.sub_greedy);
  EXPECT_FALSE(call.request.sampling.greedy);
  EXPECT_EQ(call.request.max_new_tokens, 50);
  EXPECT_EQ(call.request.language, "de");
  EXPECT_EQ(call.request.layout, TextLayout::whole);
  EXPECT_TRUE(call.clean_text);
  EXPECT_FALSE(call.split);
  EXPECT_TRUE(call.ignored.empty());
}

TEST(ParseSpeech, StreamFields) {
  EXPECT_EQ(parse(body(R"({"stream_format":"sse"})")).delivery, Delivery::events);
  EXPECT_EQ(parse(body(R"({"stream_format":"audio"})")).delivery, Delivery::chunked);
  EXPECT_EQ(parse(body(R"({"stream":true})")).delivery, Delivery::events);
  EXPECT_EQ(parse(body(R"({"stream":true,"stream_format":"audio"})")).delivery, Delivery::chunked);
  EXPECT_EQ(parse(body(R"({"stream":false,"stream_format":"audio"})")).delivery, Delivery::whole);
}

// B069, B070
TEST(ParseSpeech, LimitsCountCharacters) {
  EXPECT_NO_THROW(parse(body(R"({"input":")" + repeat("好", 4096) + "\"}")));
  EXPECT_NO_THROW(parse(body(R"({"instructions":")" + repeat("🙂", 4096) + "\"}")));
  ApiRules rules;
  rules.max_input = 5, rules.max_frames = 100;
  EXPECT_NO_THROW(parse(body(R"({"input":"ééééé"})"), rules));
  EXPECT_EQ(api_error_of([&] { parse(body(R"({"input":"éééééé"})"), rules); }).code(), "text_too_long");
  EXPECT_EQ(api_error_of([&] { parse(body(R"({"input":"a","max_frames":101})"), rules); }).param(),
            "max_frames");
  rules.max_input = 0;
  EXPECT_NO_THROW(parse(body(R"({"input":")" + repeat("a", 50000) + "\"}"), rules));
}

TEST(ParseSpeech, UnknownFieldsAreNamedOrRefused) {
  const std::string sent = body(R"({"extra_body":{"seed":7},"voise":"x","bad name\n":1})");
  EXPECT_THAT(parse(sent).ignored, ElementsAre("bad?name?", "extra_body", "voise"));
  ApiRules rules;
  rules.strict = true;
  EXPECT_EQ(api_error_of([&] { parse(sent, rules); }).code(), "unknown_field");
  EXPECT_EQ(api_error_of([&] { parse(body(R"({"voise":1,"strict":true})")); }).param(), "voise");
}

TEST(ParseSpeech, LanguageOfTheModelNameYieldsToTheField) {
  EXPECT_EQ(parse(body(R"({"model":"tts-1-zh"})")).request.language, "zh");
  EXPECT_EQ(parse(body(R"({"model":"tts-1-hd-german"})")).request.language, "german");
  EXPECT_EQ(parse(body(R"({"model":"qwen-fr"})")).request.language, "fr");
  EXPECT_EQ(parse(body(R"({"model":"tts-1-zh","language":"de"})")).request.language, "de");
  EXPECT_EQ(parse(body(R"({"model":"tts-1-zh","language":""})")).request.language, "");
  EXPECT_EQ(parse(body(R"({"model":"tts-1-zh","language":null})")).request.language, "zh");
}

// B072
TEST(ParseSpeech, BodiesOfTheFieldsClients) {
  // As the clients send them: SDK, Open WebUI, SillyTavern, Home Assistant, Wyoming, LiveKit, Pipecat, n8n.
  for (
      const char* sent :
      {R"({"input":"Hi","model":"gpt-4o-mini-tts","voice":"coral","instructions":"Speak cheerfully."})",
       R"({"model":"tts-1","input":"Hi there","voice":"alloy"})",
       R"({"model":"tts-1","input":"*waves* \"Hi\"","voice":"nova","response_format":"mp3","speed":1})",
       R"({"model":"tts-1","input":"The light is on.","voice":"shimmer","response_format":"wav","speed":1.0})",
       R"({"input":"Hi","model":"tts-1","voice":"sage","response_format":"wav"})",
       R"({"input":"Hi","model":"tts-1","voice":"ash","response_format":"mp3"})",
       R"({"input":"Hi","model":"gpt-4o-mini-tts","voice":"verse","response_format":"pcm"})",
       R"({"model":"tts-1-hd","input":"Hi","voice":"onyx","response_format":"mp3","speed":1})",
       R"({"model":"gpt-4o-mini-tts-2025-12-15","input":"Hi","voice":{"id":"marin"}})"})
    EXPECT_TRUE(parse(sent).ignored.empty()) << sent;
}

TEST(ParseSpeech, ModelsWithoutVoices) {
  EXPECT_EQ(parse(R"({"model":"designer","input":"Hi","instructions":"An old man"})").request.voice, "");
  EXPECT_EQ(parse(R"({"model":"designer","input":"Hi","voice":"alloy","instructions":"x"})").request.voice,
            "");
  EXPECT_EQ(api_error_of([] { parse(R"({"model":"designer","input":"Hi","voice":"bob"})"); }).code(),
            "unknown_voice");
  EXPECT_EQ(api_error_of([] { parse(R"({"model":"plain","input":"Hi","voice":"alloy"})"); }).code(),
            "unknown_voice");
}

TEST(ParseSpeech, RecordingsComeWithConsentAndInPlaceOfAVoice) {
  const SpeechCall call = parse(
      R"({"model":"plain","input":"Hi","voice":"alloy","ref_audio":"data:audio/wav;base64,UklGRg==","ref_text":"hm",
          "consent":"my own voice","x_vector_only_mode":true})");
  ASSERT_TRUE(call.reference);
  EXPECT_EQ(*call.reference->audio, "RIFF");
  EXPECT_EQ(call.reference->consent, "my own voice");
  EXPECT_TRUE(call.reference->x_vector_only);
  EXPECT_EQ(call.request.voice, "");
  ApiRules rules;
  rules.max_reference = 3;
  const std::string sent =
      R"({"model":"plain","input":"Hi","ref_audio":"UklGRg==","consent_attestation":true})";
  EXPECT_EQ(api_error_of([&] { parse(sent, rules); }).status(), 413);
  rules.max_reference = 4;
  EXPECT_TRUE(parse(sent, rules).reference);
  rules.cloning = false;
  EXPECT_EQ(api_error_of([&] { parse(sent, rules); }).status(), 403);
}

TEST(ParseSpeech, WhatIsSaidAboutARecordingIsBounded) {
  const auto with = [](const char* field, size_t characters) {
    std::string sent = R"({"model":"plain","input":"Hi","ref_audio":"UklGRg==","consent":"mine")";
    if (std::string_view(field) == "consent") sent.erase(sent.rfind(",\"consent"));
    return sent + ",\"" + field + "\":\"" + std::string(characters, 'x') + "\"}";
  };
  for (const char* field : {"ref_text", "consent"}) {
    EXPECT_TRUE(parse(with(field, 4096)).reference) << field;
    const ApiError error = api_error_of([&] { parse(with(field, 4097)); });
    EXPECT_EQ(error.code(), "text_too_long");
    EXPECT_EQ(error.param(), field);
  }
  for (const char* field : {"ref_text", "consent", "speaker_description"}) {
    const std::string form =
        "--b\r\nContent-Disposition: form-data; name=\"name\"\r\n\r\nanna\r\n"
        "--b\r\nContent-Disposition: form-data; name=\"audio_sample\"\r\n\r\nRIFF\r\n"
        "--b\r\nContent-Disposition: form-data; name=\"consent\"\r\n\r\nmine\r\n"
        "--b\r\nContent-Disposition: form-data; name=\"" +
        std::string(field) + "\"\r\n\r\n" + std::string(4097, 'x') + "\r\n--b--\r\n";
    EXPECT_EQ(api_error_of([&] { read_upload("multipart/form-data; boundary=b", form, 100); }).param(),
              field);
  }
}

TEST(Upload, AsFormAndAsJson) {
  const std::string form =
      "--b\r\nContent-Disposition: form-data; name=\"name\"\r\n\r\nanna\r\n"
      "--b\r\ncontent-disposition: form-data; filename=\"../x;\\\"y.wav\"; "
      "name=audio_sample\r\nContent-Type: audio/wav\r\n\r\n"
      "RIFF\r\n--not\r\n--b\r\nContent-Disposition: form-data; name=\"consent\"\r\n\r\nmy voice\r\n"
      "--b\r\nContent-Disposition: form-data; name=\"force\"\r\n\r\ntrue\r\n--b--\r\n";
  const Upload a = read_upload("multipart/form-data; boundary=b", form, 100);
  EXPECT_EQ(a.name, "anna");
  EXPECT_EQ(*a.reference.audio, "RIFF\r\n--not");
  EXPECT_EQ(a.reference.consent, "my voice");
  EXPECT_TRUE(a.replace);
  const Upload b =
      read_upload("application/json", R"({"name":"bob","audio_sample":"UklGRg==","consent":true})", 100);
  EXPECT_EQ(*b.reference.audio, "RIFF");
  EXPECT_TRUE(states_consent(b.reference.consent));
  EXPECT_EQ(api_error_of([&] { read_upload("multipart/form-data; boundary=b", form, 5); }).status(), 413);
  for (const char* name : {"", "../x", "a/b", "a b", ".hidden", "x\n", "\xc3\xa9",
                           "name-that-is-longer-than-sixty-four-characters-in-all-and-so-is-refused-x"})
    EXPECT_EQ(api_error_of([&] {
                read_upload("application/json",
                            Json{{"name", name}, {"audio_sample", "UklGRg=="}, {"consent", "x"}}.dump(), 100);
              }).param(),
              "name")
        << name;
  EXPECT_EQ(api_error_of([&] {
              read_upload("application/json", R"({"name":"x","audio_sample":"UklGRg=="})", 9);
            }).code(),
            "consent_required");
  EXPECT_EQ(
      api_error_of([&] { read_upload("application/json", R"({"name":"x","consent":"y"})", 9); }).param(),
      "audio_sample");
}

TEST(Multipart, RefusesWhatIsBroken) {
  for (const char* bad :
       {"", "--b", "--b\r\n", "--b\r\nContent-Disposition: form-data; name=x\r\n\r\nno end",
        "--b\r\n\r\nno name\r\n--b--", "--bx\r\n\r\n--b--", "--b\r\nno blank line\r\n--b--"})
    EXPECT_EQ(api_error_of([&] { read_upload("multipart/form-data; boundary=b", bad, 100); }).status(), 400)
        << bad;
  EXPECT_EQ(api_error_of([&] { read_upload("multipart/form-data", "--b--", 100); }).code(), "invalid_form");
}

TEST(Catalog, KeptVoicesAreThoseOfNow) {
  ServedModel base = test::served("plain", "base", {});
  struct Kept final : KeptVoices {
    std::vector<VoiceEntry> voices;
    std::vector<VoiceEntry> list() const override { return voices; }
    std::vector<std::string> names() const override {
      return voices.empty() ? std::vector<std::string>() : std::vector<std::string>{voices[0].name};
    }
    std::optional<std::string> find(std::string_view name) const override {
      if (voices.empty() || (name != "anna" && name != "Anna")) return std::nullopt;
      return voices[0].name;
    }
  } kept;
  base.kept = &kept;
  const Catalog catalog({base}, {});
  EXPECT_EQ(api_error_of([&] { catalog.find_voice(0, "anna"); }).code(), "unknown_voice");
  kept.voices.push_back({.name = "Anna", .kind = "clone"});
  EXPECT_EQ(catalog.find_voice(0, "anna"), "Anna");
  EXPECT_THAT(api_error_of([&] { catalog.find_voice(0, "ben"); }).what(), testing::HasSubstr("Anna"));
  EXPECT_EQ(Json::parse(voices_body(catalog, ""))["voices"][0]["clone"], true);
}

TEST(Catalog, EveryListedVoiceCanBeSpokenInAnyCase) {
  const Catalog catalog = test::catalog();
  const auto voices = catalog.voices(0);
  EXPECT_EQ(voices.size(), 7u + 13u);
  for (const VoiceEntry& v : voices) {
    std::string upper = v.name;
    for (char& c : upper) c = static_cast<char>(std::toupper(c));
    const std::string found = catalog.find_voice(0, v.name);
    EXPECT_EQ(catalog.find_voice(0, upper), found);
    EXPECT_EQ(found, v.alias_of.empty() ? v.name : v.alias_of);
    EXPECT_NE(found, v.alias_of.empty() ? "" : "dylan") << "dialects of Chinese stand for nobody";
  }
}

TEST(Catalog, AliasesCanBeChangedAndTakenAway) {
  const Catalog own = test::catalog({.enabled = true, .voices = {{"alloy", "ryan"}, {"boss", "vivian"}}});
  EXPECT_EQ(own.find_voice(0, "Alloy"), "ryan");
  EXPECT_EQ(own.find_voice(0, "boss"), "vivian");
  EXPECT_EQ(own.voices(0).size(), 7u + 13u + 1u);
  const Catalog none = test::catalog({.enabled = false});
  EXPECT_EQ(api_error_of([&] { none.find_voice(0, "alloy"); }).status(), 400);
  EXPECT_EQ(api_error_of([&] { none.find_model("tts-1"); }).status(), 404);
  EXPECT_EQ(none.voices(0).size(), 7u);
  // A model with other voices: every alias finds one.
  const Catalog tiny({test::served("t", "custom_voice", {"anna", "dora"})}, {});
  for (const auto name : cloud_voices()) EXPECT_NE(tiny.find_voice(0, name), "");
}

TEST(Lists, HaveTheShapesThatFrontEndsRead) {
  const Catalog catalog = test::catalog();
  const Json models = Json::parse(models_body(catalog));
  EXPECT_EQ(models["object"], "list");
  EXPECT_EQ(models["data"][0]["id"], "qwen");
  EXPECT_EQ(models["data"][0]["object"], "model");
  EXPECT_EQ(models["data"].size(), 3u + 4u);
  const Json audio_models = Json::parse(audio_models_body(catalog));
  EXPECT_EQ(audio_models["models"][0]["id"], "qwen");
  const Json voices = Json::parse(voices_body(catalog, "qwen"));
  EXPECT_EQ(voices["voices"], voices["data"]);
  for (const Json& v : voices["voices"]) EXPECT_TRUE(v["id"].is_string() && v["name"].is_string());
  EXPECT_EQ(Json::parse(voices_body(catalog, "plain"))["voices"].size(), 0u) << "an empty list is no error";
  EXPECT_EQ(Json::parse(voices_body(catalog, ""))["voices"].size(), 20u);
  EXPECT_EQ(Json::parse(model_body(catalog, "tts-1"))["id"], "tts-1");
  EXPECT_EQ(api_error_of([&] { model_body(catalog, "x"); }).status(), 404);
}

TEST(Events, AreWhatStreamReadersExpect) {
  const std::string audio = event_of_audio(std::string("\0\1\2\3", 4));
  EXPECT_EQ(audio, "data: {\"type\":\"speech.audio.delta\",\"audio\":\"AAECAw==\"}\n\n");
  SpeechResult result;
  result.text_tokens = 5, result.frames = 12, result.stop = StopReason::eos, result.seed = 7;
  const std::string end = event_of_end(usage_of(result), result);
  const Json done = Json::parse(end.substr(6));
  EXPECT_EQ(done["type"], "speech.audio.done");
  EXPECT_EQ(done["usage"], (Json{{"input_tokens", 5}, {"output_tokens", 12}, {"total_tokens", 17}}));
  const std::string failed = event_of_error(ApiError(500, "runaway", "it ran away"), "r1");
  const Json error = Json::parse(failed.substr(6));
  EXPECT_EQ(error["type"], "speech.audio.error");
  EXPECT_EQ(error["error"]["code"], "runaway");
  EXPECT_EQ(error["error"]["type"], "server_error");
}

TEST(Errors, OfTheLibraryHaveTheirStatus) {
  EXPECT_EQ(to_api_error(Error(ErrorCode::runaway, "x")).status(), 500);
  EXPECT_EQ(to_api_error(Error(ErrorCode::device_wedged, "x")).status(), 503);
  EXPECT_EQ(to_api_error(Error(ErrorCode::unknown_language, "no nl")).param(), "language");
  EXPECT_THAT(to_api_error(Error(ErrorCode::io, "'/secret/path'")).what(), Not(HasSubstr("secret")));
  EXPECT_THAT(to_api_error(Error(ErrorCode::unknown_voice, "no x")).what(), HasSubstr("no x"));
}

TEST(Base64, RoundTripsAndIsStrict) {
  std::string bytes;
  for (int i = 0; i < 300; ++i) {
    EXPECT_EQ(from_base64(to_base64(bytes)), bytes);
    bytes += static_cast<char>(i * 37);
  }
  for (const char* bad :
       {"A", "AA", "AAA", "AAA=A", "A===", "====", "AA=A", "AA\n=", "A-A=", "AAB=", "AB==", "AAAA\n"})
    EXPECT_EQ(from_base64(bad), std::nullopt) << bad;
}

}  // namespace
}  // namespace skald::server
