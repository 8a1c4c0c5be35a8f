// Speed without pitch: lengths, frequencies, chunks.
#include "audio/encode/tempo.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numbers>

#include "skald/error.h"

namespace skald::audio {
namespace {

constexpr uint32_t kRate = 24000;

std::vector<float> sine(double hertz, size_t count) {
  std::vector<float> out(count);
  for (size_t i = 0; i < count; ++i)
    out[i] =
        static_cast<float>(0.5 * std::sin(2 * std::numbers::pi * hertz * static_cast<double>(i) / kRate));
  return out;
}

/// One sample in every period: what a voice's pulses are to a stretcher.
std::vector<float> pulses(size_t period, size_t count) {
  std::vector<float> out(count);
  for (size_t i = 0; i < count; i += period)
    for (size_t k = 0; k < 24 && i + k < count; ++k)
      out[i + k] = 0.8f * std::exp(-0.2f * static_cast<float>(k));
  return out;
}

std::vector<float> stretch(double speed, std::span<const float> samples, size_t chunk = 1920) {
  Tempo tempo(kRate, speed);
  std::vector<float> out;
  for (; !samples.empty(); samples = samples.subspan(std::min(chunk, samples.size())))
    tempo.add(samples.first(std::min(chunk, samples.size())), out);
  tempo.finish(out);
  return out;
}

/// Upward crossings of a level in the middle of the signal, a second.
double crossings(std::span<const float> samples, float level) {
  const auto middle = samples.subspan(samples.size() / 10, samples.size() * 8 / 10);
  int count = 0;
  for (size_t i = 1; i < middle.size(); ++i) count += middle[i - 1] < level && middle[i] >= level;
  return count * static_cast<double>(kRate) / static_cast<double>(middle.size());
}

TEST(Tempo, ScalesTheLengthAndKeepsThePitch) {
  const std::vector<float> tone = sine(220, 3 * kRate), train = pulses(200, 3 * kRate);
  for (const double speed : {0.25, 0.5, 0.8, 1.25, 2.0, 4.0}) {
    for (const auto* signal : {&tone, &train}) {
      const std::vector<float> out = stretch(speed, *signal);
      EXPECT_EQ(out.size(), static_cast<size_t>(std::llround(3 * kRate / speed))) << speed;
      const float level = signal == &tone ? 0.0f : 0.3f;
      EXPECT_NEAR(crossings(out, level), crossings(*signal, level), 0.01 * crossings(*signal, level))
          << speed;
      double power = 0;
      for (const float s : out) power += double{s} * s;
      double wanted = 0;
      for (const float s : *signal) wanted += double{s} * s;
      EXPECT_NEAR(power * speed / wanted, 1, 0.15) << speed;
    }
  }
}

TEST(Tempo, AnyChunkingGivesTheSameSamples) {
  const std::vector<float> samples = sine(180, 30001);
  for (const double speed : {0.7, 1.5}) {
    const std::vector<float> whole = stretch(speed, samples, samples.size());
    for (const size_t chunk : {1u, 479u, 1920u, 7000u}) EXPECT_EQ(stretch(speed, samples, chunk), whole);
  }
}

TEST(Tempo, ShortSignalsKeepTheirLength) {
  for (const size_t count : {0u, 1u, 100u, 1920u})
    for (const double speed : {0.25, 0.9, 4.0})
      EXPECT_EQ(stretch(speed, sine(220, count)).size(),
                static_cast<size_t>(std::llround(static_cast<double>(count) / speed)));
}

TEST(Tempo, SpeedOneTouchesNothing) {
  const std::vector<float> samples = sine(220, 5000);
  EXPECT_EQ(stretch(1, samples, 333), samples);
}

TEST(Tempo, RefusesOtherSpeeds) {
  for (const double speed : {0.24, 4.01, 0.0, -1.0, std::numeric_limits<double>::quiet_NaN()})
    EXPECT_THROW(Tempo(kRate, speed), Error) << speed;
}

}  // namespace
}  // namespace skald::audio
