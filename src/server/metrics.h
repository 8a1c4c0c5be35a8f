// Counters and histograms in the text form that Prometheus reads.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace skald::server {

/// A value that only grows. Any thread.
class Counter {
 public:
  void add(double amount = 1);
  double value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<double> value_ = 0;
};

/// How often values fell below each bound. Any thread.
class Histogram {
 public:
  explicit Histogram(std::span<const double> bounds)
      : bounds_(bounds.begin(), bounds.end()), counts_(bounds.size() + 1) {}
  void add(double value);
  void write(std::string_view name, std::string& out) const;

 private:
  mutable std::mutex mutex_;
  std::vector<double> bounds_;
  std::vector<uint64_t> counts_;
  double sum_ = 0;
  uint64_t count_ = 0;
};

/// The series of a server. Labels hold fixed words only: no name, text or number of a request.
class Metrics {
 public:
  Metrics();
  /// skald_requests_total{route, status}.
  void count_request(std::string_view route, int status);
  /// skald_speech_ends_total{reason}: stop reason of a speech, or the code of its error.
  void count_end(std::string_view reason);

  Counter frames, audio_seconds, bytes_sent, rejected;
  Histogram first_audio_seconds, queue_seconds, real_time_factor, lateness_seconds, request_seconds;

  /// Writes the series above; whoever knows more adds gauges with gauge().
  std::string text() const;
  static void gauge(std::string_view name, std::string_view help, double value, std::string& out);
  static void counter(std::string_view name, std::string_view help, double value, std::string& out);

 private:
  mutable std::mutex mutex_;
  std::map<std::pair<std::string, int>, uint64_t> requests_;
  std::map<std::string, uint64_t, std::less<>> ends_;
};

}  // namespace skald::server
