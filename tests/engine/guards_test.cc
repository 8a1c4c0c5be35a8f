// The stall guard alone.
#include "engine/guards.h"

#include <gtest/gtest.h>

namespace skald::engine {
namespace {

/// Frames until the guard fires, of at most `most`; 0 = never.
template <class Next>
int fires_after(StallGuard guard, int most, Next next) {
  for (int f = 1; f <= most; ++f)
    if (guard.add(next(f), true)) return f;
  return 0;
}

TEST(StallGuard, FiresWhenAWindowHasFewCodes) {
  EXPECT_EQ(fires_after(StallGuard(75), 200, [](int) { return 5; }), 75);
  EXPECT_EQ(fires_after(StallGuard(75), 200, [](int f) { return f % 3; }), 75);
  EXPECT_EQ(fires_after(StallGuard(75), 1000, [](int f) { return f % 4; }), 0);
  EXPECT_EQ(fires_after(StallGuard(75), 200, [](int f) { return f <= 50 ? f : 7; }),
            123);  // 2 others still in it
}

TEST(StallGuard, OneOtherCodeInFourLetsItPass) {
  EXPECT_EQ(fires_after(StallGuard(8), 500, [](int f) { return f % 8 < 5 ? 1 : f % 8; }), 0);
}

TEST(StallGuard, WaitsForTheText) {
  StallGuard guard(10);
  for (int f = 0; f < 500; ++f) EXPECT_FALSE(guard.add(3, false));
  for (int f = 1; f <= 10; ++f) EXPECT_EQ(guard.add(3, true), f == 10) << f;
}

TEST(StallGuard, ZeroIsOff) {
  EXPECT_EQ(fires_after(StallGuard(0), 5000, [](int) { return 1; }), 0);
}

}  // namespace
}  // namespace skald::engine
