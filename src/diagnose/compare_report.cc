// A comparison in words and as an object.
#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "diagnose/compare.h"

namespace skald::diagnose {
namespace {

using Json = nlohmann::ordered_json;

/// Values of activations may be published; codes may not, not even made-up ones.
bool values_shown(const OpDifference& d) { return d.measure != Measure::integer && d.output != "ring"; }

/// JSON has neither infinity nor NaN: "inf", "nan".
Json number(double value) { return std::isfinite(value) ? Json(value) : Json(fmt::format("{}", value)); }

Json to_json(const OpDifference& d) {
  Json json{{"context", d.context},
            {"program", d.program},
            {"op", d.op},
            {"kind", d.kind},
            {"label", d.label},
            {"output", d.output},
            {"row", d.row},
            {"column", d.column},
            {"slot", nullptr},
            {"position", nullptr},
            {"measure", measure_name(d.measure)},
            {"value", number(d.value)},
            {"limit", number(d.limit)},
            {"expected", nullptr},
            {"got", nullptr},
            {"element", number(d.element)},
            {"norm_ratio", number(d.norm_ratio)},
            {"signed_error", number(d.signed_error)},
            {"holds_row", nullptr},
            {"rows", d.times}};
  if (d.slot >= 0) json["slot"] = d.slot;
  if (d.position >= 0) json["position"] = d.position;
  if (d.holds_row >= 0) json["holds_row"] = d.holds_row;
  if (values_shown(d)) json["expected"] = number(d.expected), json["got"] = number(d.got);
  return json;
}

Json to_json(const CompareReport::OpLine& line) {
  const OpStatistics& s = line.statistics;
  return {{"program", line.program},
          {"kind", line.kind},
          {"output", line.output},
          {"runs", s.runs},
          {"rows", s.rows},
          {"equal_rows", s.equal_rows},
          {"worst_element", number(s.worst_element)},
          {"worst_label", line.worst_label},
          {"worst_norm_ratio", number(s.worst_norm_ratio)},
          {"worst_signed_error", number(s.worst_signed_error)},
          {"norm_ratio", number(s.norm_ratio())},
          {"mean_signed_error", number(s.mean_signed_error())}};
}

Json heads_json(const CompareReport& r) {
  Json heads = Json::array();
  for (const HeadReport& head : r.heads)
    if (head.compared > 0)
      heads.push_back({{"codebook", head.codebook},
                       {"compared", head.compared},
                       {"worst_cosine", number(head.worst_cosine)},
                       {"worst_at", head.worst_at},
                       {"mean_cosine", number(head.mean_cosine)},
                       {"disagreements", head.disagreements},
                       {"ties", head.ties}});
  return heads;
}

std::string verdict(const CompareReport& r) {
  if (r.error) return "error";
  return r.failures.empty() ? "equal" : "different";
}

std::string head_table(const CompareReport& r) {
  std::string out = fmt::format("{:<10}{:>10}{:>14}{:>14}{:>15}{:>7}  {}\n", "codebook", "compared",
                                "worst cosine", "mean cosine", "other argmax", "ties", "worst at");
  for (const HeadReport& h : r.heads)
    if (h.compared > 0)
      out += fmt::format("{:<10}{:>10}{:>14.7f}{:>14.7f}{:>15}{:>7}  {}\n", h.codebook, h.compared,
                         h.worst_cosine, h.mean_cosine, h.disagreements, h.ties, h.worst_at);
  return out;
}

/// The outputs with rows that are not equal bit for bit.
std::string op_table(const CompareReport& r) {
  std::string out;
  for (const CompareReport::OpLine& line : r.ops) {
    const OpStatistics& s = line.statistics;
    if (s.equal_rows == s.rows) continue;
    out += fmt::format("{:<22}{:<16}{:<9}{:>9}{:>7.1f}%{:>11.1e}{:>12.1e}{:>12.1e}  {}\n", line.program,
                       line.kind, line.output, s.rows,
                       100.0 * static_cast<double>(s.equal_rows) / static_cast<double>(s.rows),
                       s.worst_element, s.worst_norm_ratio - 1, s.worst_signed_error, line.worst_label);
  }
  if (out.empty()) return "every row is equal bit for bit\n";
  return fmt::format("{:<22}{:<16}{:<9}{:>9}{:>8}{:>11}{:>12}{:>12}  {}\n", "program", "op", "output", "rows",
                     "equal", "element", "norm - 1", "signed", "worst at") +
         out;
}

}  // namespace

std::string describe(const OpDifference& d) {
  std::string out = d.kind.empty() ? fmt::format("memory \"{}\" was written outside of any output", d.label)
                                   : fmt::format("program \"{}\", op {} {} ({}), output \"{}\"", d.program,
                                                 d.op, d.kind, d.label, d.output);
  out += fmt::format(", row {}", d.row);
  if (d.position >= 0) out += fmt::format(" (position {} of slot {})", d.position, d.slot);
  out += fmt::format(", column {}", d.column);
  if (values_shown(d)) out += fmt::format(": expected {:.9g}, got {:.9g}", d.expected, d.got);
  switch (d.measure) {
    case Measure::none: break;
    case Measure::non_finite: out += "; not a finite number"; break;
    case Measure::integer: out += ": another number"; break;
    case Measure::stray: out += d.kind.empty() ? "" : "; the row does not count and must not change"; break;
    default:
      out += fmt::format("; {} {:.2e} beyond {:.0e} (element {:.2e}, norm ratio {:.7f}, signed error {:.2e})",
                         measure_name(d.measure), d.value, d.limit, d.element, d.norm_ratio, d.signed_error);
  }
  if (d.holds_row >= 0) out += fmt::format("; it holds what belongs into row {}", d.holds_row);
  out += fmt::format("; {}", d.context);
  if (d.times > 1) out += fmt::format("; {} rows of this output in all", d.times);
  return out;
}

Json to_json(const CompareReport& r) {
  Json differences = Json::array(), ops = Json::array(), failures = Json::array();
  for (const OpDifference& d : r.differences) differences.push_back(to_json(d));
  for (const CompareReport::OpLine& line : r.ops) ops.push_back(to_json(line));
  for (const Failure& f : r.failures) failures.push_back({{"where", f.where}, {"what", f.what}});
  Json json{{"verdict", verdict(r)},
            {"failures", std::move(failures)},
            {"first_difference", differences.empty() ? Json(nullptr) : differences.front()},
            {"a", r.device_a},
            {"b", r.device_b},
            {"model", {{"type", r.model_type}, {"size", r.model_size}}},
            {"weights", r.arithmetic_a.weights},
            {"compute", r.arithmetic_a.compute},
            {"b_weights", r.arithmetic_b.weights},
            {"b_compute", r.arithmetic_b.compute},
            {"seed", r.seed},
            {"tolerance",
             {{"element", r.op_tolerance.element},
              {"norm_ratio", r.op_tolerance.norm_ratio},
              {"signed_error", r.op_tolerance.signed_error},
              {"worst_cosine", r.request.worst_cosine},
              {"mean_cosine", r.request.mean_cosine},
              {"tie", r.request.tie},
              {"waveform", r.request.waveform}}},
            {"lock_step",
             {{"lengths", r.lengths},
              {"frames", r.frames},
              {"codec_frames", r.codec_frames},
              {"ops_compared", r.ops_compared},
              {"differences", std::move(differences)},
              {"ops", std::move(ops)}}},
            {"forced",
             {{"worst_cosine", number(r.worst_cosine())},
              {"mean_cosine", number(r.mean_cosine())},
              {"heads", heads_json(r)},
              {"waveform_difference", number(r.waveform_difference)},
              {"waveform_rms", number(r.waveform_rms)}}}};
  return json;
}

std::string to_text(const CompareReport& r) {
  const bool alike = r.arithmetic_a == r.arithmetic_b;
  std::string out = fmt::format(
      "a: {}\nb: {}\nmodel: {} {}, weights {}, seed {}\n", r.device_a, r.device_b, r.model_type, r.model_size,
      alike ? r.arithmetic_a.weights
            : fmt::format("{} and {}", r.arithmetic_a.weights, r.arithmetic_b.weights),
      r.seed);
  if (r.ops_compared > 0)
    out += fmt::format(
        "\nlock step: {} ops on equal inputs, {} prompt lengths, {} frames, {} codec frames; "
        "rows that are not equal bit for bit:\n{}",
        r.ops_compared, r.lengths.size(), r.frames, r.codec_frames, op_table(r));
  if (!r.heads.empty() && r.heads.front().compared > 0)
    out += fmt::format(
        "\neach on its own, all codes given:\n{}all: worst cosine {:.7f}, mean {:.7f}; {}, their root mean "
        "square is {:.3f}\n",
        head_table(r), r.worst_cosine(), r.mean_cosine(),
        std::isfinite(r.waveform_difference)
            ? fmt::format("samples differ by at most {:.2e}", r.waveform_difference)
            : "samples hold NaN or infinity",
        r.waveform_rms);
  out += "\n";
  for (const Failure& f : r.failures) out += fmt::format("DIFFERENT, {}: {}\n", f.where, f.what);
  if (r.error) out += fmt::format("ERROR: {} [{}]\n", r.error->what(), error_code_name(r.error->code()));
  if (!r.equal()) return out;
  return out + (alike ? "equal within tolerance\n" : "rounding stays within its limits\n");
}

}  // namespace skald::diagnose
