// This program once more, in a process of its own: what ends it, or hangs, does not take us along.
#pragma once

#include <string>
#include <vector>

namespace skald::cli {

struct ChildOutcome {
  bool started = false, timed_out = false;
  int status = -1;     ///< exit status of a child that ended by itself
  int signal = 0;      ///< that ended it
  std::string output;  ///< its standard output
};

/// Runs /proc/self/exe with these arguments; standard error is shared. After `deadline_s` it is killed.
ChildOutcome run_self(const std::vector<std::string>& arguments, int deadline_s);

}  // namespace skald::cli
