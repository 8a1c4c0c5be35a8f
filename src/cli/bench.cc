// skald bench: where a frame's time goes, beside what the machine can do.
#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/exit_status.h"
#include "cli/first_start.h"
#include "cli/option_types.h"
#include "cli/request_options.h"
#include "diagnose/bench.h"

namespace skald::cli {
namespace {

using Json = nlohmann::ordered_json;
using diagnose::BenchReport;
using diagnose::Spread;
using diagnose::StageReport;

constexpr const char* kFooter =
    R"(A fixed text, voice and seed; the stop token is never drawn, so every model speaks exactly N frames.

rtf              compute seconds per second of audio, whole request, prefill included, loading not; lower is
                 better, and rtf x audio is what a clock beside the request shows
first audio      from the request to the samples of its first frame (80 ms). Cold: first request of the
                 process. Warm: later ones of the same voice, whose prompt prefix is kept; median
frame            80 ms of audio. Stages are medians over the frames after the warm-up, with quartiles
bytes            packed weights, table entries, keys and values, each once; not activations
read bandwidth   streaming sum over memory much larger than the caches, same threads, before, after and (with
                 256 MB of weights or more) after every chunk; the median of the latter counts, and the share
                 of a frame is that of the bandwidth around it. Peak: independent float32 multiply-adds
reference        of a Base model: 10 s through both encoders as `voice add` does it, without loading them
Numbers of a machine with other work are marked.)";

double rounded(double value) { return std::round(value * 1e4) / 1e4; }

Json to_json(const Spread& s, double unit = 1) {
  return {{"median", rounded(s.median * unit)}, {"q1", rounded(s.low * unit)},
          {"q3", rounded(s.high * unit)},       {"min", rounded(s.min * unit)},
          {"max", rounded(s.max * unit)},       {"samples", s.samples}};
}

/// Of what happens once a request there is no share by frame.
double bandwidth_share(const StageReport& s, const BenchReport& r) {
  if (s.bandwidth_share > 0) return s.bandwidth_share;
  return r.read_bandwidth() > 0 ? s.gb_per_s() * 1e9 / r.read_bandwidth() : 0;
}

/// A stage whose times are per frame (`count` 1), or per request of `count` frames.
Json to_json(const StageReport& s, const BenchReport& r, double count = 1) {
  Json json{{"ms_per_frame", rounded(s.ms.median / count)},
            {"bytes_per_frame", std::llround(s.bytes / count)},
            {"weight_bytes_per_frame", std::llround(s.weight_bytes / count)},
            {"gb_per_s", rounded(s.gb_per_s())},
            {"share_of_read_bandwidth", nullptr},
            {"flops_per_frame", std::llround(s.flops / count)},
            {"gflop_per_s", rounded(s.gflop_per_s())},
            {"share_of_peak", nullptr},
            {"ops_per_frame", rounded(s.ops / count)},
            {"launches_per_frame", rounded(s.launches / count)},
            {count == 1 ? "spread_ms" : "spread_ms_per_request", to_json(s.ms)}};
  if (r.read_bandwidth() > 0) json["share_of_read_bandwidth"] = rounded(bandwidth_share(s, r));
  if (r.peak_flops() > 0) json["share_of_peak"] = rounded(s.gflop_per_s() * 1e9 / r.peak_flops());
  return json;
}

Json stages_json(const BenchReport& r) {
  const auto frames = static_cast<double>(r.frames);
  Json load{{"ms", rounded(r.load_ms)},
            {"ms_per_frame", rounded(r.load_ms / frames)},
            {"bytes", r.weight_bytes},
            {"bytes_per_frame", std::llround(static_cast<double>(r.weight_bytes) / frames)},
            {"gb_per_s", rounded(static_cast<double>(r.weight_bytes) / r.load_ms / 1e6)},
            {"major_faults", r.load_major_faults}};
  Json prefill = to_json(r.prefill, r, frames);
  prefill["rows"] = r.prompt_rows - r.reused_rows;
  prefill["reused_rows"] = r.reused_rows;
  prefill["cold"] = {{"ms", rounded(r.cold_prefill.ms.median)},
                     {"rows", r.prompt_rows},
                     {"bytes", std::llround(r.cold_prefill.bytes)},
                     {"gflop_per_s", rounded(r.cold_prefill.gflop_per_s())}};
  Json talker = to_json(r.talker, r);
  talker["attention"] = to_json(r.attention, r);
  return {{"load", std::move(load)},
          {"prefill", std::move(prefill)},
          {"talker", std::move(talker)},
          {"predictor", to_json(r.predictor, r)},
          {"sampling", to_json(r.sampling, r)},
          {"codec", to_json(r.codec, r)},
          {"other", {{"ms_per_frame", rounded(r.other_ms)}}}};
}

Json machine_json(const BenchReport& r) {
  const auto giga = [](double value) { return rounded(value / 1e9); };
  Json json{{"read_bandwidth_before_gb_per_s", giga(r.speed_before.read_bytes_per_second)},
            {"read_bandwidth_after_gb_per_s", giga(r.speed_after.read_bytes_per_second)},
            {"read_bandwidth_during_gb_per_s", to_json(r.read_speed, 1e-9)},
            {"peak_before_gflop_per_s", giga(r.speed_before.flops_per_second)},
            {"peak_after_gflop_per_s", giga(r.speed_after.flops_per_second)},
            {"cpu_seconds", rounded(r.cpu_seconds)},
            {"cpu_share", rounded(r.cpu_share)},
            {"wait_share", nullptr},
            {"loaded", r.loaded()},
            {"memory_changed", r.memory_changed()}};
  if (r.wait_share >= 0) json["wait_share"] = rounded(r.wait_share);
  return json;
}

Json kernels_json(const BenchReport& r) {
  Json kernels = Json::array();
  for (const backend::KernelTime& k : r.kernels)
    kernels.push_back({{"name", k.name}, {"launches", k.launches}, {"ms", rounded(k.ms)}});
  return kernels;
}

Json reference_json(const diagnose::ReferenceReport& r) {
  if (!r.why_not.empty()) return {{"why_not", r.why_not}};
  if (r.audio_seconds == 0) return nullptr;
  Json ops = Json::array();
  for (const diagnose::OpTime& op : r.ops)
    ops.push_back({{"label", op.label}, {"kind", op.kind}, {"ops", op.ops}, {"ms", rounded(op.ms)}});
  return {{"audio_seconds", r.audio_seconds},
          {"first_ms", rounded(r.first_ms)},
          {"ms", to_json(r.ms)},
          {"by_op_ms", rounded(r.by_op_ms)},
          {"ops", std::move(ops)}};
}

std::string reference_text(const diagnose::ReferenceReport& r) {
  constexpr size_t kRows = 12;
  if (!r.why_not.empty()) return fmt::format("\na reference was not measured: {}\n", r.why_not);
  if (r.audio_seconds == 0) return {};
  std::string out = fmt::format(
      "\na reference of {:.0f} s through both encoders: {:.1f} ms, the first {:.1f} ms; op by op {:.1f} "
      "ms, the slowest of them\n",
      r.audio_seconds, r.ms.median, r.first_ms, r.by_op_ms);
  for (size_t i = 0; i < std::min(kRows, r.ops.size()); ++i)
    out += fmt::format("{:<36} {:<14} {:>4} {:>9.3f} ms\n", r.ops[i].label, r.ops[i].kind, r.ops[i].ops,
                       r.ops[i].ms);
  return out;
}

std::string kernel_table(const BenchReport& r) {
  std::string out = "\na frame's kernels, those of a name one after the other\n";
  for (const backend::KernelTime& k : r.kernels)
    out += fmt::format("{:<24} {:>5} {:>9.3f} ms {:>8.2f} us each\n", k.name, k.launches, k.ms,
                       1e3 * k.ms / k.launches);
  return out;
}

Json to_json(const BenchReport& r, const std::string& model) {
  Json lengths = Json::array();
  for (const diagnose::LengthReport& row : r.lengths)
    lengths.push_back({{"frames", row.frames},
                       {"talker_ms", rounded(row.talker_ms)},
                       {"attention_ms", rounded(row.attention_ms)},
                       {"predictor_ms", rounded(row.predictor_ms)},
                       {"sampling_ms", rounded(row.sampling_ms)},
                       {"codec_ms", rounded(row.codec_ms)},
                       {"ms_per_frame", rounded(row.total_ms())}});
  const auto behind = [&](double value) { return r.frame_ms > 0 ? Json(rounded(value)) : Json(nullptr); };
  return {{"rtf", rounded(r.rtf)},
          {"first_audio_ms", rounded(r.warm_first_audio_ms.median)},
          {"cold_first_audio_ms", rounded(r.cold_first_audio_ms)},
          {"warm_first_audio_ms", to_json(r.warm_first_audio_ms)},
          {"load_ms", rounded(r.load_ms)},
          {"peak_rss_bytes", r.peak_rss_bytes},
          {"peak_rss_since_load", r.peak_rss_since_load},
          {"read_bandwidth_gb_per_s",
           r.read_bandwidth() > 0 ? Json(rounded(r.read_bandwidth() / 1e9)) : Json(nullptr)},
          {"peak_gflop_per_s", rounded(r.peak_flops() / 1e9)},
          {"model", {{"path", model}, {"type", r.model_type}, {"size", r.model_size}}},
          {"weights", r.weights},
          {"compute", r.compute},
          {"weight_bytes", r.weight_bytes},
          {"buffer_bytes", r.buffer_bytes},
          {"device", r.device},
          {"threads", r.threads},
          {"threads_reason", r.threads_reason},
          {"build", build_text()},
          {"text", r.text},
          {"voice", r.voice},
          {"language", r.language},
          {"seed", r.seed},
          {"frames", r.frames},
          {"warm_up_frames", r.warm_up_frames},
          {"codec_chunk", r.chunk},
          {"cache_capacity", r.cache_capacity},
          {"prompt_rows", r.prompt_rows},
          {"audio_seconds", rounded(r.audio_seconds)},
          {"compute_ms", rounded(r.compute_ms)},
          {"wall_ms", rounded(r.wall_ms)},
          {"frame_ms", behind(r.frame_ms)},
          {"idle_share", behind(r.idle_share)},
          {"kernels", kernels_json(r)},
          {"reference", reference_json(r.reference)},
          {"stages", stages_json(r)},
          {"language_model", to_json(r.language_model, r)},
          {"lengths", std::move(lengths)},
          {"machine", machine_json(r)}};
}

std::string stage_line(const char* name, const StageReport& s, const BenchReport& r) {
  const auto percent = [](double share, double of) { return of > 0 ? 100 * share * 1e9 / of : 0; };
  return fmt::format(
      "{:<14} {:>9.3f} {:>9.3f} {:>9.3f} {:>9.1f} {:>7.1f} {:>5.0f}% {:>8.1f} {:>5.0f}% {:>7.0f}\n", name,
      s.ms.median, s.ms.low, s.ms.high, s.bytes / 1e6, s.gb_per_s(), 100 * bandwidth_share(s, r),
      s.gflop_per_s(), percent(s.gflop_per_s(), r.peak_flops()), s.ops);
}

std::string stage_table(const BenchReport& r) {
  return fmt::format("{:<14} {:>9} {:>9} {:>9} {:>9} {:>7} {:>6} {:>8} {:>6} {:>7}\n", "per frame", "ms",
                     "q1", "q3", "MB", "GB/s", "of BW", "GFLOP/s", "of max", "ops") +
         stage_line("talker", r.talker, r) + stage_line("  attention", r.attention, r) +
         stage_line("predictor", r.predictor, r) + stage_line("sampling", r.sampling, r) +
         stage_line("language model", r.language_model, r) + stage_line("codec", r.codec, r) +
         fmt::format("{:<14} {:>9.3f}\n", "other", r.other_ms) + "per request\n" +
         stage_line("prefill", r.prefill, r) + stage_line("prefill, cold", r.cold_prefill, r);
}

std::string length_table(const BenchReport& r) {
  std::string out = fmt::format("{:<10} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}\n", "at frame", "ms", "talker",
                                "attention", "predictor", "sampling", "codec");
  for (const diagnose::LengthReport& row : r.lengths)
    out += fmt::format("{:<10} {:>9.3f} {:>9.3f} {:>9.3f} {:>9.3f} {:>9.3f} {:>9.3f}\n", row.frames,
                       row.total_ms(), row.talker_ms, row.attention_ms, row.predictor_ms, row.sampling_ms,
                       row.codec_ms);
  return out;
}

std::string machine_text(const BenchReport& r) {
  std::string out =
      r.read_bandwidth() > 0
          ? fmt::format("reads {:.1f} GB/s ({}{:.1f} before, {:.1f} after)", r.read_bandwidth() / 1e9,
                        r.read_speed.samples > 0 ? fmt::format("{:.1f} to {:.1f} during, ",
                                                               r.read_speed.min / 1e9, r.read_speed.max / 1e9)
                                                 : "",
                        r.speed_before.read_bytes_per_second / 1e9, r.speed_after.read_bytes_per_second / 1e9)
          : "the bandwidth is unknown: no memory for its measurement";
  out += fmt::format(", multiplies {:.0f} GFLOP/s\n", r.peak_flops() / 1e9);
  out += fmt::format("processor time {:.0f}% of {} threads", 100 * r.cpu_share, r.threads);
  if (r.wait_share >= 0) out += fmt::format(", waited {:.0f}% for a processor", 100 * r.wait_share);
  if (r.loaded()) out += "\nLOADED: other work took part of the machine; these numbers are not the machine's";
  if (r.memory_changed())
    out += "\nmemory changed its speed during the run; shares are of the bandwidth around each frame";
  return out + "\n";
}

std::string to_text(const BenchReport& r, const std::string& model) {
  std::string out =
      fmt::format("{}: {} {}, weights {} ({:.0f} MB packed), compute {}, {}\n", model, r.model_type,
                  r.model_size, r.weights, static_cast<double>(r.weight_bytes) / 1e6, r.compute, r.device);
  out += fmt::format("threads: {}, {}\n", r.threads, r.threads_reason);
  out += machine_text(r);
  out += fmt::format(
      "\nrtf {:.3f} over {} frames ({:.2f} s of audio in {:.2f} s), loading {:.0f} ms ({} pages from the "
      "disk)\n",
      r.rtf, r.frames, r.audio_seconds, r.compute_ms / 1000, r.load_ms, r.load_major_faults);
  const Spread& warm = r.warm_first_audio_ms;
  out += fmt::format(
      "first audio: cold {:.1f} ms, warm {:.1f} ms ({:.1f} to {:.1f}, {} requests; {} of {} prompt rows "
      "kept)\n",
      r.cold_first_audio_ms, warm.median, warm.min, warm.max, warm.samples, r.reused_rows, r.prompt_rows);
  out += fmt::format("peak resident memory {:.2f} GB{}\n\n", static_cast<double>(r.peak_rss_bytes) / 1e9,
                     r.peak_rss_since_load ? "" : ", measuring the machine included");
  if (r.frame_ms > 0)
    out += fmt::format(
        "a frame {:.3f} ms of the request's time; {:.0f} launches and {:.0f} MB a frame, {:.3f} ms at the "
        "read "
        "bandwidth; the device idle {:.1f}% of the request\n"
        "below: programs one by one, as the device tells; a program counts as the stage with most of its "
        "ops\n\n",
        r.frame_ms, r.language_model.launches, r.language_model.bytes / 1e6,
        r.read_bandwidth() > 0 ? 1e3 * r.language_model.bytes / r.read_bandwidth() : 0.0, 100 * r.idle_share);
  out += stage_table(r) + "\n" + length_table(r);
  if (!r.kernels.empty()) out += kernel_table(r);
  out += reference_text(r.reference);
  return out +
         fmt::format(
             "\nmedians over frames {} to {}; codec in chunks of {} frames; `skald bench --help` defines "
             "the terms\n",
             r.warm_up_frames, r.frames - 1, r.chunk);
}

class Bench : public Command {
 public:
  explicit Bench(CLI::App& program)
      : app_(program.add_subcommand("bench", "Measure a model on this machine")) {
    constexpr const char* kGroup = "Measurement";
    add_engine_options(*app_, o_);
    o_.engine.cache_capacity = 0;  // as many as the frames need
    add_whole_number(
        *app_, "--frames", 2, 30000, [this](int32_t v) { bench_.frames = v; },
        "Frames of the measured request (default 100); 4096 for the whole table by length", kGroup);
    add_whole_number(
        *app_, "--chunk", 1, 16, [this](int32_t v) { bench_.chunk = v; },
        "Frames of one codec call (default 16, as `say` to a file)", kGroup);
    add_whole_number(
        *app_, "--warm-runs", 1, 1000, [this](int32_t v) { bench_.warm_runs = v; },
        "Requests for the warm first audio (default 5)", kGroup);
    app_->add_flag("--json", json_, "Everything as an object on standard output")->group("Output");
    app_->footer(kFooter);
  }
  const CLI::App* app() const override { return app_; }

  int run(Session& session, const Arguments& arguments) override {
    complete(o_);
    if (!arguments.operands.empty())
      throw UsageError("bench takes no text: it speaks the same one everywhere");
    session.json = json_;
    check_gpus_first(session, o_.engine);
    bench_.model = o_.model, bench_.engine = o_.engine;
    bench_.on_progress = [&](std::string_view what) { session.log.status(fmt::format("bench: {}", what)); };
    const BenchReport report = diagnose::run_bench(bench_);
    for (const std::string& note : report.device_notes) session.log.warning(note);
    if (report.loaded()) session.log.warning("other work took part of the machine; the numbers are marked");
    json_ ? print_json(session, to_json(report, o_.model)) : print(to_text(report, o_.model));
    return kOk;
  }

 private:
  CLI::App* app_;
  RequestOptions o_;
  diagnose::BenchOptions bench_;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> make_bench(CLI::App& program) { return std::make_unique<Bench>(program); }

}  // namespace skald::cli
