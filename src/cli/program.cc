// Parses, dispatches, and reports errors.
#include "cli/program.h"

#include <unistd.h>

#include <algorithm>
#include <exception>
#include <filesystem>
#include <new>
#include <system_error>

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "audio/output_file.h"
#include "cli/command.h"
#include "cli/exit_status.h"

namespace skald::cli {
namespace {

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
  session.log.error(fmt::format("{} [{}]", error.what(), error_code_name(error.code())));
  if (session.json && !session.json_printed) {
    try {
      print_json(session, {{"error", error_json(error)}});
    } catch (const Error&) {  // the first error is the one to report
    }
  }
  return status;
}

/// The standard library reports a thread that cannot be started in this way.
Error no_thread(const std::system_error& error) {
  return Error(ErrorCode::device,
               fmt::format("cannot start a thread ({}); raise the limits on memory and processes",
                           error.code().message()));
}

int run_guarded(Session& session, const std::vector<std::string>& arguments) {
  try {
    return Program().run(session, arguments);
  } catch (const audio::ClosedPipe&) {
    return kClosedPipe;  // whoever read the output has seen enough
  } catch (const UsageError& error) {
    session.json = false;
    return report(session, error, kUsage);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::cancelled && session.signals.received() != 0) {
      session.log.note("interrupted");
      return 128 + session.signals.received();
    }
    return report(session, error, exit_status(error.code()));
  } catch (const std::bad_alloc&) {
    return report(session, Error(ErrorCode::out_of_memory, "not enough memory"),
                  exit_status(ErrorCode::out_of_memory));
  } catch (const std::filesystem::filesystem_error& error) {
    return report(session,
                  Error(ErrorCode::io,
                        fmt::format("cannot use '{}': {}", error.path1().string(), error.code().message())),
                  exit_status(ErrorCode::io));
  } catch (const std::system_error& error) {
    return report(session, no_thread(error), exit_status(ErrorCode::device));
  } catch (const std::exception& error) {
    return report(session, Error(ErrorCode::internal, error.what()), kFailure);
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
  } catch (const Error& error) {
    return report_start(error);
  } catch (const std::system_error& error) {
    return report_start(no_thread(error));
  }
}

}  // namespace skald::cli
