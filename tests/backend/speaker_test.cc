// log_mel, statistics and scale_rows against double-precision references.
#include <algorithm>
#include <cmath>
#include <complex>

#include "backend/cpu/fft.h"
#include "rig.h"
#include "skald/error.h"

namespace skald::backend::test {
namespace {

INSTANTIATE_TEST_SUITE_P(Targets, PerTarget, testing::ValuesIn(rig_devices()),
                         [](const auto& p) { return p.param; });

constexpr double kPi = 3.141592653589793;

std::complex<double> bin(const std::vector<double>& frame, int k) {
  std::complex<double> sum;
  for (size_t n = 0; n < frame.size(); ++n)
    sum +=
        frame[n] * std::polar(1.0, -2 * kPi * k * static_cast<double>(n) / static_cast<double>(frame.size()));
  return sum;
}

TEST(Fft, EqualsItsDefinition) {
  std::mt19937 random(3);
  std::normal_distribution<double> normal;
  for (const int size : {2, 8, 64}) {
    const cpu::Fft fft(size);
    std::vector<double> a(static_cast<size_t>(size)), b(a);
    std::vector<std::complex<double>> z;
    for (size_t i = 0; i < a.size(); ++i)
      a[i] = normal(random), b[i] = normal(random), z.emplace_back(a[i], b[i]);
    fft.transform(z);
    for (int k = 0; k <= size / 2; ++k) {
      EXPECT_LT(std::abs(fft.first(z, k) - bin(a, k)), 1e-12 * size);
      EXPECT_LT(std::abs(fft.second(z, k) - bin(b, k)), 1e-12 * size);
    }
  }
}

/// One lane count per hop: the lanes of the frames.
LaneCase frames_of(const LaneCase& c, int hop) {
  LaneCase out = c;
  out.rows /= hop;
  for (int32_t& n : out.count) n /= hop;
  return out;
}

TEST_P(PerTarget, LogMel) {
  constexpr int kFft = 32, kHop = 8, kBands = 5, kBins = kFft / 2 + 1, kRows = 90;
  Rig rig(GetParam());
  std::vector<float> filters = rig.normal(kBands * kBins);
  for (float& f : filters) f = std::max(0.0f, f);
  for (int k = 0; k < kBins; ++k)
    filters[static_cast<size_t>(2 * kBins + k)] = 0;  // an empty filter: the floor
  const Tensor weight = rig.load(WeightRole::vector, {kBands * kBins}, filters);
  std::vector<LaneCase> cases = lane_cases(kRows);
  for (const int n : {13, 16, 17, 89}) {
    cases.push_back(plain_case(kRows));
    cases.back().count = {n};
  }
  for (const LaneCase& c : cases) {
    std::vector<float> x;
    const Guarded gx = rig.guarded_input(c, 1, &x, 0.5f);
    const LaneCase frames = frames_of(c, kHop);
    const Guarded out = rig.guarded(frames.total(), kBands);
    rig.run([&](Ops& ops) {
      ops.log_mel({.x = gx.view,
                   .filters = weight.weight,
                   .fft = kFft,
                   .hop = kHop,
                   .out = out.view,
                   .lanes = rig.lanes(c)});
    });
    rig.expect_rows(out, frames, 1, 1e-6, [&](int row, int band) {
      const int lane = row / frames.rows, n = c.valid(lane),
                start = row % frames.rows * kHop - (kFft - kHop) / 2;
      std::vector<double> frame;
      for (int i = 0; i < kFft; ++i) {
        const int at = start + i, mirrored = at < 0 ? -at : at >= n ? 2 * (n - 1) - at : at;
        frame.push_back(x[static_cast<size_t>(lane * kRows + mirrored)] *
                        (0.5 - 0.5 * std::cos(2 * kPi * i / kFft)));
      }
      double sum = 0;
      for (int k = 0; k < kBins; ++k)
        sum += filters[static_cast<size_t>(band * kBins + k)] * std::sqrt(std::norm(bin(frame, k)) + 1e-9);
      const double want = std::log(std::max(sum, 1e-5));
      return Expected{want, std::abs(want) + 1};
    });
  }
  LaneCase c = plain_case(kRows);
  c.count = {12};
  const Buffer in = rig.buffer(kRows, 1, rig.normal(kRows)),
               to = rig.buffer(kRows / kHop, kBands, std::vector<float>(55));
  EXPECT_THROW(rig.run([&](Ops& ops) {
    ops.log_mel(
        {.x = in, .filters = weight.weight, .fft = kFft, .hop = kHop, .out = to, .lanes = rig.lanes(c)});
  }),
               Error);
}

/// Means, and deviations with equal weights or the softmax of scores.
TEST_P(PerTarget, Statistics) {
  Rig rig(GetParam());
  for (const int width : {3, 16, 37})
    for (const bool scored : {false, true})
      for (const bool deviations : {false, true})
        for (const LaneCase& c : lane_cases(11)) {
          std::vector<float> x, scores;
          const Guarded gx = rig.guarded_input(c, width, &x, 2), gs = rig.guarded_input(c, width, &scores, 4);
          LaneCase lanes = c;
          lanes.rows = 1, lanes.count.clear();
          for (int lane = 0; lane < c.lanes; ++lane) lanes.count.push_back(c.valid(lane) > 0 ? 1 : 0);
          const Guarded out = rig.guarded(c.lanes, deviations ? 2 * width : width);
          rig.run([&](Ops& ops) {
            ops.statistics({.x = gx.view,
                            .scores = scored ? gs.view : Buffer{},
                            .out = out.view,
                            .lanes = rig.lanes(c)});
          });
          rig.expect_rows(out, lanes, 1, 2e-6, [&](int lane, int column) {
            const int channel = column % width;
            double total = 0, mean = 0, spread = 0;
            const auto each = [&](auto&& f) {
              for (int r = 0; r < c.valid(lane); ++r) {
                const auto at = static_cast<size_t>((lane * c.rows + r) * width + channel);
                f(scored ? std::exp(static_cast<double>(scores[at])) : 1.0, static_cast<double>(x[at]));
              }
            };
            each([&](double w, double v) { total += w, mean += w * v; });
            mean /= total;
            each([&](double w, double v) { spread += w * (v - mean) * (v - mean); });
            const double value = column < width ? mean : std::sqrt(std::max(spread / total, 1e-12));
            return Expected{value, std::abs(value) + 1};
          });
        }
}

TEST_P(PerTarget, StatisticsOfConstantsHaveTheLeastDeviation) {
  Rig rig(GetParam());
  const Buffer x = rig.buffer(7, 2, std::vector<float>(14, 0.7f)),
               out = rig.buffer(1, 4, std::vector<float>(4));
  rig.run([&](Ops& ops) { ops.statistics({.x = x, .out = out, .lanes = rig.lanes(plain_case(7))}); });
  EXPECT_EQ(rig.read(out), (std::vector<float>{0.7f, 0.7f, 1e-6f, 1e-6f}));
}

TEST_P(PerTarget, ScaleRows) {
  Rig rig(GetParam());
  for (const bool residual : {false, true})
    for (const LaneCase& c : lane_cases(6)) {
      constexpr int kWidth = 21;
      std::vector<float> x, r;
      const Guarded gx = rig.guarded_input(c, kWidth, &x), gr = rig.guarded_input(c, kWidth, &r);
      const std::vector<float> gate = rig.normal(int64_t{c.lanes} * kWidth);
      const Buffer g = rig.buffer(c.lanes, kWidth, gate);
      const Guarded out = residual ? gr : rig.guarded(c.total(), kWidth);  // in place of the residual
      rig.run([&](Ops& ops) {
        ops.scale_rows({.x = gx.view,
                        .gate = g,
                        .residual = residual ? gr.view : Buffer{},
                        .out = out.view,
                        .lanes = rig.lanes(c)});
      });
      rig.expect_rows(out, c, 1, 1e-6, [&](int row, int column) {
        const auto at = static_cast<size_t>(row * kWidth + column);
        Expected y;
        y += static_cast<double>(x[at]) * gate[static_cast<size_t>(row / c.rows * kWidth + column)];
        if (residual) y += r[at];
        return y;
      });
    }
}

}  // namespace
}  // namespace skald::backend::test
