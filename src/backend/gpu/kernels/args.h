// Arguments of the GPU kernels: plain structs that the host (C++20) fills and every device compiler reads.
//
// No header is needed and none may be included: NVRTC, HIPRTC and offline clang compile this file as it is.
// Pointers hold 64-bit device addresses. Strides are in elements. A null pointer means "absent".
#pragma once

typedef unsigned char kp_u8;
typedef signed char kp_i8;
typedef unsigned short kp_u16;
typedef unsigned int kp_u32;
typedef unsigned long long kp_u64;
typedef long long kp_i64;

/// Why an op could not be carried out; reported through the fault word, see LaneArgs.
enum FaultCode {
  kFaultNone = 0,
  kFaultSlot = 1,      ///< a lane names a slot that does not exist; value = slot
  kFaultCount = 2,     ///< a lane counts more rows than it has, or fewer than none; value = rows
  kFaultPosition = 3,  ///< a position outside the cache or store; value = position
  kFaultId = 4,        ///< an id outside its table, or a forced code outside the logits; value = id
  kFaultStored = 5,    ///< a step outside the stored rows; value = step
  kFaultNoise = 6,     ///< recorded noise asked for where there is none; value = slot
  kFaultShort = 7,     ///< a lane of too few rows to be mirrored at its ends; value = rows
};

/// Which rows of the op count in this run: `Lanes` of ops.h.
struct LaneArgs {
  const int* slot;   ///< [lanes]
  const int* count;  ///< [lanes], or absent
  const int* start;  ///< [slots], or absent
  const int* gate;   ///< [slots], or absent
  int slot_stride, count_stride, start_stride, gate_stride;
  int lanes, rows, rate, start_offset;
  int stride;  ///< above 1: `count` is of input rows, and a row of the op stands for so many of them
  int slots;   ///< slots that every array of the op has; one at or beyond it is a fault
  int op;      ///< number of the op, for the fault word
  /// One word, 0 = all is well. A kernel that meets values it cannot work with stores
  /// code << 56 | op << 32 | value and leaves that lane (or row) alone. The last report wins.
  kp_u64* fault;
};

/// Channels of a unit: what rows for convolutions are staged in (common.cuh).
enum { kUnitInputs = 8 };

/// How the elements of a packed matrix or of a table are stored.
enum ElementKind { kElementF32 = 0, kElementBf16 = 1, kElementInt8 = 2, kElementF16 = 3 };

/// Where a run of publish_frame reports to the host. Entry e of a slot is `stride` ints at
/// entries + (slot * depth + e) * stride:
/// [sequence, status, frames, position, sampled, step, 0, 0, codes of the frame in work ...].
/// `beat` counts the runs that had the slot in a lane, whatever its status was; run n (from 1) goes to entry
/// (n - 1) % depth and its sequence number n is stored last, with system-scope release. `entries` is coherent
/// host memory, `beat` device memory.
struct HostRingArgs {
  int* entries;
  int* beat;  ///< [slots]
  int depth, stride, slots;
};
enum { kRingSequence, kRingStatus, kRingFrames, kRingPosition, kRingSampled, kRingStep, kRingCodes = 8 };

/// Normalisation of a row: `Norm` of ops.h; kind 0 = none, 1 = RMS, 2 = layer.
struct NormArgs {
  const float* weight;
  const float* bias;
  float epsilon;
  int kind;
};

/// A packed matrix (docs/decisions/0007-gpu-panels.md): panels of 8 outputs; per tap a run of groups of 32
/// inputs (int8: 64). Phase p, panel n, tap t, group g lie at
/// data + p * phase_bytes + n * panel_bytes + t * tap_bytes + g * (bytes of a group); only convolutions have
/// taps and phases.
struct MatrixArgs {
  const kp_u8* data;
  kp_i64 panel_bytes, tap_bytes, phase_bytes;
  kp_i64 scale_bytes;  ///< int8: from the start of a panel to its scales, 8 floats a group
  int outputs, inputs, taps, phases;
  int groups;  ///< of one tap
};

/// What happens to a product: out = residual + scale * activation(sum + bias), then clipped; with `gate`,
/// out = silu(gate) * sum.
struct EpilogueArgs {
  const float* bias;
  kp_i64 bias_stride;  ///< where every lane has a bias of its own, of `bias_rows` rows each
  int bias_rows;       ///< 0 = one for all
  const float* scale;
  const float* residual;
  const float* gate;
  float* out;
  kp_i64 residual_stride, gate_stride, out_stride;
  float clip;      ///< > 0: limits to +-clip
  int activation;  ///< an Activation of ops.h
};

/// Input rows of a product: row r of lane l starts at data + l * lane_stride + r * row_stride.
struct InputArgs {
  const float* data;
  kp_i64 lane_stride, row_stride;
};

/// product_*: up to three matrices side by side (their outputs are consecutive columns), or gate and up.
struct ProductArgs {
  LaneArgs lanes;
  InputArgs x;
  NormArgs norm;        ///< none or, where `normalise` has not been, RMS
  const float* factor;  ///< [rows]: what the sums of a row are multiplied with, after `normalise`; or absent
  MatrixArgs matrix[3];
  int matrices;
  int panels;      ///< of all matrices, or of each of a pair
  int row_groups;  ///< product_*_many: groups of 4 rows of one block, 1, 2, 4 or 8
  EpilogueArgs to;
};

/// split_rows: rows as three bf16 parts each, in the order of a matrix unit (matrix.cuh).
struct SplitRowsArgs {
  LaneArgs lanes;
  InputArgs x;
  NormArgs norm;  ///< RMS or none
  float* factors;
  kp_u32* out;  ///< [tiles of 16 rows][steps][3][32][4]
  int width, steps;
};

/// product_matrix_*: up to three bf16 matrices side by side, as ProductArgs.
struct MatrixProductArgs {
  LaneArgs lanes;
  const kp_u32* rows;  ///< from split_rows
  const float* factor;
  MatrixArgs matrix[3];
  int matrices, panels, steps;
  EpilogueArgs to;
};

/// normalise: out = residual + scale * activation(norm(x) + bias) for every valid row. With `factors` the
/// norm is RMS, out = weight * x, and the rest of it goes to factors[row].
struct NormaliseArgs {
  LaneArgs lanes;
  InputArgs x;
  NormArgs norm;
  EpilogueArgs to;
  float* factors;
  int width;
  int group_inputs;  ///< of the matrix that follows: fixes the order of the sum of squares
};

/// rope_angles
struct RopeAnglesArgs {
  LaneArgs lanes;
  float* out;
  kp_i64 out_stride;
  int half;
  float inverse_frequency[128];
};

/// A layer's cache, `KvCache` of ops.h.
struct CacheArgs {
  float *k, *v;
  kp_i64 k_stride, v_stride;
  int capacity, ring;
};

/// place_heads: head norm and rotation of projected q and k, into q and the cache; v into the cache.
struct PlaceHeadsArgs {
  LaneArgs lanes;
  const float* projected;  ///< [rows][(heads + 2 * kv_heads) * head_dim]
  const float* rope;
  const float *q_norm, *k_norm;
  float* q;
  kp_i64 rope_stride, q_stride;
  CacheArgs cache;
  float epsilon;
  int heads, kv_heads, head_dim;
};

/// attention
struct AttentionArgs {
  LaneArgs lanes;
  const float* q;
  float* out;
  kp_i64 q_stride, out_stride;
  CacheArgs cache;
  float* partial;   ///< [rows][heads][splits][head_dim + 2]
  kp_u32* arrived;  ///< [rows][head groups], zero between runs
  float scale;
  int heads, kv_heads, head_dim, window;
  int splits;     ///< most blocks that share one row and kv head
  int heads_per;  ///< query heads of one block, 1 or 2
  int groups;     ///< blocks of heads of a row: heads / heads_per
  int per_kv;     ///< of those, how many share a kv head
};

/// attention_placed: attention of rows whose projections were not placed yet, one row a lane. `q` is not
/// used.
struct PlacedAttentionArgs {
  AttentionArgs attention;
  const float *projected, *rope, *q_norm, *k_norm;  ///< as in PlaceHeadsArgs
  kp_i64 rope_stride;
  float epsilon;
};

/// A table that rows are read from.
struct TableArgs {
  const void* data;
  int rows, kind;
};
enum { kMostTables = 32 };

/// gather_sum
struct GatherSumArgs {
  LaneArgs lanes;
  TableArgs table[kMostTables];
  const int* ids;
  const float *add, *stored, *pad;
  const int *stored_count, *stored_step;
  float* out;
  kp_i64 ids_stride, add_stride, stored_stride, out_stride;
  int tables, ids_by_slot, width, count_stride, step_stride, stored_capacity;
};

/// store_rows
struct StoreRowsArgs {
  LaneArgs lanes;
  const float* x;
  float* store;
  kp_i64 x_stride, store_stride;
  int capacity, width;
};

/// copy_rows: which = 0 each, 1 last, 2 of_slot; elements of 4 bytes.
struct CopyArgs {
  LaneArgs lanes;
  const kp_u32* x;
  kp_u32* out;
  kp_i64 x_stride, out_stride;
  int which, width;
};

/// advance
struct AdvanceArgs {
  LaneArgs lanes;
  int* counter;
  int counter_stride;
};

/// `SamplerSettings` and `SlotSettings` of ops.h, word for word.
struct SamplerSettingsArgs {
  float temperature, top_p, repetition_penalty;
  int top_k, min_new_tokens, greedy;
};
struct SlotSettingsArgs {
  SamplerSettingsArgs talker, predictor;
  kp_u32 seed_low, seed_high;
  int max_frames, recorded_noise, want_probs;
};

/// A list of numbers, one per slot.
struct CounterArgs {
  int* data;
  int stride;
};

/// sample
struct SampleArgs {
  LaneArgs lanes;
  const float* logits;
  float* probs;
  const kp_u8* settings;
  int* codes;
  const int* forced;
  kp_u8* seen;
  const float* noise;  ///< already at the first candidate of the group
  kp_i64 logits_stride, probs_stride, settings_stride, codes_stride, forced_stride, seen_stride, noise_stride;
  CounterArgs status, sampled;
  int group, vocabulary, codes_count, stop_id;
};

/// sample_feed: a draw, and then the row of a table that it names, or zeros where it names none.
struct SampleFeedArgs {
  SampleArgs sample;
  LaneArgs lanes;  ///< of the rows that are fed
  TableArgs table;
  const int* ids;  ///< [slots]
  float* out;
  kp_i64 ids_stride, out_stride;
  int width;
};

/// publish_frame
struct PublishArgs {
  LaneArgs lanes;
  const kp_u8* settings;
  const int* codes;
  int* ring;
  kp_i64 settings_stride, codes_stride, ring_stride;
  CounterArgs status, position, frames, sampled, step;
  HostRingArgs host;
  int capacity, ring_frames, groups;
};

/// stage: the input rows of a convolution behind the rows carried from before, the new ones after the snake;
/// in the order of conv.cuh.
struct StageArgs {
  LaneArgs lanes;
  const float* x;
  const float* state;  ///< [slots * history]
  const float *alpha, *inverse_beta;
  float* out;
  kp_i64 x_stride, state_stride;
  int history, width;
};

/// conv_*: a convolution of staged rows.
struct ConvArgs {
  LaneArgs lanes;
  const float* x;      ///< from `stage` or `stage_padded`
  kp_i64 unit_stride;  ///< floats of one unit
  kp_u64 tap_inverse;  ///< 2^32 / taps, rounded up
  MatrixArgs matrix;   ///< f32
  EpilogueArgs to;
  int stride, dilation;  ///< in staged rows, from row to row and from tap to tap
  int around;            ///< staged rows of a lane beyond `stride` for each of its rows
  int units, part_units;
  int tiles;  ///< blocks that make tiles; those behind them renew the state
  struct {
    float* state;  ///< slot s: state + s * history * stride
    kp_i64 stride;
    int width, blocks;
  } carry;
};

/// depthwise
struct DepthwiseArgs {
  LaneArgs lanes;
  const float *x, *weight, *bias;  ///< weight [taps][channels]
  float *state, *out;
  kp_i64 x_stride, state_stride, out_stride;
  int taps, channels;
};

/// stage_padded: the input rows of a padded convolution with what stands around them, after
/// `before(x + add)`, as `stage` stores them. Staged row s of a lane is its input row s - history.
struct PaddedArgs {
  LaneArgs lanes;  ///< of input rows
  const float *x, *add;
  const float* state;  ///< [slots * history], or absent
  float* out;          ///< [units][lanes][whole][8]
  kp_i64 x_stride, add_stride, state_stride;
  int history, whole, width;
  int before;   ///< an Activation of ops.h
  int padding;  ///< 0 zero, 1 replicate, 2 reflect
  int conv_stride;
  int behind;  ///< reflect: mirrored rows behind the last one
};

/// log_mel
struct LogMelArgs {
  LaneArgs lanes;  ///< of samples
  const float *x, *filters;
  float* out;
  kp_i64 x_stride, out_stride;
  int fft, log2_fft, hop, bands;
  float floor;
};

/// statistics
struct StatisticsArgs {
  LaneArgs lanes;
  const float *x, *scores;
  float* out;
  kp_i64 x_stride, scores_stride, out_stride;
  int width, deviations;
};

/// scale_rows
struct ScaleRowsArgs {
  LaneArgs lanes;
  const float *x, *gate, *residual;
  float* out;
  kp_i64 x_stride, gate_stride, residual_stride, out_stride;
  int width;
};

/// nearest_code
struct NearestCodeArgs {
  LaneArgs lanes;
  const float* x;
  const float* scores;  ///< [rows][codes] without gaps: x . entry - |entry|^2 / 2
  const float *entries, *half_square;
  int* codes;
  float* remainder;
  kp_i64 x_stride, codes_stride, remainder_stride;
  int count, width;
};
