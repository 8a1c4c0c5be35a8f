// skald doctor: what is wrong with this machine's GPUs, and what to do.
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "cli/child.h"
#include "cli/command.h"
#include "cli/exit_status.h"
#include "cli/option_types.h"
#include "cli/request_options.h"
#include "diagnose/doctor.h"

extern char** environ;

namespace skald::cli {
namespace {

using Json = nlohmann::ordered_json;
using diagnose::Finding;

constexpr int kSelfTestDeadlineS = 1800;

constexpr const char* kFooter =
    R"(Every finding has an id, a severity (ok, note, warning, error), what was found, and what to do about it.
docs/doctor.md lists them. The self-test compares the device's kernels with the CPU, then generates a short, a
medium and a long run; it works in a process of its own, which a driver may end without harm.
Exit status: 0 no finding is an error, 1 one is.)";

diagnose::Variables variables() {
  diagnose::Variables found;
  for (char** at = environ; *at != nullptr; ++at) {
    const std::string word = *at;
    const size_t equals = word.find('=');
    const std::string name = word.substr(0, equals);
    for (const std::string& wanted : diagnose::variables_of_interest()) {
      const bool meant =
          wanted.ends_with('*') ? name.starts_with(wanted.substr(0, wanted.size() - 1)) : name == wanted;
      if (meant && equals != std::string::npos) found[name] = word.substr(equals + 1);
    }
  }
  return found;
}

diagnose::Severity severity_of(const std::string& name) {
  for (const auto severity : {diagnose::Severity::ok, diagnose::Severity::note, diagnose::Severity::warning})
    if (name == severity_name(severity)) return severity;
  return diagnose::Severity::error;
}

/// The findings that another process of this program printed. Nothing of it is trusted to be there.
std::vector<Finding> parse_findings(const std::string& text) {
  std::vector<Finding> findings;
  const Json all = Json::parse(text, nullptr, false);
  if (!all.is_array()) return findings;
  for (const Json& one : all) {
    if (!one.is_object()) continue;
    const auto word = [&](const char* name) {
      const auto found = one.find(name);
      return found != one.end() && found->is_string() ? found->get<std::string>() : std::string();
    };
    Finding finding{word("id"), severity_of(word("severity")), word("what"), word("do"), {}};
    if (const auto details = one.find("details"); details != one.end() && details->is_array())
      for (const Json& line : *details)
        if (line.is_string()) finding.details.push_back(line.get<std::string>());
    findings.push_back(std::move(finding));
  }
  return findings;
}

class Doctor : public Command {
 public:
  explicit Doctor(CLI::App& program)
      : app_(program.add_subcommand("doctor", "Find out what is wrong with this machine's GPUs")) {
    constexpr const char* kGroup = "What is looked at";
    o_.engine.device = "auto";
    add_name(*app_, "--device", "NAME", o_.engine.device,
             "The device in question; default auto: every GPU, and the self-test on the best one", kGroup);
    add_name(
        *app_, "--model,-m", "DIR", o_.model,
        "Model for the self-test, which is then slower and measures it; default: a small one made up for it",
        kGroup);
    add_name(*app_, "--weights", "TYPE", o_.engine.weights,
             "Hold the matrices as f32, bf16 or int8 in the self-test; default: as the files are", kGroup);
    add_whole_number(
        *app_, "--threads", 1, 1024, [this](int32_t v) { o_.threads = v; }, "Threads of the CPU", kGroup);
    add_choice(*app_, "--only", only_, Only::everything, {"everything", "machine", "self-test"},
               "Only what needs no device to work, or only the self-test", kGroup);
    app_->add_flag("--json", json_, "The list of findings on standard output")->group("Output");
    app_->footer(kFooter);
  }
  const CLI::App* app() const override { return app_; }

  int run(Session& session, const Arguments& arguments) override {
    if (!arguments.operands.empty()) throw UsageError("doctor takes no text");
    const bool given = !o_.model.empty();
    if (!given) o_.model = "-";  // the test model: SKALD_MODEL is not meant
    complete(o_);
    if (!given) o_.model.clear();
    session.json = json_;
    diagnose::DoctorOptions doctor;
    doctor.engine = o_.engine, doctor.model = o_.model;
    doctor.scratch = std::filesystem::temp_directory_path();
    doctor.variables = variables();
    doctor.on_progress = [&](std::string_view what) { session.log.status(fmt::format("doctor: {}", what)); };
    if (!json_) doctor.on_finding = [](const Finding& finding) { print(diagnose::to_text(finding)); };
    std::vector<Finding> findings =
        only_ == Only::self_test ? diagnose::run_doctor_self_test(doctor) : diagnose::run_doctor(doctor);
    if (only_ == Only::everything) self_test(findings);
    if (json_) print_array(findings);
    return diagnose::any_error(findings) ? kFailure : kOk;
  }

 private:
  enum class Only { everything, machine, self_test };

  static void print_array(const std::vector<Finding>& findings) {
    print(diagnose::to_json(findings).dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
  }

  std::vector<std::string> words_of_self_test() const {
    std::vector<std::string> words{"doctor",   "--only",         "self-test", "--json",
                                   "--device", o_.engine.device, "--weights", o_.engine.weights};
    if (!o_.model.empty()) words.insert(words.end(), {"--model", o_.model});
    if (o_.threads) words.insert(words.end(), {"--threads", std::to_string(*o_.threads)});
    return words;
  }

  /// In a process of its own: a broken driver is what doctor is for.
  void self_test(std::vector<Finding>& findings) const {
    const ChildOutcome child = run_self(words_of_self_test(), kSelfTestDeadlineS);
    std::vector<Finding> more = parse_findings(child.output);
    if (more.empty())
      more.push_back(
          {"self-test",
           diagnose::Severity::error,
           child.timed_out ? fmt::format("The self-test did not end within {} s.", kSelfTestDeadlineS)
           : child.signal != 0
               ? fmt::format("The process of the self-test was ended by signal {} ({}).", child.signal,
                             ::strsignal(child.signal))
               : fmt::format("The process of the self-test ended with status {}.", child.status),
           "The GPU software does not bear what it was asked: install another version of it; until then "
           "use --device cpu.",
           {}});
    for (Finding& finding : more) {
      if (!json_) print(diagnose::to_text(finding));
      findings.push_back(std::move(finding));
    }
  }

  CLI::App* app_;
  RequestOptions o_;
  Only only_ = Only::everything;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> make_doctor(CLI::App& program) { return std::make_unique<Doctor>(program); }

}  // namespace skald::cli
