// Codes to samples: the official decode, the whole network, and that streaming is the same computation.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <random>

#include "backend/cpu/cpu.h"
#include "engine/codec_run.h"
#include "support.h"

namespace skald::test {
namespace {

constexpr size_t kFrame = 1920;

std::string case_name(const ::testing::TestParamInfo<Case>& info) {
  std::string name = info.param.name;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

class Codec : public ::testing::TestWithParam<Case> {
 protected:
  /// Windows, every n-th sample, and statistics of each frame of a waveform.
  void compare(const std::string& kind, const std::vector<float>& wave, double tolerance = 1e-4) const {
    const Case& c = GetParam();
    ASSERT_EQ(wave.size(), static_cast<size_t>(c.samples));
    const std::vector<float> windows = c.floats(kind + "_windows"), strided = c.floats(kind + "_strided"),
                             statistics = c.floats(kind + "_statistics");
    const size_t window = c.window_frames * kFrame, stride = c.stride;
    size_t at = 0;
    for (const size_t start : c.window_starts)
      for (size_t i = 0; i < window; ++i, ++at)
        ASSERT_NEAR(wave[start * kFrame + i], windows[at], tolerance)
            << kind << " sample " << start * kFrame + i;
    EXPECT_EQ(at, windows.size());
    for (size_t i = 0; i * stride < wave.size(); ++i)
      ASSERT_NEAR(wave[i * stride], strided[i], tolerance) << kind << " sample " << i * stride;
    for (size_t f = 0; f * kFrame < wave.size(); ++f) {
      double sum = 0, square = 0;
      for (size_t i = 0; i < kFrame; ++i)
        sum += wave[f * kFrame + i], square += std::pow(wave[f * kFrame + i], 2);
      ASSERT_NEAR(sum / kFrame, statistics[2 * f], tolerance) << kind << " frame " << f;
      ASSERT_NEAR(std::sqrt(square / kFrame), statistics[2 * f + 1], tolerance) << kind << " frame " << f;
    }
  }
};

TEST_P(Codec, EqualsTheOfficialDecode) {
  compare("official", tiny("tiny-cv").decode(GetParam().ints("codes"), DecodeMode::official));
}

TEST_P(Codec, EqualsTheWholeNetwork) {
  // One chunk of the official decode is the whole network; the fixtures then hold it once.
  const std::string kind = GetParam().has("whole_windows") ? "whole" : "official";
  compare(kind, tiny("tiny-cv").decode(GetParam().ints("codes"), DecodeMode::whole));
}

TEST_P(Codec, FastIsWithinAThousandthOfTheOfficialDecode) {
  EngineOptions options;
  options.compute = "fast";
  const auto engine = Engine::open(model_dir("tiny-cv"), options);
  const std::vector<float> fast = engine->decode(GetParam().ints("codes"), DecodeMode::official);
  compare("official", fast, 1e-3);
  EXPECT_NE(fast, tiny("tiny-cv").decode(GetParam().ints("codes"), DecodeMode::official))
      << "nothing was rounded";
}

INSTANTIATE_TEST_SUITE_P(Official, Codec, ::testing::ValuesIn(load_cases(true)), case_name);

std::vector<int32_t> random_codes(size_t frames, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<int32_t> codes(frames * 16);
  for (int32_t& c : codes) c = static_cast<int32_t>(random() % 64);
  return codes;
}

/// The codes in chunks whose sizes `next` gives.
std::vector<float> decode_in_chunks(engine::Core& core, const std::vector<int32_t>& codes, DecodeMode mode,
                                    const std::function<size_t()>& next) {
  engine::CodecRun run(core, 0, mode);
  std::vector<float> out;
  for (size_t done = 0; done < codes.size();) {
    const size_t count = std::min(codes.size() - done, next() * 16);
    run.decode(std::span(codes).subspan(done, count), out);
    done += count;
  }
  return out;
}

TEST(CodecStream, RandomChunksGiveTheWholeBitForBit) {
  const auto core = tiny_core("tiny-cv");
  for (const DecodeMode mode : {DecodeMode::stream, DecodeMode::official}) {
    const std::vector<int32_t> codes = random_codes(347, 5);
    const std::vector<float> whole = decode_in_chunks(*core, codes, mode, [&] { return codes.size(); });
    ASSERT_EQ(whole.size(), 347 * kFrame);
    for (uint32_t seed = 0; seed < 6; ++seed) {
      std::mt19937 random(seed);
      const size_t most = seed % 2 == 0 ? 5 : 70;
      EXPECT_EQ(decode_in_chunks(*core, codes, mode, [&] { return 1 + random() % most; }), whole) << seed;
    }
  }
}

TEST(CodecStream, ModelChunkSizeDoesNotMatter) {
  const std::vector<int32_t> codes = random_codes(60, 6);
  const std::vector<float> expected = tiny("tiny-cv").decode(codes, DecodeMode::stream);
  for (const int32_t chunk : {1, 3, 50}) {
    EngineOptions options;
    options.threads = 1, options.codec_chunk = chunk;
    EXPECT_EQ(Engine::open(model_dir("tiny-cv"), options)->decode(codes, DecodeMode::whole), expected)
        << chunk;
  }
}

TEST(CodecStream, OfficialChunksDifferFromFrame300On) {
  const std::vector<int32_t> codes = random_codes(320, 7);
  const std::vector<float> whole = tiny("tiny-cv").decode(codes, DecodeMode::whole),
                           official = tiny("tiny-cv").decode(codes, DecodeMode::official);
  const size_t seam = 300 * kFrame;
  EXPECT_TRUE(std::equal(whole.begin(), whole.begin() + seam, official.begin()));
  EXPECT_NE(std::vector<float>(whole.begin() + seam, whole.end()),
            std::vector<float>(official.begin() + seam, official.end()));
}

TEST(Decode, RefusesWhatIsNoCode) {
  Engine& engine = tiny("tiny-cv");
  const auto decode = [&](std::vector<int32_t> codes) {
    return error_of([&] { engine.decode(codes, DecodeMode::stream); });
  };
  EXPECT_EQ(decode({}).code(), ErrorCode::invalid_argument);
  EXPECT_EQ(decode(std::vector<int32_t>(17, 0)).code(), ErrorCode::invalid_argument);
  std::vector<int32_t> codes(32, 0);
  codes[19] = 64;
  const Error error = decode(codes);
  EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
  EXPECT_STREQ(error.what(), "codes: frame 1, group 3 is 64, but must be within 0..63");
  codes[19] = -1;
  EXPECT_EQ(decode(codes).code(), ErrorCode::invalid_argument);
}

// B030: every sample of every chunk size equals the one-shot decode, past the window of the codec's
// attention.
TEST(Reports, B030_ChunkBordersCannotBeHeard) {
  const auto core = tiny_core("tiny-base");
  const std::vector<int32_t> codes = random_codes(90, 8);
  const std::vector<float> whole =
      decode_in_chunks(*core, codes, DecodeMode::whole, [&] { return codes.size(); });
  for (size_t chunk = 1; chunk <= 50; ++chunk)
    ASSERT_EQ(decode_in_chunks(*core, codes, DecodeMode::stream, [&] { return chunk; }), whole) << chunk;
}

// B035: the samples of fixed codes are those of the last release, bit for bit on every vector width that
// fuses its multiply-adds, and the end has no click: its last step is an ordinary one.
TEST(Reports, B035_WaveformOfFixedCodesIsPinned) {
  std::vector<int32_t> codes(40 * 16);
  for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<int32_t>(i * 2654435761u >> 8 & 63);
  for (const std::string target : {"AVX3", "AVX2"}) {
    const auto here = backend::cpu_targets();
    if (std::find(here.begin(), here.end(), target) == here.end()) continue;
    EngineOptions options;
    options.cpu_target = target;
    const std::vector<float> wave =
        Engine::open(model_dir("tiny-cv"), options)->decode(codes, DecodeMode::stream);
    uint64_t hash = 0xcbf29ce484222325;  // FNV-1a over the bits
    for (const float x : wave) hash = (hash ^ std::bit_cast<uint32_t>(x)) * 0x100000001b3;
    EXPECT_EQ(hash, 1891271668232618536u) << target;
    float largest = 0;
    for (size_t i = wave.size() / 2; i + 2 < wave.size(); ++i)
      largest = std::max(largest, std::abs(wave[i + 1] - wave[i]));
    EXPECT_LE(std::abs(wave.back() - wave[wave.size() - 2]), largest) << target;
  }
}

}  // namespace
}  // namespace skald::test
