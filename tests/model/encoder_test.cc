// Both encoders of reference audio against the official package, stage by stage; any chunking, the same
// codes.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include <nlohmann/json.hpp>

#include "audio/npy.h"
#include "backend/cpu/cpu.h"
#include "clip.h"
#include "model/codec_encoder.h"
#include "model/mel_filters.h"
#include "model/speaker_encoder.h"

namespace skald::test {
namespace {

namespace fs = std::filesystem;
using model::CodecEncoder;
using model::SpeakerEncoder;
using model::WeightLoader;

struct EncodeCase {
  std::string name, model;
  fs::path folder;
  int64_t samples = 0, frames = 0, mel_frames = 0, mel_edge = 0, mel_stride = 0;
  uint64_t seed = 0;
  uint32_t crc = 0;

  bool has_codes() const { return frames > 0; }
  std::vector<float> floats(const std::string& array) const {
    return audio::read_npy(folder / (array + ".npy")).floats();
  }
  std::vector<float> clip() const { return clip_samples(samples, seed); }
};

std::vector<EncodeCase> load_cases() {
  std::vector<EncodeCase> cases;
  for (const auto& entry : fs::directory_iterator(fs::path(SKALD_FIXTURES) / "cases")) {
    std::ifstream in(entry.path() / "case.json");
    const nlohmann::json info = nlohmann::json::parse(in);
    if (info["mode"] != "encode") continue;
    cases.push_back({info["name"], info["model"], entry.path(), info["samples"], info["frames"],
                     info["mel_frames"], info["mel_edge"], info["mel_stride"], info["seed"], info["crc"]});
  }
  return cases;
}

/// A device with one snapshot's encoders on it.
struct Encoders {
  explicit Encoders(const std::string& name, const std::vector<int32_t>& chunks = {16},
                    const std::string& target = "", const std::vector<int32_t>& lengths = {30 * 24000})
      : dir(fs::path(SKALD_FIXTURES) / "models" / name),
        config(model::load_config(dir)),
        device(backend::make_cpu_backend({.threads = 1, .target = target})),
        codec(*device,
              WeightLoader(*device, model::Checkpoint::open(dir / "speech_tokenizer"), "encoder.").exactly(),
              config.codec, chunks),
        speaker(*device, WeightLoader(*device, model::Checkpoint::open(dir), "speaker_encoder.").exactly(),
                *config.speaker_encoder, lengths) {}

  std::vector<int32_t> codes(std::span<const float> samples) {
    std::vector<int32_t> out;
    codec.reset();
    codec.encode(samples, out);
    return out;
  }

  fs::path dir;
  model::ModelConfig config;
  std::unique_ptr<backend::Backend> device;
  CodecEncoder codec;
  SpeakerEncoder speaker;
};

/// Largest difference of `got` and the stored values, relative to the largest stored value.
void expect_close(std::span<const float> got, const std::vector<float>& want, double limit,
                  const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  double most = 0, scale = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    most = std::max(most, std::abs(double{got[i]} - want[i]));
    scale = std::max(scale, std::abs(double{want[i]}));
  }
  EXPECT_LE(most, limit * scale) << what;
}

double cosine(const std::vector<float>& a, const std::vector<float>& b) {
  double ab = 0, aa = 0, bb = 0;
  for (size_t i = 0; i < a.size(); ++i)
    ab += double{a[i]} * b[i], aa += double{a[i]} * a[i], bb += double{b[i]} * b[i];
  return ab / std::sqrt(aa * bb);
}

/// Runs a program op by op and hands out what the ops under a label leave in their first output.
template <class F>
void run_ops(backend::Backend& device, backend::Program program, F&& after) {
  const auto ops = device.ops(program);
  for (size_t i = 0; i < ops.size(); ++i) {
    device.run_op(program, i);
    if (i + 1 == ops.size() || ops[i + 1].label != ops[i].label) after(ops[i].label, ops[i].outputs[0]);
  }
}

std::vector<float> rows_of(backend::Backend& device, const backend::Buffer& buffer, int64_t first,
                           int64_t count) {
  std::vector<float> values(static_cast<size_t>(count * buffer.width));
  device.read(buffer.row_range(static_cast<int32_t>(first), static_cast<int32_t>(count)),
              std::as_writable_bytes(std::span(values)));
  return values;
}

TEST(Clips, AreThoseOfTheFixtures) {
  const std::vector<EncodeCase> cases = load_cases();
  ASSERT_GE(cases.size(), 12u);
  for (const EncodeCase& c : cases) EXPECT_EQ(clip_crc(clip_integers(c.samples, c.seed)), c.crc) << c.name;
}

TEST(MelFilters, HaveThePublishedValues) {
  constexpr size_t kBins = 513;
  const std::vector<float> w = model::mel_filters(128, 1024, 24000);
  ASSERT_EQ(w.size(), 128 * kBins);
  double sum = 0;
  size_t count = 0;
  for (const float v : w) sum += v, count += v != 0;
  EXPECT_EQ(count, 1008u);
  EXPECT_NEAR(sum, 5.45941583, 1e-7);
  EXPECT_NEAR(w[1], 0.03355043, 1e-8);
  EXPECT_NEAR(w[64 * kBins + 89], 0.01410350, 1e-8);
  EXPECT_EQ(w[64 * kBins + 87], 0);
  EXPECT_NEAR(w[127 * kBins + 498], 0.00308680, 1e-8);
  EXPECT_EQ(w[127 * kBins + 512], 0);
}

TEST(SpeakerEncoder, EqualsTheOfficialOne) {
  for (const std::string name : {"tiny-base", "tiny-base-1b7"}) {
    Encoders encoders(name);
    backend::Backend& device = *encoders.device;
    for (const EncodeCase& c : load_cases()) {
      if (c.model != name) continue;
      encoders.speaker.stage(c.clip());
      int seen = 0;
      run_ops(device, encoders.speaker.program(), [&](const std::string& label, const backend::Buffer& out) {
        if (label == "speaker_encoder.mel") {
          expect_close(rows_of(device, out, 0, c.mel_edge), c.floats("mel_head"), 1e-5, c.name + " mel head");
          expect_close(rows_of(device, out, c.mel_frames - c.mel_edge, c.mel_edge), c.floats("mel_tail"),
                       1e-5, c.name + " mel tail");
          std::vector<float> strided;
          for (int64_t t = 0; t < c.mel_frames; t += c.mel_stride) {
            const std::vector<float> row = rows_of(device, out, t, 1);
            strided.insert(strided.end(), row.begin(), row.end());
          }
          expect_close(strided, c.floats("mel_strided"), 1e-5, c.name + " mel");
          ++seen;
        }
        if (label == "speaker_encoder.mfa")
          expect_close(rows_of(device, out, 0, c.mel_edge), c.floats("mfa_head"), 2e-5, c.name + " mfa"),
              ++seen;
        if (label == "speaker_encoder.asp")
          expect_close(rows_of(device, out, 0, 1), c.floats("pooled"), 2e-5, c.name + " pooled"), ++seen;
      });
      EXPECT_EQ(seen, 3);
      const std::vector<float> want = c.floats("xvector"), got = encoders.speaker.encode(c.clip());
      EXPECT_EQ(got, encoders.speaker.read_vector());
      expect_close(got, want, 2e-5, c.name + " x-vector");
      EXPECT_GE(cosine(got, want), 0.999999) << c.name;  // 0.9998 for another clip of these
    }
  }
}

/// 400 frames hold every clip, so that the stored stages are those of one chunk.
TEST(CodecEncoder, EqualsTheOfficialOne) {
  Encoders encoders("tiny-base", {400});
  backend::Backend& device = *encoders.device;
  int compared = 0;
  for (const EncodeCase& c : load_cases()) {
    if (!c.has_codes()) continue;
    encoders.codec.reset();
    encoders.codec.stage(c.clip());
    int seen = 0;
    run_ops(device, encoders.codec.program(), [&](const std::string& label, const backend::Buffer& out) {
      const int64_t rows = (c.samples + 959) / 960;
      if (label == "codec_encoder.exit")
        expect_close(rows_of(device, out, 0, rows), c.floats("conv"), 1e-5, c.name + " convolutions"), ++seen;
      if (label == "codec_encoder.downsample") ++seen;
    });
    EXPECT_EQ(seen, 2);
    std::vector<int32_t> codes;
    encoders.codec.read_codes(codes);
    EXPECT_EQ(codes, audio::read_npy(c.folder / "codes.npy").ints()) << c.name;
    ++compared;
  }
  EXPECT_GE(compared, 10);
}

TEST(CodecEncoder, LatentsEqualTheOfficialOnes) {
  Encoders encoders("tiny-base", {400});
  for (const EncodeCase& c : load_cases()) {
    if (!c.has_codes()) continue;
    encoders.codes(c.clip());
    for (const backend::OpRecord& op : encoders.device->ops(encoders.codec.program()))
      if (op.kind == "padded_conv" && op.label == "codec_encoder.downsample")
        expect_close(rows_of(*encoders.device, op.outputs[0], 0, c.frames), c.floats("latent"), 2e-5,
                     c.name + " latent");
  }
}

TEST(CodecEncoder, AnyChunkingGivesTheSameCodes) {
  Encoders whole("tiny-base", {400});
  const std::vector<float> clip = clip_samples(28801 + 1920 * 30, 5);
  const std::vector<int32_t> want = whole.codes(clip);
  for (const std::vector<int32_t>& chunks : std::vector<std::vector<int32_t>>{{1}, {3}, {16}, {4, 30}}) {
    Encoders encoders("tiny-base", chunks);
    EXPECT_EQ(encoders.codes(clip), want) << chunks.back();
    EXPECT_EQ(encoders.codes(clip), want) << "a second time";
    for (const size_t frames : {1, 2, 7}) {  // calls of whole frames
      std::vector<int32_t> got;
      encoders.codec.reset();
      for (size_t at = 0; at < clip.size(); at += 1920 * frames)
        encoders.codec.encode(std::span(clip).subspan(at, std::min(1920 * frames, clip.size() - at)), got);
      EXPECT_EQ(got, want);
    }
  }
}

TEST(CodecEncoder, EveryLengthGivesItsFrames) {
  Encoders encoders("tiny-base");
  for (const int64_t samples : {1, 2, 3, 4, 100, 959, 960, 961, 1919, 1920, 1921, 30719, 30720, 30721}) {
    const std::vector<int32_t> codes = encoders.codes(clip_samples(samples, 9));
    EXPECT_EQ(codes.size(), static_cast<size_t>((samples + 1919) / 1920 * 16)) << samples;
  }
  EXPECT_TRUE(encoders.codes({}).empty());
}

TEST(CodecEncoder, AStreamEndsInsideAFrameOnce) {
  Encoders encoders("tiny-base");
  std::vector<int32_t> codes;
  const std::vector<float> clip = clip_samples(1921, 1);
  encoders.codec.encode(clip, codes);
  EXPECT_THROW(encoders.codec.encode(clip, codes), Error);
  encoders.codec.reset();
  encoders.codec.encode(clip, codes);
}

TEST(Encoders, TheSmallestProgramThatHoldsItIsTaken) {
  Encoders e("tiny-base", {2, 4, 16}, "", {24000, 48000});
  const auto codec = [&](int64_t samples) {
    e.codec.reset(), e.codec.stage(clip_samples(samples, 1));
    return e.codec.program().id;
  };
  const auto speaker = [&](int64_t samples) {
    e.speaker.stage(clip_samples(samples, 1));
    return e.speaker.program().id;
  };
  EXPECT_EQ(codec(1), codec(2 * 1920));
  EXPECT_NE(codec(2 * 1920), codec(2 * 1920 + 1));
  EXPECT_EQ(codec(2 * 1920 + 1), codec(4 * 1920));
  EXPECT_NE(codec(4 * 1920), codec(4 * 1920 + 1));
  EXPECT_EQ(speaker(1280), speaker(24000));
  EXPECT_NE(speaker(24000), speaker(24001));
}

TEST(SpeakerEncoder, AnyProgramGivesTheSameVector) {
  Encoders one("tiny-base"), two("tiny-base", {16}, "", {24000, 30 * 24000});
  for (const int64_t samples : {1280, 23999, 24000, 24001, 72000}) {
    const std::vector<float> clip = clip_samples(samples, 3);
    EXPECT_EQ(two.speaker.encode(clip), one.speaker.encode(clip)) << samples;
  }
}

TEST(Encoders, EveryTargetGivesTheSameCodes) {
  const std::vector<float> clip = clip_samples(72000, 2);
  std::vector<int32_t> want;
  std::vector<float> vector;
  for (const std::string& target : backend::cpu_targets()) {
    Encoders encoders("tiny-base", {16}, target);
    const std::vector<int32_t> codes = encoders.codes(clip);
    const std::vector<float> x = encoders.speaker.encode(clip);
    if (want.empty()) want = codes, vector = x;
    EXPECT_EQ(codes, want) << target;
    expect_close(x, vector, 1e-5, target);
  }
}

}  // namespace
}  // namespace skald::test
