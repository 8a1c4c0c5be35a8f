// skald prompt: the table of prompt rows of a text.
#include <unistd.h>

#include <optional>

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/exit_status.h"
#include "cli/say_options.h"
#include "cli/text_input.h"
#include "text/inspect.h"

namespace skald::cli {
namespace {

using Json = nlohmann::ordered_json;

Json to_json(const PromptInfo& prompt) {
  Json rows = Json::array();
  for (const PromptRowInfo& row : prompt.rows) {
    rows.push_back({{"text_id", row.text_id >= 0 ? Json(row.text_id) : Json()},
                    {"codec_id", row.codec_ids.size() == 1 ? Json(row.codec_ids[0]) : Json()},
                    {"codec_ids", row.codec_ids},
                    {"speaker", row.speaker}});
  }
  return {{"ids", prompt.ids},
          {"rows", std::move(rows)},
          {"trailing", prompt.trailing},
          {"language", prompt.language},
          {"warnings", prompt.warnings}};
}

std::string to_table(const PromptInfo& prompt) {
  std::string out = fmt::format("language {}\n{} ids: {}\n row   text id  codec ids\n", prompt.language,
                                prompt.ids.size(), fmt::join(prompt.ids, " "));
  for (size_t i = 0; i < prompt.rows.size(); ++i) {
    const PromptRowInfo& row = prompt.rows[i];
    out += fmt::format("{:4}  {:>8}  {}{}\n", i, row.text_id >= 0 ? std::to_string(row.text_id) : "-",
                       row.codec_ids.empty() ? "-" : fmt::format("{}", fmt::join(row.codec_ids, " ")),
                       row.speaker ? "  + speaker vector" : "");
  }
  return out + fmt::format("then one per frame: {}\n", fmt::join(prompt.trailing, " "));
}

class PromptCommand : public Command {
 public:
  explicit PromptCommand(CLI::App& program)
      : app_(program.add_subcommand("prompt", "Show the prompt rows of a text")) {
    add_say_options(*app_, o_);
    app_->footer(
        "The options are those of `say`; what concerns sampling, limits and output has no effect here.\n"
        "With --json: an object with ids, rows, trailing, language, warnings.");
  }
  const CLI::App* app() const override { return app_; }

  int run(Session& session, const Arguments& arguments) override {
    complete(o_);
    const std::optional<std::string> operand = text_operand(arguments, o_.file);
    session.json = o_.json;
    session.log.set_quiet(o_.quiet);
    SpeechRequest& request = o_.request;
    request.text = operand ? text::decode_text(*operand)
                   : o_.file.empty() || o_.file == "-"
                       ? text::decode_text(read_all(STDIN_FILENO, "standard input"))
                       : read_text_file(o_.file);
    if (o_.clean_text) request.text = text::clean_invisible(request.text);
    load_reference(o_, session.log);
    const PromptInfo prompt = open_engine(o_, session.log)->prompt(request);
    for (const std::string& warning : prompt.warnings) session.log.warning(session.words(warning));
    o_.json ? print_json(session, to_json(prompt)) : print(to_table(prompt));
    return kOk;
  }

 private:
  CLI::App* app_;
  SayOptions o_;
};

}  // namespace

std::unique_ptr<Command> make_prompt(CLI::App& program) { return std::make_unique<PromptCommand>(program); }

}  // namespace skald::cli
