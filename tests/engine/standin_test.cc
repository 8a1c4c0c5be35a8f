// Whole requests on the stand-in GPUs: the same codes as on the CPU, and errors that end a request, not the
// process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "clip.h"
#include "engine/support.h"
#include "skald/error.h"
#include "standin/rig.h"

namespace skald::test {
namespace {

using standin::Face;
using standin::Standin;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

EngineOptions on(const Standin& driver, const std::string& device) {
  EngineOptions options;
  options.device = device;
  options.threads = 1;
  options.cache_capacity = 256;
  options.codec_chunk = 1;  // of the most work in one program
  options.gpu_libraries = {driver.folder()};
  options.gpu_helper = standin::helper_program();
  options.gpu_cache = standin::code_cache();
  options.gpu_deadline_ms = 120000;  // a program takes seconds here, on a busy machine many
  return options;
}

SpeechRequest request(int32_t frames, bool greedy) {
  SpeechRequest r;
  r.text = "Good morning.";
  r.voice = "anna";
  r.language = "english";
  r.seed = 7;
  r.max_frames = frames;
  r.sampling.greedy = greedy;
  r.sampling.top_p = 0.9f;
  return r;
}

struct Spoken {
  std::vector<int32_t> codes;
  std::vector<float> samples;
};
Spoken speak(Engine& engine, const SpeechRequest& r) {
  const auto stream = engine.start_stream(r);
  Spoken s;
  for (;;) {
    const AudioChunk chunk = stream->next_audio(2);
    s.samples.insert(s.samples.end(), chunk.samples.begin(), chunk.samples.end());
    if (chunk.last) break;
  }
  s.codes = stream->codes();
  return s;
}

void expect_same(const Spoken& got, const Spoken& want) {
  EXPECT_EQ(got.codes, want.codes);
  ASSERT_EQ(got.samples.size(), want.samples.size());
  for (size_t i = 0; i < got.samples.size(); ++i)
    ASSERT_NEAR(got.samples[i], want.samples[i], 1e-4) << "sample " << i << " of " << got.samples.size();
}

class StandinEngine : public testing::TestWithParam<Face> {};
INSTANTIATE_TEST_SUITE_P(
    Drivers, StandinEngine, testing::Values(Face::hip, Face::hip5, Face::cuda), [](const auto& p) {
      return std::string(p.param == Face::hip ? "hip" : p.param == Face::hip5 ? "hip5" : "cuda");
    });

TEST_P(StandinEngine, SpeaksTheCodesOfTheCpu) {
  // hip5 stands for the old cards with waves of 64.
  const Standin driver(GetParam(), GetParam() == Face::hip5 ? "gfx906:4096:d" : "");
  const auto gpu = Engine::open(model_dir("tiny-cv"), on(driver, GetParam() == Face::cuda ? "cuda" : "hip"));
  EXPECT_THAT(gpu->info().device, HasSubstr("Stand-in"));
  expect_same(speak(*gpu, request(3, false)), speak(tiny("tiny-cv"), request(3, false)));
  if (GetParam() == Face::hip)
    expect_same(speak(*gpu, request(2, true)), speak(tiny("tiny-cv"), request(2, true)));
}

TEST(StandinRequests, PlainProgramsSpeakTheSame) {
  const Standin driver(Face::cuda);
  const auto plain = Engine::open(model_dir("tiny-cv"), on(driver, "cuda:0+plain"));
  EXPECT_THAT(plain->info().device, HasSubstr("Stand-in"));
  expect_same(speak(*plain, request(1, false)), speak(tiny("tiny-cv"), request(1, false)));
}

TEST(StandinRequests, AutoTakesADiscreteGpuAndElseTheCpuWithAReason) {
  const Standin driver(Face::hip, "gfx1036:4096:i");
  const auto integrated = Engine::open(model_dir("tiny-cv"), on(driver, "auto"));
  EXPECT_THAT(integrated->info().device, HasSubstr("cpu"));
  EXPECT_THAT(integrated->info().device_notes, ElementsAre(HasSubstr("hip:0")));
}

TEST(StandinRequests, AGpuThatWasAskedForAndCannotBeUsedIsAnErrorNotTheCpu) {
  const Standin driver(Face::hip, "", "nobin=gfx1100");
  try {
    Engine::open(model_dir("tiny-cv"), on(driver, "hip:0"));
    FAIL() << "opened";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::device_code);
  }
  const auto engine = Engine::open(model_dir("tiny-cv"), on(driver, "auto"));
  EXPECT_THAT(engine->info().device, HasSubstr("cpu"));
  EXPECT_THAT(engine->info().device_notes, ElementsAre(HasSubstr("gfx1100")));
}

TEST(StandinRequests, AStandstillEndsTheRequestAndTheProcessGoesOn) {
  Standin driver(Face::hip);
  EngineOptions options = on(driver, "hip");
  options.gpu_deadline_ms = 10000;
  const auto gpu = Engine::open(model_dir("tiny-cv"), options);
  const auto stream = gpu->start_stream(request(6, true));
  EXPECT_EQ(stream->next_audio(1).frames, 1);
  driver.set_faults("hang@launch=40");
  try {
    while (!stream->next_audio(1).last) {
    }
    FAIL() << "ended well";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::device_wedged) << e.what();
    EXPECT_THAT(e.what(), AllOf(HasSubstr("hip:0"), HasSubstr("program '")));
  }
  EXPECT_EQ(stream->result().stop, StopReason::error);
  try {
    speak(*gpu, request(1, true));
    FAIL() << "spoke";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::device_wedged);
  }
  EXPECT_EQ(speak(tiny("tiny-cv"), request(1, true)).codes.size(), 16u);
}

TEST(StandinRequests, ALostCompletionInsideARequestChangesNothing) {
  Standin driver(Face::cuda);
  const auto gpu = Engine::open(model_dir("tiny-cv"), on(driver, "cuda"));
  driver.set_faults("blind@launch=150");
  expect_same(speak(*gpu, request(3, true)), speak(tiny("tiny-cv"), request(3, true)));
}

TEST(StandinRequests, AClipBecomesTheVoiceThatTheCpuMakes) {
  const Standin driver(Face::cuda);
  const auto gpu = Engine::open(model_dir("tiny-base"), on(driver, "cuda"));
  VoiceRequest r;
  r.name = "anna", r.recording.samples = clip_samples(7200, 3), r.ref_text = "Ah.";
  r.identity = SpeakerIdentity::synthetic;
  const Voice got = gpu->make_voice(r).voice, want = tiny("tiny-base").make_voice(r).voice;
  EXPECT_EQ(got.codes, want.codes);
  ASSERT_EQ(got.x_vector.size(), want.x_vector.size());
  for (size_t i = 0; i < got.x_vector.size(); ++i)
    EXPECT_NEAR(got.x_vector[i], want.x_vector[i], 2e-5 * std::abs(want.x_vector[i]) + 1e-5);
  SpeechRequest speech = request(2, true);
  speech.voice.clear();
  speech.clone = std::make_shared<const Voice>(want);
  expect_same(speak(*gpu, speech), speak(tiny("tiny-base"), speech));
}

TEST(StandinRequests, OneFaultyKernelIsHeardInTheCodes) {  // the comparison above can fail
  const Standin driver(Face::hip, "", "skew=0.2:product_bf16_1");
  const auto gpu = Engine::open(model_dir("tiny-cv"), on(driver, "hip"));
  EXPECT_NE(speak(*gpu, request(2, true)).codes, speak(tiny("tiny-cv"), request(2, true)).codes);
}

}  // namespace
}  // namespace skald::test
