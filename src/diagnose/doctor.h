// What is wrong with a machine's GPUs, and what to do about it. docs/doctor.md lists the findings.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "diagnose/machine.h"
#include "diagnose/self_test.h"
#include "engine/devices.h"
#include "model/verify.h"
#include "skald/skald.h"

namespace skald::diagnose {

enum class Severity : uint8_t {
  ok,       ///< as it should be
  note,     ///< worth knowing
  warning,  ///< it works, but slower or less surely than it could
  error,    ///< something that was asked for, or is there, cannot be used
};
std::string_view severity_name(Severity severity);

/// One finding. Ids never change their meaning.
struct Finding {
  std::string id;
  Severity severity = Severity::ok;
  std::string what;                  ///< one or two sentences
  std::string fix;                   ///< what to do; empty = nothing
  std::vector<std::string> details;  ///< lines, e.g. every place that was tried
};

/// Names and values of the environment that concern GPUs; read by the caller, since nothing below the command
/// line reads the environment.
using Variables = std::map<std::string, std::string>;
/// The names that doctor has something to say about. A name that ends with '*' stands for all that begin so.
const std::vector<std::string>& variables_of_interest();

/// Everything that is known before a device is used.
struct Surroundings {
  Machine machine;
  Variables variables;
  std::string device;   ///< the one asked for: "auto", "cpu", "hip:0"
  std::string threads;  ///< in words
  std::vector<std::string> cpu_targets;
  std::optional<uint64_t> memory_available;  ///< bytes of this machine for this process
  backend::GpuList gpus;
};

/// Findings from that, a pure function.
std::vector<Finding> examine(const Surroundings& surroundings);
/// Findings about a model, and whether it fits the device.
std::vector<Finding> examine_model(const model::VerifyReport& report, uint64_t needed_bytes,
                                   const Surroundings& surroundings);
/// Findings from a self-test.
std::vector<Finding> examine_self_test(const SelfTestReport& report);

/// The device that the options mean, if the list has it and it can be used: as the engine chooses.
const backend::GpuInfo* chosen_gpu(const backend::GpuList& gpus, const std::string& device);

struct DoctorOptions {
  EngineOptions engine;         ///< device "auto": every GPU is looked at, the self-test runs on the best one
  std::filesystem::path model;  ///< empty = the test model
  std::filesystem::path root = "/", scratch;
  std::optional<Identity> identity;  ///< absent = of this process
  Variables variables;
  std::vector<int32_t> lengths{16, 128, 1000};  ///< of the self-test's generations
  std::function<backend::GpuList()> list;       ///< empty = backend::list_gpus
  std::function<void(std::string_view)> on_progress;
  std::function<void(const Finding&)> on_finding;  ///< as they are found
};

/// Machine, software, devices and model, without using a device. Never throws for what it finds.
std::vector<Finding> run_doctor(const DoctorOptions& options);
/// The self-test on the device that is meant. A broken driver may end the process.
std::vector<Finding> run_doctor_self_test(const DoctorOptions& options);

bool any_error(const std::vector<Finding>& findings);
nlohmann::ordered_json to_json(const std::vector<Finding>& findings);
std::string to_text(const Finding& finding);

}  // namespace skald::diagnose
