// What every subcommand is to the program.
#pragma once

#include <memory>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "cli/arguments.h"
#include "cli/log.h"
#include "cli/signals.h"
#include "skald/skald.h"

namespace skald::cli {

/// What a running command shares with the program around it.
struct Session {
  Log& log;
  Signals& signals;
  bool json = false;                  ///< errors are also reported as an object
  bool json_to_stderr = false;        ///< standard output carries audio
  bool json_printed = false;          ///< the object, with the error in it, was printed already
  const CLI::App* command = nullptr;  ///< the one that runs

  /// A sentence of the library in the words of the command line, see with_option_names.
  std::string words(const std::string& sentence) const {
    return command != nullptr ? with_option_names(sentence, *command) : sentence;
  }
  /// The same of an error. What is wrong with a file of a model or a voice names fields of that file.
  std::string words(const Error& error) const {
    const bool of_file = error.code() == ErrorCode::model_invalid || error.code() == ErrorCode::voice_invalid;
    return of_file ? error.what() : words(std::string(error.what()));
  }
};

/// While it lives, SIGUSR1 prints where the device stands.
class StatusScope {
 public:
  StatusScope(Session& session, const Engine& engine) : signals_(session.signals) {
    signals_.on_status([&session, &engine] { session.log.note(engine.status()); });
  }
  StatusScope(const StatusScope&) = delete;
  StatusScope& operator=(const StatusScope&) = delete;
  ~StatusScope() { signals_.on_status({}); }

 private:
  Signals& signals_;
};

/// One subcommand. Its constructor function adds its options to the program; run() is called after parsing.
class Command {
 public:
  virtual ~Command() = default;
  virtual const CLI::App* app() const = 0;
  /// Returns the exit status; throws Error, which the program maps to one.
  virtual int run(Session& session, const Arguments& arguments) = 0;
};

std::unique_ptr<Command> make_say(CLI::App& program);
std::unique_ptr<Command> make_prompt(CLI::App& program);
std::unique_ptr<Command> make_verify(CLI::App& program);
std::unique_ptr<Command> make_codec_decode(CLI::App& codec);
std::unique_ptr<Command> make_codec_encode(CLI::App& codec);
std::unique_ptr<Command> make_voice_add(CLI::App& voice);
std::unique_ptr<Command> make_voice_design(CLI::App& voice);
std::unique_ptr<Command> make_voice_list(CLI::App& voice);
std::unique_ptr<Command> make_voice_show(CLI::App& voice);
std::unique_ptr<Command> make_voice_remove(CLI::App& voice);
std::unique_ptr<Command> make_voice_rename(CLI::App& voice);
std::unique_ptr<Command> make_voice_export(CLI::App& voice);
std::unique_ptr<Command> make_voice_import(CLI::App& voice);
std::unique_ptr<Command> make_bench(CLI::App& program);
std::unique_ptr<Command> make_serve(CLI::App& program);
std::unique_ptr<Command> make_compare(CLI::App& program);
std::unique_ptr<Command> make_doctor(CLI::App& program);

/// "0.1.0, Release, GCC 12.2.0".
std::string build_text();
/// "skald 0.1.0 (Release, GCC 12.2.0)" and the SIMD targets.
std::string version_text();

/// Writes to standard output, all or Error(io) (ClosedPipe).
void print(const std::string& text);
/// One line of JSON on standard output (or standard error, see Session). Bad UTF-8 becomes U+FFFD.
void print_json(Session& session, const nlohmann::ordered_json& object);
/// The "error" member of a result object.
nlohmann::ordered_json error_json(const Session& session, const Error& error);

}  // namespace skald::cli
