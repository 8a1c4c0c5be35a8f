// Diagnosis of one utterance: feeds forced codes and recorded noise to the model, reports every step's
// numbers.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/core.h"
#include "model/prompt.h"
#include "skald/diagnosis.h"

namespace skald::engine {

/// Does nothing without a Diagnosis. `before` and `after` run under the compute lock, `choose` and `report`,
/// which call the diagnosis's functions, outside of it.
class Tap {
 public:
  /// Copies the diagnosis. Throws Error(invalid_argument) for replay or noise that does not fit the model.
  Tap(const model::ModelConfig& config, const Diagnosis* diagnosis);

  /// Whether there is anything to do.
  bool active() const { return diagnosis_.has_value(); }
  /// Frames of the replay; none = no replay.
  std::optional<int32_t> replay_frames() const;
  /// Sets the diagnosis fields of the slot. Throws Error(invalid_argument) when only one of two drawing
  /// samplers has recorded noise.
  void configure(backend::SlotSettings& settings) const;

  void report_prompt(Core& core, const model::Prompt& prompt, std::span<const float> x_vector);
  /// Which codes draw `step` is forced to.
  void choose(int64_t step);
  /// Before the draw. Throws Error(invalid_argument) when the recorded noise has no row for it.
  void before(model::Model& model, int32_t slot);
  /// After it; `codes` [groups] of the published frame, or empty. Throws as `before` for the predictor's
  /// noise.
  void after(const model::Model& model, int32_t slot, std::span<const int32_t> codes);
  void report();

 private:
  void check_script() const;
  bool wants_steps() const { return diagnosis_ && diagnosis_->on_step; }
  void set_noise(model::Model& model, int32_t slot);

  std::optional<Diagnosis> diagnosis_;
  size_t groups_, vocabulary_, hidden_, predictor_width_;
  int32_t code_count_, stop_id_;
  bool predictor_noise_ran_out_ = false;
  int64_t step_ = 0;
  std::vector<int32_t> forced_, codes_;
  std::vector<float> hidden_row_, logits_, probs_, predictor_logits_, predictor_probs_;
};

}  // namespace skald::engine
