// linear and gated_pair, and the launches of all products.
#include <algorithm>

#include "backend/gpu/products.h"
#include "backend/gpu/recorder.h"
#include "skald/error.h"

namespace skald::backend::gpu {
namespace {

const char* name_of(ElementKind kind) {
  return kind == kElementF32 ? "f32" : kind == kElementBf16 ? "bf16" : "int8";
}

int panels_of(const MatrixArgs& m) { return (m.outputs + kPanelOutputs - 1) / kPanelOutputs * m.phases; }

constexpr int kBlock = 256, kWarps = 8;

/// A few rows: a block is a panel (of both matrices with `pair`) by 1, 2 or 4 rows. Where one row has few
/// panels, each block keeps more of its weights in flight.
Launch few_launch(const ProductArgs& args, int panels, int rows, bool pair, ElementKind kind) {
  const int tile = rows <= 1 ? 1 : rows == 2 ? 2 : 4;
  const int64_t blocks = int64_t{panels} * ((rows + tile - 1) / tile) + args.carry.blocks;
  const size_t exchange = static_cast<size_t>(tile) * (kPanelOutputs + 1) * kBlock * sizeof(float);
  constexpr int kFewPanels = 264, kShallowInputs = 1024;
  const bool deep = rows == 1 && !pair && panels <= kFewPanels &&
                    args.matrix[0].taps * args.matrix[0].groups * group_inputs(kind) > kShallowInputs;
  return Launch::make(std::string(pair ? "pair_" : "product_") + name_of(kind) + "_" + std::to_string(tile) +
                          (deep ? "_deep" : ""),
                      blocks, kBlock, args, exchange);
}

/// Many rows: a block is 8 warps of one panel by 4 rows each.
Launch many_launch(ProductArgs args, int panels, int rows, ElementKind kind) {
  args.row_groups = 1;
  while (args.row_groups < kWarps && args.row_groups * 4 < rows) args.row_groups *= 2;
  const int wide = kWarps / args.row_groups, tile = 4 * args.row_groups;
  const int64_t blocks = int64_t{(panels + wide - 1) / wide} * ((rows + tile - 1) / tile) + args.carry.blocks;
  return Launch::make(std::string("product_") + name_of(kind) + "_many", blocks, kBlock, args);
}

EpilogueArgs epilogue(const Binder& b, const Linear& a) {
  const int rows = a.lanes.total();
  const Rows<float> out = b.rows(a.out, rows, a.out.width, "out"),
                    residual = b.optional_rows(a.residual, rows, a.out.width, "residual");
  static_assert(static_cast<int>(Activation::elu) == 6);  // kp_activate() knows them by number
  EpilogueArgs e{};
  e.bias = b.vector(a.bias), e.scale = b.vector(a.scale), e.residual = residual.data;
  e.residual_stride = residual.stride;
  e.out = out.data, e.out_stride = out.stride;
  e.activation = static_cast<int>(a.activation);
  return e;
}

std::vector<Launch> linear_launches(const Binder& b, const Linear& a) {
  const int rows = a.lanes.total();
  if (!a.weight) {
    const NormaliseArgs args{.lanes = b.lanes(a.lanes, kAnySlots),
                             .x = b.input(a.x, a.lanes),
                             .norm = b.norm(a.norm),
                             .to = epilogue(b, a),
                             .factors = nullptr,
                             .width = a.x.width,
                             .group_inputs = 0};
    return {Launch::make("normalise", rows, kBlock, args)};
  }
  std::vector<Launch> launches;
  ProductArgs args{};
  const ElementKind kind = b.weight(a.weight).kind;
  const bool first = normalises_first(a.norm, a.lanes, may_overlap(a.x, a.out));
  set_input(b, a.x, a.norm, a.lanes, kAnySlots, kind,
            first ? b.scratch<float>(normed_floats(a.x, a.lanes)) : nullptr, args, launches);
  args.to = epilogue(b, a);
  launches.push_back(product_launch(args, {b.matrix(a.weight)}, kind));
  return launches;
}

std::vector<Launch> gated_launches(const Binder& b, const GatedPair& a) {
  const int rows = a.lanes.total();
  const Rows<float> out = b.rows(a.out, rows, a.out.width, "out");
  const ElementKind kind = b.weight(a.gate).kind;
  if (b.weight(a.up).kind != kind)
    throw Error(ErrorCode::unsupported, b.where() + ": gate and up are of different types");
  std::vector<Launch> launches;
  ProductArgs args{};
  const bool first = normalises_first(a.norm, a.lanes, may_overlap(a.x, a.out)), few = rows <= kFewRows;
  const int64_t normed = first ? normed_floats(a.x, a.lanes) : 0,
                gates = few ? 0 : int64_t{rows} * a.out.width;
  float* const scratch = normed + gates > 0 ? b.scratch<float>(normed + gates) : nullptr;
  set_input(b, a.x, a.norm, a.lanes, kAnySlots, kind, first ? scratch : nullptr, args, launches);
  args.to.out = out.data, args.to.out_stride = out.stride;
  if (few) {
    args.matrices = 2, args.matrix[0] = b.matrix(a.gate), args.matrix[1] = b.matrix(a.up);
    launches.push_back(few_launch(args, panels_of(args.matrix[0]), rows, true, kind));
    return launches;
  }
  ProductArgs gate = args;
  gate.to.out = scratch + normed, gate.to.out_stride = a.out.width;
  launches.push_back(product_launch(gate, {b.matrix(a.gate)}, kind));
  args.to.gate = scratch + normed, args.to.gate_stride = a.out.width;
  launches.push_back(product_launch(args, {b.matrix(a.up)}, kind));
  return launches;
}

}  // namespace

void set_input(const Binder& b, const Buffer& x, const Norm& norm, const Lanes& lanes, int64_t slots,
               ElementKind kind, float* scratch, ProductArgs& args, std::vector<Launch>& launches) {
  args.lanes = b.lanes(lanes, slots);
  args.x = b.input(x, lanes);
  if (!scratch) {
    args.norm = b.norm(norm);
    return;
  }
  NormaliseArgs n{args.lanes, args.x, b.norm(norm), {}, nullptr, x.width, group_inputs(kind)};
  n.to.out = scratch, n.to.out_stride = x.width;
  if (norm.kind == Norm::rms) args.factor = n.factors = scratch + int64_t{lanes.total()} * x.width;
  launches.push_back(Launch::make("normalise", lanes.total(), kBlock, n));
  args.x = {scratch, int64_t{lanes.rows} * x.width, x.width, 0};
}

Launch product_launch(ProductArgs args, const std::vector<MatrixArgs>& matrices, ElementKind kind) {
  args.matrices = static_cast<int>(matrices.size());
  std::copy(matrices.begin(), matrices.end(), args.matrix);
  int panels = 0;
  for (const MatrixArgs& m : matrices) panels += panels_of(m);
  const int rows = args.lanes.lanes * args.lanes.rows;
  return rows <= kFewRows ? few_launch(args, panels, rows, false, kind)
                          : many_launch(args, panels, rows, kind);
}

void Recorder::linear(const Linear& a) {
  add("linear", a, {a.out}, [&](const Binder& b) { return linear_launches(b, a); });
}
void Recorder::gated_pair(const GatedPair& a) {
  add("gated_pair", a, {a.out}, [&](const Binder& b) { return gated_launches(b, a); });
}

}  // namespace skald::backend::gpu
