// The seam: the model calls these coarse operations, a backend implements them. Design: docs/architecture.md.
//
// The model hands over weights under a role, allocates buffers once, records its call sequence once per shape
// class and replays it. Recorded arguments never change: everything that moves from frame to frame (position,
// settings, codes, stop flag) sits in small device arrays indexed by slot, so that a replay is the same work
// whatever it computes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "skald/error.h"

namespace skald::backend {

enum class Dtype : uint8_t { f32, f16, bf16, i32, u8 };

/// Bytes of one element.
constexpr size_t dtype_size(Dtype d) {
  return d == Dtype::u8 ? 1 : (d == Dtype::f16 || d == Dtype::bf16) ? 2 : 4;
}

// ---- weights

/// What a weight is used for. Packing, precision and quantisation follow from it and are private to the
/// backend.
enum class WeightRole : uint8_t {
  matrix,       ///< Linear weight [out, in]
  table,        ///< embedding table [entries, width], read by rows; the source bytes must outlive the backend
  vector,       ///< norm weight, bias, scale, snake parameter [n]
  convolution,  ///< [out, in, kernel]
  transposed_convolution,  ///< [in, out, kernel]
  depthwise,               ///< [channels, 1, kernel]
};

/// A checkpoint tensor as found in the file: row-major, little endian. Nothing is owned.
struct TensorSource {
  std::string_view name;
  Dtype dtype = Dtype::f32;
  std::vector<int64_t> shape;
  std::span<const std::byte> data;
  bool exact = false;  ///< the model needs these values as they are: no option of the user rounds them
};

/// Opaque handle of a loaded weight; a default one means "absent".
struct Weight {
  int32_t id = -1;
  explicit operator bool() const { return id >= 0; }
};

// ---- buffers

/// A strided two-dimensional view of device memory. Views never own; the backend owns all memory until it
/// dies.
struct Buffer {
  int32_t id = -1;
  Dtype dtype = Dtype::f32;
  int32_t rows = 0, width = 0;
  int64_t stride = 0;  ///< elements from one row to the next
  int64_t offset = 0;  ///< elements from the start of the allocation
  explicit operator bool() const { return id >= 0; }

  Buffer columns(int32_t first, int32_t count) const {
    Buffer b = *this;
    b.offset += first, b.width = count;
    return b;
  }
  Buffer row_range(int32_t first, int32_t count) const {
    Buffer b = *this;
    b.offset += first * stride, b.rows = count;
    return b;
  }
  /// The same elements as `new_rows` rows; only for views without gaps between rows.
  Buffer reshaped(int32_t new_rows, int32_t new_width) const {
    Buffer b = *this;
    b.rows = new_rows, b.width = new_width, b.stride = new_width;
    return b;
  }
};

/// Which rows of a program belong to which slot, and which of them count in this run.
/// Row r of a program is row r % rows of lane r / rows. A lane without a slot, or whose gate is not
/// `running`, is idle: its rows are neither read nor written, and no state of any slot changes.
struct Lanes {
  int32_t lanes = 1;
  int32_t rows = 1;          ///< rows per lane in this shape class
  int32_t rate = 1;          ///< rows per counted unit (codec stages: rows per frame)
  Buffer slot;               ///< i32 [lanes]: the lane's slot, -1 = idle
  Buffer count;              ///< i32 [lanes]: valid units of this run, at most rows / rate; absent = all rows
  Buffer start;              ///< i32 [slots]: position of the lane's first row; absent = 0
  int32_t start_offset = 0;  ///< added to it (the predictor's fixed positions)
  Buffer gate;               ///< i32 [slots]: a SlotStatus; absent = always running
  int32_t total() const { return lanes * rows; }
  /// The same lanes at a stage with `factor` times the rows.
  Lanes upsampled(int32_t factor) const {
    Lanes l = *this;
    l.rows *= factor, l.rate *= factor;
    return l;
  }
};

/// Keys and values of one layer: each [slots * capacity, kv_heads * head_dim].
struct KvCache {
  Buffer k, v;
  int32_t capacity = 0;  ///< positions per slot
  bool ring = false;     ///< position p lives at p % capacity (sliding window); else p < capacity always
};

// ---- what a slot carries

enum SlotStatus : int32_t {
  kIdle = 0,
  kRunning = 1,
  kStopToken = 2,  ///< the talker drew the stop token
  kLength = 3,     ///< the caller's frame limit
  kCacheFull = 4,  ///< no position left for the next frame
  kNonFinite = 5,  ///< NaN or infinity in logits
};

/// Settings of one sampler; definitions in the specification, section 6.2.
struct SamplerSettings {
  float temperature = 0.9f;
  float top_p = 1.0f;
  float repetition_penalty = 1.0f;  ///< once per distinct id already sampled; talker only
  int32_t top_k = 50;               ///< 0 = off; ties of the k-th largest are kept
  int32_t min_new_tokens = 0;       ///< the stop token is forbidden before this many draws; talker only
  int32_t greedy = 0;               ///< 1 = argmax of the processed logits, lowest index on ties
};

/// One row of the `settings` array, plain bytes so that a device can read it.
struct SlotSettings {
  SamplerSettings talker, predictor;
  uint32_t seed_low = 0, seed_high = 0;
  int32_t max_frames = 0;      ///< the slot ends with kLength after this many frames
  int32_t recorded_noise = 0;  ///< 1 = draws use the noise arrays, not the generator
  int32_t want_probs = 0;      ///< 1 = samplers write the processed probabilities
};

/// The device arrays that move from frame to frame, indexed by slot.
struct SlotArrays {
  Buffer settings;  ///< u8 [slots, sizeof(SlotSettings)]
  Buffer status;    ///< i32 [slots, 1], a SlotStatus
  Buffer position;  ///< i32 [slots, 1]: cache position of the next talker row
  Buffer step;      ///< i32 [slots, 1]: frames whose row was fed; index of the next trailing text row
  Buffer sampled;   ///< i32 [slots, 1]: number of code0 drawn, the stop token included
  Buffer frames;    ///< i32 [slots, 1]: complete frames published
  Buffer codes;     ///< i32 [slots, groups]: codes of the frame in work
  Buffer forced;    ///< i32 [slots, groups]: a code to take instead of the draw, -1 = draw
  Buffer seen;      ///< u8 [slots, vocabulary]: 1 = this code0 was drawn in this request
  Buffer ring;      ///< i32 [slots * ring_frames, groups]: published frames, frame f at f % ring_frames
  Buffer noise;     ///< f32 [slots, vocabulary]: recorded exponential noise of the talker's next draw
  Buffer predictor_noise;  ///< f32 [slots, (groups - 1) * codes]
  int32_t cache_capacity = 0, ring_frames = 0, groups = 0;
};

// ---- operations: rows

/// out[r] = add[r] + sum over j of tables[j][ids[r, j]], ids below 0 contribute nothing; then, with `stored`,
/// + stored[slot, step[slot]] while step[slot] < stored_count[slot], else + pad.
struct GatherSum {
  std::vector<Weight> tables;
  Buffer ids;  ///< i32 [rows, tables], or [slots, tables] with ids_by_slot
  bool ids_by_slot = false;
  Buffer add;                        ///< optional [rows, width]
  Buffer stored;                     ///< optional [slots * stored_capacity, width]
  Buffer stored_count, stored_step;  ///< i32 [slots, 1]
  Buffer pad;                        ///< [1, width]
  Buffer out;
  Lanes lanes;
};

/// Normalisation of a row before a product: RMS (weight) or layer norm (weight and bias).
struct Norm {
  enum Kind : uint8_t { none, rms, layer } kind = none;
  Weight weight, bias;
  float epsilon = 0;
};

/// relu_tanh = tanh(max(x, 0)); elu = x above 0, else exp(x) - 1. The last four are those of the encoders.
enum class Activation : uint8_t { none, silu, gelu_erf, relu, relu_tanh, sigmoid, elu };

/// out = residual + scale * activation(norm(x) . weight^T + bias); bias, residual, scale optional. Without a
/// weight the product is the identity (a plain norm). `out` may be `residual`.
struct Linear {
  Buffer x;
  Norm norm;
  Weight weight, bias;
  Activation activation = Activation::none;
  Buffer residual;
  Weight scale;
  Buffer out;
  Lanes lanes;
};

/// out = silu(h . gate^T) * (h . up^T) with h = norm(x).
struct GatedPair {
  Buffer x;
  Norm norm;
  Weight gate, up;
  Buffer out;
  Lanes lanes;
};

/// cos and sin of every row's position: out[r] = [cos 0..half-1, sin 0..half-1], angle = f32(position) *
/// f32(inv_freq). Specification 3.3.
struct RopeAngles {
  float theta = 0;
  int32_t head_dim = 0;
  Buffer out;  ///< [rows, head_dim]
  Lanes lanes;
};

/// h = norm(x); q, k, v = h . W^T; per-head RMS norm of q and k (optional); half-split rotation of q and k;
/// k and v stored at the row's position, q to `q`.
struct QkvRope {
  Buffer x;
  Norm norm;
  Weight wq, wk, wv;
  Weight q_norm, k_norm;  ///< optional, [head_dim], with norm.epsilon
  int32_t heads = 0, kv_heads = 0, head_dim = 0;
  Buffer rope;  ///< from RopeAngles
  Buffer q;     ///< [rows, heads * head_dim]
  KvCache cache;
  Lanes lanes;
};

/// Causal attention of every row over its slot's cache, positions max(0, p - window + 1) .. p (window 0 =
/// all). Query head h reads kv head h / (heads / kv_heads).
struct Attention {
  Buffer q;
  KvCache cache;
  int32_t heads = 0, kv_heads = 0, head_dim = 0;
  float scale = 0;
  int32_t window = 0;
  Buffer out;  ///< [rows, heads * head_dim]
  Lanes lanes;
};

/// Copies the lane's valid rows to store[slot * capacity + position].
struct StoreRows {
  Buffer x, store;
  int32_t capacity = 0;
  Lanes lanes;
};

/// `each`: out[r] = x[r]. `last`: out[lane] = the lane's last valid row of x. `of_slot`: out[lane] = x[slot
/// of the lane].
struct Copy {
  enum Rows : uint8_t { each, last, of_slot } rows = each;
  Buffer x, out;
  Lanes lanes;
};

/// Draws one code per lane into codes[slot, group]; specification 6.2 (talker, group 0) and 5.3 (predictor).
/// The talker marks `seen`, counts `sampled`, and on the stop token sets the slot's status. Non-finite logits
/// set kNonFinite. Draws are argmax(p / e), e exponential from Philox 4x32 keyed (seed; frame, group, index).
struct Sample {
  int32_t group = 0;
  Buffer logits;         ///< [lanes, vocabulary]; the predictor's heads have `codes` columns
  Buffer probs;          ///< same shape, written when the slot wants it
  int32_t codes = 0;     ///< ids 0..codes-1 may be drawn,
  int32_t stop_id = -1;  ///< and this one (talker only)
  SlotArrays slots;
  Lanes lanes;
};

/// The frame is complete: codes to the ring, frames + 1, kLength at max_frames, kCacheFull when no position
/// is left.
struct PublishFrame {
  SlotArrays slots;
  Lanes lanes;
};

/// counter[slot] += count (valid rows of the lane).
struct Advance {
  Buffer counter;
  Lanes lanes;
};

// ---- operations: audio, time-major [lanes * rows, channels]

/// x + inverse_beta * sin^2(alpha * x), both per channel (already exp'd and inverted; specification 8.2).
struct Snake {
  Weight alpha, inverse_beta;
};

/// Causal convolution with carried state, stride 1. `state` holds the last (kernel - 1) * dilation input rows
/// after the snake: [slots * (kernel - 1) * dilation, in]. out = residual + bias + conv(snake(x)); with clip
/// > 0 limited to +-clip.
struct Conv {
  Buffer x;
  Snake snake;
  Weight weight, bias;
  int32_t kernel = 1, dilation = 1;
  Buffer state;  ///< absent for kernel 1
  Buffer residual;
  float clip = 0;
  Buffer out;
  Lanes lanes;
};

/// Causal transposed convolution: the last kernel - stride output rows of the full one are carried, as the
/// last kernel / stride - 1 input rows (after the snake): [slots * (kernel / stride - 1), in]. `lanes` counts
/// input rows.
struct ConvTransposed {
  Buffer x;
  Snake snake;
  Weight weight, bias;
  int32_t kernel = 0, stride = 0;
  Buffer state;
  Buffer out;  ///< [lanes * rows * stride, out]
  Lanes lanes;
};

/// Depthwise causal convolution, dilation 1; state [slots * (kernel - 1), channels].
struct Depthwise {
  Buffer x;
  Weight weight, bias;
  int32_t kernel = 0;
  Buffer state;
  Buffer out;
  Lanes lanes;
};

// ---- operations: encoders (reference audio), time-major like the codec

/// Log-mel spectrum of samples, specification 7.2: frames of `fft` samples every `hop`, reflect padding of
/// (fft - hop) / 2 at both ends, periodic Hann window, magnitude sqrt(re^2 + im^2 + 1e-9) of the fft / 2 + 1
/// bins, filters, ln(max(m, floor)). A lane of n valid samples gives floor(n / hop) frames; n is above the
/// padding.
struct LogMel {
  Buffer x;                  ///< [lanes * rows, 1]
  Weight filters;            ///< vector [bands * (fft / 2 + 1)], one band after the other
  int32_t fft = 0, hop = 0;  ///< fft is a power of two
  float floor = 1e-5f;
  Buffer out;   ///< [lanes * (rows / hop), bands]
  Lanes lanes;  ///< of samples
};

/// out = residual + after(bias + conv(before(x + add))), one output row for every `stride` input rows: a lane
/// of n valid rows gives ceil(n / stride). With span = (kernel - 1) * dilation + 1:
/// - `zero`, `replicate`: causal. The span - stride rows before the lane's first are those of `state`
///   [slots * (span - stride), in] (after `before`), which is renewed; rows after the last valid one, up to a
///   whole stride, are zero or copies of the last one, so only the last run of a slot may end inside a
///   stride. With `replicate` the rows before position 0 are copies of the first row.
/// - `reflect`: stride 1, no state; (span - 1) / 2 rows before and the rest after are mirrored about the
///   lane's first and last row. A lane has more valid rows than that.
struct PaddedConv {
  enum Padding : uint8_t { zero, replicate, reflect };
  Buffer x;
  Buffer add;                            ///< optional, as x
  Activation before = Activation::none;  ///< none or elu
  Weight weight, bias;
  Buffer lane_bias;  ///< [lanes, out], in place of `bias`
  int32_t kernel = 1, dilation = 1, stride = 1;
  Padding padding = zero;
  Buffer state;  ///< absent for reflect, or where span = stride
  Activation after = Activation::none;
  Buffer residual;  ///< optional, as out
  Buffer out;       ///< [lanes * (rows / stride), out]
  Lanes lanes;      ///< of input rows; `start` is needed by `replicate` alone
};

/// Mean of every channel over the lane's valid rows and, with an `out` twice as wide as x, behind the means
/// the deviations sqrt(max(sum of w (x - mean)^2, 1e-12)). The weights w are 1 / rows, or with `scores` their
/// softmax over the rows, channel by channel.
struct Statistics {
  Buffer x;
  Buffer scores;  ///< optional, as x
  Buffer out;     ///< [lanes, width] or [lanes, 2 * width]
  Lanes lanes;
};

/// out[r] = residual[r] + x[r] * gate[lane]; `out` may be x or residual.
struct ScaleRows {
  Buffer x;
  Buffer gate;      ///< [lanes, width]
  Buffer residual;  ///< optional
  Buffer out;
  Lanes lanes;
};

/// codes[r] = the entry with the least Euclidean distance to x[r], the lowest of equal ones; then, with
/// `remainder`, remainder[r] = x[r] - entry (`remainder` may be x). Distances are judged in double precision
/// wherever float32 leaves a doubt.
struct NearestCode {
  Buffer x;
  Weight entries;      ///< table [codes, width], float32
  Weight matrix;       ///< matrix: the same entries
  Weight half_square;  ///< vector [codes]: -|entry|^2 / 2, so that the nearest has the largest sum
  Buffer codes;        ///< i32 [rows, 1]
  Buffer remainder;
  Lanes lanes;
};

// ---- recording

/// Receives the model's calls while a program is recorded.
class Ops {
 public:
  virtual ~Ops() = default;
  virtual void gather_sum(const GatherSum&) = 0;
  virtual void linear(const Linear&) = 0;
  virtual void gated_pair(const GatedPair&) = 0;
  virtual void rope_angles(const RopeAngles&) = 0;
  virtual void qkv_rope(const QkvRope&) = 0;
  virtual void attention(const Attention&) = 0;
  virtual void store_rows(const StoreRows&) = 0;
  virtual void copy(const Copy&) = 0;
  virtual void sample(const Sample&) = 0;
  virtual void publish_frame(const PublishFrame&) = 0;
  virtual void advance(const Advance&) = 0;
  virtual void conv(const Conv&) = 0;
  virtual void conv_transposed(const ConvTransposed&) = 0;
  virtual void depthwise(const Depthwise&) = 0;
  // The encoders' own. A device without them speaks with given voices, but makes none.
  virtual void log_mel(const LogMel&) { refuse("log_mel"); }
  virtual void padded_conv(const PaddedConv&) { refuse("padded_conv"); }
  virtual void statistics(const Statistics&) { refuse("statistics"); }
  virtual void scale_rows(const ScaleRows&) { refuse("scale_rows"); }
  virtual void nearest_code(const NearestCode&) { refuse("nearest_code"); }
  /// Names the ops that follow, e.g. "talker.layers.3"; comparisons and errors print it.
  virtual void label(std::string_view where) = 0;

 private:
  [[noreturn]] static void refuse(const char* op) {
    throw Error(ErrorCode::unsupported,
                std::string("this device has no operation ") + op + ", so it cannot encode reference audio");
  }
};

/// One recorded call, for comparing two devices op by op.
struct OpRecord {
  std::string kind, label;
  std::vector<Buffer> outputs;
};

struct Program {
  int32_t id = -1;
};

/// What a device can do at most, measured on the spot with its own threads; 0 = unknown.
struct DeviceSpeed {
  double read_bytes_per_second = 0;  ///< streaming sum over memory much larger than any cache
  double flops_per_second = 0;       ///< independent float32 multiply-adds, counted as two
};

/// Work of one queue runs in order. Queues run beside each other on devices that can; a buffer that a program
/// writes belongs to one queue.
enum class Queue : uint8_t { frames, codec };

/// How one run of `publish_frame` left a slot. Counters as in SlotArrays.
struct FrameReport {
  SlotStatus status = kIdle;
  int32_t frames = 0, position = 0, sampled = 0, step = 0;
};

/// What one run of a program took on the device itself.
struct ProgramTime {
  double ms = 0;         ///< 0 = this device does not tell
  int32_t launches = 0;  ///< of kernels
};

/// All launches of one kernel in a program, one after the other.
struct KernelTime {
  std::string name;
  int32_t launches = 0;
  double ms = 0;
};

/// When one run of a program was at work on the device, from the first of a trace on.
struct TracedRun {
  Program program;
  double from_ms = 0, to_ms = 0;
};

/// What a device did so far.
struct DeviceCounters {
  uint64_t programs = 0;          ///< handed over by run()
  uint64_t reads = 0;             ///< by read(): the host polled its own memory until the data was there
  uint64_t waits = 0;             ///< the host asked the driver whether something is complete
  uint64_t lost_completions = 0;  ///< work that was done, but that the driver never reported as complete
};

/// One device. Used from one thread at a time, the engine serialises; but any thread may call counters,
/// progress and status, and await_report where frames_ahead() is not 0.
class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string_view name() const = 0;

  /// Packs a weight. Throws Error(model_invalid) naming the tensor when rank or type do not fit the role.
  virtual Weight load(WeightRole role, const TensorSource& source) = 0;
  /// Zeroed memory, committed when first touched where the system allows.
  virtual Buffer allocate(std::string_view label, Dtype dtype, int64_t rows, int32_t width) = 0;
  virtual void write(const Buffer& to,
                     std::span<const std::byte> bytes) = 0;  ///< rows without gaps in `bytes`
  virtual void read(const Buffer& from, std::span<std::byte> bytes) = 0;
  virtual void zero(const Buffer& view) = 0;

  /// Runs `body` once against a recorder; the name tells programs apart in messages ("talker.step x1").
  virtual Program record(std::string_view name, const std::function<void(Ops&)>& body) = 0;
  virtual void run(Program program) = 0;
  /// The same, by itself and measured; waits. For devices that work behind the host.
  virtual ProgramTime run_timed(Program program) {
    run(program);
    return {};
  }
  /// Where its time goes, by kernel. What the program computes, and the slots of its lanes, are spoilt. Empty
  /// = this device does not tell.
  virtual std::vector<KernelTime> time_kernels(Program) { return {}; }
  /// From start_trace() on, when programs begin and end is noted by the device itself, while everything runs
  /// as ever; end_trace() waits for them. Empty = this device does not tell.
  virtual void start_trace() {}
  virtual std::vector<TracedRun> end_trace() { return {}; }
  virtual std::span<const OpRecord> ops(Program program) const = 0;
  virtual void run_op(Program program, size_t index) = 0;  ///< one op alone, for lock-step comparison

  // A device may work behind the host: run, write and zero then only hand work over, and read waits for what
  // was handed over before it. Every wait has a deadline: Error(device_wedged) where the device stands still.

  /// What follows (record, write, read, zero) belongs to this queue; a program runs on the queue it was
  /// recorded on.
  virtual void select(Queue) {}
  /// Frames that may be handed over before the first of them is looked at; 0 = run() returns when it is done.
  virtual int32_t frames_ahead() const { return 0; }
  /// Waits for run number `run` of publish_frame that had `slot` in a lane, whatever the slot's status was
  /// (the first one since the device was made is 1), and returns what it left; `codes` [groups] are those of
  /// the frame in work. Runs are reported for kReportedRuns further runs.
  virtual FrameReport await_report(const SlotArrays& slots, int32_t slot, int32_t run,
                                   std::span<int32_t> codes) {
    (void)run;  // a device that is done when run() returns
    const auto word = [&](const Buffer& array) {
      int32_t value = 0;
      read(array.row_range(slot, 1), std::as_writable_bytes(std::span(&value, 1)));
      return value;
    };
    read(slots.codes.row_range(slot, 1), std::as_writable_bytes(codes));
    return {static_cast<SlotStatus>(word(slots.status)), word(slots.frames), word(slots.position),
            word(slots.sampled), word(slots.step)};
  }
  static constexpr int32_t kReportedRuns = 16;

  virtual DeviceCounters counters() const { return {}; }
  /// Changes whenever the device gets on with its work. Any thread, at no cost.
  virtual uint64_t progress() const { return 0; }
  /// A few lines about where the device stands, for a person who asks why nothing happens.
  virtual std::string status() const { return std::string(name()); }

  virtual size_t weight_bytes() const = 0;
  virtual size_t buffer_bytes() const = 0;  ///< reserved, not necessarily committed

  /// Takes about half a second and some hundred megabytes, which are given back.
  virtual DeviceSpeed measure_speed() { return {}; }
  /// Bytes per second of one streaming read over weights that are loaded: takes some ten milliseconds and no
  /// memory, so it can be asked between frames. 0 = unknown, or too few weights to tell memory from caches.
  virtual double measure_read_speed() { return 0; }
};

}  // namespace skald::backend
