// What --dump leaves behind, run after run and try after try.
#include "cli/dump.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "audio/npy.h"
#include "engine/fake_engine.h"

namespace skald::cli {
namespace {

namespace fs = std::filesystem;

class DumpTest : public testing::Test {
 protected:
  DumpTest() {
    engine_.info_.hidden_size = 8, engine_.info_.vocab_size = 12, engine_.info_.codes = 4;
    fs::remove_all(dir_);
  }
  ~DumpTest() override { fs::remove_all(dir_); }

  void step(const Diagnosis& diagnosis) {
    const std::vector<float> hidden(8), logits(12), predictor(15 * 4);
    const std::vector<int32_t> codes(16, 1);
    diagnosis.on_step({.hidden = hidden,
                       .logits = logits,
                       .probs = logits,
                       .codes = codes,
                       .predictor_logits = predictor,
                       .predictor_probs = predictor});
  }
  std::vector<uint64_t> shape(const char* name) {
    return audio::read_npy(dir_ / "piece-000" / (std::string(name) + ".npy")).shape;
  }

  test::FakeEngine engine_;
  fs::path dir_ = fs::temp_directory_path() / ("skald-dump-test-" + std::to_string(::getpid()));
};

TEST_F(DumpTest, ASecondTryLeavesNothingOfTheFirst) {
  Recorder recorder(engine_, dir_, {});
  const Diagnosis* first = recorder.begin(0, 0, {});
  for (int i = 0; i < 40; ++i) step(*first);
  const Diagnosis* second = recorder.begin(0, 1, {});
  for (int i = 0; i < 2; ++i) step(*second);
  recorder.end({}, {});
  EXPECT_EQ(shape("codes"), (std::vector<uint64_t>{2, 16}));
  EXPECT_EQ(shape("logits"), (std::vector<uint64_t>{2, 12}));
}

TEST_F(DumpTest, WhatFailedForOtherReasonsStays) {
  Recorder recorder(engine_, dir_, {});
  step(*recorder.begin(0, 0, {}));
  recorder.abandon();
  EXPECT_EQ(shape("codes"), (std::vector<uint64_t>{1, 16}));
}

TEST_F(DumpTest, AbandoningBeforeTheFirstRequestTouchesNothing) {
  fs::create_directories(dir_);
  const fs::path before = fs::current_path();
  fs::current_path(dir_);
  std::ofstream("codes.npy") << "mine";
  Recorder nothing(engine_, {}, {}), something(engine_, dir_ / "dump", {});
  nothing.abandon(), something.abandon();
  fs::current_path(before);
  EXPECT_TRUE(fs::exists(dir_ / "codes.npy"));
  EXPECT_FALSE(fs::exists(dir_ / "dump"));
}

}  // namespace
}  // namespace skald::cli
