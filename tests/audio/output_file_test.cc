// Output files: whole or absent, and streams that cannot be taken back.
#include "audio/output_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <sstream>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace skald::audio {
namespace {

namespace fs = std::filesystem;

class OutputFileTest : public testing::Test {
 protected:
  void SetUp() override {
    dir_ = fs::temp_directory_path() / ("skald-out-" + std::to_string(::getpid()));
    fs::create_directories(dir_);
    std::signal(SIGPIPE, SIG_IGN);
  }
  void TearDown() override { fs::remove_all(dir_); }
  static std::string content(const fs::path& path) {
    std::ifstream in(path, std::ios::binary);
    std::ostringstream out;
    out << in.rdbuf();
    return out.str();
  }
  size_t entries() const { return static_cast<size_t>(std::distance(fs::directory_iterator(dir_), {})); }
  fs::path dir_;
};

TEST_F(OutputFileTest, AppearsOnlyWhenWhole) {
  auto file = OutputFile::open(dir_ / "a.wav");
  file->write("....data");
  EXPECT_FALSE(fs::exists(dir_ / "a.wav"));
  EXPECT_EQ(file->temporary().parent_path(), dir_);
  ASSERT_TRUE(file->seekable());
  file->patch(0, "head");
  file->commit();
  EXPECT_EQ(content(dir_ / "a.wav"), "headdata");
  EXPECT_EQ(entries(), 1u);
}

TEST_F(OutputFileTest, AbandonedLeavesTheOldFile) {
  std::ofstream(dir_ / "a.wav") << "old";
  OutputFile::open(dir_ / "a.wav")->write("new");
  EXPECT_EQ(content(dir_ / "a.wav"), "old");
  EXPECT_EQ(entries(), 1u);
}

TEST_F(OutputFileTest, FollowsLinksAndKeepsTheMode) {
  std::ofstream(dir_ / "real.wav") << "old";
  fs::permissions(dir_ / "real.wav", fs::perms::owner_read | fs::perms::owner_write);
  fs::create_symlink("real.wav", dir_ / "link.wav");
  auto file = OutputFile::open(dir_ / "link.wav");
  file->write("new");
  file->commit();
  EXPECT_TRUE(fs::is_symlink(dir_ / "link.wav"));
  EXPECT_EQ(content(dir_ / "real.wav"), "new");
  EXPECT_EQ(fs::status(dir_ / "real.wav").permissions(), fs::perms::owner_read | fs::perms::owner_write);
}

TEST_F(OutputFileTest, FollowsLinksToFilesThatAreNotThereYet) {
  fs::create_symlink("real.wav", dir_ / "second.wav");
  fs::create_symlink(dir_ / "second.wav", dir_ / "first.wav");
  auto file = OutputFile::open(dir_ / "first.wav");
  file->write("new");
  file->commit();
  EXPECT_TRUE(fs::is_symlink(dir_ / "first.wav"));
  EXPECT_TRUE(fs::is_symlink(dir_ / "second.wav"));
  EXPECT_EQ(content(dir_ / "real.wav"), "new");
}

TEST_F(OutputFileTest, UnwritablePlacesAreKnownAtOnce) {
  fs::create_symlink("loop", dir_ / "loop");
  EXPECT_THROW(OutputFile::open(dir_ / "loop"), Error);
  EXPECT_THROW(OutputFile::open(dir_ / std::string(300, 'x')), Error);
  EXPECT_THROW(OutputFile::open(dir_), Error);
  EXPECT_THROW(OutputFile::open(dir_ / "no" / "a.wav"), Error);
}

TEST_F(OutputFileTest, AFullDeviceIsAnError) {
  auto file = OutputFile::open("/dev/full");
  EXPECT_FALSE(file->seekable());
  try {
    file->write("data");
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::io);
    EXPECT_THAT(error.what(), testing::HasSubstr("No space left"));
  }
}

TEST_F(OutputFileTest, AClosedPipeHasItsOwnType) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  ::close(ends[0]);
  auto file = OutputFile::attach(ends[1], "pipe");
  EXPECT_THROW(file->write("data"), ClosedPipe);
  ::close(ends[1]);
}

TEST_F(OutputFileTest, AWaitingWriteCanBeInterrupted) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  auto file = OutputFile::attach(ends[1], "pipe");
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    file->interrupt();
  });
  const auto start = std::chrono::steady_clock::now();
  try {
    file->write(std::string(1 << 20, 'x'));  // more than any default pipe holds
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::cancelled);
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(2));
  other.join();
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST_F(OutputFileTest, PatchesCountFromItsOwnStart) {
  const int fd = ::open((dir_ / "log").c_str(), O_RDWR | O_CREAT, 0600);
  ASSERT_EQ(::write(fd, "before", 6), 6);
  auto file = OutputFile::attach(fd, "log");
  file->write("....data");
  ASSERT_TRUE(file->seekable());
  file->patch(0, "head");
  file->commit();
  EXPECT_EQ(content(dir_ / "log"), "beforeheaddata");
  ::close(fd);
}

TEST_F(OutputFileTest, AppendedFilesAreNotPatched) {
  const int fd = ::open((dir_ / "log").c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  EXPECT_FALSE(OutputFile::attach(fd, "log")->seekable());
  ::close(fd);
}

}  // namespace
}  // namespace skald::audio
