// The sampler on the device draws what the CPU's draws, for every combination of settings.
#include <cmath>
#include <cstring>
#include <random>

#include "backend/cpu/sampler.h"
#include "kernel_device.h"
#include "rig.h"

namespace skald::backend::test {
namespace {

/// One slot with everything a draw reads.
class OneSlot {
 public:
  OneSlot(const std::string& device, int vocabulary, int codes, int stop_id, int group)
      : rig_(device), vocabulary_(vocabulary), codes_(codes), stop_id_(stop_id), group_(group) {
    const auto zeros = [&] { return rig_.ints(1, 1, {0}); };
    arrays_ = {.settings = rig_.bytes(1, sizeof(SlotSettings), std::vector<uint8_t>(sizeof(SlotSettings))),
               .status = zeros(),
               .position = zeros(),
               .step = zeros(),
               .sampled = zeros(),
               .frames = zeros(),
               .codes = rig_.ints(1, kGroups, std::vector<int32_t>(kGroups)),
               .forced = rig_.ints(1, kGroups, std::vector<int32_t>(kGroups, -1)),
               .seen = rig_.bytes(1, vocabulary, std::vector<uint8_t>(static_cast<size_t>(vocabulary))),
               .noise = rig_.buffer(1, vocabulary, std::vector<float>(static_cast<size_t>(vocabulary))),
               .predictor_noise = {},
               .groups = kGroups};
    if (group > 0 && vocabulary == codes)
      arrays_.predictor_noise = rig_.buffer(1, (kGroups - 1) * codes,
                                            std::vector<float>(static_cast<size_t>((kGroups - 1) * codes)));
    logits_ = rig_.buffer(1, vocabulary, std::vector<float>(static_cast<size_t>(vocabulary)));
    probs_ = rig_.buffer(1, vocabulary, std::vector<float>(static_cast<size_t>(vocabulary)));
    const Lanes lanes{.lanes = 1, .rows = 1, .slot = rig_.ints(1, 1, {0}), .gate = arrays_.status};
    program_ = rig_.device().record("draw", [&](Ops& ops) {
      ops.sample({.group = group,
                  .logits = logits_,
                  .probs = probs_,
                  .codes = codes,
                  .stop_id = stop_id,
                  .slots = arrays_,
                  .lanes = lanes});
    });
  }

  /// What the device drew, and kNonFinite as cpu::kDrawNonFinite.
  int32_t draw(const std::vector<float>& logits, const std::vector<uint8_t>& seen,
               const std::vector<float>& noise, const SlotSettings& settings, int32_t sampled,
               std::vector<float>* probs) {
    rig_.write(logits_, logits);
    rig_.write(arrays_.noise, noise);
    if (arrays_.predictor_noise)
      rig_.write(arrays_.predictor_noise.columns((group_ - 1) * codes_, codes_), noise);
    rig_.device().write(arrays_.seen, std::as_bytes(std::span(seen)));
    rig_.device().write(arrays_.settings, std::as_bytes(std::span(&settings, 1)));
    rig_.write_ints(arrays_.status, {kRunning});
    rig_.write_ints(arrays_.sampled, {sampled});
    rig_.device().run(program_);
    *probs = rig_.read(probs_);
    if (rig_.read_ints(arrays_.status)[0] == kNonFinite) return cpu::kDrawNonFinite;
    return rig_.read_ints(arrays_.codes)[static_cast<size_t>(group_)];
  }

  /// The same on the CPU.
  int32_t expected(const std::vector<float>& logits, const std::vector<uint8_t>& seen,
                   const std::vector<float>& noise, const SlotSettings& settings, int32_t sampled,
                   std::vector<float>* probs) const {
    std::vector<float> scores(logits.size()), work(logits.size());
    std::vector<int32_t> order(logits.size());
    cpu::DrawRequest r{.logits = logits,
                       .settings = group_ == 0 ? settings.talker : settings.predictor,
                       .codes = codes_,
                       .stop_id = stop_id_,
                       .seed = {settings.seed_low, settings.seed_high},
                       .frame = static_cast<uint32_t>(sampled),
                       .group = static_cast<uint32_t>(group_),
                       .probs = probs->data()};
    if (group_ == 0) r.seen = seen.data(), r.forbid_stop = sampled < settings.talker.min_new_tokens;
    if (settings.recorded_noise) r.noise = noise.data();
    return cpu::draw(r, {scores.data(), work.data(), order.data()});
  }

 private:
  static constexpr int kGroups = 3;
  Rig rig_;
  int vocabulary_, codes_, stop_id_, group_;
  SlotArrays arrays_;
  Buffer logits_, probs_;
  Program program_;
};

struct Draws : testing::TestWithParam<std::string> {
  std::mt19937 random{5};

  /// Compares `count` draws under one kind of settings.
  void compare(OneSlot& slot, int vocabulary, int count, float spread,
               const std::function<void(int, SlotSettings&)>& change) {
    std::normal_distribution<float> normal(0, spread);
    std::exponential_distribution<float> exponential;
    for (int i = 0; i < count; ++i) {
      std::vector<float> logits(static_cast<size_t>(vocabulary)), noise(logits.size()), got(logits.size()),
          want(logits.size());
      std::vector<uint8_t> seen(logits.size());
      for (float& x : logits) x = normal(random);
      if (i % 5 == 3)
        for (float& x : logits) x = std::round(x);  // many ties
      for (float& x : noise) x = exponential(random) + 1e-30f;
      for (uint8_t& x : seen) x = random() % 3 == 0;
      SlotSettings s;
      s.talker = {.temperature = 1, .top_p = 1, .repetition_penalty = 1, .top_k = 0};
      s.want_probs = 1;
      s.seed_low = random(), s.seed_high = random();
      change(i, s);
      s.predictor = s.talker;
      const int32_t sampled = i % 7;
      const int32_t id = slot.draw(logits, seen, noise, s, sampled, &got);
      ASSERT_EQ(id, slot.expected(logits, seen, noise, s, sampled, &want)) << "draw " << i;
      for (size_t k = 0; k < got.size(); ++k) {
        ASSERT_EQ(got[k] == 0, want[k] == 0)
            << "draw " << i << ", id " << k << ": " << got[k] << " and " << want[k];
        ASSERT_NEAR(got[k], want[k], 1e-6 * std::abs(want[k])) << "draw " << i << ", id " << k;
      }
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Devices, Draws, testing::ValuesIn(rig_devices()),
                         [](const auto& p) { return p.param; });

TEST_P(Draws, EveryCombinationOfProcessors) {
  constexpr int kVocabulary = 90;
  for (const int group : {0, 1}) {
    OneSlot slot(GetParam(), kVocabulary, group == 0 ? 64 : kVocabulary, group == 0 ? 70 : -1, group);
    compare(slot, kVocabulary, 256, 3, [](int i, SlotSettings& s) {
      if (i & 1) s.talker.temperature = 0.7f;
      if (i & 2) s.talker.top_k = 12;
      if (i & 4) s.talker.top_p = 0.8f;
      if (i & 8) s.talker.repetition_penalty = 1.3f;
      if (i & 16) s.talker.min_new_tokens = 4;
      s.talker.greedy = (i & 32) != 0;
      s.recorded_noise = (i & 64) != 0;
      if (s.recorded_noise && i & 128) s.recorded_noise = 0;
    });
    if (group == 0) continue;
  }
}

TEST_P(Draws, FullSizeVocabularies) {
  OneSlot talker(GetParam(), 3072, 2048, 2150, 0);
  compare(talker, 3072, 24, 2, [](int i, SlotSettings& s) {
    s.talker.temperature = 0.9f, s.talker.repetition_penalty = 1.05f;
    s.talker.top_k = i % 3 == 0 ? 50 : i % 3 == 1 ? 0 : 2000;
    if (i % 4 == 3) s.talker.top_p = 0.95f;
  });
  OneSlot predictor(GetParam(), 2048, 2048, -1, 2);
  compare(predictor, 2048, 12, 2, [](int i, SlotSettings& s) {
    s.talker.temperature = 0.9f, s.talker.top_k = i % 2 == 0 ? 50 : 1;
    if (i % 4 == 3) s.talker.top_p = 0.5f;
  });
}

TEST_P(Draws, ExtremeLogits) {
  OneSlot slot(GetParam(), 300, 256, 299, 0);
  compare(slot, 300, 24, 100, [](int i, SlotSettings& s) {
    s.talker.temperature = i % 2 ? 0.01f : 30.0f;
    if (i % 3) s.talker.top_p = i % 3 == 1 ? 0.0f : 0.999f;
    if (i % 4 == 0) s.talker.top_k = 1;
    if (i % 4 == 1) s.talker.top_k = 299;
  });
}

TEST_P(Draws, NonFiniteLogitsWhereverTheyAre) {
  constexpr int kVocabulary = 1500;
  OneSlot slot(GetParam(), kVocabulary, 1000, 1200, 0);
  SlotSettings s;
  std::vector<float> probs(kVocabulary), noise(kVocabulary, 1);
  const std::vector<uint8_t> seen(kVocabulary);
  for (const float bad :
       {std::nanf(""), std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity()})
    for (const size_t at : {0, 31, 1023, 1024, 1499}) {
      std::vector<float> logits(kVocabulary, 1);
      logits[at] = bad;
      EXPECT_EQ(slot.draw(logits, seen, noise, s, 0, &probs), cpu::kDrawNonFinite) << at;
      logits[at] = 0;
      EXPECT_GE(slot.draw(logits, seen, noise, s, 0, &probs), 0);
    }
}

/// A candidate whose uniform number is 1 has the noise -0 and is never drawn, on every device.
TEST_P(Draws, ImpossibleNoiseIsNeverDrawn) {
  OneSlot slot(GetParam(), 4, 4, -1, 0);
  SlotSettings s;
  s.talker = {.temperature = 1, .top_p = 1, .repetition_penalty = 1, .top_k = 0};
  s.recorded_noise = 1;
  std::vector<float> probs(4);
  EXPECT_EQ(slot.draw({5, 1, 0, 0}, {0, 0, 0, 0}, {-0.0f, 1, 1, 1}, s, 0, &probs), 1);
}

TEST(SampleFaults, AreErrorsAndChangeNothing) {
  OneSlot slot("simt32", 20, 10, 15, 0);
  // A forced code outside the logits, and noise that is not there, see sample_op_test.cc for the rest.
  Rig rig;
  const Buffer settings = rig.bytes(1, sizeof(SlotSettings), std::vector<uint8_t>(sizeof(SlotSettings)));
  SlotArrays a{.settings = settings,
               .status = rig.ints(1, 1, {kRunning}),
               .sampled = rig.ints(1, 1, {0}),
               .codes = rig.ints(1, 2, {-7, -7}),
               .forced = rig.ints(1, 2, {20, -1}),
               .seen = rig.bytes(1, 20, std::vector<uint8_t>(20)),
               .groups = 2};
  const auto draw = [&] {
    rig.run([&](Ops& ops) {
      ops.sample({.group = 0,
                  .logits = rig.buffer(1, 20, std::vector<float>(20)),
                  .codes = 10,
                  .stop_id = 15,
                  .slots = a,
                  .lanes = {.slot = rig.ints(1, 1, {0}), .gate = a.status}});
    });
  };
  EXPECT_THROW(draw(), Error);
  rig.write_ints(a.forced, {-1, -1});
  SlotSettings s;
  s.recorded_noise = 1;
  rig.device().write(settings, std::as_bytes(std::span(&s, 1)));
  EXPECT_THROW(draw(), Error);
  EXPECT_EQ(rig.read_ints(a.codes), (std::vector<int32_t>{-7, -7}));
  EXPECT_EQ(rig.read_ints(a.sampled), (std::vector<int32_t>{0}));
}

}  // namespace
}  // namespace skald::backend::test
