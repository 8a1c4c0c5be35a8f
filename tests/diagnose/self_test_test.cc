// The self-test: passes on a sound device, says what is wrong with another one, and is remembered.
#include "diagnose/self_test.h"

#include <gtest/gtest.h>

#include "backend/cpu/cpu.h"
#include "diagnose/faulty_device.h"
#include "diagnose/test_model.h"
#include "model/model.h"
#include "model/snapshot_files.h"
#include "model/verify.h"

namespace skald::diagnose {
namespace {

using skald::test::TempDir;
using test::Fault;

/// A CPU with counters and a fault; opened as "faulty".
SelfTestOptions options_with(const TempDir& scratch, Fault fault = {}) {
  SelfTestOptions o;
  o.engine.device = "faulty";
  o.engine.threads = 1;
  o.scratch = scratch.path();
  o.lengths = {4, 20, 40};
  o.open = [fault](const EngineOptions& e) -> std::unique_ptr<backend::Backend> {
    auto cpu = backend::make_cpu_backend({.threads = 1, .weights = e.weights});
    if (e.device != "faulty") return cpu;
    return std::make_unique<test::FaultyDevice>(std::move(cpu), fault);
  };
  return o;
}

TEST(TestModel, IsAWholeModelAndGoesAway) {
  const TempDir parent;
  std::filesystem::path path;
  {
    const TestModel small(parent.path());
    path = small.path();
    const model::ModelConfig config = model::load_config(path);
    EXPECT_TRUE(config.has_input_projection());
    EXPECT_TRUE(model::has_bf16_matrices(path));
    const model::VerifyReport report = model::verify_model(path);
    EXPECT_TRUE(report.ok()) << (report.findings.empty() ? "" : report.findings[0].what);
    // The same bytes each time.
    const TempDir again;
    write_test_model(again.path());
    EXPECT_EQ(skald::test::read_file(again / "model.safetensors"),
              skald::test::read_file(path / "model.safetensors"));
  }
  EXPECT_FALSE(std::filesystem::exists(path));
}

/// What two sound devices differ by is rounding, here fused and single multiply-adds: the codec must not make
/// it large, or the self-test would call a device faulty that is not.
TEST(TestModel, ItsCodecKeepsRoundingSmall) {
  const skald::test::TempDir scratch;
  const TestModel model(scratch.path());
  for (const std::string& target : backend::cpu_targets()) {
    CompareOptions o;
    o.model = model.path();
    o.a.threads = o.b.threads = 1;
    o.b.device = "cpu:" + target;
    o.lengths = {1}, o.frames = 0, o.codec_frames = SelfTestOptions{}.codec_frames;
    const CompareReport r = run_compare(o);
    EXPECT_LT(r.waveform_difference, 1e-5) << target;
    EXPECT_GT(r.waveform_rms, 0.05) << "a silent codec shows nothing";
  }
}

TEST(SelfTest, ASoundDevicePasses) {
  const TempDir scratch;
  std::vector<std::string> stages;
  SelfTestOptions o = options_with(scratch);
  o.on_progress = [&](std::string_view stage) { stages.emplace_back(stage); };
  const SelfTestReport r = run_self_test(o);
  EXPECT_TRUE(r.passed()) << r.failure();
  EXPECT_EQ(r.failure(), "");
  EXPECT_EQ(r.model, "test model");
  ASSERT_EQ(r.generations.size(), 3u);
  EXPECT_EQ(r.generations[2].frames, 40);
  EXPECT_GT(r.generations[2].ms_per_frame, 0);
  EXPECT_GT(r.measured_rtf(), 0);
  EXPECT_GT(r.bytes_per_frame, 1e6);
  EXPECT_EQ(r.lost_completions(), 0u);
  EXPECT_EQ(stages.back(), "generation of 40 frames");
  EXPECT_TRUE(std::filesystem::is_empty(scratch.path()));
}

TEST(SelfTest, AModelOfTheUserIsUsed) {
  const TempDir scratch;
  SelfTestOptions o = options_with(scratch);
  o.model = SKALD_FIXTURES "/models/tiny-cv";
  const SelfTestReport r = run_self_test(o);
  EXPECT_TRUE(r.passed()) << r.failure();
  EXPECT_EQ(r.model, "custom_voice 0b6");
}

TEST(SelfTest, WrongNumbersAreNamed) {
  const TempDir scratch;
  const SelfTestReport r = run_self_test(options_with(
      scratch, {.kind = "gated_pair",
                .label = "talker.layers.2",
                .spoil = [](auto& device, const auto& view, const auto& rows) {
                  test::change_rows(device, view, rows.first, rows.count, [](int32_t, auto v) { v[0] += 1; });
                }}));
  EXPECT_FALSE(r.passed());
  EXPECT_NE(r.failure().find("talker.layers.2"), std::string::npos) << r.failure();
  EXPECT_EQ(r.generations.size(), 3u);  // the rest is looked at all the same
}

TEST(SelfTest, ADeviceThatStandsStillLate) {
  const TempDir scratch;
  bool late = false;
  SelfTestOptions o =
      options_with(scratch, {.kind = "publish_frame", .spoil = [&](auto&, const auto&, const auto&) {
                               if (late) throw Error(ErrorCode::device_wedged, "no progress for 20 s");
                             }});
  o.on_progress = [&](std::string_view stage) { late = stage == "generation of 40 frames"; };
  const SelfTestReport r = run_self_test(o);
  EXPECT_FALSE(r.passed());
  ASSERT_TRUE(r.error.has_value());
  EXPECT_EQ(r.error->code(), ErrorCode::device_wedged);
  EXPECT_EQ(r.stage, "generation of 40 frames");
  EXPECT_EQ(r.failure(), "generation of 40 frames: no progress for 20 s [device_wedged]");
  EXPECT_EQ(r.generations.size(), 2u);
}

TEST(SelfTest, ADeviceThatDoesNotRepeatItself) {
  const TempDir scratch;
  int32_t draws = -1;
  SelfTestOptions o = options_with(scratch, {.kind = "sample",
                                             .label = "talker.sample",
                                             .output = 1,
                                             .spoil = [&](auto& device, const auto& view, const auto& rows) {
                                               if (draws < 0 || ++draws != 3) return;
                                               int32_t code = 0;
                                               const backend::Buffer one =
                                                   view.row_range(rows.first, 1).columns(0, 1);
                                               device.read(one, std::as_writable_bytes(std::span(&code, 1)));
                                               code = (code + 1) % 512;
                                               device.write(one, std::as_bytes(std::span(&code, 1)));
                                             }});
  o.on_progress = [&](std::string_view stage) { draws = stage == "generation of 40 frames" ? 0 : -1; };
  const SelfTestReport r = run_self_test(o);
  EXPECT_FALSE(r.repeatable);
  EXPECT_TRUE(r.kernels->equal());
  EXPECT_NE(r.failure().find("other codes"), std::string::npos) << r.failure();
}

TEST(SelfTest, AFileThatCannotBeWritten) {
  const TempDir scratch;
  SelfTestOptions o = options_with(scratch);
  o.scratch = scratch / "missing";
  try {
    run_self_test(o);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::io);
  }
}

TEST(BytesPerFrame, OfThePublishedModel) {
  // Specification 12.2: 0.6B, about 1.2 G weights of the predictor and 0.44 G of the talker.
  model::ModelConfig c;
  c.talker.hidden_size = 1024, c.talker.intermediate_size = 3072, c.talker.layers = 28, c.talker.heads = 16;
  c.talker.kv_heads = 8, c.talker.head_dim = 128, c.talker.vocab_size = 3072, c.talker.num_code_groups = 16;
  c.predictor = c.talker;
  c.predictor.layers = 5, c.predictor.vocab_size = 2048;
  EXPECT_NEAR(bytes_per_frame(c, 1, 0), 0.4435e9 + 1.2112e9, 0.01e9);
  EXPECT_NEAR(bytes_per_frame(c, 2, 100) - bytes_per_frame(c, 2, 0), 100.0 * 28 * 2 * 8 * 128 * 4, 1);
}

// ---- results that are kept

TEST(SelfTestCache, KeepsByKey) {
  const TempDir dir;
  const SelfTestCache cache(dir / "skald");
  EXPECT_FALSE(cache.find("a"));
  cache.keep("a", {true, "", 2});
  cache.keep("b", {false, "wrong \xff numbers", 0});
  ASSERT_TRUE(cache.find("a"));
  EXPECT_TRUE(cache.find("a")->passed);
  EXPECT_EQ(cache.find("a")->lost_completions, 2u);
  EXPECT_FALSE(cache.find("b")->passed);
  EXPECT_FALSE(cache.find("c"));
}

TEST(SelfTestCache, WhatIsDamagedIsMissing) {
  const TempDir dir;
  const SelfTestCache cache(dir.path());
  cache.keep("a", {true, "", 0});
  const auto file = std::filesystem::directory_iterator(dir.path())->path();
  const std::string whole = skald::test::read_file(file);
  for (size_t size = 0; size + 2 < whole.size(); size += 3) {
    skald::test::write_file(file, whole.substr(0, size));
    EXPECT_FALSE(cache.find("a")) << size;
  }
  // A file of another key under this name.
  std::string other = whole;
  other.replace(other.find("\"a\""), 3, "\"b\"");
  skald::test::write_file(file, other);
  EXPECT_FALSE(cache.find("a"));
  for (const char* text :
       {"[]", "{}", "null", R"({"key":"a","passed":1,"failure":"","lost_completions":0})"}) {
    skald::test::write_file(file, text);
    EXPECT_FALSE(cache.find("a")) << text;
  }
}

TEST(SelfTestCache, NoFolderAndNoRight) {
  SelfTestCache("").keep("a", {true, "", 0});
  EXPECT_FALSE(SelfTestCache("").find("a"));
  const TempDir dir;
  skald::test::write_file(dir / "file", "");
  SelfTestCache(dir / "file").keep("a", {true, "", 0});  // not a folder: not kept, no error
  EXPECT_FALSE(SelfTestCache(dir / "file").find("a"));
}

TEST(FirstStart, RunsOnceForDeviceDriverAndBuild) {
  const TempDir dir, scratch;
  int runs = 0;
  FirstStart start{.device = "hip:0 Radeon",
                   .driver = "HIP 6.2",
                   .build = "0.1",
                   .cache = dir.path(),
                   .test = options_with(scratch)};
  start.test.on_progress = [&](std::string_view stage) { runs += stage == "kernels against the CPU"; };
  EXPECT_TRUE(check_first_start(start).passed);
  EXPECT_TRUE(check_first_start(start).passed);
  EXPECT_EQ(runs, 1);
  for (std::string FirstStart::*part : {&FirstStart::device, &FirstStart::driver, &FirstStart::build}) {
    FirstStart other = start;
    other.*part += " other";
    EXPECT_TRUE(check_first_start(other).passed);
  }
  EXPECT_EQ(runs, 4);
}

TEST(FirstStart, AFailureIsSeenEveryTime) {
  const TempDir dir, scratch;
  int runs = 0;
  FirstStart start{
      .device = "bad",
      .driver = "1",
      .build = "1",
      .cache = dir.path(),
      .test = options_with(
          scratch, {.kind = "rope_angles", .spoil = [](auto& device, const auto& view, const auto& rows) {
                      test::change_rows(device, view, rows.first, 1, [](int32_t, auto v) { v[0] = 2; });
                    }})};
  start.test.on_progress = [&](std::string_view stage) { runs += stage == "kernels against the CPU"; };
  for (int i = 0; i < 2; ++i) {
    const KeptResult result = check_first_start(start);
    EXPECT_FALSE(result.passed);
    EXPECT_NE(result.failure.find("rope_angles"), std::string::npos) << result.failure;
  }
  EXPECT_EQ(runs, 1);
}

}  // namespace
}  // namespace skald::diagnose
