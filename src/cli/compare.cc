// skald compare: do two devices compute the same?
#include <algorithm>
#include <charconv>

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/exit_status.h"
#include "cli/option_types.h"
#include "cli/request_options.h"
#include "diagnose/compare.h"
#include "engine/devices.h"

namespace skald::cli {
namespace {

constexpr const char* kFooter =
    R"(First both devices run every recorded program op by op on the same inputs: the first result beyond
tolerance is named. Then each goes on from what it computed itself, with all codes given. With --b-weights or
--b-compute only the latter: 16 heads and the waveform, against the limits of that rounding. Prompts and codes
are made from the seed, so the object may be published. docs/compare.md explains the numbers.
Exit status: 0 equal within tolerance, 1 different, 3 model, 4 device.)";

/// "1-64,255,300-302".
std::vector<int32_t> parse_lengths(const std::string& words) {
  const auto refuse = [&] {
    throw UsageError(
        fmt::format("--lengths is '{}', but must be whole numbers within 1..{} and ranges of them, such as "
                    "1,255-260",
                    words, diagnose::kMostLength));
  };
  std::vector<int32_t> lengths;
  const char* at = words.data();
  const char* const end = at + words.size();
  const auto number = [&] {
    int32_t value = 0;
    const auto [next, error] = std::from_chars(at, end, value);
    if (error != std::errc() || value < 1 || value > diagnose::kMostLength) refuse();
    at = next;
    return value;
  };
  do {
    if (!lengths.empty()) ++at;  // the comma
    const int32_t first = number();
    int32_t last = first;
    if (at != end && *at == '-') ++at, last = number();
    if (last < first) refuse();
    for (int32_t length = first; length <= last; ++length) lengths.push_back(length);
  } while (at != end && *at == ',');
  if (at != end) refuse();
  return lengths;
}

class Compare : public Command {
 public:
  explicit Compare(CLI::App& program)
      : app_(program.add_subcommand("compare", "Compare two devices, op by op and over whole requests")) {
    constexpr const char* kGroup = "Comparison";
    add_name(*app_, "--a", "NAME", a_,
             "The device that is taken to be right (default cpu); cpu:AVX2 is the CPU with a SIMD target",
             kGroup);
    add_name(*app_, "--b", "NAME", b_, "The device in question (default gpu)", kGroup);
    add_name(*app_, "--model,-m", "DIR", o_.model,
             "Snapshot folder of a Qwen3-TTS 12 Hz model; else $SKALD_MODEL", kGroup);
    add_name(*app_, "--weights", "TYPE", o_.engine.weights,
             "Hold the language model's matrices as f32, bf16 or int8 on both; default: as the files are",
             kGroup);
    add_name(*app_, "--compute", "MODE", o_.engine.compute, "exact (default) or fast on both, CPUs alone",
             kGroup);
    add_name(*app_, "--b-weights", "TYPE", b_weights_, "On --b, if not as on --a: what does rounding change?",
             kGroup);
    add_name(*app_, "--b-compute", "MODE", b_compute_, "On --b, if not as on --a", kGroup);
    add_whole_number(
        *app_, "--threads", 1, 1024, [this](int32_t v) { o_.threads = v; },
        "Threads of a CPU; else $SKALD_THREADS, else what the process may use", kGroup);
    add_text(*app_, "--lengths", "LIST", lengths_,
             "Prompt rows, as 1,255-260; 4000 at most (default: up to 640, dense at 255-260 and 290-310)",
             kGroup);
    add_whole_number(
        *app_, "--frames", 0, diagnose::kMostFrames, [this](int32_t v) { compare_.frames = v; },
        "Frames after a prompt of 250 rows (default 60)", kGroup);
    add_whole_number(
        *app_, "--codec-frames", 0, diagnose::kMostFrames, [this](int32_t v) { compare_.codec_frames = v; },
        "Frames through the codec (default 120)", kGroup);
    add_seed(
        *app_, "--seed", [this](uint64_t v) { compare_.seed = v; }, "Of prompts, codes and draws (default 1)",
        kGroup);
    app_->add_flag("--json", json_, "Everything as an object on standard output")->group("Output");
    app_->footer(kFooter);
  }
  const CLI::App* app() const override { return app_; }

  int run(Session& session, const Arguments& arguments) override {
    o_.engine.device = b_.starts_with("cpu") ? a_ : b_;  // decides whether GPU software is looked for
    engine::check_device_name(a_), engine::check_device_name(b_);
    complete(o_);
    if (!arguments.operands.empty())
      throw UsageError("compare takes no text: its prompts are made from a seed");
    if (!lengths_.empty()) compare_.lengths = parse_lengths(lengths_);
    session.json = json_;
    compare_.model = o_.model;
    compare_.a = compare_.b = o_.engine;
    compare_.a.device = a_, compare_.b.device = b_;
    if (!b_weights_.empty()) compare_.b.weights = b_weights_;
    if (!b_compute_.empty()) compare_.b.compute = b_compute_;
    compare_.on_progress = [&](std::string_view what) {
      session.log.status(fmt::format("compare: {}", what));
    };
    const diagnose::CompareReport report = diagnose::run_compare(compare_);
    for (const std::string& note : report.device_notes) session.log.warning(note);
    if (!json_) print(diagnose::to_text(report));
    if (json_) {
      nlohmann::ordered_json object = diagnose::to_json(report);
      object["build"] = build_text();
      if (report.error) object["error"] = error_json(session, *report.error);
      print_json(session, object);
      session.json_printed = true;
    }
    if (report.error) throw *report.error;
    return report.equal() ? kOk : kFailure;
  }

 private:
  CLI::App* app_;
  RequestOptions o_;
  diagnose::CompareOptions compare_;
  std::string a_ = "cpu", b_ = "gpu", b_weights_, b_compute_, lengths_;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> make_compare(CLI::App& program) { return std::make_unique<Compare>(program); }

}  // namespace skald::cli
