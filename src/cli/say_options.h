// Every option of `say`; `prompt` takes the same ones, so that a command line can be looked at before it is
// spoken.
#pragma once

#include <cstdint>
#include <string>

#include "cli/output_options.h"
#include "cli/request_options.h"

namespace skald::cli {

struct SayOptions : RequestOptions, OutputOptions {
  std::string dump, replay, noise, text;
  bool quiet = false, no_split = false, keep_runaway = false;
  bool list_voices = false, list_languages = false;
  int32_t pause_ms = 120, max_piece = 0;
  bool disclaimer = false;
  std::string disclaimer_text, disclaimer_language;
};

/// Adds the operand TEXT and all options.
void add_say_options(CLI::App& app, SayOptions& options);

}  // namespace skald::cli
