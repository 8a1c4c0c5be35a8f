// The program around the subcommands: parsing, help, and the way from an error to an exit status.
#pragma once

#include <string>
#include <vector>

namespace skald::cli {

/// Runs one command line (without the program's name) and returns the exit status.
int run_program(const std::vector<std::string>& arguments);

}  // namespace skald::cli
