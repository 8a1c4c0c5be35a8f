// WAV headers against a strict reader, and the rounding of samples.
#include "audio/wav.h"

#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "skald/error.h"
#include "strict_wav.h"

namespace skald::audio {
namespace {

TEST(Pcm16, RoundsToNearestEvenAndClips) {
  EXPECT_EQ(to_pcm16(0.0f), 0);
  EXPECT_EQ(to_pcm16(1.0f), 32767);
  EXPECT_EQ(to_pcm16(-1.0f), -32767);
  EXPECT_EQ(to_pcm16(2.0f), 32767);
  EXPECT_EQ(to_pcm16(-2.0f), -32768);
  EXPECT_EQ(to_pcm16(std::numeric_limits<float>::infinity()), 32767);
  EXPECT_EQ(to_pcm16(-std::numeric_limits<float>::infinity()), -32768);
  EXPECT_EQ(to_pcm16(std::numeric_limits<float>::quiet_NaN()), 0);
  // The nearest float of 1.6 / 32767 must give 2, not the 1 of a cut; likewise below zero.
  EXPECT_EQ(to_pcm16(1.6f / 32767), 2);
  EXPECT_EQ(to_pcm16(-1.6f / 32767), -2);
  EXPECT_EQ(to_pcm16(1.4f / 32767), 1);
}

TEST(Pcm16, EveryValueSurvivesARoundTrip) {
  for (int value = -32767; value <= 32767; ++value)
    ASSERT_EQ(to_pcm16(static_cast<float>(value) / 32767.0f), value);
}

TEST(WavHeader, ExactSizesSatisfyAStrictReader) {
  const std::vector<float> samples{0.5f, -0.5f, 1.0f};
  for (const SampleFormat format : {SampleFormat::s16, SampleFormat::f32}) {
    std::string bytes = wav_header(format, 24000, samples.size());
    EXPECT_EQ(bytes.size(), wav_header_bytes(format));
    append_samples(samples, format, bytes);
    const auto wav = test::parse_strict_wav(bytes);
    EXPECT_FALSE(wav.placeholder);
    EXPECT_EQ(wav.rate, 24000u);
    EXPECT_EQ(wav.channels, 1);
    EXPECT_EQ(wav.format, format == SampleFormat::f32 ? 3 : 1);
    EXPECT_EQ(wav.data.size(), samples.size() * sample_bytes(format));
    EXPECT_THROW(test::parse_strict_wav(bytes.substr(0, bytes.size() - 2)), std::runtime_error);
    EXPECT_THROW(test::parse_strict_wav(bytes + "xx"), std::runtime_error);
  }
}

TEST(WavHeader, UnknownLengthIsThePlaceholderEverywhere) {
  for (const SampleFormat format : {SampleFormat::s16, SampleFormat::f32}) {
    EXPECT_TRUE(test::parse_strict_wav(wav_header(format, 24000, std::nullopt)).placeholder);
  }
}

TEST(WavHeader, TooLongForItsFieldsIsAnError) {
  for (const SampleFormat format : {SampleFormat::s16, SampleFormat::f32}) {
    EXPECT_NO_THROW(wav_header(format, 24000, max_wav_samples(format)));
    EXPECT_THROW(wav_header(format, 24000, max_wav_samples(format) + 1), Error);
  }
}

TEST(Samples, FloatsAreKeptBitForBit) {
  const std::vector<float> samples{1.5f, -0.0f, 1e-30f};
  std::string bytes = "head";
  append_samples(samples, SampleFormat::f32, bytes);
  ASSERT_EQ(bytes.size(), 4 + samples.size() * 4);
  EXPECT_EQ(std::memcmp(bytes.data() + 4, samples.data(), samples.size() * 4), 0);
}

}  // namespace
}  // namespace skald::audio
