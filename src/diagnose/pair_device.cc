// Recording on two devices, running, comparing.
#include "diagnose/pair_device.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "diagnose/each_op.h"

namespace skald::diagnose {

using backend::Buffer;
using backend::Dtype;
using backend::Lanes;
using backend::Program;
using backend::Weight;

namespace {

constexpr size_t kMostDifferences = 200;
constexpr int32_t kNarrow = 16;          ///< rows of fewer values are judged together
constexpr double kLeastShare = 1e-2;     ///< of the output's rms: rows below are judged against that
constexpr int64_t kMostWords = 1 << 16;  ///< of an array that lanes may name
constexpr size_t kChunk = size_t{16} << 20;

size_t view_bytes(const Buffer& view) {
  return static_cast<size_t>(view.rows) * static_cast<size_t>(view.width) * dtype_size(view.dtype);
}

void require_equal(int32_t a, int32_t b, const char* what) {
  if (a != b)
    throw Error(ErrorCode::internal,
                fmt::format("the two devices number their {} differently ({} and {})", what, a, b));
}

double number(Dtype type, const std::byte* from) {
  if (type == Dtype::u8) return std::to_integer<int>(*from);
  if (type == Dtype::f32) {
    float value;
    std::memcpy(&value, from, sizeof(value));
    return value;
  }
  int32_t value = 0;
  std::memcpy(&value, from, std::min(sizeof(value), dtype_size(type)));
  return value;
}

void widen(double& worst, double value, double centre) {
  if (std::abs(value - centre) > std::abs(worst - centre)) worst = value;
}

}  // namespace

double OpStatistics::norm_ratio() const {
  return squares_a > 0 ? std::sqrt(squares_b / squares_a) : squares_b > 0 ? INFINITY : 1;
}

void OpStatistics::add(const OpStatistics& o) {
  runs += o.runs, rows += o.rows, values += o.values, equal_rows += o.equal_rows;
  worst_element = std::max(worst_element, o.worst_element);
  widen(worst_norm_ratio, o.worst_norm_ratio, 1);
  widen(worst_signed_error, o.worst_signed_error, 0);
  sum_a += o.sum_a, sum_signed += o.sum_signed, squares_a += o.squares_a, squares_b += o.squares_b;
}

std::span<const std::byte> PairDevice::Rows::row(Side side, int32_t r) const {
  return std::span(side == Side::a ? a : b).subspan(static_cast<size_t>(r) * row_bytes, row_bytes);
}

std::span<const float> PairDevice::Rows::floats(Side side, int32_t first, int32_t count) const {
  const auto* values = reinterpret_cast<const float*>((side == Side::a ? a : b).data());
  return {values + static_cast<size_t>(first) * static_cast<size_t>(view.width),
          static_cast<size_t>(count) * static_cast<size_t>(view.width)};
}

/// Passes every call to both recorders and notes what it writes.
class PairDevice::Tee final : public EachOp<Tee> {
 public:
  Tee(backend::Ops& a, backend::Ops& b, std::vector<RecordedCall>& to) : a_(a), b_(b), to_(to) {}

  template <class Call>
  void each(std::string_view kind, void (backend::Ops::*member)(const Call&), const Call& call) {
    (a_.*member)(call);
    (b_.*member)(call);
    to_.push_back({std::string(kind), label_, call.lanes, outputs_of(call)});
  }
  void label(std::string_view where) override {
    a_.label(where), b_.label(where);
    label_ = where;
  }

 private:
  backend::Ops &a_, &b_;
  std::vector<RecordedCall>& to_;
  std::string label_;
};

PairDevice::PairDevice(std::unique_ptr<backend::Backend> a, std::unique_ptr<backend::Backend> b,
                       const OpTolerance& tolerance)
    : a_(std::move(a)),
      b_(std::move(b)),
      tolerance_(tolerance),
      name_(fmt::format("{} beside {}", a_->name(), b_->name())) {}

// ---- what the model asks for

Weight PairDevice::load(backend::WeightRole role, const backend::TensorSource& source) {
  const Weight weight = a_->load(role, source);
  require_equal(weight.id, b_->load(role, source).id, "weights");
  return weight;
}

Buffer PairDevice::allocate(std::string_view label, Dtype dtype, int64_t rows, int32_t width) {
  const Buffer buffer = a_->allocate(label, dtype, rows, width);
  require_equal(buffer.id, b_->allocate(label, dtype, rows, width).id, "buffers");
  allocations_.push_back({std::string(label), buffer});
  return buffer;
}

void PairDevice::write(const Buffer& to, std::span<const std::byte> bytes) {
  forget_words(to);
  a_->write(to, bytes);
  b_->write(to, bytes);
}

void PairDevice::read(const Buffer& from, std::span<std::byte> bytes) {
  (side_ == Side::a ? a_ : b_)->read(from, bytes);
}

void PairDevice::zero(const Buffer& view) {
  forget_words(view);
  a_->zero(view);
  b_->zero(view);
}

void PairDevice::select(backend::Queue queue) {
  a_->select(queue);
  b_->select(queue);
}

Program PairDevice::record(std::string_view name, const std::function<void(backend::Ops&)>& body) {
  Recorded recorded{std::string(name), {}};
  Program second;
  const Program first = a_->record(name, [&](backend::Ops& on_a) {
    second = b_->record(name, [&](backend::Ops& on_b) {  // the body runs once: it may have effects
      Tee tee(on_a, on_b, recorded.calls);
      body(tee);
    });
  });
  require_equal(first.id, second.id, "programs");
  const auto at = static_cast<size_t>(first.id);
  for (const Side side : {Side::a, Side::b})
    if (device(side).ops(first).size() != recorded.calls.size())
      throw Error(ErrorCode::internal,
                  fmt::format("{}: program '{}' has {} ops, but {} were recorded", device(side).name(), name,
                              device(side).ops(first).size(), recorded.calls.size()));
  programs_.resize(std::max(programs_.size(), at + 1));
  programs_[at] = std::move(recorded);
  return first;
}

// ---- running

template <class F>
void PairDevice::guarded(Side side, const Recorded& program, const RecordedCall* call, F&& f) {
  try {
    f();
  } catch (const Error& e) {
    const std::string where =
        call ? fmt::format(", op {} {} ({})", call - program.calls.data(), call->kind, call->label) : "";
    throw Error(e.code(), fmt::format("device {} ({}), {}, program '{}'{}: {}", side == Side::a ? "a" : "b",
                                      device(side).name(), context_, program.name, where, e.what()));
  }
}

void PairDevice::run(Program id) {
  const Recorded& program = programs_.at(static_cast<size_t>(id.id));
  last_program_ = program.name;
  if (mode_ == Mode::apart) {
    guarded(Side::a, program, nullptr, [&] { a_->run(id); });
    guarded(Side::b, program, nullptr, [&] { b_->run(id); });
    return;
  }
  for (size_t i = 0; i < program.calls.size(); ++i) run_both(id, i);
}

void PairDevice::run_op(Program id, size_t index) {
  last_program_ = programs_.at(static_cast<size_t>(id.id)).name;
  run_both(id, index);
}

void PairDevice::run_both(Program id, size_t op) {
  const Recorded& program = programs_.at(static_cast<size_t>(id.id));
  const RecordedCall& call = program.calls.at(op);
  const std::vector<RunningLane> lanes = running(call.lanes);  // the op itself may move them
  guarded(Side::a, program, &call, [&] { a_->run_op(id, op); });
  guarded(Side::b, program, &call, [&] {
    b_->run_op(id, op);
    for (size_t output = 0; output < call.outputs.size(); ++output)
      compare_output({id.id, op, output}, lanes);
  });
  for (const CallOutput& output : call.outputs) forget_words(output.view);
  ++ops_compared_;
}

/// The i32 array that a view lies in, whole.
const std::vector<int32_t>& PairDevice::words(const Buffer& array) {
  const auto known = words_.find(array.id);
  if (known != words_.end()) return known->second;
  const Buffer& whole = allocations_.at(static_cast<size_t>(array.id)).whole;
  const int64_t count = int64_t{whole.rows} * whole.width;
  if (whole.dtype != Dtype::i32 || count > kMostWords)
    throw Error(ErrorCode::internal,
                fmt::format("lanes are named by buffer '{}', which is no small array of i32",
                            allocations_.at(static_cast<size_t>(array.id)).label));
  std::vector<int32_t> values(static_cast<size_t>(count));
  a_->read(whole, std::as_writable_bytes(std::span(values)));
  return words_.emplace(array.id, std::move(values)).first->second;
}

std::vector<RunningLane> PairDevice::running(const Lanes& lanes) {
  const auto at = [&](const Buffer& array, int32_t i) {
    const int64_t step = array.width == 1 ? array.stride : 1;  // a column or a row
    return words(array).at(static_cast<size_t>(array.offset + i * step));
  };
  std::vector<RunningLane> running;
  for (int32_t lane = 0; lane < lanes.lanes; ++lane) {
    const int32_t slot = at(lanes.slot, lane);
    if (slot < 0 || (lanes.gate && at(lanes.gate, slot) != backend::kRunning)) continue;
    const int32_t rows = lanes.count ? at(lanes.count, lane) * lanes.rate : lanes.rows;
    const int64_t start = lanes.start ? at(lanes.start, slot) : 0;
    if (rows > 0)
      running.push_back({.lane = lane, .slot = slot, .rows = rows, .position = start + lanes.start_offset});
  }
  return running;
}

// ---- comparing

void PairDevice::compare_output(const OpKey& key, const std::vector<RunningLane>& lanes) {
  const RecordedCall& call = this->call(key);
  const CallOutput& output = call.outputs[key.output];
  const std::vector<RowSpan> spans = written_rows(output, call.lanes, lanes);
  OpStatistics& statistics = statistics_[key];
  ++statistics.runs;
  if (output.rows != CallOutput::at_positions) {
    compare_block(key, spans, output.view, 0, statistics);
    return;
  }
  for (const RowSpan& span : spans)  // of caches, only what was written
    compare_block(key, {{0, span.count, span.slot, span.position}},
                  output.view.row_range(span.first, span.count), span.first, statistics);
}

/// A view on both devices: the rows of the spans are results, the others must not have changed. `first_row`
/// is the view's first row in the output's.
void PairDevice::compare_block(const OpKey& key, const std::vector<RowSpan>& spans, const Buffer& view,
                               int32_t first_row, OpStatistics& statistics) {
  Rows rows;
  rows.view = view;
  rows.row_bytes = static_cast<size_t>(view.width) * dtype_size(view.dtype);
  rows.a.resize(view_bytes(view)), rows.b.resize(view_bytes(view));
  a_->read(view, rows.a);
  b_->read(view, rows.b);
  for (const RowSpan& span : spans)
    view.dtype == Dtype::f32 ? compare_floats(key, span, rows, first_row, statistics)
                             : compare_words(key, span, rows, first_row, statistics);
  if (rows.a == rows.b) return;
  compare_idle(key, spans, rows, first_row);
  b_->write(view, rows.a);
}

void PairDevice::compare_floats(const OpKey& key, const RowSpan& span, const Rows& rows, int32_t first_row,
                                OpStatistics& statistics) {
  const int32_t width = rows.view.width;
  const int32_t step = width < kNarrow ? std::max(span.count, 1) : 1;
  const double least = kLeastShare * root_mean_square(rows.floats(Side::a, span.first, span.count));
  for (int32_t r = span.first; r < span.first + span.count; r += step) {
    const std::span<const float> a = rows.floats(Side::a, r, step), b = rows.floats(Side::b, r, step);
    const Deviation d = deviation_of(a, b, least);
    statistics.rows += static_cast<uint64_t>(step), statistics.values += a.size();
    if (std::memcmp(a.data(), b.data(), a.size_bytes()) == 0)
      statistics.equal_rows += static_cast<uint64_t>(step);
    statistics.add({.worst_element = d.element,
                    .worst_norm_ratio = d.norm_ratio,
                    .worst_signed_error = d.signed_error,
                    .sum_a = d.sum_a,
                    .sum_signed = d.sum_signed,
                    .squares_a = d.squares_a,
                    .squares_b = d.squares_b});
    const Measure measure = judge(d, tolerance_);
    if (measure == Measure::none) continue;
    const auto at = static_cast<int32_t>(d.at);
    const int32_t row = r + at / width;
    OpDifference& noted = note(key, measure,
                               {.value = value_of(d, measure),
                                .limit = limit_of(tolerance_, measure),
                                .row = first_row + row,
                                .column = at % width,
                                .slot = span.slot,
                                .position = span.position < 0 ? -1 : span.position + row - span.first,
                                .expected = a[d.at],
                                .got = b[d.at],
                                .element = d.element,
                                .norm_ratio = d.norm_ratio,
                                .signed_error = d.signed_error});
    if (noted.times > 1 || step > 1) continue;
    for (int32_t other = span.first; other < span.first + span.count; ++other)
      if (other != row &&
          judge(deviation_of(rows.floats(Side::a, other, 1), b, 0), tolerance_) == Measure::none)
        noted.holds_row = first_row + other;
  }
}

void PairDevice::compare_words(const OpKey& key, const RowSpan& span, const Rows& rows, int32_t first_row,
                               OpStatistics& statistics) {
  const size_t element = dtype_size(rows.view.dtype);
  statistics.rows += static_cast<uint64_t>(span.count);
  statistics.values += static_cast<uint64_t>(span.count) * static_cast<uint64_t>(rows.view.width);
  for (int32_t r = span.first; r < span.first + span.count; ++r) {
    const auto a = rows.row(Side::a, r), b = rows.row(Side::b, r);
    const auto first = std::mismatch(a.begin(), a.end(), b.begin());
    if (first.first == a.end()) {
      ++statistics.equal_rows;
      continue;
    }
    const size_t column = static_cast<size_t>(first.first - a.begin()) / element;
    note(key, Measure::integer,
         {.row = first_row + r,
          .column = static_cast<int32_t>(column),
          .slot = span.slot,
          .position = span.position < 0 ? -1 : span.position + r - span.first,
          .expected = number(rows.view.dtype, a.data() + column * element),
          .got = number(rows.view.dtype, b.data() + column * element)});
  }
}

/// Rows that do not count in this run, or belong to idle lanes.
void PairDevice::compare_idle(const OpKey& key, const std::vector<RowSpan>& spans, const Rows& rows,
                              int32_t first_row) {
  const size_t element = dtype_size(rows.view.dtype);
  for (int32_t r = 0; r < rows.view.rows; ++r) {
    if (std::any_of(spans.begin(), spans.end(),
                    [&](const RowSpan& s) { return r >= s.first && r < s.first + s.count; }))
      continue;
    const auto a = rows.row(Side::a, r), b = rows.row(Side::b, r);
    const auto first = std::mismatch(a.begin(), a.end(), b.begin());
    if (first.first == a.end()) continue;
    const size_t column = static_cast<size_t>(first.first - a.begin()) / element;
    note(key, Measure::stray,
         {.row = first_row + r,
          .column = static_cast<int32_t>(column),
          .expected = number(rows.view.dtype, a.data() + column * element),
          .got = number(rows.view.dtype, b.data() + column * element)});
  }
}

OpDifference& PairDevice::note(const OpKey& key, Measure measure, OpDifference difference) {
  const auto known = known_.find(key);
  if (known != known_.end()) {
    ++differences_[known->second].times;
    return differences_[known->second];
  }
  const Recorded& program = programs_[static_cast<size_t>(key.program)];
  const RecordedCall& call = program.calls[key.op];
  difference.context = context_;
  difference.program = program.name, difference.op = key.op;
  difference.kind = call.kind, difference.label = call.label;
  difference.output = call.outputs[key.output].name;
  difference.measure = measure;
  if (differences_.size() >= kMostDifferences) return uncounted_ = std::move(difference);
  known_[key] = differences_.size();
  return differences_.emplace_back(std::move(difference));
}

void PairDevice::compare_memory() {
  std::vector<std::byte> a, b;
  for (const Allocation& allocation : allocations_) {
    const Buffer& whole = allocation.whole;
    const size_t element = dtype_size(whole.dtype), row = static_cast<size_t>(whole.width) * element;
    const auto most =
        static_cast<int32_t>(std::clamp<size_t>(kChunk / std::max<size_t>(row, 1), 1, INT32_MAX));
    bool noted = false;
    for (int32_t first = 0; first < whole.rows; first += most) {
      const Buffer part = whole.row_range(first, std::min(most, whole.rows - first));
      a.resize(view_bytes(part)), b.resize(view_bytes(part));
      a_->read(part, a);
      b_->read(part, b);
      if (a == b) continue;
      const auto at =
          static_cast<size_t>(std::mismatch(a.begin(), a.end(), b.begin()).first - a.begin()) / element;
      b_->write(part, a);
      if (std::exchange(noted, true) || differences_.size() >= kMostDifferences) continue;
      differences_.push_back({.context = context_,
                              .program = last_program_,
                              .label = allocation.label,
                              .output = "memory",
                              .measure = Measure::stray,
                              .row = first + static_cast<int32_t>(at / static_cast<size_t>(whole.width)),
                              .column = static_cast<int32_t>(at % static_cast<size_t>(whole.width)),
                              .expected = number(whole.dtype, a.data() + at * element),
                              .got = number(whole.dtype, b.data() + at * element)});
    }
  }
}

}  // namespace skald::diagnose
