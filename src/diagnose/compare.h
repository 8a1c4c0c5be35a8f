// Are two devices equal? Op by op on the same inputs, then whole requests with every code given. With weights
// or products that differ between the two: how much does rounding them change?
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "backend/ops.h"
#include "diagnose/pair_device.h"
#include "skald/skald.h"

namespace skald::diagnose {

/// Limits of CompareOptions: rows of a prompt, frames of either kind.
inline constexpr int32_t kMostLength = 4000, kMostFrames = 4000;

using DeviceOpener = std::function<std::unique_ptr<backend::Backend>(const EngineOptions&)>;

struct CompareOptions {
  std::filesystem::path model;
  /// Device, cpu_target, threads, weights, compute, where to find GPU software. Ops are compared in lock step
  /// only where both have the same weights and compute: else what differs is meant to.
  EngineOptions a, b;
  std::vector<int32_t> lengths;  ///< prompt rows, ascending; empty = default_lengths()
  int32_t frames = 60;           ///< forced frames
  int32_t codec_frames = 120;
  uint64_t seed = 1;                    ///< of prompts and codes
  bool lockstep = true, forced = true;  ///< the two halves
  DeviceOpener open;                    ///< empty = engine::open_device
  std::function<void(std::string_view)> on_progress;
};

/// Prompt lengths where block sizes, windows and known faults lie: up to 640, dense at 255-260 and 290-310.
std::vector<int32_t> default_lengths();

/// How a device holds matrices and multiplies them.
struct Arithmetic {
  std::string weights;            ///< f32, bf16 or int8
  std::string compute = "exact";  ///< or fast
  bool operator==(const Arithmetic&) const = default;
};

/// Limits of a whole request, where differences add up over layers and frames.
struct RequestTolerance {
  double worst_cosine = 0, mean_cosine = 0;
  double tie = 0;            ///< share of the largest logit within which two candidates are equal
  bool codes_equal = false;  ///< an argmax that differs is a difference, unless it is a tie
  double waveform = 1e-4;    ///< largest difference of samples
};
/// Of devices that compute alike, or of one that rounds more than the other (docs/compare.md).
RequestTolerance request_tolerance(const Arithmetic& a, const Arithmetic& b);

/// One head over all forced frames.
struct HeadReport {
  int32_t codebook = 0;
  uint64_t compared = 0;
  double worst_cosine = 1, mean_cosine = 1;  ///< NaN where logits were no numbers
  std::string worst_at;                      ///< "frame 12, position 262"
  uint64_t disagreements = 0, ties = 0;      ///< of the argmax; ties are among them

  /// One more frame. mean_cosine is the sum until it is divided by `compared`.
  void add(double cosine, const std::string& where);
};

/// What a verdict rests on.
struct Failure {
  std::string where, what;  ///< one sentence
};

struct CompareReport {
  std::string device_a, device_b;
  std::vector<std::string> device_notes;  ///< why one is not another one
  std::string model_type, model_size;
  Arithmetic arithmetic_a, arithmetic_b;
  std::vector<int32_t> lengths;
  int32_t frames = 0, codec_frames = 0;
  uint64_t seed = 0;

  // Lock step.
  OpTolerance op_tolerance;
  uint64_t ops_compared = 0;
  std::vector<OpDifference> differences;
  /// Over all layers and runs: one line for each output of each kind of op of a program.
  struct OpLine {
    std::string program, kind, output;
    std::string worst_label;  ///< where the worst element was
    OpStatistics statistics;
  };
  std::vector<OpLine> ops;

  // Forced requests.
  RequestTolerance request;
  std::vector<HeadReport> heads;
  double waveform_difference = 0;  ///< NaN or infinite where samples of either are no numbers
  double waveform_rms = 0;         ///< of `a`
  double mean_cosine() const;
  double worst_cosine() const;

  std::vector<Failure> failures;  ///< empty = equal within tolerance
  std::optional<Error> error;     ///< ended the comparison; what came before is in the report
  bool equal() const { return failures.empty() && !error; }
};

/// Throws for options and for what stands in the way before anything is compared (files, memory, devices).
CompareReport run_compare(const CompareOptions& options);

/// One sentence: program, op, label, row, column, expected, got.
std::string describe(const OpDifference& difference);

/// The bundle: everything above, without audio, codes, prompts or voices; what stands in it may be published.
nlohmann::ordered_json to_json(const CompareReport& report);
std::string to_text(const CompareReport& report);

}  // namespace skald::diagnose
