// linear and gated_pair, and the launches of all products.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "backend/gpu/products.h"
#include "backend/gpu/recorder.h"
#include "skald/error.h"

namespace skald::backend::gpu {
namespace {

const char* name_of(ElementKind kind) {
  return kind == kElementF32 ? "f32" : kind == kElementBf16 ? "bf16" : "int8";
}

int panels_of(const MatrixArgs& m) { return (m.outputs + kPanelOutputs - 1) / kPanelOutputs; }

constexpr int kBlock = 256, kWarps = 8;

/// Shared memory that the queues of a block take: weights, and for int8 their scales, of all groups ahead.
size_t queue_bytes(int ahead, bool pair, ElementKind kind) {
  const size_t group = kind == kElementF32 ? 1024 : kind == kElementBf16 ? 512 : 512 + 32;
  return static_cast<size_t>(kWarps) * static_cast<size_t>(ahead) * (pair ? 2 : 1) * group;
}

/// How many groups one row has ahead: all of a warp's where there is room, which the kernels' names say.
int groups_ahead(const MatrixArgs& m, bool pair, ElementKind kind) {
  constexpr size_t kRoom = 99 << 10;  // what every device with such copies has
  const int groups = (m.groups + kWarps - 1) / kWarps;
  int ahead = 4;
  for (const int more : {8, 12})
    if (groups > ahead && !(pair && more > 8) && queue_bytes(more, pair, kind) <= kRoom) ahead = more;
  return ahead;
}

/// A few rows: a block is a panel (of both matrices with `pair`) by 1, 2 or 4 rows.
Launch few_launch(const Binder& b, ProductArgs args, int panels, int rows, bool pair, ElementKind kind) {
  // Four rows of a pair exchange 68 KB: more than a block has on AMD, and than Launch promises there.
  const bool narrow = pair && !b.target().traits().async_copies;
  const int tile = rows <= 1 ? 1 : rows == 2 || narrow ? 2 : 4;
  const int64_t blocks = int64_t{panels} * ((rows + tile - 1) / tile);
  args.panels = panels;
  const int ahead = tile == 1 ? groups_ahead(args.matrix[0], pair, kind) : tile == 4 && pair ? 2 : 4;
  const size_t exchange = size_t{kBlock} * sizeof(float) * static_cast<size_t>(tile) *
                          ((pair ? 2 : 1) * kPanelOutputs + 1),
               queues = b.target().traits().async_copies ? queue_bytes(ahead, pair, kind) : 0;
  const char* const form = ahead == 8 ? "_8" : ahead == 12 ? "_12" : "";
  return Launch::make(fmt::format("{}_{}_{}{}", pair ? "pair" : "product", name_of(kind), tile, form), blocks,
                      kBlock, args, std::max(exchange, queues));
}

/// Many rows: a block is 8 warps of one panel by 4 rows each.
Launch many_launch(ProductArgs args, int panels, int rows, ElementKind kind) {
  args.row_groups = 1;
  while (args.row_groups < kWarps && args.row_groups * 4 < rows) args.row_groups *= 2;
  args.panels = panels;
  const int wide = kWarps / args.row_groups, tile = 4 * args.row_groups;
  const int64_t blocks = int64_t{(panels + wide - 1) / wide} * ((rows + tile - 1) / tile);
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
  if (on_matrix_units(b, a.norm, a.lanes, kind)) {
    matrix_launches(b, a.x, a.norm, a.lanes, kAnySlots, {b.matrix(a.weight)}, epilogue(b, a),
                    b.scratch<std::byte>(matrix_scratch(a.x, a.lanes)), launches);
    return launches;
  }
  const bool first = normalises_first(a.norm, a.lanes, may_overlap(a.x, a.out));
  set_input(b, a.x, a.norm, a.lanes, kAnySlots, kind,
            first ? b.scratch<float>(normed_floats(a.x, a.lanes)) : nullptr, args, launches);
  args.to = epilogue(b, a);
  launches.push_back(product_launch(b, args, {b.matrix(a.weight)}, kind));
  return launches;
}

std::vector<Launch> gated_launches(const Binder& b, const GatedPair& a) {
  const int rows = a.lanes.total();
  const Rows<float> out = b.rows(a.out, rows, a.out.width, "out");
  const ElementKind kind = b.weight(a.gate).kind;
  if (b.weight(a.up).kind != kind)
    throw Error(ErrorCode::unsupported, b.where() + ": gate and up are of different types");
  std::vector<Launch> launches;
  if (on_matrix_units(b, a.norm, a.lanes, kind)) {
    const int64_t split = matrix_scratch(a.x, a.lanes);
    auto* const scratch =
        b.scratch<std::byte>(split + int64_t{rows} * a.out.width * static_cast<int64_t>(sizeof(float)));
    EpilogueArgs gate{};
    gate.out = reinterpret_cast<float*>(scratch + split), gate.out_stride = a.out.width;
    matrix_launches(b, a.x, a.norm, a.lanes, kAnySlots, {b.matrix(a.gate)}, gate, scratch, launches);
    EpilogueArgs up{};
    up.gate = gate.out, up.gate_stride = a.out.width, up.out = out.data, up.out_stride = out.stride;
    Launch second = launches.back();  // the rows are split already
    MatrixProductArgs args{};
    std::memcpy(&args, second.args.data(), sizeof args);
    args.matrix[0] = b.matrix(a.up), args.to = up;
    std::memcpy(second.args.data(), &args, sizeof args);
    launches.push_back(std::move(second));
    return launches;
  }
  ProductArgs args{};
  const bool first = normalises_first(a.norm, a.lanes, may_overlap(a.x, a.out)), few = rows <= kFewRows;
  const int64_t normed = first ? normed_floats(a.x, a.lanes) : 0,
                gates = few ? 0 : int64_t{rows} * a.out.width;
  float* const scratch = normed + gates > 0 ? b.scratch<float>(normed + gates) : nullptr;
  set_input(b, a.x, a.norm, a.lanes, kAnySlots, kind, first ? scratch : nullptr, args, launches);
  args.to.out = out.data, args.to.out_stride = out.stride;
  if (few) {
    args.matrices = 2, args.matrix[0] = b.matrix(a.gate), args.matrix[1] = b.matrix(a.up);
    launches.push_back(few_launch(b, args, panels_of(args.matrix[0]), rows, true, kind));
    return launches;
  }
  ProductArgs gate = args;
  gate.to.out = scratch + normed, gate.to.out_stride = a.out.width;
  launches.push_back(product_launch(b, gate, {b.matrix(a.gate)}, kind));
  args.to.gate = scratch + normed, args.to.gate_stride = a.out.width;
  launches.push_back(product_launch(b, args, {b.matrix(a.up)}, kind));
  return launches;
}

}  // namespace

bool on_matrix_units(const Binder& b, const Norm& norm, const Lanes& lanes, ElementKind kind) {
  return b.target().traits().matrix && kind == kElementBf16 && norm.kind != Norm::layer &&
         lanes.total() > kFewRows;
}

namespace {

struct MatrixSizes {
  int64_t tiles, steps;
  int64_t words() const { return tiles * steps * 3 * 128; }
};
MatrixSizes matrix_sizes(const Buffer& x, const Lanes& lanes) {
  return {(int64_t{lanes.total()} + 15) / 16, (int64_t{x.width} + 31) / 32 * 2};
}

}  // namespace

int64_t matrix_scratch(const Buffer& x, const Lanes& lanes) {
  const int64_t bytes = (matrix_sizes(x, lanes).words() + lanes.total()) * 4;
  return (bytes + 255) / 256 * 256;
}

void matrix_launches(const Binder& b, const Buffer& x, const Norm& norm, const Lanes& lanes, int64_t slots,
                     const std::vector<MatrixArgs>& matrices, const EpilogueArgs& to, std::byte* scratch,
                     std::vector<Launch>& launches) {
  const MatrixSizes sizes = matrix_sizes(x, lanes);
  SplitRowsArgs split{};
  split.lanes = b.lanes(lanes, slots), split.x = b.input(x, lanes), split.norm = b.norm(norm);
  split.out = reinterpret_cast<kp_u32*>(scratch);
  split.factors = reinterpret_cast<float*>(split.out + sizes.words());
  split.width = x.width, split.steps = static_cast<int>(sizes.steps);
  launches.push_back(Launch::make("split_rows", lanes.total(), kBlock, split));

  MatrixProductArgs args{};
  args.lanes = split.lanes, args.rows = split.out, args.to = to, args.steps = split.steps;
  if (norm.kind == Norm::rms) args.factor = split.factors;
  args.matrices = static_cast<int>(matrices.size());
  std::copy(matrices.begin(), matrices.end(), args.matrix);
  for (const MatrixArgs& m : matrices) args.panels += panels_of(m);
  // More panels a block read the rows less often; fewer leave no multiprocessor without work.
  constexpr int kEnoughBlocks = 96;
  const int wide = args.panels / 4 >= kEnoughBlocks ? 4 : args.panels / 2 >= kEnoughBlocks ? 2 : 1;
  const int64_t blocks = int64_t{(args.panels + wide - 1) / wide} * ((sizes.tiles + 3) / 4);
  launches.push_back(Launch::make("product_matrix_" + std::to_string(wide), blocks, kBlock, args));
}

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
  args.x = {scratch, int64_t{lanes.rows} * x.width, x.width};
}

Launch product_launch(const Binder& b, ProductArgs args, const std::vector<MatrixArgs>& matrices,
                      ElementKind kind) {
  args.matrices = static_cast<int>(matrices.size());
  std::copy(matrices.begin(), matrices.end(), args.matrix);
  int panels = 0;
  for (const MatrixArgs& m : matrices) panels += panels_of(m);
  const int rows = args.lanes.lanes * args.lanes.rows;
  return rows <= kFewRows ? few_launch(b, args, panels, rows, false, kind)
                          : many_launch(args, panels, rows, kind);
}

void Recorder::linear(const Linear& a) {
  add("linear", a, {a.out}, [&](const Binder& b) { return linear_launches(b, a); });
}
void Recorder::gated_pair(const GatedPair& a) {
  add("gated_pair", a, {a.out}, [&](const Binder& b) { return gated_launches(b, a); });
}

}  // namespace skald::backend::gpu
