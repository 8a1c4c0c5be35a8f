// Voices of other programs, whole and damaged; a pickle that wants to be executed is not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "voice_samples.h"

namespace skald::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::HasSubstr;

std::string fixture(const std::string& name) {
  std::ifstream in(fs::path(SKALD_FIXTURES) / "voices" / name, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

std::string refusal(const std::string& bytes) {
  try {
    import_voices(bytes, "file");
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::voice_invalid) << e.what();
    return e.what();
  }
  ADD_FAILURE() << "accepted";
  return {};
}

/// What every fixture holds.
void expect_sample(const Voice& v, bool in_context = true) {
  const Voice want = sample_voice(in_context);
  EXPECT_EQ(v.x_vector, want.x_vector);
  EXPECT_EQ(v.codes, want.codes);
  EXPECT_EQ(v.ref_text, in_context ? "The words." : "");
  EXPECT_EQ(v.consent, "") << "it must be stated anew";
  EXPECT_TRUE(v.is_clone());
}

TEST(ImportTorch, PromptsOfTheOfficialPackage) {
  const auto demo = import_voices(fixture("demo.pt"), "demo.pt");
  ASSERT_EQ(demo.size(), 2u);
  expect_sample(demo[0]);
  expect_sample(demo[1], false);
  for (const char* name : {"objects.pt", "bfloat16.pt", "strided.pt"}) {
    const auto voices = import_voices(fixture(name), name);
    ASSERT_EQ(voices.size(), 1u) << name;
    expect_sample(voices[0]);
  }
  expect_sample(import_voices(fixture("vector.pt"), "vector.pt").at(0), false);
}

// Requirement 100: tensors are read, nothing is executed.
TEST(ImportTorch, NothingIsExecuted) {
  const std::string why = refusal(fixture("evil.pt"));
  EXPECT_THAT(why, HasSubstr("posix.system"));
  EXPECT_THAT(why, HasSubstr("nothing of it was executed"));
  EXPECT_FALSE(fs::exists("skald-pickle-was-executed"));
}

TEST(ImportTorch, EveryCutAndEveryChangedByteIsAnErrorOrAVoice) {
  const std::string bytes = fixture("demo.pt");
  ASSERT_GT(bytes.size(), 1000u);
  for (size_t n = 0; n < bytes.size(); n += 7) refusal(bytes.substr(0, n));
  for (size_t i = 0; i < bytes.size(); ++i)
    for (const int flip : {0x01, 0x80, 0xFF}) {
      std::string changed = bytes;
      changed[i] = static_cast<char>(changed[i] ^ flip);
      try {
        for (const Voice& v : import_voices(changed, "file")) write_voice(v);
      } catch (const Error& e) {
        ASSERT_EQ(e.code(), ErrorCode::voice_invalid) << e.what();
      }
    }
}

TEST(ImportTorch, OldFilesSayWhatToDo) {
  EXPECT_THAT(refusal("\x80\x02" + std::string(50, 'x')), HasSubstr("torch before 1.6"));
}

json prompt() {
  return {{"speaker_embedding", sample_voice().x_vector},
          {"x_vector_only_mode", false},
          {"icl_mode", true},
          {"ref_text", "The words."},
          {"ref_codes", sample_voice().codes}};
}

TEST(ImportJson, Prompts) {
  expect_sample(import_voices(prompt().dump(), "a.json").at(0));
  expect_sample(import_voices("\xEF\xBB\xBF \n" + prompt().dump(2), "a.json").at(0));
  json alone = prompt();
  alone["x_vector_only_mode"] = true;
  expect_sample(import_voices(alone.dump(), "a.json").at(0), false);
  alone = {{"speaker_embedding", sample_voice().x_vector}, {"ref_text", nullptr}};
  expect_sample(import_voices(alone.dump(), "a.json").at(0), false);
}

TEST(ImportJson, DamagedPrompts) {
  const auto changed = [](const std::function<void(json&)>& change) {
    json p = prompt();
    change(p);
    return refusal(p.dump());
  };
  EXPECT_THAT(changed([](json& p) { p.erase("speaker_embedding"); }), HasSubstr("speaker_embedding"));
  EXPECT_THAT(changed([](json& p) { p["speaker_embedding"] = "x"; }), HasSubstr("speaker_embedding"));
  EXPECT_THAT(changed([](json& p) { p["speaker_embedding"][3] = "x"; }), HasSubstr("entry 3"));
  EXPECT_THAT(changed([](json& p) { p["speaker_embedding"] = json::array(); }), HasSubstr("0 numbers"));
  EXPECT_THAT(changed([](json& p) { p["speaker_embedding"][0] = 1e300; }), HasSubstr("not finite"));
  EXPECT_THAT(changed([](json& p) { p["ref_codes"].erase(0); }), HasSubstr("47 codes"));
  EXPECT_THAT(changed([](json& p) { p["ref_codes"][2] = -1; }), HasSubstr("entry 2"));
  EXPECT_THAT(changed([](json& p) { p["ref_codes"][2] = 1.5; }), HasSubstr("entry 2"));
  EXPECT_THAT(changed([](json& p) { p["ref_text"] = ""; }), HasSubstr("what it says"));
  EXPECT_THAT(changed([](json& p) { p["icl_mode"] = 1; }), HasSubstr("icl_mode"));
  const std::string text = prompt().dump();
  for (size_t n = 1; n < text.size(); n += 3) refusal(text.substr(0, n));
  refusal(std::string(10000, '[') + std::string(10000, ']'));
  refusal("{\"a\":" + std::string(10000, '[') + std::string(10000, ']') + "}");
}

/// A GGUF file piece by piece.
struct Gguf {
  std::string keys, tensors, data;
  uint64_t key_count = 0, tensor_count = 0;

  static std::string le(uint64_t v, int bytes) {
    std::string out;
    for (int i = 0; i < bytes; ++i) out += static_cast<char>(v >> (8 * i));
    return out;
  }
  static std::string text(const std::string& s) { return le(s.size(), 8) + s; }

  void key(const std::string& name, const std::string& value) {
    keys += text(name) + le(8, 4) + text(value), ++key_count;
  }
  void number(const std::string& name, uint32_t value) {
    keys += text(name) + le(4, 4) + le(value, 4), ++key_count;
  }
  void list(const std::string& name, const std::vector<std::string>& values) {
    keys += text(name) + le(9, 4) + le(8, 4) + le(values.size(), 8);
    for (const std::string& v : values) keys += text(v);
    ++key_count;
  }
  template <class T>
  void tensor(const std::string& name, std::vector<uint64_t> dims, uint32_t type,
              const std::vector<T>& values) {
    data.resize((data.size() + 31) / 32 * 32);
    tensors += text(name) + le(dims.size(), 4);
    for (const uint64_t d : dims) tensors += le(d, 8);
    tensors += le(type, 4) + le(data.size(), 8);
    data.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
    ++tensor_count;
  }
  std::string bytes() const {
    std::string out = "GGUF" + le(3, 4) + le(tensor_count, 8) + le(key_count, 8) + keys + tensors;
    out.resize((out.size() + 31) / 32 * 32);
    return out + data;
  }
};

Gguf pack(const std::string& architecture = "qwen3tts.voicepack") {
  Gguf g;
  g.key("general.architecture", architecture);
  g.key("general.description", "a pack");
  g.number("crispasr.voice.version", 1);
  g.list("voicepack.names", {"Anna Lee", "bo"});
  g.list("voicepack.ref_texts", {"The words.", "The words."});
  for (const char* name : {"Anna Lee", "bo"}) {
    g.tensor("voicepack.spk." + std::string(name) + ".embd", {32}, 0, sample_voice().x_vector);
    g.tensor("voicepack.code." + std::string(name) + ".codes", {16, 3}, 26, sample_voice().codes);
  }
  return g;
}

TEST(ImportGguf, VoicePacks) {
  const auto voices = import_voices(pack().bytes(), "pack.gguf");
  ASSERT_EQ(voices.size(), 2u);
  EXPECT_EQ(voices[0].name, "Anna-Lee");
  EXPECT_EQ(voices[1].name, "bo");
  for (const Voice& v : voices) expect_sample(v);
}

TEST(ImportGguf, OtherFilesAndDamage) {
  EXPECT_THAT(refusal(pack("llama").bytes()), HasSubstr("\"llama\""));
  Gguf g = pack();
  g.tensors.clear(), g.tensor_count = 0;
  EXPECT_THAT(refusal(g.bytes()), HasSubstr("no speaker vector"));
  const std::string bytes = pack().bytes();
  for (size_t n = 0; n < bytes.size(); n += 3) refusal(bytes.substr(0, n));
  for (size_t i = 0; i < bytes.size(); ++i)
    for (const int flip : {0x01, 0x80, 0xFF}) {
      std::string changed = bytes;
      changed[i] = static_cast<char>(changed[i] ^ flip);
      try {
        import_voices(changed, "file");
      } catch (const Error& e) {
        ASSERT_EQ(e.code(), ErrorCode::voice_invalid) << e.what();
      }
    }
}

TEST(Import, OurOwnFilesKeepEverything) {
  const Voice v = sample_voice();
  EXPECT_TRUE(same(import_voices(write_voice(v), "anna.safetensors").at(0), v));
}

TEST(Import, AnythingElseIsNamed) {
  EXPECT_THAT(refusal(""), HasSubstr("no voice that can be imported"));
  EXPECT_THAT(refusal("RIFF1234WAVE"), HasSubstr("no voice that can be imported"));
  EXPECT_THAT(refusal("[1, 2]"), HasSubstr("no voice that can be imported"));
}

}  // namespace
}  // namespace skald::test
