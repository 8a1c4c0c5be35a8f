// Clones from a recording to samples: official results, cuts, prefixes used again, company.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <thread>

#include "clip.h"
#include "engine/long_text.h"
#include "engine/scheduler.h"
#include "support.h"

namespace skald::test {
namespace {

using ::testing::HasSubstr;

constexpr size_t kFrame = 1920;

std::vector<Case> clip_cases() {
  std::vector<Case> cases = load_cases(false);
  std::erase_if(cases, [](const Case& c) { return c.clip_samples == 0; });
  return cases;
}

Voice make(Engine& engine, int64_t samples, uint64_t seed, const std::string& ref_text,
           const std::string& name = "anna") {
  VoiceRequest r;
  r.name = name, r.recording.samples = clip_samples(samples, seed), r.ref_text = ref_text;
  r.identity = SpeakerIdentity::synthetic;
  return engine.make_voice(r).voice;
}

SpeechRequest with(Voice voice, const std::string& text, int32_t frames) {
  SpeechRequest r = simple(text, frames);
  r.voice.clear();
  r.clone = std::make_shared<const Voice>(std::move(voice));
  return r;
}

double cosine(const std::vector<float>& a, const std::vector<float>& b) {
  double dot = 0, aa = 0, bb = 0;
  for (size_t i = 0; i < a.size(); ++i)
    dot += double{a[i]} * b[i], aa += double{a[i]} * a[i], bb += double{b[i]} * b[i];
  return dot / std::sqrt(aa * bb);
}

// ---- the official package

class CloneParity : public ::testing::TestWithParam<Case> {};

TEST_P(CloneParity, ClipToVoiceToSpeech) {
  const Case& c = GetParam();
  Engine& engine = tiny(c.model);
  const Voice voice = make(engine, c.clip_samples, c.clip_seed, c.ref_text);
  EXPECT_GE(cosine(voice.x_vector, c.floats("xvector")), 0.99999);
  ASSERT_EQ(voice.codes, c.has("ref_codes") ? c.ints("ref_codes") : std::vector<int32_t>());
  SpeechRequest r = request_of(c);
  r.x_vector.clear(), r.ref_codes.clear(), r.ref_text.clear(), r.consent.clear();
  r.clone = std::make_shared<const Voice>(voice);
  for (const int32_t chunk : {1, 300}) {
    const Outcome out = speak(engine, r, nullptr, chunk);
    ASSERT_FALSE(out.error) << out.error->what();
    EXPECT_EQ(out.codes, c.ints("codes"));
    EXPECT_EQ(out.result.frames, c.frames);
    EXPECT_EQ(stop_reason_name(out.result.stop), c.stop);
    EXPECT_EQ(out.result.prompt_rows, c.prompt_rows);
    ASSERT_EQ(out.samples.size(), static_cast<size_t>(c.samples)) << "the official cut";
    const std::vector<float> head = c.floats("wave_head"), tail = c.floats("wave_tail");
    for (size_t i = 0; i < head.size(); ++i) ASSERT_NEAR(out.samples[i], head[i], 1e-4) << i;
    for (size_t i = 0; i < tail.size(); ++i)
      ASSERT_NEAR(out.samples[out.samples.size() - tail.size() + i], tail[i], 1e-4) << i;
  }
}

std::string case_name(const ::testing::TestParamInfo<Case>& info) {
  std::string name = info.param.name;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Official, CloneParity, ::testing::ValuesIn(clip_cases()), case_name);

TEST(CloneParityCases, AreEnough) {
  size_t clones = 0, shorter = 0, longer = 0;
  for (const Case& c : load_cases(false)) {
    clones += c.mode == "voice_clone";
    if (!c.has("ref_codes")) continue;
    const size_t reference = c.ints("ref_codes").size() / 16,
                 text = c.ints("ids").size() + c.ints("ref_ids").size() - 12;
    shorter += reference<text, longer += reference> text;
  }
  EXPECT_GE(clones, 20u);
  EXPECT_GE(shorter, 3u);
  EXPECT_GE(longer, 3u);
  EXPECT_GE(clip_cases().size(), 15u);
  size_t whole = 0, stream = 0, vector_only = 0;
  for (const Case& c : clip_cases()) {
    (request_of(c).layout == TextLayout::whole ? whole : stream) += 1;
    vector_only += !c.has("ref_codes");
  }
  EXPECT_GE(whole, 5u);
  EXPECT_GE(stream, 5u);
  EXPECT_GE(vector_only, 3u);
  for (const int64_t length : {7'200, 72'000, 240'000, 624'000})  // 0.3, 3, 10, 26 s
    EXPECT_TRUE(std::ranges::any_of(clip_cases(), [&](const Case& c) { return c.clip_samples == length; }))
        << length;
  EXPECT_TRUE(std::ranges::any_of(clip_cases(), [](const Case& c) { return c.clip_samples % 2 == 1; }));
}

// ---- cuts

// B041: the output holds exactly what was generated, whatever the lengths; nothing of the reference is
// streamed.
TEST(Clone, B041_ReferenceIsCutByFrames) {
  Engine& engine = tiny("tiny-base");
  for (const int64_t reference : {1, 2, 3, 5, 8, 13, 26}) {
    const Voice voice = make(engine, reference * 1920 - 7, 3, "Some words");
    ASSERT_EQ(voice.codes.size(), static_cast<size_t>(reference) * 16);
    for (const int32_t frames : {1, 2, 3, 7, 19}) {
      SpeechRequest r = with(voice, "Hello", frames);
      r.sampling.min_new_tokens = 40;
      const Outcome out = speak(engine, r, nullptr, 3);
      ASSERT_FALSE(out.error);
      ASSERT_EQ(out.result.frames, frames);
      EXPECT_EQ(out.samples.size(), static_cast<size_t>(frames) * kFrame);
      std::vector<int32_t> all = voice.codes;
      all.insert(all.end(), out.codes.begin(), out.codes.end());
      const std::vector<float> whole = engine.decode(all, DecodeMode::stream);
      EXPECT_TRUE(
          std::equal(out.samples.begin(), out.samples.end(), whole.begin() + reference * 1920, whole.end()));
    }
  }
}

TEST(Clone, StreamedEqualsOneShot) {
  Engine& engine = tiny("tiny-base");
  const Voice voice = make(engine, 28'801, 5, "Hello there.");
  for (const TextLayout layout : {TextLayout::whole, TextLayout::stream, TextLayout::ahead}) {
    for (const bool vector_only : {false, true}) {
      SpeechRequest r = with(voice, "Words that come one after the other", 30);
      r.layout = layout, r.x_vector_only = vector_only;
      const Outcome one_shot = speak(engine, r, nullptr, 1000);
      for (const int32_t chunk : {1, 5})
        EXPECT_EQ(speak(engine, r, nullptr, chunk).samples, one_shot.samples);
      const std::string text = std::exchange(r.text, "");
      const Outcome pieces =
          speak_pieces(engine, r, {text.substr(0, 3), text.substr(3, 14), text.substr(17)}, 4);
      EXPECT_EQ(pieces.codes, one_shot.codes);
      EXPECT_EQ(pieces.samples, one_shot.samples);
    }
  }
}

TEST(Clone, SpeakerVectorAloneLeavesTheReferenceOut) {
  Engine& engine = tiny("tiny-base");
  const Voice voice = make(engine, 20'000, 5, "Hello there.");
  Voice bare = voice;
  bare.codes.clear(), bare.ref_text.clear();
  SpeechRequest r = with(voice, "Hello", 12);
  r.x_vector_only = true;
  const Outcome out = speak(engine, r), same = speak(engine, with(bare, "Hello", 12)),
                in_context = speak(engine, with(voice, "Hello", 12));
  EXPECT_EQ(out.codes, same.codes);
  EXPECT_EQ(out.samples, same.samples);
  EXPECT_NE(out.codes, in_context.codes);
  EXPECT_LT(out.result.prompt_rows, in_context.result.prompt_rows);
}

TEST(Clone, LanguageOfTheVoiceIsTheDefault) {
  Engine& engine = tiny("tiny-base");
  Voice voice = make(engine, 20'000, 5, "");
  voice.language = "chinese";
  SpeechRequest r = with(voice, "Hello", 3);
  r.language.clear();
  EXPECT_EQ(engine.prompt(r).language, "chinese");
  r.language = "auto";
  EXPECT_EQ(engine.prompt(r).language, "auto");
  r.language = "en";
  EXPECT_EQ(engine.prompt(r).language, "english");
}

// ---- kept prefixes and references

TEST(Clone, SecondRequestSkipsTheReference) {
  Engine& engine = tiny("tiny-base");
  const Voice voice = make(engine, 48'000, 5, "Hello there, this is the reference.");
  EngineOptions options;
  options.threads = 1, options.kept_voices = 0;
  const auto forgetful = Engine::open(model_dir("tiny-base"), options);
  for (const DecodeMode mode : {DecodeMode::stream, DecodeMode::official}) {
    for (const CutMode cut : {CutMode::exact, CutMode::official}) {
      for (const char* text : {"First", "Another text", "First"}) {
        SpeechRequest r = with(voice, text, 14);
        r.decode = mode, r.cut = cut;
        const Outcome kept = speak(engine, r), fresh = speak(*forgetful, r);
        EXPECT_EQ(kept.codes, fresh.codes);
        EXPECT_EQ(kept.samples, fresh.samples);
        EXPECT_EQ(fresh.result.reused_rows, 0);
        EXPECT_FALSE(fresh.result.reused_reference);
      }
      const Outcome again = speak(engine, with(voice, "Second", 4));
      EXPECT_GE(again.result.reused_rows, 25) << "all rows of the reference";
      EXPECT_TRUE(again.result.reused_reference || mode == DecodeMode::official);
    }
  }
}

TEST(Clone, LongReferencesAreKeptAcrossOfficialChunks) {
  Engine& engine = tiny("tiny-base");
  for (const int64_t frames : {299, 300, 301}) {
    const Voice voice = make(engine, frames * 1920, 4, "a long reference");
    SpeechRequest r = with(voice, "Hello", 8);
    r.decode = DecodeMode::official;
    const Outcome first = speak(engine, r), second = speak(engine, r);
    EXPECT_FALSE(first.result.reused_reference);
    EXPECT_TRUE(second.result.reused_reference);
    EXPECT_EQ(first.samples, second.samples);
    std::vector<int32_t> all = voice.codes;
    all.insert(all.end(), first.codes.begin(), first.codes.end());
    const std::vector<float> whole = engine.decode(all, DecodeMode::official);
    EXPECT_EQ(first.samples, std::vector<float>(whole.begin() + frames * 1920, whole.end()));
  }
}

// ---- company

TEST(Clone, TwoAtOnceSpeakAsAlone) {
  Engine& engine = tiny("tiny-base");
  std::vector<SpeechRequest> requests;
  for (const uint64_t seed : {1, 2, 3, 4}) {
    requests.push_back(
        with(make(engine, 15'000 + 3'000 * static_cast<int64_t>(seed), seed, "Said in the clip"),
             "Hello from the other side", 25));
    requests.back().sampling = {}, requests.back().seed = seed;
  }
  std::vector<Outcome> alone, at_once(requests.size());
  for (const SpeechRequest& r : requests) alone.push_back(speak(engine, r));
  for (size_t first = 0; first < requests.size(); first += 2) {
    std::thread other([&] { at_once[first] = speak(engine, requests[first], nullptr, 2); });
    at_once[first + 1] = speak(engine, requests[first + 1], nullptr, 3);
    other.join();
  }
  for (size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(at_once[i].codes, alone[i].codes) << i;
    EXPECT_EQ(at_once[i].samples, alone[i].samples) << i;
  }
  EngineOptions options;
  options.threads = 1, options.slots = 4;
  const auto core = engine::load_core(model_dir("tiny-base"), options);
  engine::Scheduler scheduler(core);
  std::vector<std::unique_ptr<Engine>> clients;
  std::vector<std::unique_ptr<SpeechStream>> streams;
  for (const SpeechRequest& r : requests) {
    clients.push_back(scheduler.client(false));
    streams.push_back(clients.back()->start_stream(r));
  }
  for (size_t i = 0; i < requests.size(); ++i) {
    const Outcome batched = drain(*streams[i]);
    EXPECT_EQ(batched.codes, alone[i].codes) << i;
    EXPECT_EQ(batched.samples, alone[i].samples) << i;
  }
}

// Registers, speaks, removes and registers again, all at once; what is heard is always one of the two voices.
TEST(Clone, NamesMayChangeWhileOthersSpeak) {
  EngineOptions options;
  options.threads = 1, options.slots = 3;
  const auto engine = Engine::open(model_dir("tiny-base"), options);
  const Voice first = make(*engine, 9'000, 1, "One"), second = make(*engine, 12'000, 2, "Two");
  const auto named = [](Voice voice) {
    voice.name = "anna";
    return voice;
  };
  const std::vector<int32_t> a = speak(*engine, with(first, "Hello", 6)).codes,
                             b = speak(*engine, with(second, "Hello", 6)).codes;
  ASSERT_NE(a, b);
  std::atomic<int> spoken = 0, missing = 0, wrong = 0;
  const auto talk = [&] {
    SpeechRequest r = simple("Hello", 6);
    r.voice = "anna";
    for (int i = 0; i < 12; ++i) {
      try {
        const Outcome out = speak(*engine, r);
        out.codes == a || out.codes == b ? ++spoken : ++wrong;
      } catch (const Error& e) {
        e.code() == ErrorCode::unknown_voice ? ++missing : ++wrong;
      }
    }
  };
  const auto change = [&](const Voice& voice, uint64_t seed) {
    for (int i = 0; i < 12; ++i) {
      engine->add_voice(named(voice), true);
      make(*engine, 3'000, seed, "");  // encoding in between
      try {
        if (i % 3 == 1) engine->remove_voice("anna");
      } catch (const Error&) {  // the other one was first
      }
      (void)engine->voice_names();
    }
  };
  engine->add_voice(named(first));
  std::vector<std::thread> threads;
  threads.emplace_back(talk), threads.emplace_back(talk);
  threads.emplace_back(change, first, 7), threads.emplace_back(change, second, 8);
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(spoken + missing, 24);
  EXPECT_GT(spoken, 0);
}

// C012: content decides, not the name; who has begun goes on with the voice it began with.
TEST(Clone, C012_NewRecordingUnderTheOldName) {
  EngineOptions options;
  options.threads = 1, options.slots = 2;
  const auto engine = Engine::open(model_dir("tiny-base"), options);
  const Voice old = make(*engine, 20'000, 1, "The same words"),
              fresh = make(*engine, 20'000, 2, "The same words");
  SpeechRequest r = simple("Hello again", 20);
  r.voice = "anna";
  engine->add_voice(old);
  const Outcome before = speak(*engine, r);
  EXPECT_EQ(error_of([&] { engine->add_voice(fresh); }).code(), ErrorCode::voice_exists);
  EXPECT_EQ(speak(*engine, r).samples, before.samples) << "refused: as before";
  const auto begun = engine->start_stream(r);
  AudioChunk head = begun->next_audio(1);
  engine->add_voice(fresh, true);
  const Outcome after = speak(*engine, r), expected = speak(*engine, with(fresh, "Hello again", 20));
  EXPECT_EQ(after.samples, expected.samples);
  EXPECT_NE(after.samples, before.samples);
  Outcome rest = drain(*begun);
  head.samples.insert(head.samples.end(), rest.samples.begin(), rest.samples.end());
  EXPECT_EQ(head.samples, before.samples);
  engine->remove_voice("anna");
  EXPECT_EQ(error_of([&] { (void)speak(*engine, r); }).code(), ErrorCode::unknown_voice);
  engine->add_voice(old);
  EXPECT_EQ(speak(*engine, r).samples, before.samples);
}

TEST(Clone, LongTextKeepsItsVoice) {
  EngineOptions options;
  options.threads = 1, options.slots = 1;
  const auto engine = Engine::open(model_dir("tiny-base"), options);
  SpeechRequest r = simple("The first sentence. The second sentence.", 40);
  r.voice = "anna", r.max_frames.reset(), r.max_new_tokens.reset();
  engine::LongTextOptions pieces;
  pieces.max_piece = 20;
  const auto run = [&](bool replace) {
    engine->add_voice(make(*engine, 20'000, 1, "Words"), true);
    r.max_frames = 400;
    engine::LongText text(*engine, r, pieces);
    std::vector<float> samples;
    for (AudioChunk chunk; !chunk.last;) {
      chunk = text.next_audio(4);
      samples.insert(samples.end(), chunk.samples.begin(), chunk.samples.end());
      if (std::exchange(replace, false)) engine->remove_voice("anna");
    }
    EXPECT_EQ(text.result().pieces.size(), 2u);
    return samples;
  };
  EXPECT_EQ(run(true), run(false));
}

// ---- codes of audio of any length

TEST(EngineEncode, AnyPiecesGiveTheSameCodes) {
  Engine& engine = tiny("tiny-base");
  const std::vector<float> clip = clip_samples(70'001, 6);
  const std::vector<int32_t> expected = make(engine, 70'001, 6, "words").codes;
  for (const size_t piece : {1u, 333u, 1920u, 100'000u}) {
    size_t at = 0;
    const std::vector<int32_t> codes = engine.encode([&](std::span<float> to) {
      const size_t count = std::min({piece, to.size(), clip.size() - at});
      std::copy_n(clip.begin() + static_cast<std::ptrdiff_t>(at), count, to.begin());
      at += count;
      return count;
    });
    EXPECT_EQ(codes, expected) << piece;
  }
  EXPECT_TRUE(engine.encode([](std::span<float>) { return size_t{0}; }).empty());
}

TEST(EngineEncode, ModelsOfEveryTypeCan) {
  const std::vector<float> clip = clip_samples(5'000, 6);
  bool given = false;
  const std::vector<int32_t> codes = tiny("tiny-cv").encode([&](std::span<float> to) -> size_t {
    if (std::exchange(given, true)) return 0;
    std::copy(clip.begin(), clip.end(), to.begin());
    return clip.size();
  });
  EXPECT_EQ(codes.size(), 3u * 16);
}

TEST(EngineDecode, PiecesAreTheWhole) {
  Engine& engine = tiny("tiny-base");
  const std::vector<int32_t> codes = make(engine, 333 * 1920, 6, "words").codes;
  for (const DecodeMode mode : {DecodeMode::stream, DecodeMode::official}) {
    std::vector<float> joined;
    size_t largest = 0;
    engine.decode_to(codes, mode, [&](std::span<const float> part) {
      joined.insert(joined.end(), part.begin(), part.end());
      largest = std::max(largest, part.size());
    });
    EXPECT_EQ(joined, engine.decode(codes, mode));
    EXPECT_LE(largest, 16 * kFrame);
  }
}

}  // namespace
}  // namespace skald::test
