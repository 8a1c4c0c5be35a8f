// fork, exec.
#include "server/worker_process.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <system_error>

#include <fmt/format.h>

#include "base/spawn_self.h"
#include "skald/error.h"

namespace skald::server {

WorkerProcess start_worker(const std::vector<std::string>& words) {
  const auto fail = [](const char* what) {
    throw Error(ErrorCode::io,
                fmt::format("cannot start a worker: {}: {}", what, std::generic_category().message(errno)));
  };
  std::array<int, 2> pipe{};
  if (::pipe2(pipe.data(), O_CLOEXEC) != 0) fail("pipe");
  // A group of its own: Ctrl-C is the server's to pass on. None of the front's sockets: a client would not
  // see them closed, nor would the port be free after the front.
  const pid_t child = spawn_self(words, pipe[1], true);
  const int error = errno;
  ::close(pipe[1]);
  if (child < 0) {
    ::close(pipe[0]);
    errno = error;
    fail("fork");
  }
  return {child, pipe[0]};
}

std::string end_of_process(int wait_status) {
  if (WIFSIGNALED(wait_status)) return fmt::format("signal {}", WTERMSIG(wait_status));
  return fmt::format("status {}", WEXITSTATUS(wait_status));
}

std::chrono::milliseconds Patience::after(bool was_ready, std::chrono::nanoseconds lived) {
  using std::chrono::seconds;
  constexpr int kLongest = 30;
  if (!was_ready) return seconds(std::min(kLongest, 1 << std::min(failed_starts_++, 5)));
  failed_starts_ = 0;
  short_lives_ = lived > seconds(60) ? 0 : short_lives_ + 1;
  if (short_lives_ <= 1) return std::chrono::milliseconds(100);
  return seconds(std::min(short_lives_ - 1, 2));
}

}  // namespace skald::server
