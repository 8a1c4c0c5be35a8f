// The floating point environment: ours while we compute, the caller's before and behind.
#include "base/float_environment.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "../unusual_floats.h"
#include "base/pool.h"

namespace skald {
namespace {

using test::default_floats;
using test::UnusualFloats;

TEST(DefaultFloats, HoldWhileItLives) {
  ASSERT_TRUE(default_floats());
  const UnusualFloats unusual;
  ASSERT_TRUE(UnusualFloats::in_force());
  {
    const DefaultFloats floats;
    EXPECT_TRUE(default_floats());
    {
      const DefaultFloats again;
      EXPECT_TRUE(default_floats());
    }
    EXPECT_TRUE(default_floats());
  }
  EXPECT_TRUE(UnusualFloats::in_force());
}

TEST(DefaultFloats, KeepTheFlagsOfTheCaller) {
  std::feclearexcept(FE_ALL_EXCEPT);
  std::feraiseexcept(FE_INEXACT);
  {
    const DefaultFloats floats;
    EXPECT_EQ(std::fetestexcept(FE_ALL_EXCEPT), 0);
    std::feraiseexcept(FE_DIVBYZERO | FE_OVERFLOW);
  }
  EXPECT_EQ(std::fetestexcept(FE_ALL_EXCEPT), FE_INEXACT);
  std::feclearexcept(FE_ALL_EXCEPT);
}

/// Threads are started with the environment of the one that starts them.
TEST(DefaultFloats, HelpersOfAPoolHaveThem) {
  const UnusualFloats unusual;
  Pool pool(2);
  std::atomic<int> running{0}, right{0};
  pool.run(2, [&](int, int thread) {
    for (++running; running < 2;) std::this_thread::yield();  // so that the helper has one of them
    if (thread != 0) right += default_floats();
  });
  EXPECT_EQ(right, 1);
  EXPECT_TRUE(UnusualFloats::in_force()) << "the caller keeps its own";
}

}  // namespace
}  // namespace skald
