// The generator's known answers, and the sampler against its definition (specification 6.2 and 5.3).
#include "backend/cpu/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>

#include "rig.h"

namespace skald::backend::test {
namespace {

using cpu::draw;
using cpu::DrawRequest;

TEST(Philox, KnownAnswers) {  // the vectors published with Random123
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}),
            (PhiloxCounter{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  const uint32_t all = 0xFFFFFFFFu;
  EXPECT_EQ(philox4x32({all, all, all, all}, {all, all}),
            (PhiloxCounter{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (PhiloxCounter{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, EveryArgumentCounts) {
  std::set<uint32_t> bits;
  for (uint32_t i = 0; i < 8; ++i) bits.insert(philox_bits(i, 0, 0, {1, 0}));
  bits.insert(philox_bits(0, 1, 0, {1, 0}));
  bits.insert(philox_bits(0, 0, 1, {1, 0}));
  bits.insert(philox_bits(0, 0, 0, {2, 0}));
  bits.insert(philox_bits(0, 0, 0, {1, 1}));
  EXPECT_EQ(bits.size(), 12u);
  EXPECT_GT(philox_uniform(0), 0.0f);
  EXPECT_EQ(philox_uniform(0xFFFFFFFFu), 1.0f);
}

/// A draw with its scratch; settings as in a plain softmax.
struct Sampler {
  std::vector<float> logits, probs;
  DrawRequest request;

  explicit Sampler(std::vector<float> l) : logits(std::move(l)), probs(logits.size(), std::nanf("")) {
    request.settings = {.temperature = 1, .top_p = 1, .repetition_penalty = 1, .top_k = 0};
    request.codes = static_cast<int32_t>(logits.size());
  }
  int32_t operator()(bool with_probs = true) {
    std::vector<float> scores(logits.size()), work(logits.size());
    std::vector<int32_t> order(logits.size());
    request.logits = logits;
    request.probs = with_probs ? probs.data() : nullptr;
    return draw(request, {scores.data(), work.data(), order.data()});
  }
};

// 2^-24 of all draws: e is 0, its candidate wins whatever its probability, and alone it is no lack of any.
TEST(Draw, AUniformOfOneWins) {
  ASSERT_EQ(philox_uniform(philox_bits(2, 6540072, 1, {7, 0})), 1.0f);
  for (const int top_k : {0, 1}) {
    Sampler draw(top_k == 1 ? std::vector<float>{1, 2, 3} : std::vector<float>{9, 9, 1});
    draw.request.settings.top_k = top_k;
    draw.request.seed = {7, 0}, draw.request.frame = 6540072, draw.request.group = 1;
    EXPECT_EQ(draw(), 2) << top_k;
  }
}

/// The whole of the processing in double precision, written from the definition: probabilities of a sampled
/// draw.
std::vector<double> reference(const DrawRequest& r, const std::vector<float>& logits) {
  const size_t n = logits.size();
  const double removed = -std::numeric_limits<double>::infinity();
  std::vector<double> s(logits.begin(), logits.end());
  for (size_t i = 0; i < n; ++i) {
    if (r.seen && r.seen[i])
      s[i] = s[i] < 0 ? s[i] * static_cast<double>(r.settings.repetition_penalty)
                      : s[i] / static_cast<double>(r.settings.repetition_penalty);
    const bool stop = static_cast<int32_t>(i) == r.stop_id;
    if ((static_cast<int32_t>(i) >= r.codes && !stop) || (stop && r.forbid_stop)) s[i] = removed;
  }
  if (!r.settings.greedy) {
    for (double& x : s) x /= static_cast<double>(r.settings.temperature);
    if (r.settings.top_k > 0) {
      std::vector<double> sorted = s;
      std::sort(sorted.rbegin(), sorted.rend());
      const double least = sorted[std::min(n, static_cast<size_t>(r.settings.top_k)) - 1];
      for (double& x : s) x = x < least ? removed : x;
    }
    if (r.settings.top_p < 1) {
      std::vector<size_t> order(n);
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return s[a] < s[b]; });
      double total = 0, sum = 0;
      for (const double x : s) total += std::exp(x - s[order.back()]);
      for (size_t i = 0; i + 1 < n; ++i) {
        sum += std::exp(s[order[i]] - s[order.back()]) / total;
        if (sum > 1 - static_cast<double>(r.settings.top_p)) break;
        s[order[i]] = removed;
      }
    }
  }
  const double most = *std::max_element(s.begin(), s.end());
  double total = 0;
  for (double& x : s) x = std::exp(x - most), total += x;
  for (double& x : s) x /= total;
  return s;
}

void expect_probs(Sampler& sampler, const std::string& what) {
  const std::vector<double> want = reference(sampler.request, sampler.logits);
  const int32_t id = sampler();
  double sum = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    ASSERT_NEAR(sampler.probs[i], want[i], 1e-6) << what << ", id " << i;
    ASSERT_EQ(sampler.probs[i] == 0, want[i] == 0) << what << ", id " << i;
    sum += static_cast<double>(sampler.probs[i]);
  }
  EXPECT_NEAR(sum, 1, 1e-5) << what;
  ASSERT_GE(id, 0);
  EXPECT_GT(want[static_cast<size_t>(id)], 0) << what;
}

TEST(Sampler, EveryCombinationOfProcessors) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal(0, 3);
  constexpr int kVocabulary = 90, kCodes = 64, kStop = 70;
  for (int bits = 0; bits < 128; ++bits) {
    std::vector<float> logits(kVocabulary);
    for (float& x : logits) x = normal(random);
    std::vector<uint8_t> seen(kVocabulary);
    for (uint8_t& x : seen) x = random() % 3 == 0;
    Sampler s(logits);
    s.request.codes = kCodes, s.request.stop_id = kStop;
    s.request.frame = static_cast<uint32_t>(bits);
    if (bits & 1) s.request.settings.temperature = 0.7f;
    if (bits & 2) s.request.settings.top_k = 12;
    if (bits & 4) s.request.settings.top_p = 0.8f;
    if (bits & 8) s.request.settings.repetition_penalty = 1.3f, s.request.seen = seen.data();
    s.request.forbid_stop = (bits & 16) != 0;
    s.request.settings.greedy = (bits & 32) != 0;
    if (bits & 64) s.request.stop_id = -1;
    expect_probs(s, "bits " + std::to_string(bits));
  }
}

TEST(Sampler, PenaltyDependsOnTheSign) {
  Sampler s({2, -2, 2, -2});
  const uint8_t seen[] = {1, 1, 0, 0};
  s.request.seen = seen, s.request.settings.repetition_penalty = 2, s.request.settings.greedy = 1;
  EXPECT_EQ(s(), 2);
  EXPECT_NEAR(std::log(s.probs[2] / s.probs[0]), 1, 1e-5);  // 2 -> 1
  EXPECT_NEAR(std::log(s.probs[3] / s.probs[1]), 2, 1e-5);  // -2 -> -4
}

TEST(Sampler, GreedyTakesTheLowestIndexOfATie) {
  Sampler s({1, 3, 3, 2});
  s.request.settings.greedy = 1;
  EXPECT_EQ(s(), 1);
  s.request.settings.greedy = 0, s.request.settings.temperature = 0;
  EXPECT_EQ(s(), 1) << "temperature 0 is greedy";
  s.request.codes = 1;
  EXPECT_EQ(s(), 0);
}

TEST(Sampler, TopKKeepsTies) {
  Sampler s({5, 1, 4, 4, 4, 0});
  s.request.settings.top_k = 2;
  s();
  EXPECT_EQ(std::count(s.probs.begin(), s.probs.end(), 0.0f), 2);
  EXPECT_EQ(s.probs[2], s.probs[4]);
  s.request.settings.top_k = 100;
  s();
  EXPECT_EQ(std::count(s.probs.begin(), s.probs.end(), 0.0f), 0);
}

TEST(Sampler, TopPEdges) {
  // Probabilities 0.1, 0.2, 0.3, 0.4 in shuffled order.
  Sampler s({std::log(0.3f), std::log(0.1f), std::log(0.4f), std::log(0.2f)});
  const auto kept = [&](float p) {
    s.request.settings.top_p = p;
    s();
    std::string ids;
    for (size_t i = 0; i < 4; ++i)
      if (s.probs[i] > 0) ids += std::to_string(i);
    return ids;
  };
  EXPECT_EQ(kept(1.0f), "0123");
  EXPECT_EQ(kept(0.95f), "0123");
  EXPECT_EQ(kept(0.85f), "023");
  EXPECT_EQ(kept(0.65f), "02");
  EXPECT_EQ(kept(0.3f), "2");
  EXPECT_EQ(kept(0.0f), "2") << "the largest always stays";
  // Of equal probabilities the sort puts the highest index last, and that one stays.
  Sampler equal({1, 1, 1});
  equal.request.settings.top_p = 0.0f;
  equal();
  EXPECT_EQ(equal.probs, (std::vector<float>{0, 0, 1}));
}

TEST(Sampler, B024_StopTokenPassesTheSameFilters) {
  constexpr int kCodes = 64;
  std::vector<float> logits(kCodes + 8);
  for (int i = 0; i < kCodes; ++i) logits[static_cast<size_t>(i)] = 5 - 0.01f * static_cast<float>(i);
  Sampler s(logits);
  s.request.codes = kCodes, s.request.stop_id = kCodes + 3, s.request.settings.top_k = 50;
  s.logits[kCodes + 3] = 5 - 0.01f * 49.5f;  // rank 51 of 65: just outside
  for (uint32_t frame = 0; frame < 10'000; ++frame) {
    s.request.frame = frame;
    const int32_t id = s(false);
    ASSERT_NE(id, kCodes + 3) << frame;
    ASSERT_LT(id, 50);
  }
  s.logits[kCodes + 3] = 30;
  EXPECT_EQ(s(), kCodes + 3);
  s.request.forbid_stop = true;
  EXPECT_LT(s(), kCodes);
}

TEST(Sampler, NonFiniteLogitsAreReportedWhereverTheyAre) {
  for (const float bad :
       {std::nanf(""), std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity()}) {
    Sampler s({1, 2, 3, bad});
    s.request.codes = 2;  // even at a suppressed id
    EXPECT_EQ(s(), cpu::kDrawNonFinite);
  }
}

TEST(Sampler, RecordedNoiseDecides) {
  Sampler s({std::log(0.5f), std::log(0.25f), std::log(0.25f)});
  std::vector<float> noise = {1, 0.6f, 0.4f};  // ratios 0.5, 0.4167, 0.625
  s.request.noise = noise.data();
  EXPECT_EQ(s(), 2);
  noise = {1, 0.5f, 0.5f};  // all equal: the lowest index
  s.logits = {0, std::log(0.5f), std::log(0.5f)};
  EXPECT_EQ(s(), 0);
}

TEST(Sampler, ForcedCodeKeepsTheProbabilities) {
  Sampler s({3, 1, 2});
  s();
  const std::vector<float> probs = s.probs;
  s.request.forced = 1;
  EXPECT_EQ(s(), 1);
  EXPECT_EQ(s.probs, probs);
}

/// Chi-square of the draws against the probabilities; and of planted wrong probabilities, which must fail.
TEST(Sampler, DrawsFollowTheProbabilities) {
  const std::vector<double> p = {0.4, 0.25, 0.15, 0.1, 0.06, 0.04};
  std::vector<float> logits;
  for (const double x : p) logits.push_back(static_cast<float>(std::log(x)));
  Sampler s(logits);
  s.request.seed = {123, 456};
  constexpr int kDraws = 60'000;
  std::vector<double> count(p.size());
  for (uint32_t i = 0; i < kDraws; ++i) {
    s.request.frame = i, s.request.group = i % 3;
    ++count[static_cast<size_t>(s(false))];
  }
  const auto chi_square = [&](const std::vector<double>& want) {
    double x = 0;
    for (size_t i = 0; i < want.size(); ++i)
      x += std::pow(count[i] - kDraws * want[i], 2) / (kDraws * want[i]);
    return x;
  };
  EXPECT_LT(chi_square(p), 20.5);  // 5 degrees of freedom, one in a thousand
  EXPECT_GT(chi_square({0.41, 0.24, 0.15, 0.1, 0.06, 0.04}), 20.5);
}

}  // namespace
}  // namespace skald::backend::test
