// The audio queue: its bound, its end, and what a strict reader finds afterwards (B054, B058).
#include "cli/audio_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>

#include <gtest/gtest.h>

#include "audio/strict_wav.h"

namespace skald::cli {
namespace {

namespace fs = std::filesystem;
using audio::OutputFile;
using audio::SampleFormat;

class AudioWriterTest : public testing::Test {
 protected:
  void SetUp() override {
    std::signal(SIGPIPE, SIG_IGN);
    dir_ = fs::temp_directory_path() / ("skald-writer-" + std::to_string(::getpid()));
    fs::create_directories(dir_);
  }
  void TearDown() override { fs::remove_all(dir_); }
  static std::string content(const fs::path& path) {
    std::ifstream in(path, std::ios::binary);
    std::ostringstream out;
    out << in.rdbuf();
    return out.str();
  }
  fs::path dir_;
};

TEST_F(AudioWriterTest, B054_AFileHasExactSizes) {
  for (const SampleFormat format : {SampleFormat::s16, SampleFormat::f32}) {
    AudioWriter writer(OutputFile::open(dir_ / "a.wav"), format, false, 24000);
    for (int i = 0; i < 5; ++i) writer.write(std::vector<float>(1920, 0.25f));
    writer.finish();
    const auto wav = test::parse_strict_wav(content(dir_ / "a.wav"));
    EXPECT_FALSE(wav.placeholder);
    EXPECT_EQ(wav.data.size(), 5 * 1920 * sample_bytes(format));
  }
}

TEST_F(AudioWriterTest, B054_AnInterruptedFileDoesNotAppear) {
  {
    AudioWriter writer(OutputFile::open(dir_ / "a.wav"), SampleFormat::s16, false, 24000);
    writer.write(std::vector<float>(1920));
  }
  EXPECT_TRUE(fs::is_empty(dir_));
}

TEST_F(AudioWriterTest, B054_AnInterruptedRedirectionIsTrueOfWhatItHolds) {
  const int fd = ::open((dir_ / "out").c_str(), O_RDWR | O_CREAT, 0600);
  {
    AudioWriter writer(OutputFile::attach(fd, "out"), SampleFormat::s16, false, 24000);
    writer.write(std::vector<float>(1920));
    writer.close_stream();
  }
  const auto wav = test::parse_strict_wav(content(dir_ / "out"));
  EXPECT_FALSE(wav.placeholder);
  EXPECT_EQ(wav.data.size(), 3840u);
  ::close(fd);
}

TEST_F(AudioWriterTest, HeaderlessIsNothingButSamples) {
  AudioWriter writer(OutputFile::open(dir_ / "a.pcm"), SampleFormat::s16, true, 24000);
  writer.write({0.0f, 1.0f});
  writer.finish();
  EXPECT_EQ(content(dir_ / "a.pcm"), std::string("\0\0\xff\x7f", 4));
}

TEST_F(AudioWriterTest, NoSamplesIsAnEmptyWav) {
  AudioWriter writer(OutputFile::open(dir_ / "a.wav"), SampleFormat::s16, false, 24000);
  writer.finish();
  EXPECT_EQ(test::parse_strict_wav(content(dir_ / "a.wav")).data.size(), 0u);
}

TEST_F(AudioWriterTest, B058_TheWorkRunsAheadUpToTheBoundAndThenWaits) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  constexpr uint64_t kBound = 100 * 1920;
  AudioWriter writer(OutputFile::attach(ends[1], "pipe"), SampleFormat::s16, false, 24000, kBound);
  std::atomic<int> frames = 0;
  std::thread work([&] {
    for (int i = 0; i < 400; ++i) {
      writer.write(std::vector<float>(1920));
      frames = i + 1;
    }
    writer.finish();
    ::close(ends[1]);
  });
  int settled = -1;
  while (frames != settled) {  // until it has stopped moving for a while
    settled = frames;
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
  }
  EXPECT_GE(settled, 100) << "the work does not wait for the reader";
  EXPECT_LE(settled, 100 + 20) << "but not without end: the bound, and what the pipe itself holds";
  std::string bytes;
  char buffer[4096];
  for (ssize_t got; (got = ::read(ends[0], buffer, sizeof buffer)) > 0;)
    bytes.append(buffer, static_cast<size_t>(got));
  work.join();
  ::close(ends[0]);
  const auto wav = test::parse_strict_wav(bytes);
  EXPECT_TRUE(wav.placeholder);
  EXPECT_EQ(wav.data.size(), 400u * 1920 * 2);
}

TEST_F(AudioWriterTest, AClosedPipeReachesTheWork) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  ::close(ends[0]);
  AudioWriter writer(OutputFile::attach(ends[1], "pipe"), SampleFormat::s16, false, 24000);
  EXPECT_THROW(
      {
        for (int i = 0; i < 1000; ++i) writer.write(std::vector<float>(1920));
        writer.finish();
      },
      audio::ClosedPipe);
  ::close(ends[1]);
}

TEST_F(AudioWriterTest, AnInterruptWakesAWaitingWrite) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  auto writer = std::make_unique<AudioWriter>(OutputFile::attach(ends[1], "pipe"), SampleFormat::s16, false,
                                              24000, 1920);
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    writer->interrupt();
  });
  try {
    for (;;) writer->write(std::vector<float>(96000));
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::cancelled);
  }
  other.join();
  writer.reset();  // its thread ends before its descriptor does
  ::close(ends[0]);
  ::close(ends[1]);
}

}  // namespace
}  // namespace skald::cli
