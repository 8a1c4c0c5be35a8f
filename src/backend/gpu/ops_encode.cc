// padded_conv, nearest_code, log_mel, statistics and scale_rows: the encoders of reference audio.
#include <bit>

#include "backend/gpu/convolutions.h"
#include "backend/gpu/products.h"
#include "backend/gpu/recorder.h"
#include "skald/error.h"

namespace skald::backend::gpu {
namespace {

constexpr int kBlock = 256;

int64_t blocks_of(int64_t elements) { return (elements + kBlock - 1) / kBlock; }

/// How the rows are staged with what stands around them.
PaddedArgs padding_of(const Binder& b, const PaddedConv& a) {
  const int width = a.x.width, span = (a.kernel - 1) * a.dilation + 1;
  const bool reflects = a.padding == PaddedConv::reflect;
  PaddedArgs pad{};
  pad.history = reflects ? (span - 1) / 2 : span - a.stride;
  pad.behind = span - 1 - pad.history;
  pad.whole = a.lanes.rows + (reflects ? span - 1 : pad.history);
  pad.width = width, pad.before = static_cast<int>(a.before), pad.padding = a.padding;
  pad.conv_stride = a.stride;
  pad.lanes = b.lanes(a.lanes, a.state ? a.state.rows / pad.history : kAnySlots);
  const Rows<float> x = b.rows(a.x, a.lanes.total(), width, "x"),
                    add = b.optional_rows(a.add, a.lanes.total(), width, "add");
  pad.x = x.data, pad.x_stride = x.stride, pad.add = add.data, pad.add_stride = add.stride;
  if (a.state) {
    const Rows<float> state = b.rows(a.state, pad.history, width, "state");
    pad.state = state.data, pad.state_stride = state.stride;
  }
  pad.out = b.scratch<float>(staged_floats(int64_t{a.lanes.lanes} * pad.whole, width));
  return pad;
}

EpilogueArgs epilogue(const Binder& b, const PaddedConv& a, int outputs) {
  const int rows = a.lanes.rows / a.stride;
  const int64_t total = int64_t{a.lanes.lanes} * rows;
  const Rows<float> out = b.rows(a.out, total, outputs, "out"),
                    residual = b.optional_rows(a.residual, total, outputs, "residual");
  EpilogueArgs to{};
  to.bias = b.vector(a.bias);
  if (a.lane_bias) {
    const Rows<float> bias = b.rows(a.lane_bias, a.lanes.lanes, outputs, "lane_bias");
    to.bias = bias.data, to.bias_stride = bias.stride, to.bias_rows = rows;
  }
  to.residual = residual.data, to.residual_stride = residual.stride;
  to.out = out.data, to.out_stride = out.stride;
  to.activation = static_cast<int>(a.after);
  return to;
}

/// Staged rows, then tiles; blocks behind the tiles renew the state.
std::vector<Launch> padded_launches(const Binder& b, const PaddedConv& a) {
  const PaddedArgs pad = padding_of(b, a);
  ConvArgs args{};
  args.lanes = pad.lanes;
  args.lanes.rows = a.lanes.rows / a.stride, args.lanes.stride = a.stride;
  args.x = pad.out, args.matrix = b.matrix(a.weight), args.to = epilogue(b, a, args.matrix.outputs);
  args.stride = a.stride, args.dilation = a.dilation, args.around = pad.whole - a.lanes.rows;
  if (a.state) carry_state(b, a.state, pad.width, args);
  const int64_t staged = int64_t{a.lanes.lanes} * pad.whole;
  return {Launch::make("stage_padded", blocks_of(staged_floats(staged, pad.width)), kBlock, pad),
          conv_launch(b, args, staged, pad.width)};
}

std::vector<Launch> nearest_launches(const Binder& b, const NearestCode& a) {
  const DeviceWeight &matrix = b.weight(a.matrix), &entries = b.weight(a.entries);
  if (matrix.kind != kElementF32 || entries.kind != kElementF32)
    throw Error(ErrorCode::unsupported, b.where() + ": a codebook is float32");
  const int rows = a.lanes.total(), width = a.x.width, codes = matrix.outputs;
  float* const scores = b.scratch<float>(int64_t{rows} * codes);
  std::vector<Launch> launches;
  ProductArgs product{};
  set_input(b, a.x, {}, a.lanes, kAnySlots, matrix.kind, nullptr, product, launches);
  product.to.bias = b.vector(a.half_square);
  product.to.out = scores, product.to.out_stride = codes;
  launches.push_back(product_launch(b, product, {b.matrix(a.matrix)}, matrix.kind));
  const Rows<float> x = b.rows(a.x, rows, width, "x"),
                    remainder = b.optional_rows(a.remainder, rows, width, "remainder");
  const Rows<int> out = b.rows<int>(a.codes, rows, 1, "codes");
  const NearestCodeArgs args{.lanes = product.lanes,
                             .x = x.data,
                             .scores = scores,
                             .entries = reinterpret_cast<const float*>(entries.address),
                             .half_square = b.vector(a.half_square),
                             .codes = out.data,
                             .remainder = remainder.data,
                             .x_stride = x.stride,
                             .codes_stride = out.stride,
                             .remainder_stride = remainder.stride,
                             .count = codes,
                             .width = width};
  launches.push_back(Launch::make("nearest_code", rows, kBlock, args));
  return launches;
}

std::vector<Launch> log_mel_launches(const Binder& b, const LogMel& a) {
  constexpr int kMostFft = 2048;  // 32 KB of shared memory
  if (a.fft > kMostFft) throw Error(ErrorCode::unsupported, b.where() + ": a transform of more than 2,048");
  const int bands = a.out.width, frames = a.lanes.lanes * (a.lanes.rows / a.hop);
  const Rows<float> x = b.rows(a.x, a.lanes.total(), 1, "x"), out = b.rows(a.out, frames, bands, "out");
  const LogMelArgs args{.lanes = b.lanes(a.lanes, kAnySlots),
                        .x = x.data,
                        .filters = b.vector(a.filters),
                        .out = out.data,
                        .x_stride = x.stride,
                        .out_stride = out.stride,
                        .fft = a.fft,
                        .log2_fft = std::countr_zero(static_cast<unsigned>(a.fft)),
                        .hop = a.hop,
                        .bands = bands,
                        .floor = a.floor};
  return {Launch::make("log_mel", frames, kBlock, args, static_cast<size_t>(a.fft) * 2 * sizeof(double))};
}

std::vector<Launch> statistics_launches(const Binder& b, const Statistics& a) {
  const int rows = a.lanes.total(), width = a.x.width;
  const Rows<float> x = b.rows(a.x, rows, width, "x"),
                    scores = b.optional_rows(a.scores, rows, width, "scores"),
                    out = b.rows(a.out, a.lanes.lanes, a.out.width, "out");
  const StatisticsArgs args{
      b.lanes(a.lanes, kAnySlots), x.data, scores.data, out.data, x.stride, scores.stride, out.stride, width,
      a.out.width != width};
  return {Launch::make("statistics", int64_t{a.lanes.lanes} * ((width + 31) / 32), kBlock, args)};
}

std::vector<Launch> scale_launches(const Binder& b, const ScaleRows& a) {
  const int rows = a.lanes.total(), width = a.x.width;
  const Rows<float> x = b.rows(a.x, rows, width, "x"), gate = b.rows(a.gate, a.lanes.lanes, width, "gate"),
                    residual = b.optional_rows(a.residual, rows, width, "residual"),
                    out = b.rows(a.out, rows, width, "out");
  const ScaleRowsArgs args{b.lanes(a.lanes, kAnySlots),
                           x.data,
                           gate.data,
                           residual.data,
                           out.data,
                           x.stride,
                           gate.stride,
                           residual.stride,
                           out.stride,
                           width};
  return {Launch::make("scale_rows", rows * blocks_of(width), kBlock, args)};
}

}  // namespace

void Recorder::padded_conv(const PaddedConv& a) {
  add("padded_conv", a, {a.out, a.state}, [&](const Binder& b) { return padded_launches(b, a); });
}
void Recorder::nearest_code(const NearestCode& a) {
  add("nearest_code", a, {a.codes, a.remainder}, [&](const Binder& b) { return nearest_launches(b, a); });
}
void Recorder::log_mel(const LogMel& a) {
  add("log_mel", a, {a.out}, [&](const Binder& b) { return log_mel_launches(b, a); });
}
void Recorder::statistics(const Statistics& a) {
  add("statistics", a, {a.out}, [&](const Binder& b) { return statistics_launches(b, a); });
}
void Recorder::scale_rows(const ScaleRows& a) {
  add("scale_rows", a, {a.out}, [&](const Binder& b) { return scale_launches(b, a); });
}

}  // namespace skald::backend::gpu
