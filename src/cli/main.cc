// Entry point of the command line program.
#include <fcntl.h>
#include <unistd.h>

#include <cfenv>
#include <string>
#include <vector>

#include "cli/program.h"

namespace {

/// A closed standard descriptor would be taken by the next file that is opened, and audio or words would land
/// there. In its place stands one that refuses its purpose: writing to it fails as writing to a closed one
/// does.
void hold_standard_descriptors() {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    if (::fcntl(fd, F_GETFD) < 0) (void)::open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
  }
}

}  // namespace

int main(int argc, char** argv) {
  // A library built with -ffast-math makes the loader switch denormal numbers off for the whole process.
  std::fesetenv(FE_DFL_ENV);
  hold_standard_descriptors();
  return skald::cli::run_program(std::vector<std::string>(argv + (argc > 0 ? 1 : 0), argv + argc));
}
