// Prometheus text format, version 0.0.4.
#include "server/metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace skald::server {
namespace {

constexpr std::array kSeconds{0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0};
constexpr std::array kFactors{0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9, 1.0, 1.2, 1.5, 2.0, 5.0};

void head(std::string_view name, std::string_view type, std::string_view help, std::string& out) {
  out += fmt::format("# HELP {0} {2}\n# TYPE {0} {1}\n", name, type, help);
}

}  // namespace

void Counter::add(double amount) {
  double old = value_.load(std::memory_order_relaxed);
  while (!value_.compare_exchange_weak(old, old + amount, std::memory_order_relaxed)) {
  }
}

void Histogram::add(double value) {
  const auto place = std::lower_bound(bounds_.begin(), bounds_.end(), value) - bounds_.begin();
  const std::lock_guard lock(mutex_);
  ++counts_[static_cast<size_t>(place)];
  sum_ += value;
  ++count_;
}

void Histogram::write(std::string_view name, std::string& out) const {
  const std::lock_guard lock(mutex_);
  uint64_t below = 0;
  for (size_t i = 0; i < bounds_.size(); ++i) {
    below += counts_[i];
    out += fmt::format("{}_bucket{{le=\"{}\"}} {}\n", name, bounds_[i], below);
  }
  out += fmt::format("{0}_bucket{{le=\"+Inf\"}} {1}\n{0}_sum {2}\n{0}_count {1}\n", name, count_, sum_);
}

Metrics::Metrics()
    : first_audio_seconds(kSeconds),
      queue_seconds(kSeconds),
      real_time_factor(kFactors),
      lateness_seconds(kSeconds),
      request_seconds(kSeconds) {}

void Metrics::count_request(std::string_view route, int status) {
  const std::lock_guard lock(mutex_);
  ++requests_[{std::string(route), status}];
}

void Metrics::count_end(std::string_view reason) {
  const std::lock_guard lock(mutex_);
  const auto it = ends_.find(reason);
  it != ends_.end() ? ++it->second : ends_[std::string(reason)] = 1;
}

void Metrics::gauge(std::string_view name, std::string_view help, double value, std::string& out) {
  head(name, "gauge", help, out);
  out += fmt::format("{} {}\n", name, value);
}

void Metrics::counter(std::string_view name, std::string_view help, double value, std::string& out) {
  head(name, "counter", help, out);
  out += fmt::format("{} {}\n", name, value);
}

std::string Metrics::text() const {
  std::string out;
  {
    const std::lock_guard lock(mutex_);
    head("skald_requests_total", "counter", "Requests by route and status.", out);
    for (const auto& [key, count] : requests_)
      out += fmt::format("skald_requests_total{{route=\"{}\",status=\"{}\"}} {}\n", key.first, key.second,
                         count);
    head("skald_speech_ends_total", "counter", "Speeches by how they ended.", out);
    for (const auto& [reason, count] : ends_)
      out += fmt::format("skald_speech_ends_total{{reason=\"{}\"}} {}\n", reason, count);
  }
  counter("skald_audio_seconds_total", "Seconds of audio made.", audio_seconds.value(), out);
  counter("skald_speech_frames_total", "Frames of finished speeches.", frames.value(), out);
  counter("skald_sent_bytes_total", "Bytes of answers.", bytes_sent.value(), out);
  counter("skald_rejected_total", "Requests refused because the queue was full.", rejected.value(), out);
  const auto histogram = [&](std::string_view name, std::string_view help, const Histogram& values) {
    head(name, "histogram", help, out);
    values.write(name, out);
  };
  histogram("skald_first_audio_seconds", "From the request to its first audio.", first_audio_seconds);
  histogram("skald_queue_seconds", "Wait for a place.", queue_seconds);
  histogram("skald_real_time_factor", "Compute seconds per second of audio.", real_time_factor);
  histogram("skald_lateness_seconds", "Longest time that the listener of a stream had to wait for more.",
            lateness_seconds);
  histogram("skald_request_seconds", "From the request to its last byte.", request_seconds);
  return out;
}

}  // namespace skald::server
