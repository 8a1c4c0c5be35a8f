// Where a command's file or audio goes: the options of every command that writes one, with one wording.
#pragma once

#include <memory>
#include <string>

#include "audio/output_file.h"
#include "cli/command.h"

namespace CLI {
class App;
}

namespace skald::cli {

struct OutputOptions {
  std::string out;  ///< -o; "-" = standard output
  bool json = false;
  bool raw = false, floats = false;  ///< of audio
  bool audio = false;                ///< what is written is audio

  bool to_stdout() const { return out == "-"; }
};

inline constexpr const char* kOutputGroup = "Output";

/// Adds --output and --json. `what` is the help of --output.
void add_output_options(CLI::App& app, OutputOptions& options, const char* type, const std::string& what);
/// The same for a WAV file, with --raw and --float.
void add_audio_output_options(CLI::App& app, OutputOptions& options);

/// After parsing: fills in what follows from other options and tells the session where results and errors go.
/// Throws UsageError without an output, unless it `may_be_missing`, and for a terminal.
void complete(OutputOptions& options, Session& session, bool may_be_missing = false);
/// Opens it, and lets an interruption remove the half of it. Throws Error(io).
std::unique_ptr<audio::OutputFile> open_output(const OutputOptions& options, Session& session);

}  // namespace skald::cli
