// The audio queue and its thread.
#include "cli/audio_writer.h"

#include <fmt/format.h>

#include <optional>
#include <string>
#include <utility>

namespace skald::cli {

AudioWriter::AudioWriter(std::unique_ptr<audio::OutputFile> file, audio::SampleFormat format, bool headerless,
                         uint32_t sample_rate, uint64_t bound_samples)
    : file_(std::move(file)),
      format_(format),
      headerless_(headerless),
      sample_rate_(sample_rate),
      bound_(bound_samples > 0 ? bound_samples : uint64_t{sample_rate} * kAheadSeconds),
      thread_([this] { run(); }) {}

AudioWriter::~AudioWriter() {
  if (thread_.joinable()) {
    interrupt();
    stop_thread();
  }
}

void AudioWriter::interrupt() noexcept {
  file_->interrupt();
  {
    const std::lock_guard lock(mutex_);
    dropped_ = true;
  }
  changed_.notify_all();
}

void AudioWriter::write(std::vector<float> samples) {
  if (samples.empty()) return;
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return queued_ < bound_ || failure_ || dropped_; });
  if (failure_) std::rethrow_exception(failure_);
  if (dropped_) throw Error(ErrorCode::cancelled, "writing the audio was cancelled");
  queued_ += samples.size();
  queue_.push_back(std::move(samples));
  changed_.notify_all();
}

void AudioWriter::stop_thread() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void AudioWriter::finish() {
  stop_thread();
  if (failure_) std::rethrow_exception(failure_);
  if (dropped_) throw Error(ErrorCode::cancelled, "writing the audio was cancelled");
  if (!headerless_) {
    if (!header_written_) write_header(false);
    if (file_->seekable()) write_header(true);
  }
  file_->commit();
}

void AudioWriter::close_stream() noexcept {
  try {
    if (!file_->temporary().empty()) return;
    if (thread_.joinable()) stop_thread();
    if (header_written_ && file_->seekable()) write_header(true);
  } catch (const Error&) {  // there is already an error to report
  }
}

void AudioWriter::write_header(bool final_sizes) {
  const auto header =
      audio::wav_header(format_, sample_rate_, final_sizes ? std::optional(written_) : std::nullopt);
  final_sizes ? file_->patch(0, header) : file_->write(header);
  header_written_ = true;
}

void AudioWriter::put(const std::vector<float>& samples) {
  if (!headerless_ && !header_written_) write_header(false);
  if (!headerless_ && written_ + samples.size() > audio::max_wav_samples(format_)) {
    throw Error(ErrorCode::io,
                fmt::format("'{}' has reached the largest size of a WAV file; use --raw", file_->name()));
  }
  std::string bytes;
  audio::append_samples(samples, format_, bytes);
  file_->write(bytes);
  written_ += samples.size();
}

void AudioWriter::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return closing_ || dropped_ || !queue_.empty(); });
    if (dropped_ || queue_.empty()) return;
    const std::vector<float> samples = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    std::exception_ptr failure;
    try {
      put(samples);
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    queued_ -= samples.size();
    failure_ = failure;
    changed_.notify_all();
    if (failure) return;
  }
}

}  // namespace skald::cli
