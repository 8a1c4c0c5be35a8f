// fork and exec, with nothing between them that could wait.
#include "base/spawn_self.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <csignal>

namespace skald {

pid_t spawn_self(const std::vector<std::string>& words, int output, bool own_group) {
  std::string name = "skald";
  std::vector<std::string> copies = words;
  std::vector<char*> arguments{name.data()};
  for (std::string& word : copies) arguments.push_back(word.data());
  arguments.push_back(nullptr);

  const pid_t parent = ::getpid(), child = ::fork();
  if (child != 0) return child;
  // Between fork and exec only what is safe after a signal: other threads may have held any lock.
  if (own_group) ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (::getppid() != parent) ::_exit(1);
  ::dup2(output, STDOUT_FILENO);
  if (::close_range(3, ~0U, 0) != 0)
    for (int descriptor = 3; descriptor < 4096; ++descriptor) ::close(descriptor);
  ::execv("/proc/self/exe", arguments.data());
  ::_exit(127);
}

}  // namespace skald
