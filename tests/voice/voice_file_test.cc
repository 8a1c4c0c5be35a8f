// Voice files: what is written is read, and nothing else is.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "model/checkpoint.h"
#include "voice_samples.h"

namespace skald::test {
namespace {

using nlohmann::json;
using testing::HasSubstr;

std::string refusal(const std::string& bytes) {
  try {
    read_voice(bytes, "x.safetensors");
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::voice_invalid) << e.what();
    return e.what();
  }
  ADD_FAILURE() << "accepted";
  return {};
}

/// The file with its header changed.
std::string with_header(std::string bytes, const std::function<void(json&)>& change) {
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), 8);
  json header = json::parse(bytes.substr(8, length));
  change(header);
  const std::string text = header.dump();
  const uint64_t size = text.size();
  return std::string(reinterpret_cast<const char*>(&size), 8) + text + bytes.substr(8 + length);
}

TEST(VoiceFile, WhatIsWrittenIsRead) {
  for (const bool in_context : {true, false}) {
    const Voice v = sample_voice(in_context);
    const std::string bytes = write_voice(v);
    EXPECT_TRUE(same(read_voice(bytes, "x"), v));
    EXPECT_EQ(write_voice(v), bytes) << "the same bytes every time";
  }
}

/// The tensors are those that other tools are told to expect.
TEST(VoiceFile, IsSafetensorsOfTheFixedNames) {
  const std::filesystem::path folder = std::filesystem::temp_directory_path() / "skald-voice-file-test";
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "model.safetensors", std::ios::binary) << write_voice(sample_voice());
  const auto file = model::Checkpoint::open(folder);
  EXPECT_EQ(file->names(), (std::vector<std::string>{"codes", "xvector"}));
  EXPECT_EQ(file->shape("codes"), (std::vector<int64_t>{3, 16}));
  EXPECT_EQ(file->type_name("codes"), "I32");
  EXPECT_EQ(file->shape("xvector"), (std::vector<int64_t>{32}));
  EXPECT_EQ(file->type_name("xvector"), "F32");
  std::filesystem::remove_all(folder);
}

TEST(VoiceFile, EveryCutIsAnError) {
  const std::string bytes = write_voice(sample_voice());
  for (size_t n = 0; n < bytes.size(); ++n) refusal(bytes.substr(0, n));
  refusal(bytes + "x");
}

TEST(VoiceFile, AnyChangedByteOfTheContentsIsNoticed) {
  const std::string bytes = write_voice(sample_voice());
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), 8);
  for (size_t i = 8 + length; i < bytes.size(); i += 5) {
    std::string changed = bytes;
    changed[i] = static_cast<char>(changed[i] ^ 1);
    refusal(changed);
  }
}

TEST(VoiceFile, ForeignAndFutureFilesSayWhatTheyAre) {
  const std::string bytes = write_voice(sample_voice());
  const auto meta = [&](const char* key, const char* value) {
    return refusal(with_header(bytes, [&](json& h) { h["__metadata__"][key] = value; }));
  };
  EXPECT_THAT(meta("format", "pt"), HasSubstr("no voice file of skald"));
  EXPECT_THAT(meta("version", "2"), HasSubstr("version \"2\""));
  EXPECT_THAT(meta("identity", "robot"), HasSubstr("robot"));
  EXPECT_THAT(meta("seconds", "1e99"), HasSubstr("seconds"));
  EXPECT_THAT(meta("ref_text", ""), HasSubstr("not what it says"));
  EXPECT_THAT(meta("ref_text", "other words"), HasSubstr("do not fit their hash"));
  EXPECT_THAT(refusal(with_header(bytes, [](json& h) { h.erase("__metadata__"); })),
              HasSubstr("no voice file"));
  EXPECT_THAT(refusal(with_header(bytes, [](json& h) { h["codes"]["dtype"] = "F32"; })),
              HasSubstr("'codes'"));
  EXPECT_THAT(refusal(with_header(bytes, [](json& h) { h["weights"] = h["codes"], h.erase("codes"); })),
              HasSubstr("'weights'"));
}

TEST(VoiceFile, ImpossibleVoicesAreNotWritten) {
  const auto refused = [](const std::function<void(Voice&)>& change) {
    Voice v = sample_voice();
    change(v);
    try {
      write_voice(v);
      ADD_FAILURE() << "written";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::voice_invalid);
    }
  };
  refused([](Voice& v) { v.x_vector.clear(); });
  refused([](Voice& v) { v.x_vector[3] = std::numeric_limits<float>::quiet_NaN(); });
  refused([](Voice& v) { v.codes.pop_back(); });
  refused([](Voice& v) { v.codes[5] = -1; });
  refused([](Voice& v) { v.codes[5] = 1 << 16; });
  refused([](Voice& v) { v.ref_text.clear(); });
  refused([](Voice& v) { v.codes.clear(); });
  refused([](Voice& v) { v.ref_text = std::string(1, '\xff'); });
  refused([](Voice& v) { v.consent = std::string(1 << 17, 'x'); });
}

TEST(Voice, ItsHashIsThatOfItsSound) {
  const Voice a = sample_voice();
  Voice b = a;
  b.name = "other", b.consent = "other", b.created = "later";
  EXPECT_EQ(voice_hash(a), voice_hash(b));
  b.x_vector[0] += 1e-6f;
  EXPECT_NE(voice_hash(a), voice_hash(b));
  b = a, b.codes[47] = 1;
  EXPECT_NE(voice_hash(a), voice_hash(b));
  b = a, b.ref_text.push_back('.');
  EXPECT_NE(voice_hash(a), voice_hash(b));
}

// B118: one definition of a clone, and what it needs.
TEST(Voice, OnlySyntheticVoicesAreNoClones) {
  Voice v = sample_voice();
  for (const SpeakerIdentity identity : {SpeakerIdentity::unknown, SpeakerIdentity::real}) {
    v.identity = identity, v.consent = "yes";
    EXPECT_TRUE(v.is_clone());
    require_consent(v);
    v.consent.clear();
    try {
      require_consent(v);
      ADD_FAILURE();
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::consent_required);
    }
  }
  v.identity = SpeakerIdentity::synthetic;
  EXPECT_FALSE(v.is_clone());
  require_consent(v);
}

// B045, B121: nothing that could be a path or hide one.
TEST(Voice, NamesAreLettersDigitsDashAndUnderscore) {
  for (const std::string& good : {std::string("a"), std::string("Anna"), std::string("anna_2"),
                                  std::string("0"), std::string("x-y"), std::string(64, 'n')})
    EXPECT_TRUE(valid_voice_name(good)) << good;
  for (const std::string_view bad : {std::string_view(""),
                                     std::string_view(".."),
                                     std::string_view("."),
                                     std::string_view("a/b"),
                                     std::string_view("a\\b"),
                                     std::string_view("../x"),
                                     std::string_view("/etc/passwd"),
                                     std::string_view("C:x"),
                                     std::string_view("a.wav"),
                                     std::string_view("-a"),
                                     std::string_view("_a"),
                                     std::string_view("a b"),
                                     std::string_view("a%2f"),
                                     std::string_view("a\0b", 3),
                                     std::string_view("a\nb"),
                                     std::string_view("ａ"),
                                     std::string_view("а"),
                                     std::string_view("a\u2215b"),
                                     std::string_view("~a"),
                                     std::string_view("a*")})
    EXPECT_FALSE(valid_voice_name(bad)) << bad;
  EXPECT_FALSE(valid_voice_name(std::string(65, 'n')));
  EXPECT_FALSE(valid_voice_name(std::string(10000, 'n')));
}

}  // namespace
}  // namespace skald::test
