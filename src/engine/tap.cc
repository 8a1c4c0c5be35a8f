// Diagnosis of one utterance.
#include "engine/tap.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/prepare.h"

namespace skald::engine {
namespace {

void check_noise(const std::vector<float>& noise, size_t width, const char* name) {
  if (noise.size() % width != 0)
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{} has {} numbers, which is not a multiple of {} (one row per draw)", name,
                            noise.size(), width));
  const auto bad = std::find_if(noise.begin(), noise.end(), [](float v) { return !(v > 0); });
  if (bad != noise.end())
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{}: number {} is {}, but exponential noise is above 0", name,
                            bad - noise.begin(), *bad));
}

}  // namespace

Tap::Tap(const model::ModelConfig& config, const Diagnosis* diagnosis)
    : groups_(static_cast<size_t>(config.talker.num_code_groups)),
      vocabulary_(static_cast<size_t>(config.talker.vocab_size)),
      hidden_(static_cast<size_t>(config.talker.hidden_size)),
      predictor_width_((groups_ - 1) * static_cast<size_t>(config.predictor.vocab_size)),
      code_count_(config.talker.codes()),
      stop_id_(config.talker.codec_eos_id) {
  if (!diagnosis) return;
  if (!diagnosis->replay.empty()) check_codes(config, diagnosis->replay, "replay");
  check_noise(diagnosis->noise, vocabulary_, "noise");
  check_noise(diagnosis->predictor_noise, predictor_width_, "predictor_noise");
  diagnosis_ = *diagnosis;
  forced_.assign(groups_, -1);
}

std::optional<int32_t> Tap::replay_frames() const {
  if (!diagnosis_ || diagnosis_->replay.empty()) return std::nullopt;
  return static_cast<int32_t>(diagnosis_->replay.size() / groups_);
}

void Tap::configure(backend::SlotSettings& settings) const {
  if (!diagnosis_) return;
  const bool talker = !diagnosis_->noise.empty(), predictor = !diagnosis_->predictor_noise.empty();
  if ((talker && !predictor && !settings.predictor.greedy) ||
      (predictor && !talker && !settings.talker.greedy))
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{} is missing: talker and predictor both draw, so both need recorded noise",
                            talker ? "predictor_noise" : "noise"));
  settings.recorded_noise = talker || predictor;
  settings.want_probs = diagnosis_->want_probs;
}

void Tap::report_prompt(Core& core, const model::Prompt& prompt, std::span<const float> x_vector) {
  if (!diagnosis_ || !diagnosis_->on_prompt) return;
  std::vector<float> rows;
  {
    const std::lock_guard lock(core.compute);
    rows = core.model->prompt_rows(prompt, x_vector);
  }
  diagnosis_->on_prompt(rows, static_cast<int32_t>(hidden_));
}

void Tap::choose(int64_t step) {
  if (!diagnosis_) return;
  step_ = step;
  const std::vector<int32_t>& replay = diagnosis_->replay;
  if (!replay.empty()) {
    const auto first = replay.begin() + static_cast<std::ptrdiff_t>(static_cast<size_t>(step) * groups_);
    std::copy_n(first, groups_, forced_.begin());
  } else if (diagnosis_->script) {
    std::fill(forced_.begin(), forced_.end(), -1);
    if (!diagnosis_->script(step, forced_)) std::fill(forced_.begin(), forced_.end(), -1);
    check_script();
  }
}

/// A scripted id outside the codes would fail only in the codec; the stop token is allowed.
void Tap::check_script() const {
  for (size_t g = 0; g < groups_; ++g) {
    const bool stop = g == 0 && forced_[g] == stop_id_;
    if (!stop && forced_[g] >= code_count_)
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("script: group {} is {}, but must be below {} (or negative = draw)", g,
                              forced_[g], code_count_));
  }
}

void Tap::before(model::Model& model, int32_t slot) {
  if (!diagnosis_) return;
  if (!diagnosis_->replay.empty() || diagnosis_->script) model.force(slot, forced_);
  if (!diagnosis_->noise.empty() || !diagnosis_->predictor_noise.empty()) set_noise(model, slot);
}

/// The row of one draw; empty where there is none.
static std::span<const float> noise_row(const std::vector<float>& noise, size_t row, size_t width) {
  if ((row + 1) * width > noise.size()) return {};
  return std::span(noise).subspan(row * width, width);
}

void Tap::set_noise(model::Model& model, int32_t slot) {
  const auto row = static_cast<size_t>(step_);
  const auto talker = noise_row(diagnosis_->noise, row, vocabulary_);
  const auto predictor = noise_row(diagnosis_->predictor_noise, row, predictor_width_);
  if (talker.empty() && !diagnosis_->noise.empty())
    throw Error(ErrorCode::invalid_argument,
                fmt::format("the recorded noise ends after {} draws, but one more is needed", row));
  // The last draw may be the stop token, which needs no predictor noise: only `after` knows.
  predictor_noise_ran_out_ = predictor.empty() && !diagnosis_->predictor_noise.empty();
  model.set_noise(slot, talker, predictor);
}

void Tap::after(const model::Model& model, int32_t slot, std::span<const int32_t> codes) {
  if (!diagnosis_) return;
  if (predictor_noise_ran_out_ && !codes.empty())
    throw Error(ErrorCode::invalid_argument,
                fmt::format("the recorded predictor noise has no row for frame {}", step_));
  if (!wants_steps()) return;
  codes_.assign(codes.begin(), codes.end());
  const size_t predictor = codes.empty() ? 0 : predictor_width_;
  const bool probs = diagnosis_->want_probs;
  hidden_row_.resize(hidden_);
  logits_.resize(vocabulary_);
  probs_.resize(probs ? vocabulary_ : 0);
  predictor_logits_.resize(predictor);
  predictor_probs_.resize(probs ? predictor : 0);
  model.read_hidden(slot, hidden_row_);
  model.read_logits(slot, logits_);
  if (probs) model.read_probs(probs_);
  if (predictor) model.read_predictor_logits(predictor_logits_);
  if (probs && predictor) model.read_predictor_probs(predictor_probs_);
}

void Tap::report() {
  if (!wants_steps()) return;
  diagnosis_->on_step({.step = step_,
                       .hidden = hidden_row_,
                       .logits = logits_,
                       .probs = probs_,
                       .codes = codes_,
                       .predictor_logits = predictor_logits_,
                       .predictor_probs = predictor_probs_});
}

}  // namespace skald::engine
