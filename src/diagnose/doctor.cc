// Gathers, examines, tests.
#include "diagnose/doctor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>

#include "base/pool.h"
#include "engine/device_info.h"
#include "engine/devices.h"
#include "engine/memory.h"
#include "engine/verify.h"
#include "model/model.h"

namespace skald::diagnose {
namespace {

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

class Doctor {
 public:
  explicit Doctor(const DoctorOptions& options) : o_(options) {}

  std::vector<Finding> run() {
    gather();
    add(examine(s_));
    if (!o_.model.empty()) look_at_model();
    return std::move(findings_);
  }

  std::vector<Finding> run_self_test() {
    SelfTestOptions test;
    test.engine = o_.engine;
    if (o_.engine.device == "auto") {
      const backend::GpuList gpus = list();
      const backend::GpuInfo* gpu = chosen_gpu(gpus, "gpu");
      test.engine.device = gpu ? gpu->id : "cpu";
    }
    test.model = o_.model, test.scratch = o_.scratch;
    test.lengths = o_.lengths;
    test.on_progress = o_.on_progress;
    try {
      add(examine_self_test(diagnose::run_self_test(test)));
    } catch (const Error& e) {
      add({{"self-test",
            Severity::error,
            fmt::format("The self-test could not begin: {}.", e.what()),
            "Free what it lacks, and run it again.",
            {}}});
    }
    return std::move(findings_);
  }

 private:
  void progress(std::string_view what) const {
    if (o_.on_progress) o_.on_progress(what);
  }
  void add(std::vector<Finding> more) {
    for (Finding& finding : more) {
      if (o_.on_finding) o_.on_finding(finding);
      findings_.push_back(std::move(finding));
    }
  }

  void gather() {
    progress("the machine");
    s_.machine = read_machine(o_.root, o_.identity.value_or(Identity::of_process()));
    s_.variables = o_.variables;
    s_.device = o_.engine.device;
    const ThreadLimit limit = usable_threads(o_.root);
    s_.threads = fmt::format("{} threads, {}", limit.threads, limit.reason);
    s_.cpu_targets = engine::cpu_targets();
    s_.memory_available = engine::available_memory(o_.root);
    progress("GPU software");
    s_.gpus = list();
  }

  backend::GpuList list() const {
    return o_.list ? o_.list() : backend::list_gpus(engine::gpu_options(o_.engine));
  }

  void look_at_model() {
    progress("the model");
    const model::VerifyReport report = engine::verify_snapshot(o_.model);
    uint64_t needed = 0;
    if (report.ok()) {
      const bool bf16 = model::has_bf16_matrices(o_.model);
      const std::string& w = o_.engine.weights;
      model::ModelOptions sizes;
      sizes.matrix_bytes = w == "int8" ? 1.0625 : w == "bf16" || (w == "auto" && bf16) ? 2 : 4;
      needed = model::estimate_memory(model::load_config(o_.model), sizes).total();
    }
    add(examine_model(report, needed, s_));
  }

  const DoctorOptions& o_;
  Surroundings s_;
  std::vector<Finding> findings_;
};

}  // namespace

std::string_view severity_name(Severity severity) {
  switch (severity) {
    case Severity::ok: return "ok";
    case Severity::note: return "note";
    case Severity::warning: return "warning";
    case Severity::error: return "error";
  }
  return "error";
}

const backend::GpuInfo* chosen_gpu(const backend::GpuList& gpus, const std::string& device) {
  const std::string wanted = lower(device);
  for (const backend::GpuInfo& d : gpus.devices) {
    const bool meant = wanted == "gpu" || ((wanted == "auto" || wanted == "discrete") && !d.integrated) ||
                       wanted == (d.nvidia ? "cuda" : "hip") || wanted == d.id || wanted == lower(d.uuid) ||
                       wanted == d.bus_id || wanted == lower(d.architecture) || wanted == lower(d.name);
    if (meant) return d.problem.empty() ? &d : nullptr;
  }
  return nullptr;
}

std::vector<Finding> run_doctor(const DoctorOptions& options) { return Doctor(options).run(); }

std::vector<Finding> run_doctor_self_test(const DoctorOptions& options) {
  return Doctor(options).run_self_test();
}

bool any_error(const std::vector<Finding>& findings) {
  return std::any_of(findings.begin(), findings.end(),
                     [](const Finding& f) { return f.severity == Severity::error; });
}

nlohmann::ordered_json to_json(const std::vector<Finding>& findings) {
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const Finding& f : findings) {
    nlohmann::ordered_json one{
        {"id", f.id}, {"severity", severity_name(f.severity)}, {"what", f.what}, {"do", f.fix}};
    if (!f.details.empty()) one["details"] = f.details;
    all.push_back(std::move(one));
  }
  return all;
}

std::string to_text(const Finding& f) {
  std::string out = fmt::format("{:<8} {}: {}\n", severity_name(f.severity), f.id, f.what);
  for (const std::string& line : f.details) out += fmt::format("           {}\n", line);
  if (!f.fix.empty()) out += fmt::format("         > {}\n", f.fix);
  return out;
}

}  // namespace skald::diagnose
