// The queue and the thread behind standard error.
#include "cli/log.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <string_view>
#include <utility>

#include <fmt/format.h>

namespace skald::cli {
namespace {

constexpr int kPollMs = 50;
constexpr auto kPatience = std::chrono::seconds(1);
// poll() calls a pipe writable only if this much fits, so that write() cannot block (Linux: PIPE_BUF).
constexpr size_t kSafeWrite = 4096;

std::string one_line(const std::string& sentence) {
  std::string out = sentence;
  std::replace(out.begin(), out.end(), '\n', ' ');
  return out;
}

}  // namespace

Log::Log(int fd, size_t bound)
    : fd_(fd), bound_(bound), terminal_(::isatty(fd) == 1), thread_([this] { run(); }) {}

Log::~Log() {
  {
    const std::lock_guard lock(mutex_);
    fold_locked();
    closing_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void Log::set_quiet(bool quiet) { quiet_ = quiet; }

void Log::error(const std::string& sentence) { post("skald: error: " + one_line(sentence)); }

void Log::warning(const std::string& sentence) {
  if (!quiet_) post("skald: warning: " + one_line(sentence));
}

void Log::note(const std::string& sentence) {
  if (!quiet_) post("skald: " + one_line(sentence));
}

void Log::status(const std::string& line) {
  if (!terminal_ || quiet_) return;
  {
    const std::lock_guard lock(mutex_);
    status_ = line;
    have_status_ = true;
  }
  wake_.notify_all();
}

void Log::fold_locked() {
  if (repeats_ == 0) return;
  lines_.push_back(fmt::format("skald: the last line was repeated {} times", std::exchange(repeats_, 0)));
}

void Log::post(std::string line) {
  {
    const std::lock_guard lock(mutex_);
    if (line == last_) {
      ++repeats_;
      return;
    }
    if (lines_.size() >= bound_) {
      ++dropped_;
      return;
    }
    fold_locked();
    last_ = line;
    lines_.push_back(std::move(line));
  }
  wake_.notify_all();
}

void Log::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [this] { return closing_ || have_status_ || dropped_ > 0 || !lines_.empty(); });
    std::string out;
    const bool clear = std::exchange(status_shown_, false);
    if (!lines_.empty()) {
      out = (clear ? "\r\033[K" : "") + std::exchange(lines_.front(), {}) + "\n";
      lines_.pop_front();
    } else if (dropped_ > 0) {
      out = fmt::format("skald: {} lines were dropped, as nobody read them\n", std::exchange(dropped_, 0));
    } else if (have_status_) {
      out = "\r\033[K" + status_;
      have_status_ = false;
      status_shown_ = true;
    } else {  // closing
      if (!clear) return;
      out = "\r\033[K";
    }
    lock.unlock();
    const bool written = write_all(out);
    lock.lock();
    if (!written) return;
  }
}

bool Log::given_up() {
  const std::lock_guard lock(mutex_);
  return closing_;
}

bool Log::write_all(std::string_view bytes) {
  auto last_progress = std::chrono::steady_clock::now();
  while (!bytes.empty()) {
    pollfd entry{fd_, POLLOUT, 0};
    const int ready = ::poll(&entry, 1, kPollMs);
    const auto now = std::chrono::steady_clock::now();
    if (ready <= 0) {
      if (!given_up()) {
        last_progress = now;  // the patience counts from the end of the work
      } else if (now - last_progress > kPatience) {
        return false;
      }
      continue;
    }
    const ssize_t written = ::write(fd_, bytes.data(), std::min(bytes.size(), kSafeWrite));
    if (written > 0) {
      bytes.remove_prefix(static_cast<size_t>(written));
      last_progress = now;
    } else if (written < 0 && errno != EINTR && errno != EAGAIN) {
      return false;  // closed: nobody to tell
    }
  }
  return true;
}

}  // namespace skald::cli
