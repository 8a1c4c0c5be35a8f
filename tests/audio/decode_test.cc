// Files of every kind to samples: variants of WAV (B043), compressed ones, damage, limits, foreign
// containers.
#include "audio/decode.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sndfile.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "heap_limit.h"

namespace skald::audio {
namespace {

using testing::HasSubstr;
using testing::Not;

std::string le(uint64_t value, int bytes) {
  std::string out;
  for (int i = 0; i < bytes; ++i) out += static_cast<char>(value >> (8 * i));
  return out;
}

std::string chunk(const std::string& id, const std::string& body) {
  return id + le(body.size(), 4) + body + (body.size() % 2 != 0 ? std::string(1, '\0') : "");
}

/// What a crafted WAV is made of; the samples are a ramp.
struct Wav {
  uint16_t format = 1, channels = 1, bits = 16;
  uint32_t rate = 24000;
  bool extensible = false;
  std::string before, after;  ///< further chunks around the data
  int64_t data_size = -1;     ///< what the header claims; -1 = the truth
  std::string data;

  std::string bytes() const {
    std::string fmt = le(extensible ? 0xFFFE : format, 2) + le(channels, 2) + le(rate, 4) +
                      le(uint64_t{rate} * channels * bits / 8, 4) + le(channels * bits / 8u, 2) + le(bits, 2);
    if (extensible)
      fmt += le(22, 2) + le(bits, 2) + le(channels == 1 ? 4 : (1u << channels) - 1, 4) + le(format, 2) +
             std::string("\x00\x00\x00\x00\x10\x00\x80\x00\x00\xAA\x00\x38\x9B\x71", 14);
    std::string d = chunk("data", data);
    if (data_size >= 0) d.replace(4, 4, le(static_cast<uint64_t>(data_size), 4));
    const std::string body = "WAVE" + chunk("fmt ", fmt) + before + d + after;
    return "RIFF" + le(data_size == 0xFFFFFFFF ? 0xFFFFFFFF : body.size(), 4) + body;
  }
};

/// 300 frames of a ramp in a format; the last of every group of channels is its negative.
std::string ramp(uint16_t format, uint16_t bits, uint16_t channels = 1) {
  std::string out;
  for (int i = 0; i < 300; ++i)
    for (int c = 0; c < channels; ++c) {
      const double v = (i - 150) / 256.0 * (channels > 1 && c == channels - 1 ? -1 : 1);
      if (format == 3 && bits == 32) {
        const auto f = static_cast<float>(v);
        out.append(reinterpret_cast<const char*>(&f), 4);
      } else if (format == 3) {
        out.append(reinterpret_cast<const char*>(&v), 8);
      } else if (bits == 8) {
        out += static_cast<char>(static_cast<int>(std::lround(v * 128)) + 128);
      } else {
        out += le(static_cast<uint64_t>(std::llround(std::ldexp(v, bits - 1))), bits / 8);
      }
    }
  return out;
}

Recording decode(const std::string& bytes, const DecodeLimits& limits = {}) {
  return read_all(*AudioReader::parse(bytes, "clip", limits));
}

std::string refusal(const std::string& bytes, const DecodeLimits& limits = {}) {
  try {
    decode(bytes, limits);
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::audio_invalid);
    return e.what();
  }
  ADD_FAILURE() << "decoded";
  return {};
}

void expect_ramp(const Recording& r, double tolerance, size_t frames = 300) {
  ASSERT_EQ(r.samples.size(), frames * static_cast<size_t>(r.channels));
  for (size_t i = 0; i < frames; ++i)
    ASSERT_NEAR(r.samples[i * static_cast<size_t>(r.channels)], (static_cast<double>(i) - 150) / 256,
                tolerance)
        << i;
}

// B043
TEST(Decode, EveryDepthOfWav) {
  struct Depth {
    uint16_t format, bits;
  };
  for (const auto& [format, bits] : {Depth{1, 8}, {1, 16}, {1, 24}, {1, 32}, {3, 32}, {3, 64}})
    for (const bool extensible : {false, true})
      for (const uint16_t channels : {1, 2, 6}) {
        Wav wav{.format = format, .channels = channels, .bits = bits, .extensible = extensible};
        wav.data = ramp(format, bits, channels);
        const Recording r = decode(wav.bytes());
        EXPECT_EQ(r.channels, channels);
        EXPECT_EQ(r.sample_rate, 24000);
        expect_ramp(r, bits == 8 ? 0.005 : 1e-7);
      }
}

TEST(Decode, ALawAndMuLaw) {
  for (const uint16_t format : {6, 7}) {
    Wav wav{.format = format, .bits = 8};
    wav.data = std::string(300, '\x55');
    EXPECT_EQ(decode(wav.bytes()).samples.size(), 300u);
  }
}

// B043
TEST(Decode, ChunksAroundTheData) {
  Wav wav;
  wav.data = ramp(1, 16);
  wav.before =
      chunk("LIST", "INFOodd") + chunk("JUNK", std::string(28, '\0')) + chunk("bext", std::string(602, 'x'));
  wav.after = chunk("LIST", "INFOISFT") + chunk("id3 ", "abc");
  expect_ramp(decode(wav.bytes()), 1e-7);
}

/// Sizes that streaming writers leave behind, and files cut short: what is there is read.
// B043
TEST(Decode, PlaceholderSizesAndTruncation) {
  Wav wav;
  wav.data = ramp(1, 16);
  wav.data_size = 0xFFFFFFFF;
  expect_ramp(decode(wav.bytes()), 1e-7);
  wav.data_size = 0;
  expect_ramp(decode(wav.bytes()), 1e-7);
  wav.data.clear();  // truly empty, with another chunk behind
  wav.after = chunk("LIST", "INFOISFT");
  EXPECT_THAT(refusal(wav.bytes()), HasSubstr("holds no audio"));
  wav.data = ramp(1, 16), wav.after.clear(), wav.data_size = -1;
  const std::string whole = wav.bytes();
  expect_ramp(decode(whole.substr(0, whole.size() - 100)), 1e-7, 250);
  EXPECT_THAT(refusal(whole.substr(0, 44)), HasSubstr("WAV"));
  for (size_t n = 0; n < 44; ++n) refusal(whole.substr(0, n));
}

// B043
TEST(Decode, ImpossibleHeadersAreErrors) {
  Wav wav;
  wav.data = ramp(1, 16);
  wav.channels = 0;
  refusal(wav.bytes());
  wav.channels = 1, wav.rate = 0;
  refusal(wav.bytes());
  wav.rate = 4000;
  EXPECT_THAT(refusal(wav.bytes()), HasSubstr("4000 Hz"));
  wav.rate = 400000;
  EXPECT_THAT(refusal(wav.bytes()), HasSubstr("400000 Hz"));
}

/// Writes a tone through libsndfile into memory.
std::string encode(int format, int rate, int channels, int seconds, double level = 0.3) {
  struct Memory {
    std::string bytes;
    sf_count_t at = 0;
  } memory;
  SF_VIRTUAL_IO io{[](void* m) { return static_cast<sf_count_t>(static_cast<Memory*>(m)->bytes.size()); },
                   [](sf_count_t offset, int whence, void* m) {
                     auto* const s = static_cast<Memory*>(m);
                     s->at = offset + (whence == SEEK_CUR   ? s->at
                                       : whence == SEEK_END ? static_cast<sf_count_t>(s->bytes.size())
                                                            : 0);
                     return s->at;
                   },
                   [](void* to, sf_count_t n, void* m) {
                     auto* const s = static_cast<Memory*>(m);
                     n = std::min(n, static_cast<sf_count_t>(s->bytes.size()) - s->at);
                     std::memcpy(to, s->bytes.data() + s->at, static_cast<size_t>(n));
                     s->at += n;
                     return n;
                   },
                   [](const void* from, sf_count_t n, void* m) {
                     auto* const s = static_cast<Memory*>(m);
                     if (s->bytes.size() < static_cast<size_t>(s->at + n))
                       s->bytes.resize(static_cast<size_t>(s->at + n));
                     std::memcpy(s->bytes.data() + s->at, from, static_cast<size_t>(n));
                     s->at += n;
                     return n;
                   },
                   [](void* m) { return static_cast<Memory*>(m)->at; }};
  SF_INFO info{};
  info.samplerate = rate, info.channels = channels, info.format = format;
  SNDFILE* file = sf_open_virtual(&io, SFM_WRITE, &info, &memory);
  EXPECT_NE(file, nullptr) << sf_strerror(nullptr);
  std::vector<float> samples;
  for (int i = 0; i < rate * seconds; ++i)
    for (int c = 0; c < channels; ++c)
      samples.push_back(static_cast<float>(level * std::sin(2 * M_PI * 440 * i / rate)));
  sf_writef_float(file, samples.data(), rate * seconds);
  sf_close(file);
  return memory.bytes;
}

/// Amplitude of a 440 Hz tone in the first channel.
double tone(const Recording& r) {
  double re = 0, im = 0;
  const size_t frames = r.samples.size() / static_cast<size_t>(r.channels);
  for (size_t i = 0; i < frames; ++i) {
    const double angle = 2 * M_PI * 440 * static_cast<double>(i) / r.sample_rate;
    re += r.samples[i * static_cast<size_t>(r.channels)] * std::cos(angle);
    im += r.samples[i * static_cast<size_t>(r.channels)] * std::sin(angle);
  }
  return 2 * std::hypot(re, im) / static_cast<double>(frames);
}

TEST(Decode, CompressedFiles) {
  struct Kind {
    const char* container;
    int format, rate;
    bool readable_when_cut;  ///< others keep what is needed at their end
  };
  for (const Kind& kind : {Kind{"FLAC", SF_FORMAT_FLAC | SF_FORMAT_PCM_16, 44100, true},
                           {"Ogg", SF_FORMAT_OGG | SF_FORMAT_VORBIS, 22050, false},
                           {"Ogg", SF_FORMAT_OGG | SF_FORMAT_OPUS, 48000, false},
                           {"MP3", SF_FORMAT_MPEG | SF_FORMAT_MPEG_LAYER_III, 44100, true},
                           {"AIFF", SF_FORMAT_AIFF | SF_FORMAT_PCM_24, 32000, false},
                           {"AU", SF_FORMAT_AU | SF_FORMAT_PCM_16, 16000, true},
                           {"CAF", SF_FORMAT_CAF | SF_FORMAT_FLOAT, 24000, false},
                           {"WAV", SF_FORMAT_RF64 | SF_FORMAT_PCM_16, 96000, true}})
    for (const int channels : {1, 2}) {
      const std::string bytes = encode(kind.format, kind.rate, channels, 2);
      EXPECT_EQ(container_of(bytes.substr(0, 16)), kind.container);
      const Recording r = decode(bytes);
      EXPECT_EQ(r.sample_rate, kind.rate) << kind.container;
      EXPECT_EQ(r.channels, channels);
      EXPECT_NEAR(static_cast<double>(r.samples.size()) / channels, 2 * kind.rate, 0.06 * kind.rate)
          << kind.container;
      EXPECT_NEAR(tone(r), 0.3, 0.02) << kind.container;
      refusal(bytes.substr(0, 20));
      if (!kind.readable_when_cut) continue;
      const auto cut =
          AudioReader::parse(std::string_view(bytes).substr(0, bytes.size() * 9 / 10), "clip", {});
      const size_t frames = read_all(*cut).samples.size() / static_cast<size_t>(channels);
      EXPECT_GT(frames, 1.4 * kind.rate) << kind.container;
      EXPECT_LT(frames, 1.95 * kind.rate) << kind.container;
    }
}

TEST(Decode, TheClipOfTheFixturesInEveryFormat) {
  for (const char* suffix : {"flac", "ogg", "opus", "mp3"}) {
    const auto reader = AudioReader::open(std::string(SKALD_FIXTURES "/audio/clip.") + suffix, {});
    const uint64_t announced = reader->announced_frames();
    const Recording r = read_all(*reader);
    EXPECT_EQ(r.sample_rate, 24000) << suffix;
    EXPECT_EQ(r.samples.size(), announced) << suffix;
    EXPECT_NEAR(static_cast<double>(r.samples.size()), 36000, 1500) << suffix;
  }
}

TEST(Decode, ForeignContainersAreNamed) {
  const auto with = [](std::string head) { return head + std::string(200, 'x'); };
  EXPECT_THAT(refusal(with("\x00\x00\x00\x20"
                           "ftypM4A ")),
              HasSubstr("no audio file"));
  EXPECT_THAT(refusal(with(std::string("\0\0\0\x20", 4) + "ftypM4A ")), HasSubstr("MP4"));
  EXPECT_THAT(refusal(with("\x1A\x45\xDF\xA3")), HasSubstr("WebM"));
  EXPECT_THAT(refusal(with("#!AMR\n")), HasSubstr("AMR"));
  EXPECT_THAT(refusal(with("\xFF\xF1\x50\x80")), HasSubstr("AAC"));
  EXPECT_THAT(refusal(with("{\"speaker\": 1}")), HasSubstr("convert it to WAV, FLAC, MP3 or Ogg"));
  EXPECT_THAT(refusal(""), HasSubstr("is empty"));
}

// B123: what is longer than its limit is not read.
TEST(Decode, Limits) {
  Wav wav;
  wav.data = std::string(2 * 24000 * 3, '\1');
  EXPECT_THAT(refusal(wav.bytes(), {.bytes = 1000}), HasSubstr("larger than 1000 bytes"));
  EXPECT_THAT(refusal(wav.bytes(), {.seconds = 2}), HasSubstr("longer than 2 s"));
  EXPECT_EQ(decode(wav.bytes(), {.seconds = 3}).samples.size(), 72000u);
}

// 60 s at 192 kHz in 8 channels are 369 MB of floats, and as silent FLAC less than a megabyte.
TEST(Decode, ASmallFileDoesNotBecomeALotOfMemory) {
  const std::string bytes = encode(SF_FORMAT_FLAC | SF_FORMAT_PCM_16, 192000, 8, 10, 0);
  ASSERT_LT(bytes.size(), 2'000'000u);
  const test::HeapLimit limit(70 << 20);
  EXPECT_THAT(refusal(bytes, {.seconds = 60}), HasSubstr("8 channels of 192000 Hz"));
}

TEST(Decode, ManySamplesWithinTheSecondsOfSpeech) {
  const std::string bytes = encode(SF_FORMAT_FLAC | SF_FORMAT_PCM_16, 96000, 2, 3, 0);
  EXPECT_EQ(decode(bytes, {.seconds = 3}).samples.size(), 2u * 96000 * 3);
}

// B125: nothing of the machine in a message about a broken file.
TEST(Decode, MessagesNameNoPathOrVersion) {
  for (const std::string bytes :
       {"RIFF1234WAVEgarbage", "fLaC garbage", "OggS garbage of some kind", "ID3 garbage"}) {
    const std::string why = refusal(bytes + std::string(100, '\7'));
    EXPECT_THAT(why, Not(HasSubstr("/")));
    EXPECT_THAT(why, Not(testing::ContainsRegex("[0-9]+\\.[0-9]+")));
  }
}

TEST(Decode, FilesAndTheirErrors) {
  const std::filesystem::path file = std::filesystem::temp_directory_path() / "skald-decode-test.wav";
  Wav wav;
  wav.data = ramp(1, 16);
  std::ofstream(file, std::ios::binary) << wav.bytes();
  expect_ramp(read_all(*AudioReader::open(file.string(), {})), 1e-7);
  std::filesystem::remove(file);
  for (const std::string& path : {file.string(), std::filesystem::temp_directory_path().string()}) {
    try {
      AudioReader::open(path, {});
      ADD_FAILURE() << path;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::io);
      EXPECT_THAT(e.what(), HasSubstr(path));
    }
  }
}

}  // namespace
}  // namespace skald::audio
