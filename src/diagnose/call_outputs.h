// What a recorded call writes, from its arguments alone: which buffers, and which of their rows.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "backend/ops.h"

namespace skald::diagnose {

/// One view that a call writes.
struct CallOutput {
  /// How the rows that count are found, for a lane of slot s with n rows from position p on.
  enum Rows : uint8_t {
    of_lane,       ///< the lane's first n rows, after scaling by up / down
    per_lane,      ///< one row per lane
    of_slot,       ///< all `per_slot` rows of the slot
    at_positions,  ///< rows s * per_slot + p .. p + n - 1, each modulo per_slot with `ring`
  };
  std::string_view name;  ///< of the argument, e.g. "cache.k"
  backend::Buffer view;
  Rows rows = of_lane;
  int32_t up = 1, down = 1;
  bool round_up = false;  ///< a rest of n * up / down counts as a row
  int32_t per_slot = 1;
  bool ring = false;
};

/// One recorded call, as far as comparing needs it.
struct RecordedCall {
  std::string kind, label;
  backend::Lanes lanes;
  std::vector<CallOutput> outputs;  ///< absent ones left out
};

std::vector<CallOutput> outputs_of(const backend::GatherSum& call);
std::vector<CallOutput> outputs_of(const backend::Linear& call);
std::vector<CallOutput> outputs_of(const backend::GatedPair& call);
std::vector<CallOutput> outputs_of(const backend::RopeAngles& call);
std::vector<CallOutput> outputs_of(const backend::QkvRope& call);
std::vector<CallOutput> outputs_of(const backend::Attention& call);
std::vector<CallOutput> outputs_of(const backend::StoreRows& call);
std::vector<CallOutput> outputs_of(const backend::Copy& call);
std::vector<CallOutput> outputs_of(const backend::Sample& call);
std::vector<CallOutput> outputs_of(const backend::PublishFrame& call);
std::vector<CallOutput> outputs_of(const backend::Advance& call);
std::vector<CallOutput> outputs_of(const backend::Conv& call);
std::vector<CallOutput> outputs_of(const backend::ConvTransposed& call);
std::vector<CallOutput> outputs_of(const backend::Depthwise& call);
std::vector<CallOutput> outputs_of(const backend::LogMel& call);
std::vector<CallOutput> outputs_of(const backend::PaddedConv& call);
std::vector<CallOutput> outputs_of(const backend::Statistics& call);
std::vector<CallOutput> outputs_of(const backend::ScaleRows& call);
std::vector<CallOutput> outputs_of(const backend::NearestCode& call);

/// A lane that takes part in a run.
struct RunningLane {
  int32_t lane = 0, slot = 0, rows = 0;
  int64_t position = 0;  ///< of its first row
};

/// Rows of an output that belong together: `count` rows from `first` on, the first of them at `position` of
/// the slot (-1 where rows have none).
struct RowSpan {
  int32_t first = 0, count = 0, slot = 0;
  int64_t position = -1;
};

/// The rows that a run with these lanes writes, lane by lane. A ring that wraps gives two spans.
std::vector<RowSpan> written_rows(const CallOutput& output, const backend::Lanes& lanes,
                                  const std::vector<RunningLane>& running);

}  // namespace skald::diagnose
