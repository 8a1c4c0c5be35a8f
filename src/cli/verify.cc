// skald verify: is this folder a whole, consistent model?
#include <cstdlib>
#include <tuple>

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/exit_status.h"
#include "engine/verify.h"

namespace skald::cli {
namespace {

using Json = nlohmann::ordered_json;

Json to_json(const model::VerifyReport& report) {
  Json findings = Json::array();
  for (const model::Finding& finding : report.findings) {
    findings.push_back({{"severity", finding.severity}, {"what", finding.what}, {"do", finding.fix}});
  }
  return {{"ok", report.ok()},
          {"type", report.type},
          {"size", report.size},
          {"found_size", report.found_size},
          {"fine_tuned", report.fine_tuned},
          {"tensors", report.tensors},
          {"parameters", report.parameters},
          {"codec_tensors", report.codec_tensors},
          {"codec_parameters", report.codec_parameters},
          {"findings", std::move(findings)}};
}

std::string to_text(const std::string& dir, const model::VerifyReport& report) {
  std::string out = fmt::format("{}: ", dir);
  if (report.type.empty())
    out += "no model\n";
  else
    out += fmt::format("{} {}{}\n", report.type, report.size, report.fine_tuned ? ", fine-tuned" : "");
  for (const auto& [what, tensors, parameters] :
       {std::tuple("model", report.tensors, report.parameters),
        std::tuple("codec", report.codec_tensors, report.codec_parameters)})
    if (tensors > 0) out += fmt::format("  {}: {} tensors, {} parameters\n", what, tensors, parameters);
  for (const model::Finding& finding : report.findings) {
    out += fmt::format("{}: {}\n  {}\n", finding.severity, finding.what, finding.fix);
  }
  return out + (report.ok() ? "ok\n" : "not usable\n");
}

class Verify : public Command {
 public:
  explicit Verify(CLI::App& program) : app_(program.add_subcommand("verify", "Check a model folder")) {
    app_->add_option("DIR", dir_, "Snapshot folder; else $SKALD_MODEL")->type_name("");
    app_->add_flag("--json", json_, "The report as an object")->group("Output");
  }
  const CLI::App* app() const override { return app_; }

  int run(Session& session, const Arguments& arguments) override {
    if (arguments.operands.size() > 1) throw UsageError("verify takes one folder");
    if (!arguments.operands.empty()) dir_ = arguments.operands[0];
    if (const char* model = std::getenv("SKALD_MODEL"); dir_.empty() && model != nullptr) dir_ = model;
    if (dir_.empty()) throw UsageError("no folder: skald verify DIR");
    session.json = json_;
    const model::VerifyReport report = engine::verify_snapshot(dir_);
    json_ ? print_json(session, to_json(report)) : print(to_text(dir_, report));
    return report.ok() ? kOk : kModel;
  }

 private:
  CLI::App* app_;
  std::string dir_;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> make_verify(CLI::App& program) { return std::make_unique<Verify>(program); }

}  // namespace skald::cli
