// The bounded queue between threads.
#include "engine/text_queue.h"

#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <thread>

namespace skald::engine {
namespace {

using namespace std::chrono_literals;

TEST(TextQueue, GivesBytesInOrderAndInPortions) {
  TextQueue queue;
  EXPECT_TRUE(queue.push("abc"));
  EXPECT_TRUE(queue.try_push("defg"));
  std::string out;
  EXPECT_TRUE(queue.take(5, out));
  EXPECT_EQ(out, "abcde");
  EXPECT_FALSE(queue.exhausted());
  queue.finish();
  EXPECT_FALSE(queue.exhausted());
  EXPECT_TRUE(queue.take(5, out));
  EXPECT_EQ(out, "fg");
  EXPECT_FALSE(queue.take(5, out));
  EXPECT_TRUE(queue.exhausted());
}

TEST(TextQueue, IsBounded) {
  TextQueue queue;
  EXPECT_TRUE(queue.push(std::string(TextQueue::kBound - 1, 'x')));
  EXPECT_TRUE(queue.try_push("yy"));  // one push is taken as a whole
  EXPECT_FALSE(queue.try_push("z"));
  auto pushed = std::async(std::launch::async, [&] { return queue.push("z"); });
  EXPECT_EQ(pushed.wait_for(30ms), std::future_status::timeout);
  std::string out;
  EXPECT_TRUE(queue.take(10, out));
  EXPECT_TRUE(pushed.get());
}

TEST(TextQueue, RefusesAfterTheEnd) {
  TextQueue finished, closed;
  finished.finish();
  closed.close();
  EXPECT_FALSE(finished.push("a"));
  EXPECT_FALSE(closed.push("a"));
  EXPECT_FALSE(closed.try_push("a"));
}

TEST(TextQueue, CloseWakesEverybody) {
  TextQueue full, empty;
  full.push(std::string(TextQueue::kBound, 'x'));
  auto writer = std::async(std::launch::async, [&] { return full.push("a"); });
  auto reader = std::async(std::launch::async, [&] { empty.wait(); });
  std::this_thread::sleep_for(10ms);
  full.close(), empty.close();
  EXPECT_FALSE(writer.get());
  reader.get();
}

}  // namespace
}  // namespace skald::engine
