// Does a device compute what it should, and does it go on doing so? Kernels against the CPU, then short,
// medium and long generation, since some faults show only after hundreds of frames.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "diagnose/compare.h"
#include "model/config.h"
#include "skald/skald.h"

namespace skald::diagnose {

struct SelfTestOptions {
  EngineOptions engine;           ///< the device in question
  std::filesystem::path model;    ///< empty = a small one with random weights, made in `scratch`
  std::filesystem::path scratch;  ///< folder for temporary files
  std::vector<int32_t> lengths{16, 128, 1000};  ///< frames of the generations, ascending
  /// Of the comparison with the CPU: where blocks end, and where faults of other systems began.
  std::vector<int32_t> prompts{1, 9, 33, 255, 257, 300, 302};
  int32_t compared_frames = 6, codec_frames = 24;
  DeviceOpener open;  ///< empty = engine::open_device
  std::function<void(std::string_view)> on_progress;
};

/// One generation, codec included.
struct GenerationReport {
  int32_t frames = 0;
  double ms_per_frame = 0, first_quarter_ms = 0, last_quarter_ms = 0;  ///< per frame
  double slowest_ms = 0;                                               ///< longest wait for a chunk of frames
  uint64_t waits = 0;                                                  ///< questions to the driver
  uint64_t lost_completions = 0;  ///< work that was done and never reported
  double rtf() const { return ms_per_frame / 80; }
};

struct SelfTestReport {
  std::string device, model;  ///< model: "test model", or type and size
  std::string stage;          ///< the last one that was begun
  std::optional<CompareReport> kernels;
  std::vector<GenerationReport> generations;
  bool repeatable = true;                                 ///< equal beginnings of the generations
  double read_bytes_per_second = 0, bytes_per_frame = 0;  ///< measured; counted from the configuration
  std::optional<Error> error;

  uint64_t lost_completions() const;
  /// The bandwidth limit of the language model's frames; 0 = unknown.
  double predicted_rtf() const;
  double measured_rtf() const;  ///< of the longest generation; 0 = none
  bool passed() const;
  /// Why it did not pass, one sentence; empty when it did.
  std::string failure() const;
};

/// Never throws for what the device does; throws Error(io), Error(model_invalid), ... for files.
SelfTestReport run_self_test(const SelfTestOptions& options);

/// Bytes of weights and of a cache of `context` positions that one frame reads.
double bytes_per_frame(const model::ModelConfig& config, double matrix_bytes, int32_t context);

/// What was found earlier about a device.
struct KeptResult {
  bool passed = false;
  std::string failure;  ///< empty when it passed
  uint64_t lost_completions = 0;
};

/// Results by device, driver and build: one small file each, whole or not at all. A file that is damaged or
/// belongs to something else counts as missing.
class SelfTestCache {
 public:
  /// An empty folder keeps nothing.
  explicit SelfTestCache(std::filesystem::path folder) : folder_(std::move(folder)) {}
  std::optional<KeptResult> find(const std::string& key) const;
  void keep(const std::string& key, const KeptResult& result) const noexcept;

 private:
  std::filesystem::path file_of(const std::string& key) const;
  std::filesystem::path folder_;
};

/// The self-test of a device's first start: a result that is kept, or a new one on the small model.
struct FirstStart {
  std::string device, driver, build;  ///< the key
  std::filesystem::path cache;        ///< folder; empty = not kept
  SelfTestOptions test;
};
KeptResult check_first_start(const FirstStart& start);

}  // namespace skald::diagnose
