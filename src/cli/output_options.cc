// Options of outputs.
#include "cli/output_options.h"

#include <unistd.h>

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <filesystem>

#include "cli/option_types.h"

namespace skald::cli {

void add_output_options(CLI::App& app, OutputOptions& o, const char* type, const std::string& what) {
  add_name(app, "--output,-o", type, o.out, what + "; - is standard output", kOutputGroup);
  app.add_flag("--json", o.json, "Result object on standard output (standard error with -o -)")
      ->group(kOutputGroup);
}

void add_audio_output_options(CLI::App& app, OutputOptions& o) {
  o.audio = true;
  add_output_options(app, o, "FILE", "WAV file to write");
  app.add_flag("--raw", o.raw, "No WAV header: s16le (f32le with --float); without -o to standard output")
      ->group(kOutputGroup);
  app.add_flag("--float", o.floats, "32-bit float samples instead of 16-bit PCM")->group(kOutputGroup);
}

namespace {

/// A player would take the file for what its name says.
void refuse_other_formats(const std::string& file) {
  std::string ending = std::filesystem::path(file).extension().string();
  std::transform(ending.begin(), ending.end(), ending.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  for (const char* other : {".mp3", ".ogg", ".oga", ".opus", ".flac", ".aac", ".m4a", ".webm"})
    if (ending == other)
      throw UsageError(
          fmt::format("'{}' would hold WAV under another format's name: end it in .wav (`skald "
                      "serve` makes MP3, Opus and FLAC), or pipe -o - into an encoder",
                      file));
}

}  // namespace

void complete(OutputOptions& o, Session& session, bool may_be_missing) {
  if (o.audio && !o.raw) refuse_other_formats(o.out);
  if (o.raw && o.out.empty()) o.out = "-";
  if (o.out.empty() && !may_be_missing)
    throw UsageError("no output: give -o FILE, or -o - for standard output");
  if (o.to_stdout() && ::isatty(STDOUT_FILENO))
    throw UsageError("standard output is a terminal: redirect it, or give -o FILE");
  session.json = o.json;
  session.json_to_stderr = o.to_stdout();
}

std::unique_ptr<audio::OutputFile> open_output(const OutputOptions& o, Session& session) {
  auto output = o.to_stdout() ? audio::OutputFile::attach(STDOUT_FILENO, "standard output")
                              : audio::OutputFile::open(o.out);
  session.signals.remove_at_exit(output->temporary());
  return output;
}

}  // namespace skald::cli
