// Fewer launches for a recorded program: neighbouring ops whose kernels can be one.
//
// An op run alone (Backend::run_op, as comparisons do) keeps its own launches; only a program that runs as a
// whole is made of fused ones. The results have the same bits, save that what one op of a pair leaves for the
// other alone (rotated queries) is not stored.
#pragma once

#include <span>
#include <vector>

#include "backend/gpu/launch.h"

namespace skald::backend::gpu {

/// The launches of all ops in order, fused where possible:
/// - qkv_rope and the attention behind it, for one row a lane: projections are normed, rotated, stored and
/// used
///   in one kernel;
/// - a draw of the code predictor and the row of its table that it names.
std::vector<Launch> fuse(std::span<const RecordedOp> ops);

/// The same without fusing.
std::vector<Launch> unfused(std::span<const RecordedOp> ops);

}  // namespace skald::backend::gpu
