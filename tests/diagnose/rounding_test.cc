// Weights and products that round, on every SIMD target, against float32: all heads over 60 forced frames and
// the waveform. `skald compare --b-weights ... --b-compute ...` is the same at full size.
#include <gtest/gtest.h>

#include <map>

#include "backend/cpu/cpu.h"
#include "diagnose/compare.h"
#include "diagnose/faulty_device.h"

namespace skald::diagnose {
namespace {

/// float32 on the best target against `weights` and `compute` on `target`.
CompareOptions options_for(const std::string& weights, const std::string& compute,
                           const std::string& target) {
  CompareOptions o;
  o.model = SKALD_FIXTURES "/models/tiny-cv";
  o.a.threads = o.b.threads = 1;
  o.a.weights = "f32";
  o.b.weights = weights, o.b.compute = compute, o.b.device = "cpu:" + target;
  o.lengths = {8}, o.frames = 60, o.codec_frames = 48;
  return o;
}

/// What the documentation promises (docs/decisions/0006, 0010).
struct Promise {
  const char *weights, *compute;
  double worst_cosine, mean_cosine, waveform;
  bool rounds;
};

std::string name_of(const Promise& p) { return std::string(p.weights) + "_" + p.compute; }
void PrintTo(const Promise& p, std::ostream* out) { *out << name_of(p); }

class Rounding : public testing::TestWithParam<Promise> {};

INSTANTIATE_TEST_SUITE_P(Modes, Rounding,
                         testing::Values(Promise{"bf16", "exact", 0.99999, 0.99999, 1e-4, false},
                                         Promise{"int8", "exact", 0.99, 0.998, 1e-4, true},
                                         Promise{"bf16", "fast", 0.9995, 0.9995, 1e-3, true},
                                         Promise{"int8", "fast", 0.99, 0.998, 1e-3, true}),
                         [](const auto& p) { return name_of(p.param); });

bool fuses(const std::string& target) {
  return target != "scalar" && target.find("SSE") == std::string::npos;
}

TEST_P(Rounding, StaysWithinItsPromiseOnEveryTarget) {
  const Promise& p = GetParam();
  std::map<bool, CompareReport> reports;  // by whether the target fuses its multiply-adds
  for (const std::string& target : backend::cpu_targets()) {
    SCOPED_TRACE(target);
    const CompareReport r = run_compare(options_for(p.weights, p.compute, target));
    EXPECT_TRUE(r.equal()) << to_text(r);
    EXPECT_EQ(r.ops_compared, 0u) << "what is rounded differs in every op";
    uint64_t compared = 0;
    for (const HeadReport& head : r.heads) compared += head.compared;
    EXPECT_EQ(compared, 16u * (60 + 2));
    EXPECT_GT(r.worst_cosine(), p.worst_cosine);
    EXPECT_GT(r.mean_cosine(), p.mean_cosine);
    EXPECT_LT(r.waveform_difference, p.waveform);
    EXPECT_GT(r.waveform_rms, 0.01) << "there is nothing to hear";
    EXPECT_EQ(r.worst_cosine() < 0.9999 || r.waveform_difference > 1e-6, p.rounds)
        << r.worst_cosine() << ' ' << r.waveform_difference;
    // Targets that fuse give the same bits, and so do the others.
    const auto [first, fresh] = reports.emplace(fuses(target), r);
    if (fresh) continue;
    for (size_t g = 0; g < r.heads.size(); ++g)
      EXPECT_EQ(r.heads[g].mean_cosine, first->second.heads[g].mean_cosine) << g;
    EXPECT_EQ(r.waveform_difference, first->second.waveform_difference);
  }
}

TEST(RoundingLimits, AreThoseOfWhatDiffers) {
  const Arithmetic f32{"f32", "exact"}, bf16{"bf16", "exact"}, fast{"bf16", "fast"}, int8{"int8", "exact"},
      both{"int8", "fast"};
  EXPECT_EQ(request_tolerance(f32, bf16).worst_cosine, 0.99999);
  EXPECT_EQ(request_tolerance(f32, fast).worst_cosine, 0.9995);
  EXPECT_EQ(request_tolerance(f32, fast).waveform, 1e-3);
  EXPECT_EQ(request_tolerance(f32, int8).worst_cosine, 0.99);
  EXPECT_EQ(request_tolerance(f32, int8).waveform, 1e-4);
  EXPECT_EQ(request_tolerance(f32, both).mean_cosine, 0.998);
  EXPECT_EQ(request_tolerance(int8, both).worst_cosine, 0.9995);
  EXPECT_TRUE(request_tolerance(f32, f32).codes_equal);
  EXPECT_FALSE(request_tolerance(f32, bf16).codes_equal);
}

/// A fast device that is off by a hundredth in one kind of op.
CompareReport with_fault(const std::string& kind) {
  CompareOptions o = options_for("bf16", "fast", "");
  o.b.device = "faulty";
  o.frames = 12;
  o.open = [&](const EngineOptions& e) -> std::unique_ptr<backend::Backend> {
    auto cpu = backend::make_cpu_backend({.threads = 1, .weights = e.weights, .compute = e.compute});
    if (e.device != "faulty") return cpu;
    const auto spoil = [](auto& device, const auto& view, const auto& rows) {
      test::change_rows(device, view, rows.first, rows.count, [](int32_t, auto v) {
        for (size_t i = 0; i < v.size(); i += 2) v[i] *= 1.05f;
      });
    };
    return std::make_unique<test::FaultyDevice>(std::move(cpu), test::Fault{.kind = kind, .spoil = spoil});
  };
  return run_compare(o);
}

TEST(RoundingLimits, FindWhatIsNotRounding) {
  const CompareReport heads = with_fault("gated_pair"), codec = with_fault("conv");
  ASSERT_FALSE(heads.equal());
  EXPECT_EQ(heads.failures.front().where, "forced frames") << to_text(heads);
  ASSERT_FALSE(codec.equal());
  EXPECT_EQ(codec.failures.front().where, "codec") << to_text(codec);
}

}  // namespace
}  // namespace skald::diagnose
