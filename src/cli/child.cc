// Spawning, reading, waiting.
#include "cli/child.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>

#include "base/spawn_self.h"

namespace skald::cli {
namespace {

using Clock = std::chrono::steady_clock;

/// Reads until the other end is closed; false when the moment comes first.
bool read_until(int fd, Clock::time_point end, std::string& to) {
  std::array<char, 4096> bytes{};
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()).count();
    if (left <= 0) return false;
    pollfd wait{fd, POLLIN, 0};
    if (::poll(&wait, 1, static_cast<int>(std::min<long long>(left, 1000))) <= 0) continue;
    const ssize_t count = ::read(fd, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return true;
    to.append(bytes.data(), static_cast<size_t>(count));
  }
}

}  // namespace

ChildOutcome run_self(const std::vector<std::string>& arguments, int deadline_s) {
  ChildOutcome outcome;
  std::array<int, 2> pipe{};
  if (::pipe2(pipe.data(), O_CLOEXEC) != 0) return outcome;
  // Whoever ends this process ends that one: on a device that hangs nobody else would.
  const pid_t child = spawn_self(arguments, pipe[1], false);
  outcome.started = child > 0;
  ::close(pipe[1]);
  if (outcome.started) {
    outcome.timed_out = !read_until(pipe[0], Clock::now() + std::chrono::seconds(deadline_s), outcome.output);
    if (outcome.timed_out) ::kill(child, SIGKILL);
    int status = 0;
    while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    if (WIFEXITED(status)) outcome.status = WEXITSTATUS(status);
    if (WIFSIGNALED(status)) outcome.signal = WTERMSIG(status);
  }
  ::close(pipe[0]);
  return outcome;
}

}  // namespace skald::cli
