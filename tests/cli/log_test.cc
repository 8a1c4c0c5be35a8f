// Standard error: order, folding, and a reader that never comes (B089).
#include "cli/log.h"

#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace skald::cli {
namespace {

using testing::HasSubstr;

struct Pipe {
  Pipe() { EXPECT_EQ(::pipe(ends), 0); }
  ~Pipe() {
    ::close(ends[0]);
    close_writer();
  }
  void close_writer() {
    if (ends[1] >= 0) ::close(ends[1]);
    ends[1] = -1;
  }
  std::string read_all() {
    close_writer();
    std::string out;
    char buffer[4096];
    for (ssize_t got; (got = ::read(ends[0], buffer, sizeof buffer)) > 0;)
      out.append(buffer, static_cast<size_t>(got));
    return out;
  }
  int ends[2];
};

TEST(Log, WritesLinesInOrder) {
  Pipe pipe;
  {
    Log log(pipe.ends[1]);
    log.error("first\nline");
    log.warning("second");
    log.note("third");
    log.status("not on a pipe");
  }
  EXPECT_EQ(pipe.read_all(), "skald: error: first line\nskald: warning: second\nskald: third\n");
}

TEST(Log, QuietKeepsErrors) {
  Pipe pipe;
  {
    Log log(pipe.ends[1]);
    log.set_quiet(true);
    log.warning("w");
    log.note("n");
    log.error("e");
  }
  EXPECT_EQ(pipe.read_all(), "skald: error: e\n");
}

TEST(Log, B089_RepeatedLinesAreFolded) {
  Pipe pipe;
  {
    Log log(pipe.ends[1]);
    for (int i = 0; i < 1000; ++i) log.warning("the same");
    log.warning("another");
  }
  EXPECT_EQ(
      pipe.read_all(),
      "skald: warning: the same\nskald: the last line was repeated 999 times\nskald: warning: another\n");
}

TEST(Log, B089_AFullPipeStallsNobody) {
  Pipe pipe;
  ASSERT_EQ(::fcntl(pipe.ends[1], F_SETFL, O_NONBLOCK), 0);
  while (::write(pipe.ends[1], "x", 1) == 1) {
  }
  ASSERT_EQ(::fcntl(pipe.ends[1], F_SETFL, 0), 0);
  auto log = std::make_unique<Log>(pipe.ends[1], 16);
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < 100000; ++i) log->warning("line " + std::to_string(i));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(2));
  log.reset();
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(4))
      << "the end waits about a second";
}

TEST(Log, B089_DroppedLinesAreCounted) {
  Pipe pipe;
  ASSERT_EQ(::fcntl(pipe.ends[1], F_SETFL, O_NONBLOCK), 0);
  while (::write(pipe.ends[1], "x", 1) == 1) {
  }
  ASSERT_EQ(::fcntl(pipe.ends[1], F_SETFL, 0), 0);
  std::string text;
  {
    Log log(pipe.ends[1], 16);
    for (int i = 0; i < 100; ++i) log.warning("line " + std::to_string(i));
    char buffer[1 << 16];
    while (text.find("dropped") == std::string::npos) {
      const ssize_t got = ::read(pipe.ends[0], buffer, sizeof buffer);
      ASSERT_GT(got, 0);
      text.append(buffer, static_cast<size_t>(got));
    }
  }
  EXPECT_THAT(text, HasSubstr("line 0\n"));
  EXPECT_THAT(text, HasSubstr(" lines were dropped, as nobody read them"));
}

}  // namespace
}  // namespace skald::cli
