// Resampling against the official path (librosa over soxr), lengths, and any cut of a stream.
#include "audio/resample.h"

#include <gtest/gtest.h>

#include <cmath>

#include "audio/npy.h"
#include "clip.h"

namespace skald::audio {
namespace {

constexpr int32_t kRates[] = {8000, 11025, 16000, 22050, 32000, 44100, 48000, 96000};

TEST(Resample, EqualsTheOfficialPath) {
  for (const int32_t rate : kRates) {
    const std::vector<float> input = test::clip_samples(4001, static_cast<uint64_t>(rate));
    const std::vector<float> got = resample(input, rate, 24000),
                             want =
                                 read_npy(SKALD_FIXTURES "/audio/resample-" + std::to_string(rate) + ".npy")
                                     .floats();
    ASSERT_EQ(got.size(), want.size()) << rate;
    for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want[i], 2e-6) << rate << ", sample " << i;
  }
}

TEST(Resample, EqualRatesChangeNothing) {
  const std::vector<float> input = test::clip_samples(100, 1);
  EXPECT_EQ(resample(input, 24000, 24000), input);
}

TEST(Resample, LengthIsRoundedUp) {
  for (const int32_t rate : kRates)
    for (const size_t n : {1u, 2u, 7u, 441u, 882u, 8000u, 44100u}) {
      const double want = std::ceil(static_cast<double>(n) * (24000.0 / rate));
      EXPECT_EQ(static_cast<double>(resample(std::vector<float>(n, 0.1f), rate, 24000).size()), want)
          << rate << ", " << n;
    }
  EXPECT_TRUE(resample({}, 8000, 24000).empty());
}

TEST(Resample, AnyCutGivesTheSameSamples) {
  for (const int32_t rate : {16000, 44100}) {
    const std::vector<float> input = test::clip_samples(30011, 3), want = resample(input, rate, 24000);
    for (const size_t piece : {1u, 160u, 4096u, 29999u}) {
      Resampler resampler(rate, 24000);
      std::vector<float> got;
      for (size_t at = 0; at < input.size(); at += piece)
        resampler.push(std::span(input).subspan(at, std::min(piece, input.size() - at)), got);
      resampler.finish(got);
      EXPECT_EQ(got, want) << rate << " in pieces of " << piece;
    }
  }
}

// B042: a tone keeps its pitch and its length whatever the rate.
TEST(Resample, ATonesPitchIsKept) {
  for (const int32_t rate : kRates) {
    std::vector<float> tone;
    for (int i = 0; i < rate; ++i) tone.push_back(static_cast<float>(std::sin(2 * M_PI * 1000.0 * i / rate)));
    const std::vector<float> got = resample(tone, rate, 24000);
    ASSERT_NEAR(static_cast<double>(got.size()), 24000, 1) << rate;
    double worst = 0;
    for (size_t i = 1000; i < 23000; ++i)
      worst =
          std::max(worst, std::abs(got[i] - std::sin(2 * M_PI * 1000.0 * static_cast<double>(i) / 24000)));
    EXPECT_LT(worst, 1e-4) << rate;
  }
}

}  // namespace
}  // namespace skald::audio
