// First reading of the command line: every option must exist and stand whole, before anything else is done.
//
// CLI11 then converts the values. This pass in front of it decides what is an option and what is text,
// because text that begins with a dash must never be half parsed, and a misspelt option must name its
// neighbour.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "skald/error.h"

namespace CLI {
class App;
}

namespace skald::cli {

/// A mistake on the command line: status 2, one sentence, nothing on standard output.
class UsageError : public Error {
 public:
  explicit UsageError(const std::string& sentence) : Error(ErrorCode::invalid_argument, sentence) {}
};

/// The command line taken apart.
struct Arguments {
  CLI::App* command = nullptr;        ///< the innermost subcommand that was named; the program itself if none
  std::vector<std::string> options;   ///< subcommand names and options with their values, for CLI11
  std::vector<std::string> operands;  ///< the words that are neither, in order
  bool after_mark = false;            ///< the last operand stood after `--`, so even "-" is text
};

/// Takes apart `arguments` (without the program's name). Rules: `--name value` and `--name=value`; a short
/// option stands alone; the value may begin with a dash; `-` alone is an operand; after `--` everything is.
/// Throws UsageError.
Arguments take_apart(CLI::App& program, const std::vector<std::string>& arguments);

/// The text given as an operand, or nothing if it is to be read (also for the operand "-"). Throws UsageError
/// if there are several operands, or one beside `file`.
std::optional<std::string> text_operand(const Arguments& arguments, const std::string& file);

/// The library names the fields of its requests (`max_frames`); whoever typed the command knows options.
/// Every such name with a '_' that is an option of the command with '-' is written as that option. What
/// stands in quotes stays as it is.
std::string with_option_names(const std::string& sentence, const CLI::App& command);

/// The candidate that is a plausible misspelling of `word`, or an empty string.
std::string nearest(const std::string& word, const std::vector<std::string>& candidates);

}  // namespace skald::cli
