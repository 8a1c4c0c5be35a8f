// This program, started once more.
#pragma once

#include <string>
#include <vector>

#include <sys/types.h>

namespace skald {

/// Starts this very program with these words behind its name, with `output` as its standard output and no
/// other descriptor of ours above standard error. It gets SIGTERM when the calling thread ends. `own_group`:
/// Ctrl-C does not reach it. Returns its process id, or -1 and errno.
pid_t spawn_self(const std::vector<std::string>& words, int output, bool own_group);

}  // namespace skald
