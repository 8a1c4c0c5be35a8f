// Samples on their way out: a bounded queue and one thread that encodes and writes.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "audio/output_file.h"
#include "audio/wav.h"

namespace skald::cli {

/// The work runs ahead of a slow reader by up to the bound and then waits. The header of an output that
/// cannot be patched keeps the placeholder sizes; it is written with the first samples, so a run that fails
/// early writes nothing.
class AudioWriter {
 public:
  static constexpr int kAheadSeconds = 30;

  AudioWriter(std::unique_ptr<audio::OutputFile> file, audio::SampleFormat format, bool headerless,
              uint32_t sample_rate,
              uint64_t bound_samples = 0);  ///< bound 0 = kAheadSeconds
  ~AudioWriter();  ///< without finish(): what is queued is dropped, a file does not appear
  AudioWriter(const AudioWriter&) = delete;
  AudioWriter& operator=(const AudioWriter&) = delete;

  /// Queues samples; waits while more than the bound are queued. Throws what the writing thread met.
  void write(std::vector<float> samples);
  /// Writes the rest, puts the sizes into the header where that can be done, and gives the file its name.
  void finish();
  /// From any thread: waiting calls end with Error(cancelled).
  void interrupt() noexcept;
  /// After an error: a stream that was a file all along gets a header that is true of what was written.
  void close_stream() noexcept;

 private:
  void run();
  void put(const std::vector<float>& samples);
  void write_header(bool final_sizes);
  void stop_thread();

  std::unique_ptr<audio::OutputFile> file_;
  const audio::SampleFormat format_;
  const bool headerless_;
  const uint32_t sample_rate_;
  const uint64_t bound_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::vector<float>> queue_;
  uint64_t queued_ = 0;
  bool closing_ = false, dropped_ = false;
  std::exception_ptr failure_;
  uint64_t written_ = 0;  // samples
  bool header_written_ = false;
  std::thread thread_;
};

}  // namespace skald::cli
