// Memory left to the process, from a made-up /proc and control groups; the refusal.
#include "engine/memory.h"

#include <gtest/gtest.h>

#include <fstream>
#include <limits>

#include "support.h"

namespace skald::engine {
namespace {

namespace fs = std::filesystem;

class AvailableMemory : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::path(testing::TempDir()) /
            ("skald-memory-" + std::string(testing::UnitTest::GetInstance()->current_test_info()->name()));
    fs::remove_all(root_);
  }
  void TearDown() override { fs::remove_all(root_); }
  void write(const std::string& file, const std::string& content) {
    fs::create_directories((root_ / file).parent_path());
    std::ofstream(root_ / file) << content;
  }
  fs::path root_;
};

TEST_F(AvailableMemory, NothingKnown) { EXPECT_EQ(available_memory(root_), std::nullopt); }

TEST_F(AvailableMemory, WholeMachine) {
  write("proc/meminfo", "MemTotal:  100 kB\nMemFree:  1 kB\nMemAvailable:      50 kB\n");
  write("proc/self/cgroup", "0::/\n");
  EXPECT_EQ(available_memory(root_), 50 * 1024u);
}

TEST_F(AvailableMemory, TightestGroupOfVersion2) {
  write("proc/meminfo", "MemAvailable: 1000 kB\n");
  write("proc/self/cgroup", "0::/a/b\n");
  write("sys/fs/cgroup/a/b/memory.max", "max\n");
  write("sys/fs/cgroup/a/b/memory.current", "10\n");
  write("sys/fs/cgroup/a/memory.max", "5000\n");
  write("sys/fs/cgroup/a/memory.current", "3000\n");
  write("sys/fs/cgroup/a/memory.stat", "anon 2000\ninactive_file 700\n");
  EXPECT_EQ(available_memory(root_), 5000u - 2300u);
}

TEST_F(AvailableMemory, GroupOfVersion1) {
  write("proc/self/cgroup", "5:cpu,cpuacct:/x\n4:memory:/x\n");
  write("sys/fs/cgroup/memory/x/memory.limit_in_bytes", "4000\n");
  write("sys/fs/cgroup/memory/x/memory.usage_in_bytes", "4500\n");
  EXPECT_EQ(available_memory(root_), 0u);
}

TEST(AvailableMemoryHere, IsKnown) { EXPECT_GT(available_memory().value_or(0), 1u << 20); }

const EngineOptions kOptions = {.slots = 3, .cache_capacity = 777};

TEST(CheckMemory, RefusesWithSizesAndWhatToLower) {
  const Error error =
      test::error_of([] { check_memory({.weights = 600, .cache = 300, .buffers = 101}, 1000, kOptions); });
  EXPECT_EQ(error.code(), ErrorCode::out_of_memory);
  const std::string what = error.what();
  for (const char* part : {"1001 bytes", "only 1000 bytes", "cache_capacity (now 777)", "slots (now 3)"})
    EXPECT_NE(what.find(part), std::string::npos) << part << " in: " << what;
}

TEST(CheckMemory, AcceptsWhatFits) {
  EXPECT_NO_THROW(check_memory({.weights = 600, .cache = 300, .buffers = 100}, 1000, kOptions));
  EXPECT_NO_THROW(check_memory({.weights = std::numeric_limits<uint64_t>::max()}, std::nullopt, kOptions));
}

// B086: worst case reserved or refused at start.
TEST(Reports, B086_TooLittleMemoryFailsTheStart) {
  EngineOptions options;
  options.slots = 1024, options.cache_capacity = 32768;
  const model::ModelConfig config = model::load_config(test::model_dir("tiny-cv"));
  const model::MemoryEstimate need = model::estimate_memory(config, {.slots = 1024, .cache_capacity = 32768});
  if (need.total() <= available_memory().value_or(0)) GTEST_SKIP() << "this machine has the memory";
  const Error error = test::error_of([&] { Engine::open(test::model_dir("tiny-cv"), options); });
  EXPECT_EQ(error.code(), ErrorCode::out_of_memory);
}

// B088: the estimate is linear in slots and capacity, and neither overflows.
TEST(Reports, B088_EstimateOfExtremeSizes) {
  const model::ModelConfig config = model::load_config(test::model_dir("tiny-cv"));
  const auto cache = [&](int32_t slots, int32_t capacity) {
    return model::estimate_memory(config, {.slots = slots, .cache_capacity = capacity, .prefix_entries = 0})
        .cache;
  };
  EXPECT_EQ(cache(8, 1000), 8 * cache(1, 1000));
  EXPECT_EQ(cache(1, 4000), 4 * cache(1, 1000));
  constexpr int32_t most = std::numeric_limits<int32_t>::max();
  const unsigned __int128 exact = static_cast<unsigned __int128>(cache(1, 1)) * 1024 * most;
  EXPECT_EQ(static_cast<unsigned __int128>(cache(1024, most)), exact);
  EXPECT_EQ(model::estimate_memory(config, {.codec_chunk = 4096}).buffers,
            256 * model::estimate_memory(config, {.codec_chunk = 16}).buffers);
}

TEST(EngineOptions, AreChecked) {
  const auto open = [](const EngineOptions& o) {
    return test::error_of([&] { Engine::open(test::model_dir("tiny-cv"), o); }).code();
  };
  EXPECT_EQ(open({.device = "cuda"}), ErrorCode::device);
  EXPECT_EQ(open({.threads = -1}), ErrorCode::invalid_argument);
  EXPECT_EQ(open({.cpu_target = "Z80"}), ErrorCode::invalid_argument);
  EXPECT_EQ(open({.weights = "int4"}), ErrorCode::invalid_argument);
  EXPECT_EQ(open({.compute = "quick"}), ErrorCode::invalid_argument);
  EXPECT_EQ(open({.device = "hip:0", .compute = "fast"}), ErrorCode::unsupported);
  EXPECT_EQ(open({.slots = 0}), ErrorCode::invalid_argument);
  EXPECT_EQ(open({.cache_capacity = 0}), ErrorCode::invalid_argument);
  EXPECT_EQ(open({.cache_capacity = 32769}), ErrorCode::invalid_argument);
  EXPECT_EQ(open({.codec_chunk = 0}), ErrorCode::invalid_argument);
  EXPECT_EQ(test::error_of([] { Engine::open(test::model_dir("no-such-model")); }).code(),
            ErrorCode::model_not_found);
}

/// The tiny models are BF16 files, so "auto" is bf16 and rounds nothing; no choice rounds the codec.
TEST(EngineOptions, WeightsOfTheFilesTypeChangeNothing) {
  std::vector<std::vector<int32_t>> codes;
  std::vector<std::vector<float>> decoded;
  for (const char* weights : {"f32", "bf16", "auto", "int8"}) {
    const auto engine = Engine::open(test::model_dir("tiny-cv"), {.threads = 1, .weights = weights});
    SpeechRequest request;
    request.text = "One frame after another.", request.voice = "anna", request.language = "english";
    request.seed = 5, request.max_frames = 12;
    request.sampling.min_new_tokens = 12;
    const auto stream = engine->start_stream(request);
    while (!stream->next_audio(4).last) {
    }
    codes.push_back(stream->codes());
    decoded.push_back(engine->decode(codes.front(), DecodeMode::stream));
  }
  EXPECT_GE(codes[0].size(), 12u * 16u);
  EXPECT_EQ(codes[0], codes[1]);
  EXPECT_EQ(codes[0], codes[2]);
  EXPECT_EQ(decoded[0], decoded[3]) << "the codec is never rounded";
}

}  // namespace
}  // namespace skald::engine
