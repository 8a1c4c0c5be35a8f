// Real speech of the trained model with the sampling its snapshot states: every utterance ends by itself, is
// neither silent nor clipped, looks like a voice in its spectrum, and does not depend on how it is read.
#include <algorithm>
#include <array>
#include <cmath>
#include <complex>
#include <numbers>
#include <numeric>
#include <optional>
#include <span>

#include "small_voice.h"

namespace skald::test {
namespace {

constexpr size_t kRate = 24000, kBlock = 480;  // 20 ms
constexpr std::array kVoices = {"af_heart", "am_michael"};
constexpr std::array kSentences = {
    "Good evening. I am the voice assistant running on this workstation.",
    "Yes.",
    "The small boat crossed the lake before sunrise.",
    "What time does the next train leave for Boston?",
    "She counted 42 boxes and 7 chairs.",
    "Please turn off the lights in the kitchen.",
    "Rain is expected on Tuesday, with strong winds in the afternoon.",
    "He closed the door, sat down, and opened the letter.",
};

SpeechRequest request_for(const std::string& text, const std::string& voice, uint64_t seed) {
  SpeechRequest r;
  r.text = text, r.voice = voice, r.seed = seed;
  return r;
}

double decibels(double power) { return 10 * std::log10(power + 1e-12); }

double power_of(std::span<const float> x) {
  return std::inner_product(x.begin(), x.end(), x.begin(), 0.0) / static_cast<double>(x.size());
}

/// Power of every whole block, in dB of full scale.
std::vector<double> levels(std::span<const float> samples) {
  std::vector<double> out;
  for (size_t i = 0; i + kBlock <= samples.size(); i += kBlock)
    out.push_back(decibels(power_of(samples.subspan(i, kBlock))));
  return out;
}

/// Power spectrum of 512 samples under a Hann window: bins of 46.9 Hz up to 12 kHz. Plain sums: tests need no
/// speed.
std::array<double, 256> spectrum(std::span<const float> x) {
  std::array<double, 256> out{};
  for (size_t k = 0; k < out.size(); ++k) {
    std::complex<double> sum = 0;
    for (size_t n = 0; n < 512; ++n) {
      const double window = 0.5 - 0.5 * std::cos(2 * std::numbers::pi * static_cast<double>(n) / 512);
      sum += window * x[n] * std::polar(1.0, -2 * std::numbers::pi * static_cast<double>(k * n % 512) / 512);
    }
    out[k] = std::norm(sum);
  }
  return out;
}

/// Mean spectrum of the loud parts, at most 40 of them.
std::array<double, 256> mean_spectrum(std::span<const float> samples) {
  const std::vector<double> level = levels(samples);
  const double loud = *std::max_element(level.begin(), level.end()) - 20;
  std::array<double, 256> sum{};
  for (size_t b = 0, used = 0; b + 1 < level.size() && used < 40; ++b) {
    if (level[b] < loud) continue;
    const auto part = spectrum(samples.subspan(b * kBlock, 512));
    for (size_t k = 0; k < sum.size(); ++k) sum[k] += part[k];
    ++used;
  }
  return sum;
}

/// Fundamental frequency of 40 ms by autocorrelation, where they are clearly periodic.
std::optional<double> pitch_of(std::span<const float> x) {
  const double power = power_of(x);
  double best = 0;
  size_t period = 0;
  for (size_t lag = kRate / 350; lag <= kRate / 65; ++lag) {
    const size_t count = x.size() - lag;
    const double cross = std::inner_product(x.begin(), x.end() - static_cast<std::ptrdiff_t>(lag),
                                            x.begin() + static_cast<std::ptrdiff_t>(lag), 0.0);
    const double similarity = cross / (static_cast<double>(count) * power + 1e-9);
    if (similarity > best) best = similarity, period = lag;
  }
  if (power < 1e-4 || best < 0.6) return std::nullopt;
  return static_cast<double>(kRate) / static_cast<double>(period);
}

double median_pitch(std::span<const float> samples) {
  std::vector<double> found;
  for (size_t i = 0; i + 2 * kBlock <= samples.size(); i += kBlock)
    if (const auto pitch = pitch_of(samples.subspan(i, 2 * kBlock))) found.push_back(*pitch);
  if (found.size() < 5) return 0;
  std::nth_element(found.begin(), found.begin() + static_cast<std::ptrdiff_t>(found.size() / 2), found.end());
  return found[found.size() / 2];
}

class SmallVoiceSpeech : public ::testing::TestWithParam<const char*> {};

TEST_P(SmallVoiceSpeech, EndsByItselfAndIsAudible) {
  for (size_t i = 0; i < kSentences.size(); ++i) {
    const std::string text = kSentences[i];
    SCOPED_TRACE(text);
    const Spoken spoken = speak(request_for(text, GetParam(), 100 + i));
    EXPECT_EQ(spoken.result.stop, StopReason::eos);
    const double pace = static_cast<double>(spoken.result.frames) / static_cast<double>(text.size());
    EXPECT_GT(pace, 0.4);
    EXPECT_LT(pace, text.size() < 10 ? 6.0 : 1.6);

    const std::vector<double> level = levels(spoken.samples);
    EXPECT_GT(decibels(power_of(spoken.samples)), -35);
    EXPECT_LT(decibels(power_of(spoken.samples)), -12);
    const auto quiet = std::count_if(level.begin(), level.end(), [](double d) { return d < -50; });
    EXPECT_LT(static_cast<double>(quiet), 0.5 * static_cast<double>(level.size()));
    const auto clipped =
        std::count_if(spoken.samples.begin(), spoken.samples.end(), [](float s) { return std::abs(s) >= 1; });
    EXPECT_EQ(clipped, 0);
    // The teacher's speech has an offset of 0.009, and so has this.
    EXPECT_LT(std::abs(std::accumulate(spoken.samples.begin(), spoken.samples.end(), 0.0)),
              0.015 * static_cast<double>(spoken.samples.size()));
  }
}

TEST_P(SmallVoiceSpeech, HasTheSpectrumOfAVoice) {
  for (const char* text : {kSentences[0], kSentences[2]}) {
    const Spoken spoken = speak(request_for(text, GetParam(), 7));
    const std::array<double, 256> s = mean_spectrum(spoken.samples);
    const double all = std::accumulate(s.begin() + 2, s.end(), 0.0);            // from 94 Hz
    const double speech = std::accumulate(s.begin() + 2, s.begin() + 86, 0.0);  // to 4 kHz
    EXPECT_GT(speech, 0.7 * all);                                               // white noise: 0.33
    // Flatness: 1 for white noise.
    double logs = 0;
    for (const double v : s) logs += std::log(v + 1e-12);
    EXPECT_LT(std::exp(logs / s.size()) / (all / s.size()), 0.2);
  }
}

TEST_P(SmallVoiceSpeech, DoesNotDependOnHowItIsRead) {
  const SpeechRequest request = request_for(kSentences[0], GetParam(), 11);
  const Spoken whole = speak(request, 1000);
  for (const int32_t chunk : {1, 5}) {
    const Spoken part = speak(request, chunk);
    EXPECT_EQ(part.codes, whole.codes);
    EXPECT_EQ(part.samples, whole.samples);
  }
  SpeechRequest at_once = request;
  at_once.decode = DecodeMode::whole;
  EXPECT_EQ(speak(at_once, 1000).samples, whole.samples);
}

INSTANTIATE_TEST_SUITE_P(Voices, SmallVoiceSpeech, ::testing::ValuesIn(kVoices),
                         [](const auto& param) { return std::string(param.param); });

TEST(SmallVoice, FemaleAndMalePitch) {
  std::array<double, 2> pitch{};
  for (size_t v = 0; v < kVoices.size(); ++v)
    pitch[v] = median_pitch(speak(request_for(kSentences[0], kVoices[v], 3)).samples);
  EXPECT_GT(pitch[0], 150);
  EXPECT_LT(pitch[0], 290);
  EXPECT_GT(pitch[1], 75);
  EXPECT_LT(pitch[1], 150);
}

TEST(SmallVoice, OffersTwoVoicesAndEnglish) {
  const ModelInfo& info = small_voice().info();
  EXPECT_EQ(info.voices, (std::vector<std::string>{"af_heart", "am_michael"}));
  EXPECT_EQ(info.languages, (std::vector<std::string>{"auto", "english"}));
  EXPECT_EQ(info.type, "custom_voice");
}

}  // namespace
}  // namespace skald::test
