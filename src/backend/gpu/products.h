// Launches of matrix products, shared by linear layers, projections and nearest codes.
#pragma once

#include <vector>

#include "backend/gpu/binder.h"

namespace skald::backend::gpu {

/// Rows up to which every block takes a whole panel apart among its warps; above, a warp keeps a panel.
constexpr int kFewRows = 8;

/// Fills in matrices, blocks and kernel. `args` holds everything else; a norm in it must be none for more
/// than kFewRows rows. `kind` is that of all matrices.
Launch product_launch(const Binder& b, ProductArgs args, const std::vector<MatrixArgs>& matrices,
                      ElementKind kind);

/// Whether a product goes to matrix units: many rows by bf16 matrices, where the device has them.
bool on_matrix_units(const Binder& b, const Norm& norm, const Lanes& lanes, ElementKind kind);

/// A product of norm(x) on matrix units, both of its launches.
void matrix_launches(const Binder& b, const Buffer& x, const Norm& norm, const Lanes& lanes, int64_t slots,
                     const std::vector<MatrixArgs>& matrices, const EpilogueArgs& to, std::byte* scratch,
                     std::vector<Launch>& launches);
/// Bytes of scratch that it needs.
int64_t matrix_scratch(const Buffer& x, const Lanes& lanes);

/// Whether the rows have to be normalised into scratch before the product: it takes an RMS norm itself for a
/// few rows, but not while another block already writes over them.
inline bool normalises_first(const Norm& norm, const Lanes& lanes, bool in_place) {
  return norm.kind == Norm::layer || (norm.kind == Norm::rms && (in_place || lanes.total() > kFewRows));
}

/// Floats of scratch that set_input() needs for that.
inline int64_t normed_floats(const Buffer& x, const Lanes& lanes) {
  return int64_t{lanes.total()} * (x.width + 1);
}

/// Sets lanes, input and norm in `args`. With `scratch` (normed_floats()) the rows are normalised first: that
/// launch is appended. `kind` is that of the matrices.
void set_input(const Binder& b, const Buffer& x, const Norm& norm, const Lanes& lanes, int64_t slots,
               ElementKind kind, float* scratch, ProductArgs& args, std::vector<Launch>& launches);

}  // namespace skald::backend::gpu
