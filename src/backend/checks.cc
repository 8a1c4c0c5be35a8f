// Checks of recorded calls.
#include "backend/checks.h"

#include <fmt/format.h>

#include "skald/error.h"

namespace skald::backend {

int64_t checked_offset(const Buffer& view, size_t size, const std::string& label, const std::string& what) {
  const auto element = static_cast<int64_t>(dtype_size(view.dtype));
  const int64_t last = view.rows == 0 ? 0 : (view.rows - 1) * view.stride + view.width;
  if (view.rows < 0 || view.width < 0 || view.stride < 0 || view.offset < 0 ||
      (view.offset + last) * element > static_cast<int64_t>(size))
    throw Error(ErrorCode::internal,
                fmt::format("{}: view of {} rows x {} columns at {} leaves buffer '{}' of {} bytes", what,
                            view.rows, view.width, view.offset, label, size));
  return view.offset * element;
}

void Checker::fail(const std::string& what) const {
  throw Error(ErrorCode::internal, fmt::format("{}: {}", where_, what));
}

std::byte* Checker::bind(const Buffer& buffer, size_t element, int64_t rows, int64_t width,
                         const char* what) const {
  if (!buffer) fail(fmt::format("'{}' is missing", what));
  if (dtype_size(buffer.dtype) != element || buffer.rows < rows || buffer.width != width)
    fail(fmt::format("'{}' has {} rows x {} columns of {} bytes, needs {} x {} of {}", what, buffer.rows,
                     buffer.width, dtype_size(buffer.dtype), rows, width, element));
  if (buffer.rows > 1 && buffer.stride < buffer.width) fail(fmt::format("'{}' has overlapping rows", what));
  return target_.locate(buffer, fmt::format("{}: '{}'", where_, what));
}

Elements Checker::elements(const Buffer& buffer, int64_t count, const char* what) const {
  if (!buffer) fail(fmt::format("'{}' is missing", what));
  const bool column = buffer.width == 1;
  const int32_t have = column ? buffer.rows : buffer.rows == 1 ? buffer.width : 0;
  if (buffer.dtype != Dtype::i32 || have < count)
    fail(fmt::format("'{}' should be {} i32 in one row or column", what, count));
  auto* data = reinterpret_cast<int32_t*>(target_.locate(buffer, fmt::format("{}: '{}'", where_, what)));
  return {data, column ? buffer.stride : 1, have};
}

const WeightShape& Checker::shape(Weight weight, WeightRole role, const char* what) const {
  if (!weight) fail(fmt::format("weight '{}' is missing", what));
  const WeightShape& w = target_.weight_shape(weight, where_);
  if (w.role != role) fail(fmt::format("weight '{}' ('{}') was loaded under another role", what, w.name));
  return w;
}

void Checker::require_matrix(Weight weight, int outputs, int inputs, const char* what) const {
  const WeightShape& w = shape(weight, WeightRole::matrix, what);
  if (w.outputs != outputs || w.inputs != inputs)
    fail(fmt::format("weight '{}' ('{}') is {} x {}, needs {} x {}", what, w.name, w.outputs, w.inputs,
                     outputs, inputs));
}

void Checker::require_vector(Weight weight, int64_t n, const char* what) const {
  if (!weight) return;
  const WeightShape& w = shape(weight, WeightRole::vector, what);
  if (w.width != n)
    fail(fmt::format("weight '{}' ('{}') has {} elements, needs {}", what, w.name, w.width, n));
}

bool may_overlap(const Buffer& a, const Buffer& b) {
  if (a.id != b.id || !a || !b) return false;
  const auto end = [](const Buffer& v) {
    return v.offset + (v.rows == 0 ? 0 : (v.rows - 1) * v.stride + v.width);
  };
  if (a.offset >= end(b) || b.offset >= end(a)) return false;
  // Column ranges of the same rows may interleave without touching.
  if (a.stride == b.stride && a.stride > 0) {
    const int64_t first_a = a.offset % a.stride, first_b = b.offset % b.stride;
    if (first_a + a.width <= first_b || first_b + b.width <= first_a) return false;
  }
  return true;
}

void Checker::require_disjoint(const Buffer& a, const Buffer& b, const char* what) const {
  if (may_overlap(a, b)) fail(what);
}

void check(const Checker& c, const Lanes& lanes) {
  c.require(lanes.lanes > 0 && lanes.rows > 0 && lanes.rate > 0 && lanes.rows % lanes.rate == 0,
            "lanes, rows and rate should be positive, and rows a multiple of rate");
  c.require(int64_t{lanes.lanes} * lanes.rows <= INT32_MAX, "too many rows");
  c.elements(lanes.slot, lanes.lanes, "lanes.slot");
  if (lanes.count) c.elements(lanes.count, lanes.lanes, "lanes.count");
  if (lanes.start) c.elements(lanes.start, 1, "lanes.start");
  if (lanes.gate) c.elements(lanes.gate, 1, "lanes.gate");
}

namespace {

/// The normalised input rows of an op.
void check_input(const Checker& c, const Buffer& x, const Norm& norm, const Lanes& lanes) {
  check(c, lanes);
  c.rows(x, lanes.total(), x.width, "x");
  c.require(x.width > 0, "x has no columns");
  if (norm.kind == Norm::none) return;
  c.require_vector(norm.weight, x.width, "norm.weight");
  c.require_vector(norm.bias, x.width, "norm.bias");
  c.require(bool{norm.weight}, "a norm needs its weight");
  c.require(norm.kind == Norm::layer || !norm.bias, "an RMS norm has no bias");
}

void check_heads(const Checker& c, int heads, int kv_heads) {
  c.require(heads > 0 && kv_heads > 0 && heads % kv_heads == 0, "heads should be a multiple of kv_heads");
}

void check_cache(const Checker& c, const KvCache& cache, int width) {
  c.require(cache.capacity > 0 && cache.k.rows % cache.capacity == 0,
            "cache rows should be slots * capacity");
  c.rows(cache.k, cache.capacity, width, "cache.k");
  c.rows(cache.v, cache.k.rows, width, "cache.v");
}

/// `rows` rows for every slot.
void check_state(const Checker& c, const Buffer& state, int64_t rows, int width, const char* what) {
  c.require(state && state.rows % rows == 0, what);
  c.rows(state, rows, width, "state");
}

/// What both dense convolutions are: `history` carried rows, `phases` output rows per input row.
void check_convolution(const Checker& c, const Buffer& x, const Buffer& state, const Buffer& out,
                       const Snake& snake, Weight bias, const Lanes& lanes, const WeightShape& weight,
                       int64_t history, int phases) {
  check(c, lanes);
  c.rows(x, lanes.total(), x.width, "x");
  c.rows(out, int64_t{lanes.total()} * phases, weight.outputs, "out");
  c.require_vector(bias, weight.outputs, "bias");
  c.require(weight.inputs == x.width, "'x' is not as wide as the weight");
  if (history > 0) {
    check_state(c, state, history, x.width, "state rows should be slots * (kernel - 1) * dilation");
    c.require_disjoint(state, x, "'state' overlaps 'x'");
    c.require_disjoint(state, out, "'state' overlaps 'out'");
  }
  c.require_vector(snake.alpha, x.width, "snake.alpha");
  c.require_vector(snake.inverse_beta, x.width, "snake.inverse_beta");
  c.require(!snake.alpha == !snake.inverse_beta, "a snake has two weights");
  // Rows of other lanes, or later rows, must not be overwritten before they are read.
  const bool in_place = phases == 1 && out.offset == x.offset && out.stride == x.stride;
  if (!in_place) c.require_disjoint(x, out, "'out' overlaps 'x' and is not the same view");
}

}  // namespace

void check(const Checker& c, const GatherSum& a) {
  check(c, a.lanes);
  const int width = a.out.width;
  for (const Weight table : a.tables)
    c.require(c.shape(table, WeightRole::table, "tables").width == width, "a table is not as wide as 'out'");
  if (!a.tables.empty())
    c.rows<int32_t>(a.ids, a.ids_by_slot ? 1 : a.lanes.total(), static_cast<int64_t>(a.tables.size()), "ids");
  c.optional_rows(a.add, a.lanes.total(), width, "add");
  c.rows(a.out, a.lanes.total(), width, "out");
  if (!a.stored) return;
  const int32_t slots = c.elements(a.stored_count, 1, "stored_count").count;
  c.elements(a.stored_step, slots, "stored_step");
  c.require(a.stored.rows % slots == 0, "stored rows should be slots * capacity");
  c.rows(a.stored, slots, width, "stored");
  c.rows(a.pad, 1, width, "pad");
}

void check(const Checker& c, const Linear& a) {
  check_input(c, a.x, a.norm, a.lanes);
  const int columns = a.out.width;
  c.rows(a.out, a.lanes.total(), columns, "out");
  c.optional_rows(a.residual, a.lanes.total(), columns, "residual");
  c.require_vector(a.bias, columns, "bias");
  c.require_vector(a.scale, columns, "scale");
  if (a.weight) {
    c.require_matrix(a.weight, columns, a.x.width, "weight");
    if (a.norm.kind == Norm::none) c.require_disjoint(a.x, a.out, "'out' overlaps 'x'");
  } else {
    c.require(columns == a.x.width, "without a weight, 'out' is as wide as 'x'");
  }
}

void check(const Checker& c, const GatedPair& a) {
  check_input(c, a.x, a.norm, a.lanes);
  c.require_matrix(a.gate, a.out.width, a.x.width, "gate");
  c.require_matrix(a.up, a.out.width, a.x.width, "up");
  c.rows(a.out, a.lanes.total(), a.out.width, "out");
  if (a.norm.kind == Norm::none) c.require_disjoint(a.x, a.out, "'out' overlaps 'x'");
}

void check(const Checker& c, const RopeAngles& a) {
  check(c, a.lanes);
  c.require(a.head_dim > 0 && a.head_dim % 2 == 0 && a.theta > 0,
            "head_dim should be even and theta positive");
  c.rows(a.out, a.lanes.total(), a.head_dim, "out");
}

void check(const Checker& c, const QkvRope& a) {
  check_input(c, a.x, a.norm, a.lanes);
  check_heads(c, a.heads, a.kv_heads);
  c.require(a.head_dim > 0 && a.head_dim % 2 == 0, "head_dim should be even");
  check_cache(c, a.cache, a.kv_heads * a.head_dim);
  c.require_matrix(a.wq, a.heads * a.head_dim, a.x.width, "wq");
  c.require_matrix(a.wk, a.kv_heads * a.head_dim, a.x.width, "wk");
  c.require_matrix(a.wv, a.kv_heads * a.head_dim, a.x.width, "wv");
  c.require_vector(a.q_norm, a.head_dim, "q_norm");
  c.require_vector(a.k_norm, a.head_dim, "k_norm");
  c.rows(a.rope, a.lanes.total(), a.head_dim, "rope");
  c.rows(a.q, a.lanes.total(), a.heads * a.head_dim, "q");
}

void check(const Checker& c, const Attention& a) {
  check(c, a.lanes);
  check_heads(c, a.heads, a.kv_heads);
  check_cache(c, a.cache, a.kv_heads * a.head_dim);
  c.require(a.head_dim > 0 && a.window >= 0, "head_dim should be positive and window not negative");
  // All rows of a run are stored before the first one reads, so a ring must hold them beside the first row's
  // window.
  c.require(!a.cache.ring || (a.window > 0 && a.cache.capacity >= a.window - 1 + a.lanes.rows),
            "a ring needs a window and a capacity of at least window - 1 + rows");
  c.rows(a.q, a.lanes.total(), a.heads * a.head_dim, "q");
  c.rows(a.out, a.lanes.total(), a.heads * a.head_dim, "out");
  c.require_disjoint(a.q, a.out, "'out' overlaps 'q'");
}

void check(const Checker& c, const StoreRows& a) {
  check(c, a.lanes);
  c.require(a.capacity > 0 && a.store.rows % a.capacity == 0, "store rows should be slots * capacity");
  c.rows(a.x, a.lanes.total(), a.x.width, "x");
  c.rows(a.store, a.capacity, a.x.width, "store");
  c.require_disjoint(a.x, a.store, "'store' overlaps 'x'");
}

void check(const Checker& c, const Copy& a) {
  check(c, a.lanes);
  c.require(a.x.dtype == a.out.dtype && dtype_size(a.x.dtype) == 4, "copies are f32 or i32");
  c.rows(a.x, a.rows == Copy::of_slot ? 1 : a.lanes.total(), a.x.width, "x");
  c.rows(a.out, a.rows == Copy::each ? a.lanes.total() : a.lanes.lanes, a.x.width, "out");
}

void check(const Checker& c, const Sample& a) {
  check(c, a.lanes);
  const SlotArrays& s = a.slots;
  const int vocabulary = a.logits.width;
  c.require(a.lanes.rows == 1, "a draw takes one row per lane");
  c.require(a.group >= 0 && a.group < s.groups, "'group' is out of range");
  c.require(a.codes > 0 && a.codes <= vocabulary && a.stop_id < vocabulary,
            "'codes' or 'stop_id' is out of range");
  c.require(s.settings && s.settings.rows > 0, "'settings' is missing");
  const int slots = s.settings.rows;
  c.rows(a.logits, a.lanes.total(), vocabulary, "logits");
  c.optional_rows(a.probs, a.lanes.total(), vocabulary, "probs");
  c.rows<uint8_t>(s.settings, slots, sizeof(SlotSettings), "settings");
  c.elements(s.status, slots, "status");
  c.elements(s.sampled, slots, "sampled");
  c.rows<int32_t>(s.codes, slots, s.groups, "codes");
  c.rows<int32_t>(s.forced, slots, s.groups, "forced");
  if (a.group == 0) {
    c.rows<uint8_t>(s.seen, slots, vocabulary, "seen");
    c.optional_rows(s.noise, slots, vocabulary, "noise");
  } else {
    c.optional_rows(s.predictor_noise, slots, int64_t{s.groups - 1} * a.codes, "predictor_noise");
    c.require(vocabulary == a.codes, "a predictor's logits have 'codes' columns");
  }
}

void check(const Checker& c, const PublishFrame& a) {
  check(c, a.lanes);
  const SlotArrays& s = a.slots;
  c.require(s.groups > 0 && s.ring_frames > 0 && s.cache_capacity > 0,
            "groups, ring_frames and cache_capacity are positive");
  c.require(s.settings && s.settings.rows > 0, "'settings' is missing");
  const int slots = s.settings.rows;
  c.rows<uint8_t>(s.settings, slots, sizeof(SlotSettings), "settings");
  c.elements(s.status, slots, "status");
  c.elements(s.position, slots, "position");
  c.elements(s.frames, slots, "frames");
  c.rows<int32_t>(s.codes, slots, s.groups, "codes");
  c.rows<int32_t>(s.ring, int64_t{slots} * s.ring_frames, s.groups, "ring");
}

void check(const Checker& c, const Advance& a) {
  check(c, a.lanes);
  c.elements(a.counter, 1, "counter");
}

void check(const Checker& c, const Conv& a) {
  const WeightShape& w = c.shape(a.weight, WeightRole::convolution, "weight");
  c.require(a.kernel == w.taps && a.dilation > 0,
            "kernel differs from the weight's, or dilation is not positive");
  check_convolution(c, a.x, a.state, a.out, a.snake, a.bias, a.lanes, w, int64_t{a.kernel - 1} * a.dilation,
                    1);
  c.optional_rows(a.residual, a.lanes.total(), w.outputs, "residual");
}

void check(const Checker& c, const ConvTransposed& a) {
  const WeightShape& w = c.shape(a.weight, WeightRole::transposed_convolution, "weight");
  c.require(a.stride > 0 && a.kernel == w.taps && a.kernel % a.stride == 0,
            "kernel differs from the weight's, or is not a multiple of stride");
  check_convolution(c, a.x, a.state, a.out, a.snake, a.bias, a.lanes, w, a.kernel / a.stride - 1, a.stride);
}

void check(const Checker& c, const Depthwise& a) {
  check(c, a.lanes);
  const WeightShape& w = c.shape(a.weight, WeightRole::depthwise, "weight");
  c.require(w.rows == a.kernel && w.width == a.x.width, "the weight has another shape");
  c.require_vector(a.bias, a.x.width, "bias");
  c.rows(a.x, a.lanes.total(), a.x.width, "x");
  c.rows(a.out, a.lanes.total(), a.x.width, "out");
  c.require_disjoint(a.x, a.out, "'out' overlaps 'x'");
  if (a.kernel == 1) return;
  check_state(c, a.state, a.kernel - 1, a.x.width, "state rows should be slots * (kernel - 1)");
  c.require_disjoint(a.state, a.x, "'state' overlaps 'x'");
  c.require_disjoint(a.state, a.out, "'state' overlaps 'out'");
}

}  // namespace skald::backend
