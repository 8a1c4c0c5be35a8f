// Standard output.
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "audio/output_file.h"
#include "cli/command.h"

namespace skald::cli {

void print(const std::string& text) {
  audio::OutputFile::attach(STDOUT_FILENO, "standard output")->write(text);
}

void print_json(Session& session, const nlohmann::ordered_json& object) {
  const std::string line = object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  if (session.json_to_stderr) {
    audio::OutputFile::attach(STDERR_FILENO, "standard error")->write(line);
  } else {
    print(line);
  }
  session.json_printed = true;
}

nlohmann::ordered_json error_json(const Session& session, const Error& error) {
  return {{"code", error_code_name(error.code())}, {"message", session.words(error)}};
}

}  // namespace skald::cli
