// Encoders: streamed bytes decode to the samples that went in, and no chunking changes a byte.
#include "audio/encode/encoder.h"

#include <gtest/gtest.h>
#include <sndfile.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <numbers>
#include <random>

#include "audio/wav.h"
#include "skald/error.h"
#include "strict_wav.h"

namespace skald::audio {
namespace {

constexpr uint32_t kRate = 24000;

/// Something like a voice: a few partials under a slow envelope, and noise.
std::vector<float> voice(size_t count) {
  std::mt19937 random(7);
  std::normal_distribution<float> noise(0, 0.01f);
  std::vector<float> out(count);
  for (size_t i = 0; i < count; ++i) {
    const double t = static_cast<double>(i) / kRate, w = 2 * std::numbers::pi * t;
    const double tone = std::sin(180 * w) + 0.5 * std::sin(360 * w) + 0.25 * std::sin(1100 * w);
    out[i] = static_cast<float>(0.25 * tone * (0.6 + 0.4 * std::sin(3 * w))) + noise(random);
  }
  return out;
}

/// Encodes in chunks of the sizes that `next` gives; records how many bytes each step gave.
std::string encode(Format format, std::span<const float> samples, const std::function<size_t()>& next,
                   std::optional<uint64_t> announced = {}, std::vector<size_t>* steps = nullptr) {
  const auto encoder = make_encoder({.format = format, .sample_rate = kRate, .samples = announced});
  std::string out;
  const auto step = [&](auto&& body) {
    const size_t before = out.size();
    body();
    if (steps) steps->push_back(out.size() - before);
  };
  while (!samples.empty()) {
    const size_t count = std::min(next(), samples.size());
    step([&] { encoder->add(samples.first(count), out); });
    samples = samples.subspan(count);
  }
  step([&] { encoder->finish(out); });
  return out;
}

std::string encode(Format format, std::span<const float> samples, size_t chunk = 1920) {
  return encode(format, samples, [=] { return chunk; });
}

/// A file in memory for libsndfile, which is the other side's decoder here.
struct MemoryFile {
  std::string_view bytes;
  sf_count_t at = 0;
};

std::vector<float> decode(const std::string& bytes, int& rate) {
  MemoryFile file{bytes};
  SF_VIRTUAL_IO io{[](void* f) { return static_cast<sf_count_t>(static_cast<MemoryFile*>(f)->bytes.size()); },
                   [](sf_count_t offset, int whence, void* f) {
                     auto& m = *static_cast<MemoryFile*>(f);
                     const auto size = static_cast<sf_count_t>(m.bytes.size());
                     m.at = whence == SEEK_SET ? offset : whence == SEEK_CUR ? m.at + offset : size + offset;
                     return m.at;
                   },
                   [](void* to, sf_count_t count, void* f) {
                     auto& m = *static_cast<MemoryFile*>(f);
                     const auto left = static_cast<sf_count_t>(m.bytes.size()) - m.at;
                     count = std::clamp<sf_count_t>(count, 0, std::max<sf_count_t>(left, 0));
                     std::memcpy(to, m.bytes.data() + m.at, static_cast<size_t>(count));
                     m.at += count;
                     return count;
                   },
                   [](const void*, sf_count_t, void*) { return sf_count_t{0}; },
                   [](void* f) { return static_cast<MemoryFile*>(f)->at; }};
  SF_INFO info{};
  SNDFILE* const sound = sf_open_virtual(&io, SFM_READ, &info, &file);
  if (!sound) {
    ADD_FAILURE() << sf_strerror(nullptr);
    return {};
  }
  EXPECT_EQ(info.channels, 1);
  rate = info.samplerate;
  std::vector<float> out, part(4096);
  for (sf_count_t n; (n = sf_read_float(sound, part.data(), 4096)) > 0;)
    out.insert(out.end(), part.begin(), part.begin() + n);
  sf_close(sound);
  return out;
}

double signal_to_noise(std::span<const float> a, std::span<const float> b) {
  double signal = 0, noise = 0;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    signal += double{a[i]} * a[i];
    noise += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
  }
  return 10 * std::log10(signal / std::max(noise, 1e-30));
}

/// The delay of `b` behind `a`, up to `most` samples, at which they agree best.
size_t best_delay(std::span<const float> a, std::span<const float> b, size_t most) {
  size_t found = 0;
  double best = -1e30;
  for (size_t delay = 0; delay <= most; ++delay) {
    const double ratio = signal_to_noise(a.first(a.size() / 4), b.subspan(delay));
    if (ratio > best) best = ratio, found = delay;
  }
  return found;
}

class EveryFormat : public testing::TestWithParam<Format> {
 protected:
  void SetUp() override {
    if (!format_available(GetParam())) GTEST_SKIP() << "not in this build";
  }
};

TEST_P(EveryFormat, AnyChunkingGivesTheSameBytes) {
  for (const size_t count : {0u, 1u, 479u, 480u, 961u, 1920u, 50001u}) {
    const std::vector<float> samples = voice(count);
    const std::string whole = encode(GetParam(), samples, std::max<size_t>(count, 1));
    for (const size_t chunk : {1u, 7u, 480u, 1920u, 4999u}) {
      if (chunk == 1 && count > 2000) continue;
      EXPECT_EQ(encode(GetParam(), samples, chunk), whole) << count << " in " << chunk;
    }
    std::mt19937 random(3);
    EXPECT_EQ(encode(GetParam(), samples, [&] { return random() % 3000; }), whole) << count;
  }
}

TEST_P(EveryFormat, EncodersBesideEachOtherDoNotMix) {
  const std::vector<float> a = voice(9000), b = voice(20000);
  const auto one = make_encoder({.format = GetParam()}), two = make_encoder({.format = GetParam()});
  std::string bytes_one, bytes_two;
  for (size_t i = 0; i < 9000; i += 1000)
    one->add(std::span(a).subspan(i, 1000), bytes_one), two->add(std::span(b).subspan(i, 1000), bytes_two);
  two->add(std::span(b).subspan(9000), bytes_two);
  one->finish(bytes_one), two->finish(bytes_two);
  EXPECT_EQ(bytes_one, encode(GetParam(), a));
  EXPECT_EQ(bytes_two, encode(GetParam(), b));
}

TEST_P(EveryFormat, FirstFrameGivesSound) {
  std::vector<size_t> steps;
  encode(
      GetParam(), voice(4 * 1920), [] { return 1920u; }, {}, &steps);
  const size_t headers = GetParam() == Format::flac ? 200 : GetParam() == Format::opus ? 120 : 44;
  EXPECT_GT(steps[0], headers) << "the first frame gives nothing to hear";
  for (size_t i = 1; i < 4; ++i) EXPECT_GT(steps[i], 0u) << i;
}

TEST_P(EveryFormat, LosslessOnesDecodeToTheOneShotSamples) {
  if (!is_lossless(GetParam())) GTEST_SKIP();
  for (const size_t count : {1u, 959u, 960u, 961u, 1920u, 24001u}) {
    std::vector<float> samples = voice(count);
    samples[0] = 1.5f, samples[count / 2] = -1.5f;  // beyond full scale
    std::string wanted, got;
    append_samples(samples, GetParam() == Format::f32 ? SampleFormat::f32 : SampleFormat::s16, wanted);
    std::string bytes = encode(GetParam(), samples, 777);
    if (GetParam() == Format::wav) {
      const auto wav = test::parse_strict_wav(bytes);
      EXPECT_TRUE(wav.placeholder);
      got = wav.data;
    } else if (GetParam() == Format::flac) {
      int rate = 0;
      for (const float s : decode(bytes, rate)) {
        const auto value = static_cast<int16_t>(std::lrint(s * 32768.0f));
        got.append(reinterpret_cast<const char*>(&value), 2);
      }
      EXPECT_EQ(rate, 24000);
    } else {
      got = bytes;
    }
    EXPECT_EQ(got, wanted) << count;
  }
}

TEST_P(EveryFormat, BareSamplesComeInWholeSamples) {
  if (GetParam() != Format::pcm && GetParam() != Format::wav && GetParam() != Format::f32) GTEST_SKIP();
  std::vector<size_t> steps;
  std::mt19937 random(5);
  encode(
      GetParam(), voice(30000), [&] { return random() % 999; }, {}, &steps);
  for (const size_t step : steps) ASSERT_EQ(step % 2, 0u);
}

INSTANTIATE_TEST_SUITE_P(Encode, EveryFormat, testing::ValuesIn(all_formats().begin(), all_formats().end()),
                         [](const auto& test) { return std::string(format_name(test.param)); });

TEST(EncodeOpus, DecodesToTheSameLengthAndTheSameSound) {
  for (const size_t count : {1u, 1920u, 24000u, 100001u}) {
    const std::vector<float> samples = voice(count);
    int rate = 0;
    const std::vector<float> back = decode(encode(Format::opus, samples), rate);
    const size_t factor = static_cast<size_t>(rate) / kRate;
    ASSERT_EQ(back.size(), count * factor) << "delay and padding are declared, so the length is exact";
    if (count < 24000) continue;
    std::vector<float> same(count);
    for (size_t i = 0; i < count; ++i) same[i] = back[i * factor];
    EXPECT_GT(signal_to_noise(samples, same), 8) << count;
  }
}

TEST(EncodeOpus, IsOneLogicalStream) {
  const std::string bytes = encode(Format::opus, voice(60000));
  int begins = 0, ends = 0;
  std::map<std::string, int> serials;
  size_t at = 0;
  while (at < bytes.size()) {
    ASSERT_EQ(bytes.compare(at, 4, "OggS"), 0);
    const auto flags = static_cast<unsigned char>(bytes[at + 5]);
    begins += (flags & 2) != 0, ends += (flags & 4) != 0;
    ++serials[bytes.substr(at + 14, 4)];
    const auto segments = static_cast<unsigned char>(bytes[at + 26]);
    size_t body = 0;
    for (size_t i = 0; i < segments; ++i) body += static_cast<unsigned char>(bytes[at + 27 + i]);
    at += 27 + segments + body;
  }
  EXPECT_EQ(at, bytes.size());
  EXPECT_EQ(begins, 1);
  EXPECT_EQ(ends, 1);
  EXPECT_EQ(serials.size(), 1u);
}

TEST(EncodeOpus, RefusesARateItHasNot) {
  EXPECT_THROW(make_encoder({.format = Format::opus, .sample_rate = 22050}), Error);
}

TEST(EncodeMp3, DecodesToTheSameSoundWithinAFrame) {
  const std::vector<float> samples = voice(48000);
  int rate = 0;
  const std::vector<float> back = decode(encode(Format::mp3, samples), rate);
  EXPECT_EQ(rate, 24000);
  ASSERT_GE(back.size(), samples.size()) << "the last words are cut";
  EXPECT_LE(back.size(), samples.size() + 3 * 576 + 529);
  const size_t delay = best_delay(samples, back, 1600);
  EXPECT_LE(delay, 576u + 529 + 1);
  EXPECT_GT(signal_to_noise(samples, std::span(back).subspan(delay)), 12);
}

TEST(EncodeMp3, EveryFrameStandsAlone) {
  const std::string bytes = encode(Format::mp3, voice(48000));
  EXPECT_EQ(bytes.find("Xing"), std::string::npos);
  EXPECT_EQ(bytes.find("Info"), std::string::npos);
  EXPECT_EQ(bytes.find("ID3"), std::string::npos);
  EXPECT_EQ(bytes.find("TAG"), std::string::npos);
  // MPEG-2 Layer III at 24 kHz: 72 * bit rate / 24000 bytes a frame, one after the other to the last byte.
  static constexpr int kRates[] = {0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160};
  size_t at = 0, frames = 0;
  while (at + 4 <= bytes.size()) {
    const auto byte = [&](size_t i) { return static_cast<unsigned char>(bytes[at + i]); };
    ASSERT_EQ(byte(0), 0xFF);
    ASSERT_EQ(byte(1) & 0xFE, 0xF2);
    ASSERT_EQ(byte(2) >> 2 & 3, 1) << "24 kHz";
    const bool crc = (byte(1) & 1) == 0;
    const size_t main_data = (byte(crc ? 6 : 4));
    EXPECT_EQ(main_data, 0u) << "frame " << frames << " leans on the ones before it";
    at += static_cast<size_t>(72 * kRates[byte(2) >> 4] * 1000 / 24000 + (byte(2) >> 1 & 1));
    ++frames;
  }
  EXPECT_EQ(at, bytes.size());
  EXPECT_GE(frames * 576, 48000u + 576);
}

TEST(EncodeAac, IsAChainOfFrames) {
  if (!format_available(Format::aac)) {
    EXPECT_THROW(make_encoder({.format = Format::aac}), Error);
    return;
  }
  const std::string bytes = encode(Format::aac, voice(48000));
  size_t at = 0, frames = 0;
  while (at + 7 <= bytes.size()) {
    const auto byte = [&](size_t i) { return static_cast<unsigned char>(bytes[at + i]); };
    ASSERT_EQ(byte(0), 0xFF);
    ASSERT_EQ(byte(1) & 0xF6, 0xF0);
    ASSERT_EQ(byte(2) >> 2 & 0xF, 6) << "24 kHz";
    const size_t length = (byte(3) & 3u) << 11 | byte(4) << 3 | byte(5) >> 5;
    ASSERT_GT(length, 7u);
    at += length;
    ++frames;
  }
  EXPECT_EQ(at, bytes.size());
  EXPECT_GE(frames * 1024, 48000u + 1024) << "the encoder's delay is not flushed";
  EXPECT_LE(frames * 1024, 48000u + 4 * 1024);
}

TEST(EncodeFlac, StatesItsLengthWhereItIsKnown) {
  const std::vector<float> samples = voice(5000);
  for (const bool known : {false, true}) {
    const std::string bytes = encode(
        Format::flac, samples, [] { return 1920u; }, known ? std::optional<uint64_t>(5000) : std::nullopt);
    ASSERT_EQ(bytes.compare(0, 4, "fLaC"), 0);
    EXPECT_EQ(bytes.find("fLaC", 1), std::string::npos);
    uint64_t total = static_cast<unsigned char>(bytes[8 + 13]) & 0xF;
    for (size_t i = 14; i < 18; ++i) total = total << 8 | static_cast<unsigned char>(bytes[8 + i]);
    EXPECT_EQ(total, known ? 5000u : 0u);
  }
}

TEST(EncodeWav, KnownLengthSatisfiesAStrictReader) {
  const std::vector<float> samples = voice(5000);
  const std::string bytes = encode(
      Format::wav, samples, [] { return 600u; }, 5000);
  const auto wav = test::parse_strict_wav(bytes);
  EXPECT_FALSE(wav.placeholder);
  EXPECT_EQ(wav.data.size(), 10000u);
  EXPECT_THROW(encode(
                   Format::wav, samples, [] { return 600u; }, 5001),
               Error);
}

TEST(Formats, ByName) {
  for (const Format format : all_formats()) EXPECT_EQ(find_format(format_name(format)), format);
  EXPECT_EQ(find_format(" MP3 "), Format::mp3);
  EXPECT_EQ(find_format("mp4"), std::nullopt);
  EXPECT_EQ(find_format("mp"), std::nullopt);
  EXPECT_EQ(find_format(""), std::nullopt);
}

}  // namespace
}  // namespace skald::audio
