// Comparing and examining a GPU that is none: the real kernels and host path on a stand-in driver, with
// faults.
#include <gtest/gtest.h>

#include "diagnose/bench.h"
#include "diagnose/compare.h"
#include "diagnose/doctor.h"
#include "diagnose/self_test.h"
#include "engine/devices.h"
#include "model/snapshot_files.h"
#include "standin/rig.h"

namespace skald::diagnose {
namespace {

using standin::Face;
using standin::Standin;

EngineOptions engine_options(const Standin& driver) {
  const backend::GpuOptions gpu = driver.options();
  EngineOptions o;
  o.device = gpu.device;
  o.threads = 1;
  o.gpu_libraries = gpu.library_folders, o.gpu_cache = gpu.cache_folder, o.gpu_helper = gpu.helper;
  o.gpu_deadline_ms = 60000;
  return o;
}

CompareOptions options_for(const Standin& driver) {
  CompareOptions o;
  o.model = SKALD_FIXTURES "/models/tiny-cv";
  o.a.threads = 1;
  o.b = engine_options(driver);
  // Kernels run as fibers on the CPU, so little of everything: the lengths are for real devices.
  o.lengths = {1, 33};
  o.frames = 1, o.codec_frames = 1;
  return o;
}

class Faces : public testing::TestWithParam<std::pair<Face, const char*>> {};

TEST_P(Faces, TheCpuAndTheStandInAgree) {
  const Standin driver(GetParam().first);
  CompareOptions o = options_for(driver);
  o.a.weights = o.b.weights = GetParam().second;
  const CompareReport r = run_compare(o);
  EXPECT_TRUE(r.equal()) << to_text(r);
  EXPECT_GT(r.ops_compared, 1000u);
  EXPECT_GT(r.worst_cosine(), 0.99999);
}
INSTANTIATE_TEST_SUITE_P(Drivers, Faces,
                         testing::Values(std::pair(Face::hip, "f32"), std::pair(Face::cuda, "int8")));

TEST(StandIn, AKernelOffByATenthOfAPercentIsNamed) {
  Standin driver(Face::hip);
  driver.set_faults("skew=0.001:attention_64_2");
  CompareOptions o = options_for(driver);
  o.lengths = {1}, o.codec_frames = 0;
  o.forced = false;
  const CompareReport r = run_compare(o);
  ASSERT_FALSE(r.differences.empty()) << to_text(r);
  EXPECT_EQ(r.differences.front().kind, "attention");
  EXPECT_EQ(r.differences.front().measure, Measure::norm_ratio);
  EXPECT_NEAR(r.differences.front().value, 0.001, 1e-4);
  for (const OpDifference& d : r.differences) EXPECT_EQ(d.kind, "attention");
}

SelfTestOptions self_test_for(const Standin& driver, const skald::test::TempDir& scratch) {
  SelfTestOptions o;
  o.engine = engine_options(driver);
  o.model = SKALD_FIXTURES "/models/tiny-cv";
  o.scratch = scratch.path();
  o.prompts = {1}, o.compared_frames = 0, o.codec_frames = 0;
  o.lengths = {2, 6};
  return o;
}

/// Work is done and never reported: nothing fails, and it is counted.
TEST(StandIn, LostCompletionsAreFound) {
  const skald::test::TempDir scratch;
  Standin driver(Face::hip);
  SelfTestOptions o = self_test_for(driver, scratch);
  o.on_progress = [&](std::string_view stage) {
    if (stage == "generation of 6 frames") driver.set_faults("blind@launch=2");
  };
  const SelfTestReport r = run_self_test(o);
  EXPECT_TRUE(r.passed()) << r.failure();
  EXPECT_GT(r.lost_completions(), 0u);
  const auto findings = examine_self_test(r);
  EXPECT_TRUE(std::any_of(findings.begin(), findings.end(),
                          [](const Finding& f) { return f.id == "lost-completions"; }));
}

TEST(StandIn, ADeviceThatStandsStillIsFound) {
  const skald::test::TempDir scratch;
  Standin driver(Face::hip);
  SelfTestOptions o = self_test_for(driver, scratch);
  o.on_progress = [&](std::string_view stage) {
    if (stage == "generation of 6 frames") driver.set_faults("hang@launch=40");
  };
  o.engine.gpu_deadline_ms = 3000;
  const SelfTestReport r = run_self_test(o);
  ASSERT_TRUE(r.error.has_value());
  EXPECT_EQ(r.error->code(), ErrorCode::device_wedged) << r.failure();
  EXPECT_EQ(r.stage, "generation of 6 frames");
}

// ---- who may refuse a device

TEST(StandIn, ARefusedGpuIsAnErrorOrTheCpu) {
  const Standin driver(Face::hip);
  EngineOptions o = engine_options(driver);
  GpuFacts seen;
  o.on_gpu = [&](const GpuFacts& gpu) {
    seen = gpu;
    throw Error(ErrorCode::device, "it failed its self-test");
  };
  try {
    engine::open_device(o);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::device);
    EXPECT_STREQ(e.what(), "it failed its self-test");
  }
  EXPECT_EQ(seen.id, "hip:0");
  EXPECT_EQ(seen.architecture, "gfx1100");
  EXPECT_FALSE(seen.name.empty());
  EXPECT_TRUE(seen.driver.starts_with("HIP ")) << seen.driver;
  o.device = "auto";
  const engine::OpenedDevice opened = engine::open_device(o);
  EXPECT_TRUE(opened.cpu);
  ASSERT_EQ(opened.notes.size(), 1u);
  EXPECT_NE(opened.notes[0].find("it failed its self-test"), std::string::npos);
}

// ---- doctor

std::vector<Finding> examined(const Standin& driver, const std::string& device) {
  DoctorOptions o;
  o.engine = engine_options(driver);
  o.engine.device = device;
  backend::GpuOptions gpu = driver.options();
  gpu.device = device;
  o.list = [gpu] { return backend::list_gpus(gpu); };
  return run_doctor(o);
}
Finding one(const std::vector<Finding>& all, const std::string& id, const std::string& words = "") {
  for (const Finding& f : all)
    if (f.id == id && f.what.find(words) != std::string::npos) return f;
  ADD_FAILURE() << id << " " << words;
  return {};
}

/// A device that works behind the host is measured in requests as they are, and program by program in others.
TEST(StandIn, ABenchTellsLaunchesBytesAndKernels) {
  const Standin driver(Face::cuda);
  BenchOptions o;
  o.model = SKALD_FIXTURES "/models/tiny-cv";
  o.engine = engine_options(driver);
  o.frames = 4, o.chunk = 2, o.warm_runs = 1;
  const BenchReport r = run_bench(o);
  EXPECT_GT(r.frame_ms, 0);
  EXPECT_GT(r.cold_first_audio_ms, 0);
  EXPECT_GT(r.language_model.ms.median, 0);
  EXPECT_GT(r.language_model.bytes, 0);
  EXPECT_GT(r.codec.launches, 0);
  double launches = 0;  // a program counts as one stage: its mark and what reports frames are no kernels here
  for (const backend::KernelTime& k : r.kernels) launches += k.launches;
  EXPECT_GT(launches, 100);
  EXPECT_GT(r.language_model.launches, launches);
  EXPECT_LT(r.language_model.launches, launches + 10);
}

TEST(StandIn, DoctorListsDevicesCompilerAndCode) {
  const Standin driver(Face::hip, "gfx1100:24576:d,gfx1036:512:i");
  const auto all = examined(driver, "auto");
  EXPECT_EQ(one(all, "library-amd").severity, Severity::ok);
  EXPECT_NE(one(all, "library-amd").what.find("libamdhip64.so.6"), std::string::npos);
  EXPECT_EQ(one(all, "device", "gfx1100").severity, Severity::ok);
  EXPECT_NE(one(all, "device", "gfx1036").what.find("integrated"), std::string::npos);
  EXPECT_NE(one(all, "compiler").what.find("libhiprtc"), std::string::npos);
  one(all, "code", "hip:0");
}

/// Row 43 of the requirements: a library that ends its process when it starts.
TEST(StandIn, DoctorSurvivesADriverThatCrashes) {
  const Standin driver(Face::hip, "", "crash@init");
  const Finding library = one(examined(driver, "hip"), "library-amd");
  EXPECT_EQ(library.severity, Severity::error);
  EXPECT_NE(library.what.find("signal"), std::string::npos) << library.what;
}

/// B099: the chip is not among those that the compiler knows.
TEST(StandIn, DoctorKnowsWhatTheCompilerDoesNot) {
  const Standin driver(Face::hip, "gfx1999:8192:d");
  const Finding compiler = one(examined(driver, "hip"), "compiler");
  EXPECT_EQ(compiler.severity, Severity::error);
  EXPECT_NE(compiler.what.find("does not know gfx1999"), std::string::npos) << compiler.what;
}

}  // namespace
}  // namespace skald::diagnose
