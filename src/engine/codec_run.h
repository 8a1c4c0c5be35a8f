// Codes to samples for one utterance, in any of the three decode modes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/core.h"

namespace skald::engine {

/// Decodes consecutive codes on the codec state of a slot. `stream` and `whole` are the same run. `official`
/// starts a fresh run at every 300th frame with the 25 frames before it as context (specification 8.6): as
/// the codec is causal, that needs no waiting for whole chunks either. Frame 0 is the first code handed in.
class CodecRun {
 public:
  static constexpr int64_t kOfficialChunk = 300;
  static constexpr int64_t kOfficialContext = 25;

  CodecRun(Core& core, int32_t slot, DecodeMode mode)
      : core_(core), slot_(slot), official_(mode == DecodeMode::official) {}

  /// codes [frames * groups]; appends frames * samples_per_frame samples to `out`. Takes the compute lock for
  /// every codec call, so that other streams get their turn.
  void decode(std::span<const int32_t> codes, std::vector<float>& out);
  /// Runs a reference as context before anything else, or takes over the state that an earlier request kept;
  /// returns the samples of its last frame.
  std::vector<float> decode_reference(std::span<const int32_t> codes);
  bool reused_reference() const { return reused_reference_; }
  double compute_ms() const { return compute_ms_; }

 private:
  void restart();
  void keep_context(std::span<const int32_t> part);
  void run(std::span<const int32_t> codes, std::vector<float>& out);

  Core& core_;
  int32_t slot_;
  bool official_;
  int64_t frame_ = 0;             ///< frames decoded so far
  std::vector<int32_t> context_;  ///< official: codes of the last frames, at most kOfficialContext
  bool reused_reference_ = false;
  double compute_ms_ = 0;
};

}  // namespace skald::engine
