// Reading of text, whole and while it arrives.
#include "cli/text_input.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "skald/error.h"

namespace skald::cli {
namespace {

constexpr size_t kReadSize = 1 << 16;
constexpr size_t kMostText = size_t{64} << 20;  // more is no text but a device without end, or a mistake

[[noreturn]] void throw_io(const std::string& name, int error) {
  throw Error(ErrorCode::io, fmt::format("cannot read {}: {}", name, std::generic_category().message(error)));
}

}  // namespace

std::string read_all(int fd, const std::string& name) {
  std::string out;
  for (;;) {
    const size_t start = out.size();
    out.resize(start + kReadSize);
    const ssize_t got = ::read(fd, out.data() + start, kReadSize);
    out.resize(start + static_cast<size_t>(got > 0 ? got : 0));
    if (got == 0) return out;
    if (out.size() > kMostText) {
      throw Error(ErrorCode::text_too_long,
                  fmt::format("{} is longer than {} MiB; speak it in parts", name, kMostText >> 20));
    }
    if (got < 0 && errno == EAGAIN) {  // somebody made the shared descriptor non-blocking
      pollfd entry{fd, POLLIN, 0};
      ::poll(&entry, 1, -1);
    } else if (got < 0 && errno != EINTR) {
      throw_io(name, errno);
    }
  }
}

std::string read_text_file(const std::string& path) {
  const std::string name = fmt::format("'{}'", path);
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) throw_io(name, errno);
  std::string bytes;
  try {
    bytes = read_all(fd, name);
  } catch (...) {
    ::close(fd);
    throw;
  }
  ::close(fd);
  try {
    return text::decode_text(bytes);
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("{}: {}", name, error.what()));
  }
}

ArrivingText::ArrivingText(int fd, std::string name)
    : fd_(fd), name_(std::move(name)), stop_fd_(::eventfd(0, EFD_CLOEXEC)) {
  if (stop_fd_ < 0) throw_io(name_, errno);
  thread_ = std::thread([this] { run(); });
}

ArrivingText::~ArrivingText() {
  cancel();
  thread_.join();
  ::close(stop_fd_);
}

void ArrivingText::cancel() noexcept {
  {
    const std::lock_guard lock(mutex_);
    cancelled_ = true;
  }
  changed_.notify_all();
  const uint64_t one = 1;
  (void)!::write(stop_fd_, &one, sizeof one);
}

void ArrivingText::add(std::string text, bool end) {
  std::unique_lock lock(mutex_);
  ready_ += text;
  ended_ = end;
  if (!text.empty()) quiet_reported_ = false;
  changed_.notify_all();
  changed_.wait(lock, [this] { return ready_.size() < kBound || cancelled_; });
}

void ArrivingText::run() {
  std::string buffer(kReadSize, '\0');
  try {
    for (;;) {
      pollfd entries[2] = {{fd_, POLLIN, 0}, {stop_fd_, POLLIN, 0}};
      if (::poll(entries, 2, -1) < 0) continue;
      if (entries[1].revents != 0) return;
      const ssize_t got = ::read(fd_, buffer.data(), buffer.size());
      if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
      if (got < 0) throw_io(name_, errno);
      if (got == 0) return add(decoder_.finish(), true);
      add(decoder_.push(std::string_view(buffer).substr(0, static_cast<size_t>(got))), false);
    }
  } catch (...) {
    const std::lock_guard lock(mutex_);
    failure_ = std::current_exception();
  }
  changed_.notify_all();
}

engine::TextArrival ArrivingText::next() {
  std::unique_lock lock(mutex_);
  const auto something = [this] { return !ready_.empty() || ended_ || cancelled_ || failure_; };
  engine::TextArrival arrival;
  if (!quiet_reported_ && !changed_.wait_for(lock, std::chrono::milliseconds(kQuietMs), something)) {
    quiet_reported_ = arrival.quiet = true;
    return arrival;
  }
  changed_.wait(lock, something);
  if (cancelled_) throw Error(ErrorCode::cancelled, "reading the text was cancelled");
  arrival.text = std::exchange(ready_, {});
  arrival.end = ended_;
  if (arrival.text.empty() && !arrival.end && failure_) std::rethrow_exception(failure_);
  changed_.notify_all();
  return arrival;
}

}  // namespace skald::cli
