// For comparing runs: forced codes, recorded random numbers, and a view of every step's numbers.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace skald {

/// The numbers behind one draw of code0, valid during the call only. The last call of a run that ended by the
/// stop token has no frame: `codes` and the predictor's members are empty.
struct StepView {
  int64_t step = 0;                         ///< index of the draw
  std::span<const float> hidden;            ///< [hidden] talker after the final norm
  std::span<const float> logits;            ///< [vocabulary] raw
  std::span<const float> probs;             ///< [vocabulary] after all processors, if wanted
  std::span<const int32_t> codes;           ///< [groups]
  std::span<const float> predictor_logits;  ///< [(groups - 1) * codes] raw
  std::span<const float> predictor_probs;   ///< same, if wanted
};

struct Diagnosis {
  std::vector<int32_t> replay;  ///< [frames * groups] codes to feed; the run ends after them; guards are off
  std::vector<float> noise;     ///< [steps * vocabulary] exponential; empty = generator
  std::vector<float> predictor_noise;  ///< [frames * (groups - 1) * codes]
  bool want_probs = false;
  std::function<void(const StepView&)> on_step;
  std::function<void(std::span<const float> rows, int32_t hidden)>
      on_prompt;  ///< prompt rows [rows * hidden]
  /// Codes to take instead of the draws at a frame (-1 = draw; codes[0] may be the stop token), with all
  /// guards on; false = draw all. For tests of the guards.
  std::function<bool(int64_t frame, std::span<int32_t> codes)> script;
};

}  // namespace skald
