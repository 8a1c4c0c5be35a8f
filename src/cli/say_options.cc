// The options of `say` beyond the request.
#include "cli/say_options.h"

#include <CLI/CLI.hpp>

#include "cli/option_types.h"

namespace skald::cli {
namespace {

void add_say_output_options(CLI::App& app, SayOptions& o) {
  constexpr const char* kOutput = kOutputGroup;
  constexpr const char* kRepeat = "Comparing runs";
  add_audio_output_options(app, o);
  app.add_flag("--quiet,-q", o.quiet, "No progress, notes and warnings; errors only")->group(kOutput);
  app.add_flag("--keep-runaway", o.keep_runaway,
               "Write the file although the run was a runaway (still status 5)")
      ->group(kOutput);
  add_choice(app, "--decode", o.request.decode, DecodeMode::stream, {"stream", "whole", "official"},
             "Codes to samples; official = chunks of 300 frames (default stream)", kOutput);
  app.add_flag("--list-voices", o.list_voices, "Print the model's voices and end")->group(kOutput);
  app.add_flag("--list-languages", o.list_languages, "Print the model's languages and end")->group(kOutput);

  add_name(app, "--dump", "DIR", o.dump, "Write every number of every request as .npy files into DIR",
           kRepeat);
  add_name(app, "--replay", "FILE.npy", o.replay, "Feed these codes [frames, 16] and compute every logit",
           kRepeat);
  add_name(app, "--noise", "DIR", o.noise,
           "Recorded random numbers: noise.npy and predictor_noise.npy in DIR", kRepeat);
}

void add_piece_options(CLI::App& app, SayOptions& o) {
  constexpr const char* kText = "Text";
  app.add_flag("--no-split", o.no_split, "Never cut the text into pieces: one request")->group(kText);
  add_whole_number(
      app, "--max-piece", 1, 1000000, [&o](int32_t v) { o.max_piece = v; },
      "Code points of a piece (default: the model's own, else 400; 200 with a Base model)", kText);
  add_whole_number(
      app, "--pause-ms", 0, 10000, [&o](int32_t v) { o.pause_ms = v; },
      "Silence between pieces where a sentence ends (default 120)", kText);
}

void add_disclaimer_options(CLI::App& app, SayOptions& o) {
  constexpr const char* kVoice = "Voice";
  app.add_flag("--disclaimer", o.disclaimer, "A clone says first that a computer made this voice")
      ->group(kVoice);
  add_name(app, "--disclaimer-text", "TEXT", o.disclaimer_text, "The same in these words", kVoice);
  add_name(app, "--disclaimer-language", "L", o.disclaimer_language,
           "The same in this language; default: that of the text", kVoice);
}

}  // namespace

void add_say_options(CLI::App& app, SayOptions& o) {
  app.add_option("TEXT", o.text, "The text; without it (or with -) it is read from standard input")
      ->type_name("");
  add_engine_options(app, o);
  add_request_options(app, o);
  add_disclaimer_options(app, o);
  add_piece_options(app, o);
  add_sampling_options(app, o);
  add_say_output_options(app, o);
}

}  // namespace skald::cli
