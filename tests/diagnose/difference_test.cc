// Measures of difference: each sees its own kind of fault, and rounding is none.
#include "diagnose/difference.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace skald::diagnose {
namespace {

std::vector<float> wave(size_t n) {
  std::vector<float> v(n);
  for (size_t i = 0; i < n; ++i) v[i] = std::sin(0.7f * static_cast<float>(i)) + 0.1f;
  return v;
}

TEST(Deviation, EqualRowsAreZeroApart) {
  const std::vector<float> a = wave(100);
  const Deviation d = deviation_of(a, a, 0);
  EXPECT_EQ(d.element, 0);
  EXPECT_EQ(d.norm_ratio, 1);
  EXPECT_EQ(d.signed_error, 0);
  EXPECT_EQ(judge(d, {}), Measure::none);
}

TEST(Deviation, RoundingIsNoDifference) {
  const std::vector<float> a = wave(1000);
  std::vector<float> b = a;
  for (size_t i = 0; i < b.size(); ++i) b[i] *= 1 + (i % 2 ? 3e-6f : -3e-6f);
  EXPECT_EQ(judge(deviation_of(a, b, 0), {}), Measure::none);
}

TEST(Deviation, ATenthOfAPercentIsFoundByNormAndSign) {
  const std::vector<float> a = wave(1000);
  std::vector<float> b = a;
  for (float& v : b) v *= 1.001f;
  const Deviation d = deviation_of(a, b, 0);
  EXPECT_NEAR(d.norm_ratio, 1.001, 1e-6);
  EXPECT_NEAR(d.signed_error, 0.001, 1e-6);
  EXPECT_EQ(judge(d, {}), Measure::norm_ratio);
  EXPECT_NEAR(value_of(d, Measure::norm_ratio), 0.001, 1e-6);
  EXPECT_EQ(limit_of({}, Measure::norm_ratio), 2e-4);
}

TEST(Deviation, AnErrorThatKeepsTheNormIsFoundBySign) {
  // Half of the row grows, the other shrinks; the sum of magnitudes moves, the norm does not.
  const std::vector<float> a{1, 1, 1, 1, 3, 3, 3, 3};
  std::vector<float> b = a;
  for (int i = 0; i < 4; ++i) b[i] += 3e-3f;
  for (int i = 4; i < 8; ++i) b[i] -= 1e-3f;
  const Deviation d = deviation_of(a, b, 0);
  EXPECT_NEAR(d.norm_ratio, 1, 1e-5);
  EXPECT_EQ(judge(d, {.element = 1, .norm_ratio = 2e-4, .signed_error = 2e-4}), Measure::signed_error);
}

TEST(Deviation, OneValueIsFoundWhereItIs) {
  const std::vector<float> a = wave(2000);
  std::vector<float> b = a;
  b[1234] += 1e-3f;
  const Deviation d = deviation_of(a, b, 0);
  EXPECT_EQ(judge(d, {}), Measure::element);
  EXPECT_EQ(d.at, 1234u);
  EXPECT_NEAR(d.element, 1e-3 / root_mean_square(a), 1e-5);
}

TEST(Deviation, NumbersThatAreNone) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::nanf("");
  const std::vector<float> a{1, inf, 2, 3};
  EXPECT_EQ(judge(deviation_of(a, a, 0), {}), Measure::none);  // the same on both
  const std::vector<float> b{1, inf, 2, nan}, c{1, -inf, 2, 3}, d{1, 2, inf, 3};
  EXPECT_EQ(judge(deviation_of(a, b, 0), {}), Measure::non_finite);
  EXPECT_EQ(deviation_of(a, b, 0).at, 3u);
  EXPECT_EQ(deviation_of(a, c, 0).at, 1u);
  EXPECT_EQ(deviation_of(a, d, 0).at, 1u);
}

TEST(Deviation, RowsThatCancelOutAreJudgedByTheOthers) {
  const std::vector<float> a{1e-9f, -1e-9f}, b{2e-9f, -1e-9f};
  EXPECT_EQ(judge(deviation_of(a, b, 1e-2), {}), Measure::none);
  EXPECT_NE(judge(deviation_of(a, b, 0), {}), Measure::none);
  const std::vector<float> zero{0, 0};
  EXPECT_EQ(judge(deviation_of(zero, zero, 0), {}), Measure::none);
  EXPECT_EQ(judge(deviation_of(zero, b, 0), {}), Measure::element);
}

TEST(Cosine, OfAnglesAndEdges) {
  const std::vector<float> a{1, 0}, b{1, 1}, zero{0, 0}, bad{std::nanf(""), 1};
  EXPECT_NEAR(cosine(a, b), std::sqrt(0.5), 1e-12);
  EXPECT_EQ(cosine(a, a), 1);
  EXPECT_EQ(cosine(zero, zero), 1);
  EXPECT_EQ(cosine(zero, a), 0);
  EXPECT_TRUE(std::isnan(cosine(a, bad)));
}

TEST(LargestDifference, NumbersThatAreNoneAreNotLost) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::nanf("");
  const std::vector<float> a{1, 2, 3}, b{1, 2.5f, 3}, bad{nan, 9, 3}, endless{1, -inf, 3};
  EXPECT_EQ(largest_difference(a, a), 0);
  EXPECT_EQ(largest_difference(a, b), 0.5);
  EXPECT_TRUE(std::isnan(largest_difference(a, bad)));
  EXPECT_TRUE(std::isnan(largest_difference(bad, bad))) << "that both say nothing makes them not equal";
  EXPECT_EQ(largest_difference(a, endless), inf);
}

TEST(Tie, BothCandidatesLieTogetherOnBoth) {
  const std::vector<float> a{8, 5, 5.00001f, -10}, near{8, 8.00005f, 0, 0}, far{8, 8.1f, 0, 0};
  const std::vector<float> equal{8, 8 - 4e-5f, 0, -10};
  EXPECT_TRUE(is_tie(equal, near, 0, 1, 1e-5));
  EXPECT_FALSE(is_tie(a, near, 0, 1, 1e-5));     // clear on the first
  EXPECT_FALSE(is_tie(equal, far, 0, 1, 1e-5));  // clear on the second
}

}  // namespace
}  // namespace skald::diagnose
