// padded_conv and nearest_code against double-precision references; streaming equals one call.
#include <algorithm>
#include <cmath>

#include "rig.h"
#include "skald/error.h"

namespace skald::backend::test {
namespace {

INSTANTIATE_TEST_SUITE_P(Targets, PerTarget, testing::ValuesIn(rig_devices()),
                         [](const auto& p) { return p.param; });

double elu(double x) { return x > 0 ? x : std::expm1(x); }

struct Sizes {
  int inputs, outputs, kernel, dilation, stride;
  PaddedConv::Padding padding;
  bool add, before, lane_bias, residual;
  Activation after;
};

/// The lanes of the output rows.
LaneCase outputs_of(const LaneCase& c, int stride) {
  LaneCase out = c;
  out.rows /= stride;
  for (int32_t& n : out.count) n = (n + stride - 1) / stride;
  return out;
}

class ConvCase {
 public:
  ConvCase(Rig& rig, const LaneCase& c, const Sizes& s) : rig_(rig), c_(c), s_(s) {
    span_ = (s.kernel - 1) * s.dilation + 1;
    left_ = s.padding == PaddedConv::reflect ? (span_ - 1) / 2 : span_ - s.stride;
    weight_ = rig.load(WeightRole::convolution, {s.outputs, s.inputs, s.kernel}, 0.4f);
    bias_ = rig.load(WeightRole::vector, {s.outputs});
    gx_ = rig.guarded_input(c, s.inputs, &x_), ga_ = rig.guarded_input(c, s.inputs, &add_);
    out_lanes_ = outputs_of(c, s.stride);
    gr_ = rig.guarded_input(out_lanes_, s.outputs, &residual_);
    state_ = rig.normal(int64_t{c.slots} * left_ * s.inputs);
    lane_bias_ = rig.normal(int64_t{c.lanes} * s.outputs);
  }

  void check() {
    const bool stateful = s_.padding != PaddedConv::reflect && left_ > 0;
    const Buffer state = stateful ? rig_.buffer(c_.slots * left_, s_.inputs, state_) : Buffer{};
    const Guarded out = rig_.guarded(out_lanes_.total(), s_.outputs);
    rig_.run([&](Ops& ops) {
      ops.padded_conv({.x = gx_.view,
                       .add = s_.add ? ga_.view : Buffer{},
                       .before = s_.before ? Activation::elu : Activation::none,
                       .weight = weight_.weight,
                       .bias = s_.lane_bias ? Weight{} : bias_.weight,
                       .lane_bias = s_.lane_bias ? rig_.buffer(c_.lanes, s_.outputs, lane_bias_) : Buffer{},
                       .kernel = s_.kernel,
                       .dilation = s_.dilation,
                       .stride = s_.stride,
                       .padding = s_.padding,
                       .state = state,
                       .after = s_.after,
                       .residual = s_.residual ? gr_.view : Buffer{},
                       .out = out.view,
                       .lanes = rig_.lanes(c_)});
    });
    rig_.expect_rows(out, out_lanes_, 1, 4e-6, [&](int row, int column) { return expected(row, column); });
    if (stateful) expect_state(state);
  }

 private:
  /// Row r of a lane as the kernel sees it.
  double input(int lane, int r, int channel) const {
    const int n = c_.valid(lane);
    if (s_.padding == PaddedConv::reflect) {
      if (r < 0) r = -r;
      if (r >= n) r = 2 * (n - 1) - r;
    } else if (r < 0 && !(s_.padding == PaddedConv::replicate && c_.position_of(lane * c_.rows) == 0)) {
      const int slot = c_.slot[static_cast<size_t>(lane)];
      return state_[static_cast<size_t>((slot * left_ + left_ + r) * s_.inputs + channel)];
    } else if (r >= n && s_.padding == PaddedConv::zero) {
      return 0;
    }
    const auto at = static_cast<size_t>((lane * c_.rows + std::clamp(r, 0, n - 1)) * s_.inputs + channel);
    const double v = x_[at] + (s_.add ? static_cast<double>(add_[at]) : 0.0);
    return s_.before ? elu(v) : v;
  }

  Expected expected(int row, int column) const {
    const int lane = row / out_lanes_.rows, first = row % out_lanes_.rows * s_.stride - left_;
    Expected y;
    y += s_.lane_bias ? lane_bias_[static_cast<size_t>(lane * s_.outputs + column)] : bias_.at(column);
    for (int j = 0; j < s_.kernel; ++j)
      for (int i = 0; i < s_.inputs; ++i)
        y += input(lane, first + j * s_.dilation, i) * weight_.at(column, i, j);
    if (s_.after == Activation::relu) y.value = std::max(0.0, y.value);
    if (s_.after == Activation::relu_tanh) y.value = std::tanh(std::max(0.0, y.value));
    if (s_.residual) y += residual_[static_cast<size_t>(row * s_.outputs + column)];
    return y;
  }

  /// The last rows of what the kernel saw; slots without a running lane keep theirs.
  void expect_state(const Buffer& buffer) {
    std::vector<double> want(state_.begin(), state_.end());
    for (int lane = 0; lane < c_.lanes; ++lane)
      for (int h = 0; h < left_ && c_.valid(lane) > 0; ++h)
        for (int ch = 0; ch < s_.inputs; ++ch)
          want[static_cast<size_t>((c_.slot[static_cast<size_t>(lane)] * left_ + h) * s_.inputs + ch)] =
              input(lane, c_.valid(lane) - left_ + h, ch);
    const std::vector<float> got = rig_.read(buffer);
    for (size_t i = 0; i < got.size(); ++i)
      ASSERT_EQ(difference(got[i], {want[i], std::abs(want[i]) + 1}, 1e-6), "") << c_.name << ", state " << i;
  }

  Rig& rig_;
  LaneCase c_, out_lanes_;
  Sizes s_;
  int span_ = 0, left_ = 0;
  Tensor weight_, bias_;
  Guarded gx_, ga_, gr_;
  std::vector<float> x_, add_, residual_, state_, lane_bias_;
};

constexpr auto kZero = PaddedConv::zero, kReplicate = PaddedConv::replicate, kReflect = PaddedConv::reflect;
constexpr auto kNone = Activation::none, kRelu = Activation::relu, kReluTanh = Activation::relu_tanh;

TEST_P(PerTarget, PaddedConvCausal) {
  Rig rig(GetParam());
  for (const Sizes& s : {Sizes{1, 20, 7, 1, 1, kZero, false, false, false, false, kNone},
                         {17, 33, 8, 1, 4, kZero, false, true, false, false, kNone},
                         {20, 5, 3, 2, 1, kZero, true, true, false, true, kRelu},
                         {33, 20, 1, 1, 1, kZero, false, true, true, true, kReluTanh},
                         {9, 70, 10, 1, 2, kZero, false, false, false, false, kNone}})
    for (const LaneCase& c : lane_cases(12)) ConvCase(rig, c, s).check();
}

TEST_P(PerTarget, PaddedConvReplicatesTheEnds) {
  Rig rig(GetParam());
  const Sizes s{19, 21, 4, 1, 2, kReplicate, false, false, false, false, kNone};
  for (const int start : {0, 3})
    for (const LaneCase& c : lane_cases(6, 1, start)) ConvCase(rig, c, s).check();
  for (const int count : {1, 2, 3, 5}) {  // fewer rows than history; an end inside a stride
    LaneCase c = plain_case(6);
    c.count = {count};
    ConvCase(rig, c, s).check();
  }
}

TEST_P(PerTarget, PaddedConvMirrors) {
  Rig rig(GetParam());
  for (const Sizes& s : {Sizes{16, 20, 5, 1, 1, kReflect, false, false, false, false, kRelu},
                         {5, 24, 3, 4, 1, kReflect, true, false, false, false, kRelu},
                         {7, 7, 4, 1, 1, kReflect, false, false, false, false, kNone}})
    for (const LaneCase& c : lane_cases(20)) ConvCase(rig, c, s).check();
  LaneCase c = plain_case(5);
  c.count = {4};
  EXPECT_THROW(ConvCase(rig, c, {5, 5, 3, 4, 1, kReflect, false, false, false, false, kNone}).check(), Error);
}

TEST_P(PerTarget, PaddedConvWithManyRows) {
  Rig rig(GetParam());
  ConvCase(rig, plain_case(700), {300, 33, 8, 1, 4, kZero, false, true, false, false, kNone}).check();
  ConvCase(rig, plain_case(1200), {2, 16, 5, 1, 1, kReflect, true, false, false, false, kRelu}).check();
}

/// A sequence cut anywhere at whole strides gives the bits of one call.
TEST_P(PerTarget, PaddedConvChunksGiveTheSameBits) {
  constexpr int kRows = 240, kInputs = 12, kOutputs = 20;
  Rig rig(GetParam());
  const std::vector<float> x = rig.normal(kRows * kInputs);
  const Tensor w = rig.load(WeightRole::convolution, {kOutputs, kInputs, 6});
  for (const PaddedConv::Padding padding : {kZero, kReplicate}) {
    std::vector<float> whole;
    for (const std::vector<int>& cuts : {std::vector<int>{240}, {3, 6, 15, 60, 156}, {120, 120}, {9, 231}}) {
      std::vector<float> got;
      const Buffer state = rig.buffer(3, kInputs, std::vector<float>(3 * kInputs)), at = rig.ints(1, 1, {0});
      int first = 0;
      for (const int rows : cuts) {
        const Buffer in =
            rig.buffer(rows, kInputs, {x.begin() + first * kInputs, x.begin() + (first + rows) * kInputs});
        const Buffer out =
            rig.buffer(rows / 3, kOutputs, std::vector<float>(static_cast<size_t>(rows / 3 * kOutputs)));
        Lanes lanes = rig.lanes(plain_case(rows));
        lanes.start = at;
        rig.write_ints(at, {first});
        rig.run([&](Ops& ops) {
          ops.padded_conv({.x = in,
                           .before = Activation::elu,
                           .weight = w.weight,
                           .kernel = 6,
                           .stride = 3,
                           .padding = padding,
                           .state = state,
                           .out = out,
                           .lanes = lanes});
        });
        const std::vector<float> part = rig.read(out);
        got.insert(got.end(), part.begin(), part.end());
        first += rows;
      }
      if (whole.empty()) whole = got;
      expect_same_bits(got, whole, "chunks");
    }
  }
}

struct Book {
  Tensor entries, matrix, half_square;
};

Book make_book(Rig& rig, int codes, int width, const std::vector<float>& values) {
  std::vector<float> half;
  for (int c = 0; c < codes; ++c) {
    double square = 0;
    for (int j = 0; j < width; ++j) square += std::pow(values[static_cast<size_t>(c * width + j)], 2.0);
    half.push_back(static_cast<float>(-square / 2));
  }
  return {rig.load(WeightRole::table, {codes, width}, values),
          rig.load(WeightRole::matrix, {codes, width}, values), rig.load(WeightRole::vector, {codes}, half)};
}

int nearest(const std::vector<float>& entries, int width, const float* x) {
  int best = -1;
  double least = 0;
  for (int c = 0; c * width < static_cast<int>(entries.size()); ++c) {
    double d = 0;
    for (int j = 0; j < width; ++j)
      d += std::pow(static_cast<double>(x[j]) - entries[static_cast<size_t>(c * width + j)], 2.0);
    if (best < 0 || d < least) best = c, least = d;
  }
  return best;
}

TEST_P(PerTarget, NearestCode) {
  Rig rig(GetParam());
  for (const auto& [codes, width] : {std::pair(64, 8), std::pair(100, 33), std::pair(300, 256)})
    for (const LaneCase& c : lane_cases(5)) {
      std::vector<float> values = rig.normal(int64_t{codes} * width);
      // Doubles of an entry: the lower index wins.
      std::copy_n(values.begin() + 7 * width, width, values.begin() + 40 * width);
      const Book book = make_book(rig, codes, width, values);
      std::vector<float> x;
      const Guarded gx = rig.guarded_input(c, width, &x), rest = rig.guarded(c.total(), width);
      const Buffer found =
          rig.ints(c.total(), 3, std::vector<int32_t>(static_cast<size_t>(3 * c.total()), -7));
      if (c.valid(0) > 0) {
        const std::vector<float> row(values.begin() + 7 * width, values.begin() + 8 * width);
        rig.write(gx.view.row_range(0, 1), row);
        std::copy(row.begin(), row.end(), x.begin());
      }
      rig.run([&](Ops& ops) {
        ops.nearest_code({.x = gx.view,
                          .entries = book.entries.weight,
                          .matrix = book.matrix.weight,
                          .half_square = book.half_square.weight,
                          .codes = found.columns(1, 1),
                          .remainder = rest.view,
                          .lanes = rig.lanes(c)});
      });
      const std::vector<int32_t> got = rig.read_ints(found);
      std::vector<int> want;
      for (int r = 0; r < c.total(); ++r) {
        want.push_back(c.is_valid(r) ? nearest(values, width, x.data() + r * width) : -7);
        ASSERT_EQ(got[static_cast<size_t>(3 * r + 1)], want.back()) << c.name << ", row " << r;
        ASSERT_EQ(got[static_cast<size_t>(3 * r)], -7);
      }
      EXPECT_TRUE(c.valid(0) == 0 || want[0] == 7);
      rig.expect_rows(rest, c, 1, 1e-7, [&](int row, int column) {
        Expected y;
        y += x[static_cast<size_t>(row * width + column)];
        y += -values[static_cast<size_t>(want[static_cast<size_t>(row)] * width + column)];
        return y;
      });
    }
}

/// Where float32 sums cannot tell two entries apart, the nearer one is found all the same.
TEST_P(PerTarget, NearestCodeDecidesNearTies) {
  constexpr int kCodes = 64, kWidth = 64;
  Rig rig(GetParam());
  int changed = 0;
  for (int trial = 0; trial < 40; ++trial) {
    std::vector<float> values = rig.normal(kCodes * kWidth, 10);
    std::vector<float> x = rig.normal(kWidth);  // so long that its sums round by more than the tie
    // Two entries at nearly the same distance from x, one of them 1e-7 nearer.
    const int near = 5 + trial % 50, far = (near + 17) % kCodes;
    for (int j = 0; j < kWidth; ++j) {
      values[static_cast<size_t>(far * kWidth + j)] = x[static_cast<size_t>(j)] + (j == 1 ? 3.0f : 0.0f);
      values[static_cast<size_t>(near * kWidth + j)] =
          x[static_cast<size_t>(j)] + (j == 2 ? -3.0f * (1 - 3e-7f) : 0.0f);
    }
    const Book book = make_book(rig, kCodes, kWidth, values);
    const Buffer in = rig.buffer(1, kWidth, x), out = rig.ints(1, 1, {-1});
    rig.run([&](Ops& ops) {
      ops.nearest_code({.x = in,
                        .entries = book.entries.weight,
                        .matrix = book.matrix.weight,
                        .half_square = book.half_square.weight,
                        .codes = out,
                        .lanes = rig.lanes(plain_case(1))});
    });
    const int want = nearest(values, kWidth, x.data());
    EXPECT_EQ(rig.read_ints(out)[0], want);
    changed += want == near;
  }
  EXPECT_GT(changed, 30);
}

}  // namespace
}  // namespace skald::backend::test
