// The signal thread.
#include "cli/signals.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>

#include "skald/error.h"

namespace skald::cli {

Signals::Signals() {
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);  // a file at its size limit is an error of write(), not the process's end
  sigset_t set;
  sigemptyset(&set);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGUSR1}) {
    struct sigaction action {};
    // `nohup` means that the terminal's end must not stop the work.
    if (number == SIGHUP && ::sigaction(number, nullptr, &action) == 0 && action.sa_handler == SIG_IGN)
      continue;
    sigaddset(&set, number);
  }
  ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
  signal_fd_ = ::signalfd(-1, &set, SFD_CLOEXEC);
  stop_fd_ = ::eventfd(0, EFD_CLOEXEC);
  if (signal_fd_ < 0 || stop_fd_ < 0)
    throw Error(ErrorCode::io, "the process has no file descriptors left; raise its limit (ulimit -n)");
  thread_ = std::thread([this] { run(); });
}

Signals::~Signals() {
  const uint64_t one = 1;
  (void)!::write(stop_fd_, &one, sizeof one);
  thread_.join();
  ::close(signal_fd_);
  ::close(stop_fd_);
}

void Signals::on_signal(std::function<void()> cancel) {
  const std::lock_guard lock(mutex_);
  cancel_ = std::move(cancel);
  if (received_ != 0 && cancel_) cancel_();
}

void Signals::on_status(std::function<void()> tell) {
  const std::lock_guard lock(mutex_);
  tell_ = std::move(tell);
}

void Signals::remove_at_exit(std::filesystem::path temporary) {
  const std::lock_guard lock(mutex_);
  temporary_ = std::move(temporary);
}

void Signals::run() {
  for (;;) {
    pollfd entries[2] = {{signal_fd_, POLLIN, 0}, {stop_fd_, POLLIN, 0}};
    if (::poll(entries, 2, -1) < 0) continue;
    if (entries[1].revents != 0) return;
    signalfd_siginfo info{};
    if (::read(signal_fd_, &info, sizeof info) == sizeof info) handle(static_cast<int>(info.ssi_signo));
  }
}

void Signals::handle(int signal) {
  const std::lock_guard lock(mutex_);
  if (signal == SIGUSR1) {
    if (tell_) tell_();
    return;
  }
  const bool first = received_ == 0;
  if (first) received_ = signal;
  if (first && cancel_) return cancel_();
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
  ::_exit(128 + signal);
}

}  // namespace skald::cli
