// Parses, dispatches, and reports errors.
#include "cli/program.h"

#include <unistd.h>

#include <algorithm>
#include <exception>

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "audio/output_file.h"
#include "base/to_error.h"
#include "cli/command.h"
#include "cli/exit_status.h"

namespace skald::cli {
namespace {

std::string needs_a_command(const CLI::App& group) {
  std::vector<std::string> names;
  for (const CLI::App* command : group.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(command->get_name());
  return fmt::format("skald {0} needs a command: {1}; try skald {0} --help", group.get_name(),
                     fmt::join(names, ", "));
}

/// The option table of the whole program.
class Program {
 public:
  Program() : app_("Speech from the Qwen3-TTS 12 Hz models", "skald") {
    app_.add_flag("--version", version_, "Print version, build and SIMD targets");
    commands_.push_back(make_say(app_));
    commands_.push_back(make_prompt(app_));
    commands_.push_back(make_verify(app_));
    CLI::App* codec = app_.add_subcommand("codec", "Work with codes");
    commands_.push_back(make_codec_decode(*codec));
    commands_.push_back(make_codec_encode(*codec));
    codec->require_subcommand(1);
    CLI::App* voice = app_.add_subcommand("voice", "Make and keep voices for Base models");
    for (const auto make : {make_voice_add, make_voice_design, make_voice_list, make_voice_show,
                            make_voice_remove, make_voice_rename, make_voice_export, make_voice_import})
      commands_.push_back(make(*voice));
    voice->require_subcommand(1);
    commands_.push_back(make_bench(app_));
    commands_.push_back(make_serve(app_));
    commands_.push_back(make_compare(app_));
    commands_.push_back(make_doctor(app_));
    app_.footer(
        "Every command has its own --help. Exit statuses: 0 ok, 1 failure, 2 usage, 3 model, 4 device,\n"
        "5 runaway, 130 interrupted.");
  }

  int run(Session& session, const std::vector<std::string>& words) {
    const Arguments arguments = take_apart(app_, words);
    session.command = arguments.command;
    std::vector<std::string> reversed(arguments.options.rbegin(), arguments.options.rend());
    try {
      app_.parse(reversed);
    } catch (const CLI::CallForHelp&) {
      std::string parents;
      for (const CLI::App* app = arguments.command->get_parent(); app != nullptr; app = app->get_parent()) {
        parents = app->get_name() + (parents.empty() ? "" : " ") + parents;
      }
      print(arguments.command->help(parents));
      return kOk;
    } catch (const CLI::RequiredError&) {  // no option is: a command of commands stood alone
      throw UsageError(needs_a_command(*arguments.command));
    } catch (const CLI::ParseError& error) {
      throw UsageError(
          fmt::format("{}{}", error.what(), arguments.command == &app_ ? "; try skald --help" : ""));
    }
    if (version_) {
      print(version_text());
      return kOk;
    }
    for (const auto& command : commands_) {
      if (command->app() == arguments.command) return command->run(session, arguments);
    }
    throw UsageError("no command; try skald --help");
  }

 private:
  CLI::App app_;
  std::vector<std::unique_ptr<Command>> commands_;
  bool version_ = false;
};

int report(Session& session, const Error& error, int status) {
  session.log.error(fmt::format("{} [{}]", session.words(error), error_code_name(error.code())));
  if (session.json && !session.json_printed) {
    try {
      print_json(session, {{"error", error_json(session, error)}});
    } catch (const Error&) {  // the first error is the one to report
    }
  }
  return status;
}

int run_guarded(Session& session, const std::vector<std::string>& arguments) {
  Program program;  // outlives its errors: they are told in the words of its options
  try {
    return program.run(session, arguments);
  } catch (const audio::ClosedPipe&) {
    return kClosedPipe;  // whoever read the output has seen enough
  } catch (const UsageError& error) {
    session.json = false;
    return report(session, error, kUsage);
  } catch (...) {
    const Error error = to_error(std::current_exception());
    if (error.code() == ErrorCode::cancelled && session.signals.received() != 0) {
      session.log.note("interrupted");
      return 128 + session.signals.received();
    }
    return report(session, error, exit_status(error.code()));
  }
}

/// Before there is a log: straight to standard error.
int report_start(const Error& error) {
  const std::string line =
      fmt::format("skald: error: {} [{}]\n", error.what(), error_code_name(error.code()));
  (void)!::write(STDERR_FILENO, line.data(), line.size());
  return exit_status(error.code());
}

}  // namespace

int run_program(const std::vector<std::string>& arguments) {
  try {
    Signals signals;
    Log log(STDERR_FILENO);
    Session session{log, signals};
    return run_guarded(session, arguments);
  } catch (...) {
    return report_start(to_error(std::current_exception()));
  }
}

}  // namespace skald::cli
