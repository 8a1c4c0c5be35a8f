// A bench of the tiny models: every stage is seen, sums agree, nothing is left in the model's way.
#include "diagnose/bench.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <ctime>

#include "backend/cpu/cpu.h"
#include "diagnose/forwarding_device.h"
#include "diagnose/timed_device.h"
#include "model/model.h"

namespace skald::diagnose {
namespace {

class BenchOf : public testing::TestWithParam<const char*> {};

BenchOptions options_for(const std::string& model) {
  BenchOptions o;
  o.model = std::string(SKALD_FIXTURES "/models/") + model;
  o.engine.threads = 1;
  o.engine.cache_capacity = 0;
  o.warm_runs = 2;
  return o;
}

TEST_P(BenchOf, SeesEveryStage) {
  BenchOptions o = options_for(GetParam());
  o.frames = 70, o.chunk = 4;
  std::vector<std::string> progress;
  o.on_progress = [&](std::string_view what) { progress.emplace_back(what); };
  const BenchReport r = run_bench(o);

  EXPECT_NEAR(r.audio_seconds, 70 * 0.08, 1e-9);  // the stop token was never drawn
  EXPECT_NEAR(r.rtf, r.compute_ms / 1000 / r.audio_seconds, 1e-9);
  EXPECT_LE(r.compute_ms, r.wall_ms);
  EXPECT_GT(r.load_ms, 0);
  EXPECT_GT(r.cold_first_audio_ms, 0);
  EXPECT_EQ(r.warm_first_audio_ms.samples, 2u);
  EXPECT_GT(r.peak_rss_bytes, 1u << 20);
  EXPECT_GT(r.read_bandwidth(), 1e8);
  EXPECT_GT(r.peak_flops(), 1e8);
  EXPECT_GT(r.cpu_seconds, 0);
  EXPECT_EQ(r.warm_up_frames, 8);

  // Draws of 16 codes, the copy before them and publishing; 62 frames counted.
  EXPECT_EQ(r.sampling.ops, 18);
  for (const StageReport* stage : {&r.talker, &r.predictor, &r.sampling, &r.language_model}) {
    EXPECT_EQ(stage->ms.samples, 62u);
    EXPECT_GT(stage->ms.median, 0);
    EXPECT_LE(stage->ms.low, stage->ms.median);
    EXPECT_LE(stage->ms.median, stage->ms.high);
  }
  EXPECT_GT(r.talker.ms.median, r.attention.ms.median);
  EXPECT_GT(r.codec.flops, 0);
  EXPECT_GE(r.codec.ms.samples, 15u);  // calls of 4 frames
  EXPECT_GT(r.prefill.flops, 0);
  EXPECT_GT(r.cold_prefill.flops, r.prefill.flops - 1);
  EXPECT_NEAR(r.language_model.weight_bytes,
              r.talker.weight_bytes + r.predictor.weight_bytes + r.sampling.weight_bytes, 1);
  EXPECT_NEAR(r.language_model.flops, r.talker.flops + r.predictor.flops + r.sampling.flops,
              r.attention.flops);

  // What is outside of the ops is small, and never negative: both clocks enclose them.
  EXPECT_GE(r.other_ms, 0);
  ASSERT_EQ(r.lengths.size(), 2u);
  EXPECT_EQ(r.lengths[0].frames, 64);
  EXPECT_EQ(r.lengths[1].frames, 70);
  EXPECT_GT(r.lengths[1].total_ms(), 0);

  const bool clones = std::string(GetParam()).starts_with("tiny-base");
  EXPECT_EQ(r.reference.audio_seconds, clones ? 10 : 0);
  EXPECT_EQ(r.reference.ms.samples, clones ? 2u : 0u);
  if (clones) {
    EXPECT_GT(r.reference.first_ms, 0);
    double ops_ms = 0;
    for (const OpTime& op : r.reference.ops) ops_ms += op.ms;
    EXPECT_LE(ops_ms, r.reference.by_op_ms);
    EXPECT_GE(ops_ms, 0.5 * r.reference.by_op_ms);  // all chunks
    const auto has = [&](const char* label) {
      return std::ranges::any_of(r.reference.ops, [&](const OpTime& op) { return op.label == label; });
    };
    for (const char* label : {"speaker_encoder.mel", "codec_encoder.block.0",
                              "codec_encoder.transformer.layers.*", "codec_encoder.quantizer"})
      EXPECT_TRUE(has(label)) << label;
  }
  EXPECT_EQ(progress.front(), "the machine");
  EXPECT_EQ(progress.back(), "the machine, again");
}

INSTANTIATE_TEST_SUITE_P(Models, BenchOf,
                         testing::Values("tiny-cv", "tiny-base", "tiny-vd", "tiny-cv-1b7", "tiny-base-1b7",
                                         "tiny-endless"),
                         [](const auto& p) {
                           std::string name = p.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(Bench, WithoutMemoryForTheEncodersTheRestIsReported) {
  class NoRoom : public ForwardingDevice {
   public:
    using ForwardingDevice::ForwardingDevice;
    backend::Buffer allocate(std::string_view label, backend::Dtype dtype, int64_t rows,
                             int32_t width) override {
      if (label.starts_with("codec_encoder."))
        throw Error(ErrorCode::out_of_memory, "no room for the encoder");
      return ForwardingDevice::allocate(label, dtype, rows, width);
    }
  };
  BenchOptions o = options_for("tiny-base");
  o.frames = 3, o.warm_runs = 1;
  o.wrap = [](std::unique_ptr<backend::Backend> inner) { return std::make_unique<NoRoom>(std::move(inner)); };
  const BenchReport r = run_bench(o);
  EXPECT_EQ(r.reference.why_not, "no room for the encoder");
  EXPECT_EQ(r.reference.audio_seconds, 0);
  EXPECT_GT(r.compute_ms, 0);
}

TEST(Bench, CountsAttentionByThePosition) {
  BenchOptions o = options_for("tiny-cv");
  o.frames = 3, o.warm_runs = 1;
  const BenchReport few = run_bench(o);
  o.frames = 65;
  const BenchReport many = run_bench(o);
  // 28,672 f32 keys and values in the published layout; here 2 layers of 2 x kv_heads x head_dim. The median
  // frame of 3 is the second step (two steps: the mean), of 65 with 8 for warm-up the frame 36.
  const model::ModelConfig config = model::load_config(o.model);
  const double key = 4.0 * 2 * config.talker.layers * config.talker.kv_heads * config.talker.head_dim;
  EXPECT_NEAR(few.attention.bytes, key * (few.prompt_rows + 1.5), 1e-6);
  EXPECT_NEAR(many.attention.bytes, key * (many.prompt_rows + 36), 1e-6);
}

TEST(Bench, WeightsOfTheTinyPredictorByHand) {
  BenchOptions o = options_for("tiny-cv");
  o.frames = 4, o.warm_runs = 1;
  o.engine.weights = "f32";
  const BenchReport r = run_bench(o);
  const model::DecoderConfig p = model::load_config(o.model).predictor;
  const double heads = static_cast<double>(p.heads) * p.head_dim,
               kept = static_cast<double>(p.kv_heads) * p.head_dim, h = p.hidden_size;
  const double layer =
      h * (heads + 2 * kept) + heads * h + 3 * h * p.intermediate_size + 2 * h + 2 * p.head_dim;
  const double pass = p.layers * layer + h + h * p.vocab_size;  // final norm and one head
  EXPECT_NEAR(r.predictor.weight_bytes, 4 * 15 * pass, 0.02 * 4 * 15 * pass);
}

TEST(Bench, RefusesWhatItCannotMeasure) {
  const auto error = [](auto change) {
    BenchOptions o = options_for("tiny-cv");
    change(o);
    try {
      run_bench(o);
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::invalid_argument);
      return std::string(e.what());
    }
    return std::string("no error");
  };
  EXPECT_EQ(error([](BenchOptions& o) { o.frames = 1; }), "frames is 1, but must be within 2..30000");
  EXPECT_EQ(error([](BenchOptions& o) { o.chunk = 17; }), "chunk is 17, but must be within 1..16");
  EXPECT_EQ(error([](BenchOptions& o) { o.warm_runs = 0; }), "warm_runs is 0, but must be within 1..1000");
  EXPECT_EQ(error([](BenchOptions& o) { o.engine.cache_capacity = 300; }),
            "100 frames and their prompt need a cache of 356 positions, but cache_capacity is 300");
}

TEST(Bench, BandwidthOfAFrameIsThatOfTheProbesAroundIt) {
  const std::vector<ReadProbe> probes{{0, 40e9}, {16, 60e9}, {32, 20e9}};
  EXPECT_EQ(bandwidth_at(probes, 0), 50e9);
  EXPECT_EQ(bandwidth_at(probes, 15), 50e9);
  EXPECT_EQ(bandwidth_at(probes, 16), 40e9);
  EXPECT_EQ(bandwidth_at(probes, 40), 20e9);
  EXPECT_EQ(bandwidth_at(std::span(probes).first(1), 7), 40e9);
}

double thread_cpu_seconds() {
  timespec t{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

/// Memory that is read at 10 and 20 GB/s in turn, which takes 20 ms of a processor, however long that is on a
/// machine with other work.
class SlowMemory final : public ForwardingDevice {
 public:
  using ForwardingDevice::ForwardingDevice;
  double measure_read_speed() override {
    const double until = thread_cpu_seconds() + 0.020;
    while (thread_cpu_seconds() < until) {
    }
    return ++probes_ % 2 == 1 ? 10e9 : 20e9;
  }

 private:
  int probes_ = 0;
};

TEST(Bench, ProbesOfMemoryAreNoTimeOfTheRequest) {
  BenchOptions options = options_for("tiny-endless");
  options.frames = 64, options.chunk = 1;
  options.wrap = [](std::unique_ptr<backend::Backend> inner) {
    return std::make_unique<SlowMemory>(std::move(inner));
  };
  const BenchReport r = run_bench(options);
  EXPECT_EQ(r.read_speed.samples, 65u) << "one before, one behind every chunk";
  EXPECT_EQ(r.read_bandwidth(), 10e9);
  // Frames lie between a probe of either kind.
  EXPECT_NEAR(r.language_model.bandwidth_share, r.language_model.gb_per_s() / 15,
              0.1 * r.language_model.gb_per_s() / 15);
  const double probing = 64 * 0.020;
  EXPECT_LT(r.wall_ms / 1000, probing);
  EXPECT_LT(r.cpu_seconds, probing);
  EXPECT_GT(r.cpu_seconds, 0);
}

TEST(Bench, LoadedMeansWaiting) {
  BenchReport r;
  r.speed_before.read_bytes_per_second = 30e9, r.speed_after.read_bytes_per_second = 29e9;
  r.cpu_share = 0.5, r.wait_share = 0.01;
  EXPECT_FALSE(r.loaded());
  r.wait_share = 0.2;
  EXPECT_TRUE(r.loaded());
  r.wait_share = -1;
  EXPECT_TRUE(r.loaded());
  r.cpu_share = 0.95;
  EXPECT_FALSE(r.loaded());
  EXPECT_FALSE(r.memory_changed());
  r.speed_after.read_bytes_per_second = 20e9;  // seen with nothing beside it
  EXPECT_FALSE(r.loaded());
  EXPECT_TRUE(r.memory_changed());
}

TEST(TimedDevice, ChangesNoCode) {
  const auto codes_of = [](bool timed) {
    auto device = std::make_unique<TimedDevice>(backend::make_cpu_backend({.threads = 1}));
    device->time(timed);
    const auto model = model::Model::load(SKALD_FIXTURES "/models/tiny-cv", *device, {.cache_capacity = 64});
    const int32_t slot = 0;
    backend::SlotSettings settings;
    settings.max_frames = 10;
    settings.talker.min_new_tokens = 100;
    model->begin(slot, settings);
    std::vector<int32_t> codes(10 * 16);
    for (int frame = 0; frame < 10; ++frame) {
      if (frame > 0) model->frame_step({&slot, 1});
      model->frame_codes({&slot, 1});
      model->read_codes(slot, frame, std::span(codes).subspan(static_cast<size_t>(frame) * 16, 16));
    }
    EXPECT_EQ(device->take_runs().empty(), !timed);
    return codes;
  };
  EXPECT_EQ(codes_of(true), codes_of(false));
}

TEST(MeasureSpeed, EveryTargetReadsAndMultiplies) {
  for (const std::string& target : backend::cpu_targets()) {
    const backend::DeviceSpeed speed =
        backend::make_cpu_backend({.threads = 2, .target = target})->measure_speed();
    EXPECT_GT(speed.read_bytes_per_second, 1e8) << target;
    EXPECT_GT(speed.flops_per_second, 1e8) << target;
  }
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they need the addresses themselves
TEST(MeasureSpeed, WithoutMemoryForItTheBandwidthIsUnknown) {
  const auto device = backend::make_cpu_backend({.threads = 1});
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_AS, &before), 0);
  const rlimit small{rlim_t{1} << 20, before.rlim_max};  // nothing more
  ASSERT_EQ(::setrlimit(RLIMIT_AS, &small), 0);
  const backend::DeviceSpeed speed = device->measure_speed();
  ASSERT_EQ(::setrlimit(RLIMIT_AS, &before), 0);
  EXPECT_EQ(speed.read_bytes_per_second, 0);
  EXPECT_GT(speed.flops_per_second, 1e8);
  BenchReport r;
  r.speed_after.read_bytes_per_second = 50e9;
  EXPECT_FALSE(r.memory_changed()) << "what is unknown has not changed";
}
#endif

}  // namespace
}  // namespace skald::diagnose
