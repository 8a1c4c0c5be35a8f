// What the backend tests share.
#include "rig.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

namespace skald::backend::test {

std::string difference(float got, const Expected& want, double tolerance) {
  const double error = std::abs(static_cast<double>(got) - want.value);
  const double limit = tolerance * std::max(want.magnitude, std::abs(want.value)) + 1e-37;
  if (error <= limit) return "";  // false for NaN
  return fmt::format("got {}, want {}, error {:.3g} of {:.3g} allowed", got, want.value, error, limit);
}

int LaneCase::valid(int lane) const {
  const int32_t s = slot[static_cast<size_t>(lane)];
  if (s < 0) return 0;
  if (!status.empty() && status[static_cast<size_t>(s)] != kRunning) return 0;
  return count.empty() ? rows : count[static_cast<size_t>(lane)] * rate;
}

int LaneCase::position_of(int row) const {
  const int s = slot_of(row);
  return (start.empty() || s < 0 ? 0 : start[static_cast<size_t>(s)]) + row % rows;
}

std::vector<LaneCase> lane_cases(int rows, int rate, int max_start) {
  const int units = rows / rate;
  const auto starts = [&](int slots) {
    std::vector<int32_t> s;
    for (int i = 0; i < slots; ++i) s.push_back(max_start * i / std::max(1, slots - 1));
    return s;
  };
  const int32_t some = std::max(1, units / 2);
  return {
      {"one lane", 1, rows, rate, 1, {0}, {}, starts(1), {}},
      {"one lane, last slot, partial", 1, rows, rate, 3, {2}, {some}, starts(3), {0, 0, kRunning}},
      {"two lanes, permuted", 2, rows, rate, 2, {1, 0}, {units, some}, starts(2), {}},
      {"two lanes, one empty", 2, rows, rate, 4, {3, 1}, {0, units}, starts(4), {}},
      {"three lanes, permuted", 3, rows, rate, 4, {3, 0, 2}, {some, units, units}, starts(4), {}},
      {"three lanes, middle idle", 3, rows, rate, 3, {2, -1, 0}, {some, units, units}, starts(3), {}},
      {"three lanes, first stopped",
       3,
       rows,
       rate,
       3,
       {0, 2, 1},
       {},
       starts(3),
       {kStopToken, kRunning, kRunning}},
      {"all idle", 2, rows, rate, 2, {-1, 1}, {}, starts(2), {kRunning, kIdle}},
  };
}

LaneCase plain_case(int rows, int start) { return {"plain", 1, rows, 1, 1, {0}, {}, {start}, {}}; }

std::vector<float> as_held(const std::string& weights, const std::vector<int64_t>& shape,
                           std::vector<float> values) {
  constexpr int64_t kRun = 64;
  if (weights == "bf16")
    for (float& v : values) {
      const double unit = std::exp2(std::floor(std::log2(std::abs(static_cast<double>(v)))) - 7);
      if (v != 0) v = static_cast<float>(std::nearbyint(static_cast<double>(v) / unit) * unit);
    }
  if (weights == "int8")
    for (int64_t row = 0; row < shape[0]; ++row)
      for (int64_t first = 0; first < shape[1]; first += kRun) {
        const auto run = std::span(values).subspan(static_cast<size_t>(row * shape[1] + first),
                                                   static_cast<size_t>(std::min(kRun, shape[1] - first)));
        float largest = 0;
        for (const float v : run) largest = std::max(largest, std::abs(v));
        const float scale = largest / 127;
        for (float& v : run) v = scale == 0 ? 0 : scale * std::nearbyint(v * (1 / scale));
      }
  return values;
}

Rig::Rig(const std::string& target, int threads, uint32_t seed, const std::string& weights)
    : weights_(weights), device_(make_rig_device(target, threads, weights)), random_(seed) {}

std::vector<float> Rig::normal(int64_t count, float scale) {
  std::normal_distribution<float> distribution(0, scale);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& v : values) v = distribution(random_);
  return values;
}

Tensor Rig::load(WeightRole role, std::vector<int64_t> shape, float scale) {
  int64_t count = 1;
  for (const int64_t n : shape) count *= n;
  return load(role, std::move(shape), normal(count, scale));
}

Tensor Rig::load(WeightRole role, std::vector<int64_t> shape, std::vector<float> values) {
  kept_.push_back(std::make_unique<std::vector<float>>(values));
  const Weight weight =
      device_->load(role, {.name = "test", .shape = shape, .data = std::as_bytes(std::span(*kept_.back()))});
  if (role == WeightRole::matrix) values = as_held(weights_, shape, std::move(values));
  return {std::move(shape), std::move(values), weight};
}

Buffer Rig::buffer(int64_t rows, int32_t width, const std::vector<float>& values) {
  const Buffer b = device_->allocate("test", Dtype::f32, rows, width);
  write(b, values);
  return b;
}

Buffer Rig::ints(int64_t rows, int32_t width, const std::vector<int32_t>& values) {
  const Buffer b = device_->allocate("test", Dtype::i32, rows, width);
  write_ints(b, values);
  return b;
}

Buffer Rig::bytes(int64_t rows, int32_t width, const std::vector<uint8_t>& values) {
  const Buffer b = device_->allocate("test", Dtype::u8, rows, width);
  device_->write(b, std::as_bytes(std::span(values)));
  return b;
}

Guarded Rig::guarded(int32_t rows, int32_t width, uint32_t bits) {
  constexpr int32_t kLeft = 3, kRight = 5;
  const int32_t whole_width = width + kLeft + kRight;
  const Buffer whole =
      buffer(rows + 2, whole_width,
             std::vector<float>(static_cast<size_t>((rows + 2) * whole_width), std::bit_cast<float>(bits)));
  return {whole, whole.row_range(1, rows).columns(kLeft, width), bits};
}

Guarded Rig::guarded_input(const LaneCase& lanes, int32_t width, std::vector<float>* host, float scale) {
  const Guarded g = guarded(lanes.total(), width, kInputGuardBits);
  *host = normal(int64_t{lanes.total()} * width, scale);
  for (int r = 0; r < lanes.total(); ++r) {
    if (!lanes.is_valid(r)) continue;
    const auto first = host->begin() + int64_t{r} * width;
    write(g.view.row_range(r, 1), {first, first + width});
  }
  return g;
}

Lanes Rig::lanes(const LaneCase& c) {
  Lanes l{.lanes = c.lanes,
          .rows = c.rows,
          .rate = c.rate,
          .slot = ints(c.lanes, 1, c.slot),
          .count = {},
          .start = {},
          .gate = {}};
  if (!c.count.empty()) l.count = ints(1, c.lanes, c.count);
  if (!c.start.empty()) l.start = ints(c.slots, 1, c.start);
  if (!c.status.empty()) l.gate = ints(c.slots, 1, c.status);
  return l;
}

std::vector<float> Rig::read(const Buffer& view) {
  std::vector<float> values(static_cast<size_t>(view.rows) * static_cast<size_t>(view.width));
  device_->read(view, std::as_writable_bytes(std::span(values)));
  return values;
}

std::vector<int32_t> Rig::read_ints(const Buffer& view) {
  std::vector<int32_t> values(static_cast<size_t>(view.rows) * static_cast<size_t>(view.width));
  device_->read(view, std::as_writable_bytes(std::span(values)));
  return values;
}

std::vector<uint8_t> Rig::read_bytes(const Buffer& view) {
  std::vector<uint8_t> values(static_cast<size_t>(view.rows) * static_cast<size_t>(view.width));
  device_->read(view, std::as_writable_bytes(std::span(values)));
  return values;
}

void Rig::write(const Buffer& view, const std::vector<float>& values) {
  device_->write(view, std::as_bytes(std::span(values)));
}

void Rig::write_ints(const Buffer& view, const std::vector<int32_t>& values) {
  device_->write(view, std::as_bytes(std::span(values)));
}

void Rig::run(const std::function<void(Ops&)>& body) { device_->run(device_->record("test", body)); }

void Rig::expect_rows(const Guarded& out, const LaneCase& lanes, int factor, double tolerance,
                      const std::function<Expected(int row, int column)>& want) {
  const std::vector<float> got = read(out.whole);
  const int64_t left = (out.view.offset - out.whole.stride);
  int failures = 0;
  for (int64_t i = 0; i < static_cast<int64_t>(got.size()) && failures < 5; ++i) {
    const int64_t row = i / out.whole.width - 1, column = i % out.whole.width - left;
    const float value = got[static_cast<size_t>(i)];
    const bool inside = row >= 0 && row < out.view.rows && column >= 0 && column < out.view.width;
    std::string problem;
    if (inside && lanes.is_valid(static_cast<int>(row / factor)))
      problem = difference(value, want(static_cast<int>(row), static_cast<int>(column)), tolerance);
    else if (std::bit_cast<uint32_t>(value) != out.bits)
      problem = fmt::format("written with {}", value);
    if (problem.empty()) continue;
    ADD_FAILURE() << lanes.name << ", row " << row << ", column " << column << ": " << problem;
    ++failures;
  }
}

void expect_same_bits(const std::vector<float>& a, const std::vector<float>& b, const std::string& what) {
  ASSERT_EQ(a.size(), b.size()) << what;
  for (size_t i = 0; i < a.size(); ++i)
    ASSERT_EQ(std::bit_cast<uint32_t>(a[i]), std::bit_cast<uint32_t>(b[i]))
        << what << ", element " << i << ": " << a[i] << " and " << b[i];
}

}  // namespace skald::backend::test
