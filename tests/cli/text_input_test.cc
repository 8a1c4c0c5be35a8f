// Text from pipes and files.
#include "cli/text_input.h"

#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "skald/error.h"

namespace skald::cli {
namespace {

class PipeText : public testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(::pipe(ends_), 0); }
  void TearDown() override {
    ::close(ends_[0]);
    close_writer();
  }
  void close_writer() {
    if (ends_[1] >= 0) ::close(ends_[1]);
    ends_[1] = -1;
  }
  void type(std::string_view bytes) {
    ASSERT_EQ(::write(ends_[1], bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  }
  int ends_[2];
};

TEST_F(PipeText, ArrivesAsItIsWritten) {
  ArrivingText text(ends_[0], "the pipe");
  type("Hello ");
  EXPECT_EQ(text.next().text, "Hello ");
  const auto pause = text.next();
  EXPECT_TRUE(pause.quiet);
  EXPECT_TRUE(pause.text.empty());
  type("world");
  const auto more = text.next();
  EXPECT_EQ(more.text, "world");
  EXPECT_FALSE(more.quiet);
  close_writer();
  engine::TextArrival end = text.next();
  if (end.quiet) end = text.next();
  EXPECT_TRUE(end.end);
}

TEST_F(PipeText, CodePointsAreNeverCut) {
  ArrivingText text(ends_[0], "the pipe");
  type("a\xC3");
  EXPECT_EQ(text.next().text, "a");
  type("\xA9");
  engine::TextArrival next = text.next();
  while (next.text.empty()) next = text.next();
  EXPECT_EQ(next.text, "\u00e9");
}

TEST_F(PipeText, BadBytesAreNamedByTheirOffset) {
  ArrivingText text(ends_[0], "the pipe");
  type("abc\xFF");
  try {
    while (!text.next().end) {
    }
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_text);
    EXPECT_NE(std::string(error.what()).find('3'), std::string::npos);
  }
}

TEST_F(PipeText, CancelWakesTheReader) {
  ArrivingText text(ends_[0], "the pipe");
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    text.cancel();
  });
  EXPECT_THROW(text.next(), Error);
  other.join();
}

TEST_F(PipeText, ReadsABoundedAmountAhead) {
  ArrivingText text(ends_[0], "the pipe");
  std::thread writer([&] {
    const std::string block(1 << 16, 'x');
    for (int i = 0; i < 64; ++i) type(block);  // four times the bound
    close_writer();
  });
  size_t total = 0, most = 0;
  for (bool end = false; !end;) {
    const auto next = text.next();
    total += next.text.size();
    most = std::max(most, next.text.size());
    end = next.end;
  }
  writer.join();
  EXPECT_EQ(total, size_t{64} << 16);
  EXPECT_LE(most, ArrivingText::kBound + (1 << 16));
}

TEST(TextFile, IsDecodedAndNamedInErrors) {
  const auto path = std::filesystem::temp_directory_path() / ("skald-text-" + std::to_string(::getpid()));
  std::ofstream(path, std::ios::binary) << std::string("\xFF\xFEH\0i\0", 6);
  EXPECT_EQ(read_text_file(path.string()), "Hi");
  std::ofstream(path, std::ios::binary) << "abc\xff";
  try {
    read_text_file(path.string());
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_text);
    EXPECT_NE(std::string(error.what()).find(path.string()), std::string::npos);
  }
  std::filesystem::remove(path);
  try {
    read_text_file(path.string());
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::io);
    EXPECT_NE(std::string(error.what()).find(path.string()), std::string::npos);
  }
  EXPECT_THROW(read_text_file("/"), Error);
}

}  // namespace
}  // namespace skald::cli
