// Voices of an engine: what may become one, consent, names, widths, the audit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <limits>
#include <mutex>
#include <thread>

#include <nlohmann/json.hpp>

#include "clip.h"
#include "engine/make_voice.h"
#include "engine/streams.h"
#include "support.h"
#include "watched_device.h"

namespace skald::test {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

Engine& base() { return tiny("tiny-base"); }

VoiceRequest ask_for(int64_t samples, const std::string& ref_text = "") {
  VoiceRequest r;
  r.name = "anna", r.recording.samples = clip_samples(samples, 11), r.ref_text = ref_text;
  r.consent = "I have the rights to this voice";
  return r;
}

Error refusal(const VoiceRequest& r, Engine& engine = base()) {
  return error_of([&] { (void)engine.make_voice(r); });
}

SpeechRequest speech_of(Voice voice) {
  SpeechRequest r = simple("Hello", 2);
  r.voice.clear();
  r.clone = std::make_shared<const Voice>(std::move(voice));
  return r;
}

// ---- recordings

// B051: the limits of length, and no crash below one frame.
TEST(MakeVoice, B051_Lengths) {
  for (const int64_t samples : {0, 1, 100, 1279}) {
    const Error e = refusal(ask_for(samples, "a"));
    EXPECT_EQ(e.code(), ErrorCode::audio_invalid) << samples;
    EXPECT_THAT(e.what(), HasSubstr(samples == 0   ? "no samples"
                                    : samples == 1 ? "silent"
                                                   : "at least 0.0533 s"));
  }
  for (const auto& [samples, frames] : {std::pair{1280, 1}, {1919, 1}, {1920, 1}, {1921, 2}}) {
    const MadeVoice made = base().make_voice(ask_for(samples, "a"));
    EXPECT_EQ(made.voice.codes.size(), static_cast<size_t>(frames) * 16);
    EXPECT_THAT(made.warnings, Contains(HasSubstr("only 0.1 s long")));
  }
  EXPECT_THAT(base().make_voice(ask_for(24'000)).warnings, Contains(HasSubstr("only 1.0 s long")));
  EXPECT_THAT(base().make_voice(ask_for(30 * 24'000)).warnings, Each(Not(HasSubstr("s long"))));
  EXPECT_THAT(base().make_voice(ask_for(31 * 24'000)).warnings, Contains(HasSubstr("31.0 s long")));
  const Error e = refusal(ask_for(600 * 24'000));
  EXPECT_EQ(e.code(), ErrorCode::audio_invalid);
  EXPECT_THAT(e.what(), AllOf(HasSubstr("600.0 s"), HasSubstr("at most 60 s")));
}

// B021, B050: a transcript that nobody speaks in that time.
TEST(MakeVoice, B021_TranscriptsThatDoNotFit) {
  const auto doubt = [](size_t characters, double seconds) {
    return engine::doubt_transcript(std::string(characters, 'a'), seconds);
  };
  EXPECT_THAT(doubt(1, 2), HasSubstr("less than anybody speaks"));
  EXPECT_THAT(doubt(20, 2), IsEmpty());
  EXPECT_THAT(doubt(2000, 2), HasSubstr("more than anybody speaks"));
  EXPECT_THAT(doubt(1, 10), HasSubstr("less"));
  EXPECT_THAT(doubt(20, 10), HasSubstr("less"));
  EXPECT_THAT(doubt(150, 10), IsEmpty());
  EXPECT_THAT(doubt(2000, 10), HasSubstr("more"));
  EXPECT_THAT(doubt(20, 30), HasSubstr("less"));
  EXPECT_THAT(doubt(500, 30), IsEmpty());
  EXPECT_THAT(doubt(2000, 30), HasSubstr("more"));
  EXPECT_THAT(engine::doubt_transcript(
                  "四十个汉字大约需要十秒钟四十个汉字大约需要十秒钟四十个汉字大约需要十秒钟四十个字", 10),
              IsEmpty());
  EXPECT_THAT(engine::doubt_transcript("", 10), HasSubstr("0 characters for 10.0 s"));
  const MadeVoice made = base().make_voice(ask_for(48'000, std::string(2000, 'a')));
  EXPECT_THAT(made.warnings, Contains(HasSubstr("2000 characters for 2.0 s")));
}

// C010: verdicts about level carry their numbers, and nothing is normalised.
TEST(MakeVoice, C010_ChannelsThatCancelAndQuietClips) {
  const std::vector<float> left = clip_samples(48'000, 2);
  const auto stereo = [&](auto&& right) {
    VoiceRequest r = ask_for(0);
    r.recording.channels = 2;
    for (const float x : left) r.recording.samples.push_back(x), r.recording.samples.push_back(right(x));
    return r;
  };
  const Error cancel = refusal(stereo([](float x) { return -x; }));
  EXPECT_EQ(cancel.code(), ErrorCode::audio_invalid);
  EXPECT_THAT(cancel.what(), HasSubstr("cancel"));
  (void)base().make_voice(stereo([](float) { return 0.0f; }));
  VoiceRequest quiet = ask_for(48'000);
  for (float& x : quiet.recording.samples) x *= 0.01f;
  EXPECT_THAT(base().make_voice(quiet).warnings, Contains(HasSubstr("quiet")));
  VoiceRequest offset = ask_for(48'000);
  for (float& x : offset.recording.samples) x += 0.3f;
  EXPECT_THAT(base().make_voice(offset).warnings, Contains(HasSubstr("offset")));
  VoiceRequest odd = ask_for(48'000);
  odd.recording.samples[777] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(refusal(odd).what(), HasSubstr("777"));
  VoiceRequest silent = ask_for(0);
  silent.recording.samples.assign(48'000, 0);
  EXPECT_EQ(refusal(silent).code(), ErrorCode::audio_invalid);
}

// B042: any rate and number of channels gives the voice of the same sound.
TEST(MakeVoice, B042_AnyRateAndChannels) {
  const auto tone = [](int32_t rate, int32_t channels) {
    VoiceRequest r = ask_for(0, "a tone");
    r.recording.sample_rate = rate, r.recording.channels = channels;
    for (int32_t i = 0; i < rate; ++i) {
      const double t = static_cast<double>(i) / rate;
      const auto x = static_cast<float>(0.3 * std::sin(2 * 3.14159265358979 * 440 * t));
      for (int32_t c = 0; c < channels; ++c) r.recording.samples.push_back(x);
    }
    return r;
  };
  const MadeVoice reference = base().make_voice(tone(24'000, 1));
  EXPECT_EQ(reference.voice.codes.size(), 13u * 16);
  for (const int32_t rate : {8000, 11'025, 16'000, 22'050, 44'100, 48'000, 96'000, 192'000})
    for (const int32_t channels : {1, 2, 6}) {
      if (channels == 6 && rate > 48'000) continue;
      const Voice v = base().make_voice(tone(rate, channels)).voice;
      EXPECT_EQ(v.codes.size(), 13u * 16) << rate;
      EXPECT_DOUBLE_EQ(v.seconds, 1.0);
      double dot = 0, a = 0, b = 0;
      for (size_t i = 0; i < v.x_vector.size(); ++i)
        dot += double{v.x_vector[i]} * reference.voice.x_vector[i],
            a += double{v.x_vector[i]} * v.x_vector[i],
            b += double{reference.voice.x_vector[i]} * reference.voice.x_vector[i];
      EXPECT_GT(dot / std::sqrt(a * b), 0.99) << rate << " " << channels;
    }
  for (const int32_t rate : {0, -1, 7999, 192'001}) {
    VoiceRequest r = tone(24'000, 1);
    r.recording.sample_rate = rate;
    EXPECT_THAT(refusal(r).what(), HasSubstr(std::to_string(rate)));
  }
}

TEST(MakeVoice, SilenceBehindTheClip) {
  VoiceRequest r = ask_for(24'000, "Words");
  const Voice plain = base().make_voice(r).voice;
  r.trailing_silence_ms = 500;
  const Voice padded = base().make_voice(r).voice;
  EXPECT_EQ(plain.codes.size(), 13u * 16);
  EXPECT_EQ(padded.codes.size(), 19u * 16);
  EXPECT_TRUE(std::equal(plain.codes.begin(), plain.codes.begin() + 12 * 16, padded.codes.begin()));
  r.trailing_silence_ms = 2001;
  EXPECT_EQ(refusal(r).code(), ErrorCode::invalid_argument);
}

TEST(MakeVoice, SaysWhatItIs) {
  VoiceRequest r = ask_for(30'000, "Words");
  r.language = "en-GB", r.identity = SpeakerIdentity::real;
  const Voice v = base().make_voice(r).voice;
  EXPECT_EQ(v.name, "anna");
  EXPECT_EQ(v.language, "english");
  EXPECT_EQ(v.identity, SpeakerIdentity::real);
  EXPECT_TRUE(v.is_clone());
  EXPECT_TRUE(v.in_context());
  EXPECT_EQ(v.consent, r.consent);
  EXPECT_EQ(v.source, "recording");
  EXPECT_EQ(v.model, "base 0b6");
  EXPECT_EQ(v.model_hash.size(), 64u);
  EXPECT_EQ(v.audio_hash.size(), 64u);
  EXPECT_THAT(v.created, ::testing::MatchesRegex("[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8}Z"));
  const Voice back = read_voice(write_voice(v), "anna");
  EXPECT_EQ(voice_hash(back), voice_hash(v));
  EXPECT_EQ(speak(base(), speech_of(back)).codes, speak(base(), speech_of(v)).codes);
}

TEST(MakeVoice, BadRequests) {
  VoiceRequest r = ask_for(30'000);
  r.language = "klingon";
  EXPECT_EQ(refusal(r).code(), ErrorCode::unknown_language);
  r = ask_for(30'000, "\xff");
  EXPECT_EQ(refusal(r).code(), ErrorCode::invalid_text);
  for (const char* type : {"tiny-cv", "tiny-vd"})
    EXPECT_EQ(refusal(ask_for(30'000), tiny(type)).code(), ErrorCode::unsupported);
}

// They go into the voice, and into the audit with every clone.
TEST(MakeVoice, LongTextsAreRefusedByTheirNames) {
  const std::string most(1 << 16, 'a'), more = most + 'a';
  VoiceRequest r = ask_for(48'000);
  r.consent = r.description = r.source = most;
  EXPECT_EQ(base().make_voice(r).voice.consent, most);
  for (const auto& [name, member] : {std::pair{"consent", &VoiceRequest::consent},
                                     {"description", &VoiceRequest::description},
                                     {"source", &VoiceRequest::source},
                                     {"ref_text", &VoiceRequest::ref_text}}) {
    VoiceRequest long_one = ask_for(48'000);
    long_one.*member = more;
    const Error e = refusal(long_one);
    EXPECT_EQ(e.code(), ErrorCode::invalid_argument) << name;
    EXPECT_THAT(e.what(), AllOf(HasSubstr(name), HasSubstr("65537 bytes"), HasSubstr("at most 65536")));
  }
  SpeechRequest speech = simple("Hello", 2);
  speech.voice.clear(), speech.x_vector.assign(32, 0.5f), speech.consent = more;
  EXPECT_THAT(error_of([&] { base().start_stream(speech); }).what(), HasSubstr("consent has 65537 bytes"));
}

/// How often others came between the first and the last of our own steps.
struct Turns {
  bool begun = false;
  int waiting = 0, taken = 0;
  void ours() {
    if (begun) taken += waiting;
    begun = true, waiting = 0;
  }
  void others() { ++waiting; }
};

// Loading the encoders and the speaker vector of a clip take seconds with a large model.
TEST(MakeVoice, ThoseWhoSpeakHaveTheirTurnsMeanwhile) {
  std::mutex mutex;
  Turns loading, encoding;
  const auto maker = std::this_thread::get_id();
  const auto watch = [&](std::string_view call, std::string_view name) {
    const bool load = call == "load" && name.starts_with("speaker_encoder."),
               encode = call.starts_with("run") && name.starts_with("speaker_encoder");
    // As slow as a large model's, so that the other thread comes to wait for its turn.
    if (load || encode) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    const std::lock_guard lock(mutex);
    if (load) loading.ours();
    if (encode) encoding.ours();
    if (call == "run" && std::this_thread::get_id() != maker) loading.others(), encoding.others();
  };
  EngineOptions options;
  options.threads = 1, options.slots = 2, options.cache_capacity = 1024;
  const auto engine =
      engine::make_engine(engine::load_core(model_dir("tiny-base"), options, [&](auto device) {
        return std::make_unique<WatchedDevice>(std::move(device), watch);
      }));
  std::atomic<bool> speaking = false, enough = false;
  std::thread speaker([&] {
    SpeechRequest r = simple("Hello", 100);
    r.voice.clear(), r.x_vector.assign(32, 0.5f), r.consent = "synthetic numbers";
    while (!enough) {
      const auto stream = engine->start_stream(r);
      for (bool last = false; !last && !enough; speaking = true) last = stream->next_audio(1).last;
    }
  });
  while (!speaking) std::this_thread::yield();
  const MadeVoice made = engine->make_voice(ask_for(48'000));
  enough = true;
  speaker.join();
  EXPECT_EQ(made.voice.x_vector, base().make_voice(ask_for(48'000)).voice.x_vector);
  EXPECT_GT(loading.taken, 0);
  EXPECT_GT(encoding.taken, 0);
}

// B121: what a name may be.
TEST(MakeVoice, B121_Names) {
  for (const std::string name : {"", "../x", "a/b", "/etc/passwd", "C:\\x", "a b", "%2e%2e",
                                 "\xef\xbc\x8e\xef\xbc\x8e", "-a", ".a", "a.wav"}) {
    VoiceRequest r = ask_for(30'000);
    r.name = name;
    EXPECT_EQ(refusal(r).code(), ErrorCode::invalid_argument) << name;
  }
  VoiceRequest r = ask_for(30'000);
  r.name.assign(65, 'a');
  EXPECT_EQ(refusal(r).code(), ErrorCode::invalid_argument);
}

// ---- consent

// B118: the check is in the library, at every door.
TEST(Consent, B118_IsAskedByTheLibrary) {
  VoiceRequest r = ask_for(30'000, "Words");
  r.consent.clear();
  for (const SpeakerIdentity identity : {SpeakerIdentity::unknown, SpeakerIdentity::real}) {
    r.identity = identity;
    EXPECT_EQ(refusal(r).code(), ErrorCode::consent_required);
  }
  r.consent = "  \t";
  EXPECT_EQ(refusal(r).code(), ErrorCode::consent_required) << "blank is no statement";
  const MadeVoice made = base().make_voice(ask_for(30'000, "Words"));
  Voice stripped = made.voice;
  stripped.consent.clear();
  EXPECT_EQ(error_of([&] { base().add_voice(stripped); }).code(), ErrorCode::consent_required);
  EXPECT_EQ(error_of([&] { (void)base().start_stream(speech_of(stripped)); }).code(),
            ErrorCode::consent_required);
  EXPECT_EQ(error_of([&] { (void)base().start_text_stream(speech_of(stripped)); }).code(),
            ErrorCode::consent_required);
  SpeechRequest given = simple("Hello", 2);
  given.voice.clear(), given.x_vector = made.voice.x_vector;
  EXPECT_EQ(error_of([&] { (void)base().start_stream(given); }).code(), ErrorCode::consent_required);
  given.consent = "mine";
  EXPECT_FALSE(speak(base(), given).error);
  stripped.identity = SpeakerIdentity::synthetic;
  EXPECT_FALSE(stripped.is_clone());
  EXPECT_FALSE(speak(base(), speech_of(stripped)).error) << "nobody's voice needs nobody's consent";
}

TEST(Consent, IsAskedBeforeAnyWork) {
  VoiceRequest r = ask_for(0);  // an empty recording would be refused too
  r.consent.clear();
  EXPECT_EQ(refusal(r).code(), ErrorCode::consent_required);
}

TEST(Consent, EveryCloneIsInTheAudit) {
  std::vector<nlohmann::json> lines;
  std::mutex mutex;
  EngineOptions options;
  options.threads = 1;
  options.on_audit = [&](const std::string& line) {
    const std::lock_guard lock(mutex);
    lines.push_back(nlohmann::json::parse(line));
  };
  const auto engine = Engine::open(model_dir("tiny-base"), options);
  VoiceRequest r = ask_for(30'000, "Secret words");
  r.consent = "said \"yes\"\n\x01 on Monday", r.request_id = "make-1";
  const Voice voice = engine->make_voice(r).voice;
  SpeechRequest s = speech_of(voice);
  s.request_id = "speak-1", s.text = "Private text";
  (void)speak(*engine, s);
  s.clone.reset(), s.x_vector = voice.x_vector, s.consent = "mine", s.request_id = "speak-2";
  (void)speak(*engine, s);
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[0]["event"], "voice_made");
  EXPECT_EQ(lines[0]["request_id"], "make-1");
  EXPECT_EQ(lines[1]["event"], "cloned_speech");
  EXPECT_EQ(lines[1]["request_id"], "speak-1");
  EXPECT_EQ(lines[2]["request_id"], "speak-2");
  EXPECT_EQ(lines[2]["consent"], "mine");
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(lines[i]["voice"], "anna");
    EXPECT_EQ(lines[i]["voice_hash"], voice_hash(voice));
    EXPECT_EQ(lines[i]["audio_hash"], voice.audio_hash);
    EXPECT_EQ(lines[i]["consent"], r.consent);
    EXPECT_EQ(lines[i]["identity"], "unknown");
  }
  for (const nlohmann::json& line : lines)
    EXPECT_THAT(line.dump(), AllOf(Not(HasSubstr("Secret")), Not(HasSubstr("Private"))));
  EXPECT_EQ(error_of([&] { (void)engine->start_stream(speech_of({})); }).code(), ErrorCode::voice_invalid);
  EXPECT_EQ(lines.size(), 3u) << "what was refused did not speak";
}

// ---- names and widths

// B013, B044, B045: by nothing but its name.
TEST(Voices, AreFoundByName) {
  EngineOptions options;
  options.threads = 1;
  const auto engine = Engine::open(model_dir("tiny-base"), options);
  SpeechRequest r = simple("Hello", 2);
  r.voice = "anna";
  EXPECT_THAT(error_of([&] { (void)engine->prompt(r); }).what(), HasSubstr("none was added"));
  Voice voice = engine->make_voice(ask_for(20'000)).voice;
  engine->add_voice(voice);
  voice.name = "bo";
  engine->add_voice(voice);
  EXPECT_THAT(engine->voice_names(), ElementsAre("anna", "bo"));
  EXPECT_FALSE(speak(*engine, r).error);
  // A name that is not there is never another voice.
  for (const std::string name : {"Anna", "ann", "anna.wav", "/anna.safetensors", "../anna", "carl"}) {
    r.voice = name;
    const Error e = error_of([&] { (void)engine->start_stream(r); });
    EXPECT_EQ(e.code(), ErrorCode::unknown_voice) << name;
    EXPECT_THAT(e.what(), HasSubstr("anna, bo"));
  }
  engine->remove_voice("anna");
  EXPECT_EQ(error_of([&] { engine->remove_voice("anna"); }).code(), ErrorCode::unknown_voice);
  EXPECT_THAT(engine->voice_names(), ElementsAre("bo"));
  EXPECT_EQ(engine->find_voice("anna"), nullptr);
  ASSERT_NE(engine->find_voice("bo"), nullptr);
  EXPECT_EQ(engine->find_voice("bo")->name, "bo");
}

TEST(Voices, OfAnotherModelAreRefusedNamingBoth) {
  const Voice small = base().make_voice(ask_for(20'000, "Words")).voice;
  for (const auto& act : std::vector<std::function<void()>>{
           [&] { tiny("tiny-base-1b7").add_voice(small); },
           [&] { (void)tiny("tiny-base-1b7").start_stream(speech_of(small)); }}) {
    const Error e = error_of(act);
    EXPECT_EQ(e.code(), ErrorCode::voice_invalid);
    EXPECT_THAT(e.what(), AllOf(HasSubstr("base 0b6"), HasSubstr("base 1b7"), HasSubstr("anna")));
  }
  const Error e = error_of([&] { (void)tiny("tiny-cv").start_stream(speech_of(small)); });
  EXPECT_EQ(e.code(), ErrorCode::unsupported);
}

TEST(Voices, OfAnotherModelOfThisWidthAreWarnedAbout) {
  Voice voice = base().make_voice(ask_for(20'000)).voice;
  const auto warnings = [&] { return speak(base(), speech_of(voice)).result.warnings; };
  EXPECT_THAT(warnings(), IsEmpty());
  voice.model_hash.assign(64, '0');
  EXPECT_THAT(warnings(), ElementsAre(HasSubstr("another model of the same width")));
  voice.model_hash.clear();  // imported: unknown
  EXPECT_THAT(warnings(), IsEmpty());
}

// B040: a reference without its codes is no reference.
TEST(Voices, WithPartsThatDoNotFitAreRefused) {
  const Voice good = base().make_voice(ask_for(20'000, "Words")).voice;
  const auto refuse = [&](auto&& change) {
    Voice bad = good;
    change(bad);
    return error_of([&] { base().add_voice(bad); });
  };
  EXPECT_THAT(refuse([](Voice& v) { v.codes.clear(); }).what(), HasSubstr("no codes"));  // B040
  EXPECT_THAT(refuse([](Voice& v) { v.ref_text.clear(); }).what(), HasSubstr("not what it says"));
  EXPECT_THAT(refuse([](Voice& v) { v.codes[17] = 64; }).what(), HasSubstr("frame 1, group 1 is 64"));
  EXPECT_THAT(refuse([](Voice& v) { v.codes.pop_back(); }).what(), HasSubstr("does not fit"));
  EXPECT_THAT(refuse([](Voice& v) { v.ref_text = "\xff"; }).what(), HasSubstr("does not fit"));
  EXPECT_THAT(refuse([](Voice& v) { v.x_vector[3] = std::numeric_limits<float>::infinity(); }).what(),
              HasSubstr("number 3 is not finite"));
  SpeechRequest both = speech_of(good);
  both.x_vector = good.x_vector;
  EXPECT_EQ(error_of([&] { (void)base().start_stream(both); }).code(), ErrorCode::invalid_argument);
}

}  // namespace
}  // namespace skald::test
