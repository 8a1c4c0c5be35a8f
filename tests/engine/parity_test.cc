// Every reference case against the official package: ids, prompt rows, numbers of every step, codes, end,
// waveform.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "backend/cpu/cpu.h"
#include "engine/prepare.h"
#include "engine/utterance.h"
#include "model/prompt.h"
#include "support.h"

namespace skald::test {
namespace {

/// Calls that the official package answers and we refuse at the door: blank text, no voice.
bool refused(const SpeechRequest& r, const std::string& type) {
  return r.text.find_first_not_of(" \n\t") == std::string::npos ||
         (type == "custom_voice" && r.voice.empty());
}

/// What prepare() would give if it did not refuse.
engine::Prepared prepare_anyway(const engine::Core& core, SpeechRequest r) {
  const std::string text = r.text, voice = r.voice;
  r.text = "x", r.voice = "anna";
  engine::Prepared p = engine::prepare(core.config(), core.tokenizer, r, false);
  p.ids = core.tokenizer.encode_text(text, text::SplitRule::qwen, r.raw_tokens);
  p.input.role_ids.assign(p.ids.begin(), p.ids.begin() + text::kTextHead);
  p.input.text_ids.assign(p.ids.begin() + text::kTextHead, p.ids.end() - text::kTextTail);
  p.input.speaker_id = voice.empty() ? -1 : core.config().talker.speaker_ids.at(voice);
  std::vector<std::string> warnings;
  p.input.language_id = model::effective_language(
      core.config(), engine::find_language(core.config(), r.language, true, warnings), voice);
  return p;
}

/// Compares stored rows [n, width] with the rows of a run, one at a time.
class Rows {
 public:
  Rows(const Case& c, const std::string& name, size_t width)
      : name_(name), width_(width), stored_(c.has(name) ? c.floats(name) : std::vector<float>()) {}

  /// Largest difference relative to the row's largest value, of row `index`; rows beyond the stored ones
  /// pass.
  void relative(size_t index, std::span<const float> got, double limit) { compare(index, got, limit, true); }
  void absolute(size_t index, std::span<const float> got, double limit) { compare(index, got, limit, false); }
  size_t stored_rows() const { return stored_.size() / width_; }
  size_t compared() const { return compared_; }

 private:
  void compare(size_t index, std::span<const float> got, double limit, bool relative) {
    if (got.empty() || (index + 1) * width_ > stored_.size()) return;
    ASSERT_EQ(got.size(), width_) << name_;
    const auto expected = std::span(stored_).subspan(index * width_, width_);
    double most = 0, scale = relative ? 0 : 1;
    for (size_t i = 0; i < width_; ++i) {
      if (std::isinf(expected[i]) && expected[i] == got[i]) continue;
      most = std::max(most, std::abs(double{expected[i]} - got[i]));
      if (relative) scale = std::max(scale, std::abs(double{expected[i]}));
    }
    EXPECT_LE(most, limit * scale) << name_ << " row " << index;
    ++compared_;
  }

  std::string name_;
  size_t width_;
  std::vector<float> stored_;
  size_t compared_ = 0;
};

/// Runs a case over a core and compares everything that was stored.
class CaseRun {
 public:
  CaseRun(const Case& c, std::shared_ptr<engine::Core> core)
      : c_(c),
        request_(request_of(c)),
        core_(std::move(core)),
        hidden_(c, "hidden", width(core_->config().talker.hidden_size)),
        logits_(c, "logits", width(core_->config().talker.vocab_size)),
        probs_(c, "probs", width(core_->config().talker.vocab_size)),
        predictor_logits_(c, "predictor_logits", predictor_width()),
        predictor_probs_(c, "predictor_probs", predictor_width()) {}

  /// `forced`: replay the stored codes instead of generating them.
  void run(bool forced) {
    const SpeechRequest& request = request_;
    engine::Prepared prepared = refused(request, model::model_type_name(core_->config().type))
                                    ? prepare_anyway(*core_, request)
                                    : engine::prepare(core_->config(), core_->tokenizer, request, false);
    compare_ids(prepared);
    Diagnosis diagnosis = make_diagnosis(forced);
    engine::Utterance utterance(core_, request, std::move(prepared), &diagnosis, engine::Clock::now());
    std::vector<float> wave;
    for (AudioChunk chunk; !chunk.last;) {
      chunk = utterance.next(37);
      wave.insert(wave.end(), chunk.samples.begin(), chunk.samples.end());
    }
    compare_end(utterance, forced);
    compare_wave(wave);
    const bool all = !forced || c_.stop == "length";
    for (const Rows* rows : {&hidden_, &logits_, &probs_})
      EXPECT_GE(rows->compared() + (all ? 1 : 2), rows->stored_rows());
    for (const Rows* rows : {&predictor_logits_, &predictor_probs_})
      EXPECT_EQ(rows->compared(), rows->stored_rows());
  }

 private:
  static size_t width(int32_t value) { return static_cast<size_t>(value); }
  size_t predictor_width() const {
    return width(core_->groups() - 1) * width(core_->config().predictor.vocab_size);
  }

  Diagnosis make_diagnosis(bool forced) {
    Diagnosis d;
    d.want_probs = true;
    if (forced) d.replay = c_.ints("codes");
    if (!forced && c_.has("noise")) d.noise = c_.floats("noise");
    if (!forced && c_.has("predictor_noise")) d.predictor_noise = c_.floats("predictor_noise");
    d.on_prompt = [this](std::span<const float> rows, int32_t hidden) {
      const std::vector<float> expected = c_.floats("prompt_rows");
      ASSERT_EQ(rows.size(), expected.size());
      ASSERT_EQ(hidden, core_->config().talker.hidden_size);
      for (size_t i = 0; i < rows.size(); ++i)
        ASSERT_NEAR(rows[i], expected[i], 1e-5) << "prompt row " << i / hidden;
      prompt_seen_ = true;
    };
    d.on_step = [this](const StepView& v) {
      const auto step = static_cast<size_t>(v.step);
      hidden_.relative(step, v.hidden, 1e-4);
      logits_.relative(step, v.logits, 1e-4);
      probs_.absolute(step, v.probs, 1e-5);
      predictor_logits_.relative(step, v.predictor_logits, 1e-4);
      predictor_probs_.absolute(step, v.predictor_probs, 1e-5);
    };
    return d;
  }

  void compare_ids(const engine::Prepared& p) const {
    EXPECT_EQ(p.ids, c_.ints("ids"));
    if (c_.has("instruct_ids")) {
      EXPECT_EQ(p.input.instruct_ids, c_.ints("instruct_ids"));
    } else {
      EXPECT_TRUE(p.input.instruct_ids.empty());
    }
    if (!c_.has("ref_ids")) return;
    std::vector<int32_t> ids = c_.ints("ref_ids");
    EXPECT_EQ(p.input.ref_text_ids, std::vector<int32_t>(ids.begin() + 3, ids.end() - 2));
  }

  void compare_end(const engine::Utterance& utterance, bool forced) const {
    const SpeechResult result = utterance.result();
    EXPECT_TRUE(prompt_seen_);
    EXPECT_EQ(utterance.codes(), c_.ints("codes"));
    EXPECT_EQ(result.frames, c_.frames);
    EXPECT_EQ(result.prompt_rows, c_.prompt_rows);
    EXPECT_EQ(stop_reason_name(result.stop), forced ? "length" : c_.stop);
  }

  void compare_wave(const std::vector<float>& wave) const {
    ASSERT_EQ(wave.size(), static_cast<size_t>(c_.samples));
    if (!c_.has("wave_head")) return;
    const std::vector<float> head = c_.floats("wave_head"), tail = c_.floats("wave_tail");
    for (size_t i = 0; i < head.size(); ++i) ASSERT_NEAR(wave[i], head[i], 1e-4) << i;
    for (size_t i = 0; i < tail.size(); ++i)
      ASSERT_NEAR(wave[wave.size() - tail.size() + i], tail[i], 1e-4) << i;
  }

  const Case& c_;
  SpeechRequest request_;
  std::shared_ptr<engine::Core> core_;
  Rows hidden_, logits_, probs_, predictor_logits_, predictor_probs_;
  bool prompt_seen_ = false;
};

std::string case_name(const ::testing::TestParamInfo<Case>& info) {
  std::string name = info.param.name;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

class Parity : public ::testing::TestWithParam<Case> {};

TEST_P(Parity, GeneratesTheOfficialCodes) { CaseRun(GetParam(), tiny_core(GetParam().model)).run(false); }

TEST_P(Parity, ReplayComputesTheOfficialNumbers) {
  CaseRun(GetParam(), tiny_core(GetParam().model)).run(true);
}

INSTANTIATE_TEST_SUITE_P(Official, Parity, ::testing::ValuesIn(load_cases(false)), case_name);

/// The same codes with other vector instructions and several threads.
class ParityElsewhere : public ::testing::TestWithParam<std::string> {};

TEST_P(ParityElsewhere, GeneratesTheOfficialCodes) {
  std::map<std::string, std::shared_ptr<engine::Core>> cores;
  for (const Case& c : load_cases(false)) {
    if (c.frames > 60) continue;
    SCOPED_TRACE(c.name);
    auto& core = cores[c.model];
    if (!core) {
      EngineOptions options;
      options.cpu_target = GetParam();
      options.threads = 3;
      core = engine::load_core(model_dir(c.model), options);
    }
    CaseRun(c, core).run(false);
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, ParityElsewhere, ::testing::ValuesIn(backend::cpu_targets()),
                         [](const auto& param) { return param.param; });

TEST(ParityCases, AreEnough) {
  const std::vector<Case> cases = load_cases(false);
  size_t by_stop_token = 0, by_length = 0, beyond_326 = 0;
  for (const Case& c : cases) {
    const auto frames = c.frames;
    by_stop_token += c.stop == "eos" && frames >= 3 && frames <= 200;
    by_length += c.stop == "length";
    beyond_326 += frames > 326;
  }
  EXPECT_GE(cases.size(), 40u);
  EXPECT_GE(by_stop_token, 15u);
  EXPECT_GE(by_length, 5u);
  EXPECT_GE(beyond_326, 3u);
}

}  // namespace
}  // namespace skald::test
