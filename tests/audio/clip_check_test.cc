// What is said about a recording before any model sees it (B041, B042, C010).
#include "audio/clip_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "clip.h"

namespace skald::audio {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// A second of voice-like noise at the given RMS, faded at its end.
std::vector<float> voice(double rms = 0.1, size_t count = 24000) {
  std::vector<float> x = test::clip_samples(static_cast<int64_t>(count), 1);
  for (size_t i = 0; i < 4800; ++i) x[count - 1 - i] *= static_cast<float>(i) / 4800;
  double square = 0;
  for (const float v : x) square += double{v} * v;
  const double scale = rms / std::sqrt(square / static_cast<double>(count));
  for (float& v : x) v = static_cast<float>(v * scale);
  return x;
}

Recording mono(std::vector<float> x) {
  return {.samples = std::move(x), .channels = 1, .sample_rate = 24000};
}

Recording stereo(const std::vector<float>& left, double right_gain, double offset = 0) {
  Recording r{.samples = {}, .channels = 2, .sample_rate = 24000};
  for (const float v : left) {
    r.samples.push_back(static_cast<float>(v + offset));
    r.samples.push_back(static_cast<float>(v * right_gain + offset));
  }
  return r;
}

std::string refusal(const Recording& r) {
  std::vector<std::string> warnings;
  try {
    check_clip(r, warnings);
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::audio_invalid);
    return e.what();
  }
  ADD_FAILURE() << "accepted";
  return {};
}

std::vector<std::string> warnings_of(const Recording& r) {
  std::vector<std::string> warnings;
  check_clip(r, warnings);
  return warnings;
}

TEST(ClipCheck, AGoodClipPassesUnchanged) {
  std::vector<std::string> warnings;
  const std::vector<float> x = voice();
  EXPECT_EQ(check_clip(mono(x), warnings), x);
  EXPECT_THAT(warnings, IsEmpty());
}

// C010: the average stays as in the official path, nothing is normalised.
TEST(ClipCheck, TheMixIsTheMean) {
  const std::vector<float> x = voice();
  std::vector<std::string> warnings;
  const std::vector<float> half = check_clip(stereo(x, 0), warnings);
  for (size_t i = 0; i < x.size(); ++i) ASSERT_EQ(half[i], x[i] / 2);
  EXPECT_THAT(mix_down(std::vector<float>{1, 2, 6, -1, 0, 0}, 3), ElementsAre(3, -1.0f / 3));
  EXPECT_THAT(warnings, IsEmpty());
}

TEST(ClipCheck, CancellingChannelsAreRefusedWithTheirLevels) {
  for (const double rms : {0.1, 0.002})
    for (const double offset : {0.0, 0.3}) {
      const std::string why = refusal(stereo(voice(rms), -1, offset));
      EXPECT_THAT(why, HasSubstr("cancel"));
      EXPECT_THAT(why, HasSubstr(rms == 0.1 ? "0.1000" : "0.0020")) << why;
    }
}

TEST(ClipCheck, SilenceIsRefused) {
  EXPECT_THAT(refusal(mono(std::vector<float>(24000))), HasSubstr("silent"));
  EXPECT_THAT(refusal(mono(std::vector<float>(24000, 0.3f))), HasSubstr("silent"));  // an offset is no sound
  EXPECT_THAT(refusal(mono({})), HasSubstr("no samples"));
}

TEST(ClipCheck, QuietOffsetAndClippedClipsAreWarnedAboutWithTheNumber) {
  EXPECT_THAT(warnings_of(mono(voice(0.002))), ElementsAre(HasSubstr("RMS 0.002")));
  EXPECT_THAT(warnings_of(stereo(voice(0.004), 0)), ElementsAre(HasSubstr("RMS 0.0020")));
  EXPECT_THAT(warnings_of(stereo(voice(), 1, 0.3)), ElementsAre(HasSubstr("0.300")));
  Recording r = mono(voice());
  r.samples[100] = 4;
  EXPECT_THAT(warnings_of(r), ElementsAre(HasSubstr("4.00")));
  r = mono(voice());
  for (size_t i = 0; i < 100; ++i) r.samples[i * 50] = 1;
  EXPECT_THAT(warnings_of(r), ElementsAre(HasSubstr("100 of 24000")));
}

TEST(ClipCheck, MostlySilentClipsAreWarnedAbout) {
  std::vector<float> x(9 * 24000);
  const std::vector<float> sound = voice();
  x.insert(x.end(), sound.begin(), sound.end());
  EXPECT_THAT(warnings_of(mono(x)), ElementsAre(HasSubstr("% of the clip are silence")));
}

// B041: words at the very end of a clip are heard at the start of the speech.
TEST(ClipCheck, AnEndInsideASoundIsWarnedAbout) {
  std::vector<float> x;
  for (int i = 0; i < 24000; ++i) x.push_back(static_cast<float>(0.2 * std::sin(i * 0.1)));
  EXPECT_THAT(warnings_of(mono(x)), ElementsAre(HasSubstr("ends inside a sound")));
}

TEST(ClipCheck, NumbersThatAreNoneAreRefusedWithTheirPlace) {
  Recording r = stereo(voice(), 1);
  r.samples[2 * 1234 + 1] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(refusal(r), HasSubstr("NaN as sample 1234 of channel 2"));
  r.samples[2 * 1234 + 1] = -std::numeric_limits<float>::infinity();
  EXPECT_THAT(refusal(r), HasSubstr("infinity as sample 1234"));
}

// B042: a rate that cannot be used is named.
TEST(ClipCheck, RatesAndChannelsOutOfRangeAreNamed) {
  Recording r = mono(voice());
  r.sample_rate = 4000;
  EXPECT_THAT(refusal(r), HasSubstr("4000 Hz"));
  r.sample_rate = 384000;
  EXPECT_THAT(refusal(r), HasSubstr("384000 Hz"));
  r.sample_rate = 24000, r.channels = 0;
  EXPECT_THAT(refusal(r), HasSubstr("0 channels"));
  r.channels = 7;
  EXPECT_THAT(refusal(r), HasSubstr("7 channels"));
}

TEST(ClipCheck, LoudBeyondComputingIsNoSilence) {
  Recording r;
  r.channels = 2, r.samples.assign(96000, 3e38f);
  std::vector<std::string> warnings;
  try {
    audio::check_clip(r, warnings);
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("louder than can be computed with"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace skald::audio
