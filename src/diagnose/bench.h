// Measures a model on this machine: stage by stage, beside what the machine can do in the same run.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backend/ops.h"
#include "diagnose/spread.h"
#include "diagnose/stages.h"
#include "skald/skald.h"

namespace skald::diagnose {

struct BenchOptions {
  std::filesystem::path model;
  EngineOptions engine;   ///< cache_capacity 0 = what the run needs, at least the default
  int32_t frames = 100;   ///< of the measured request
  int32_t chunk = 16;     ///< frames of one codec call
  int32_t warm_runs = 5;  ///< requests for the warm first audio
  uint64_t seed = 1;
  std::function<void(std::string_view)> on_progress;  ///< what begins now, in words; may be empty
  /// Stands between the measuring and the real device; for tests, may be empty.
  std::function<std::unique_ptr<backend::Backend>(std::unique_ptr<backend::Backend>)> wrap;
};

/// How fast memory was when `frames` frames were done.
struct ReadProbe {
  size_t frames = 0;
  double bytes_per_second = 0;
};

/// The read bandwidth around frame `frame`: mean of the probes before and after it. Memory of a shared
/// machine changes its speed within seconds, so a share of it is a share of what there was at the time.
/// `probes` ascend and are not empty.
double bandwidth_at(std::span<const ReadProbe> probes, size_t frame);

/// One stage over the measured frames, or over the whole of a span that happens once a request.
struct StageReport {
  Spread ms;
  double weight_bytes = 0, bytes = 0, flops = 0, ops = 0;  ///< medians
  double launches = 0;         ///< of kernels, on a device that works behind the host
  double bandwidth_share = 0;  ///< median over frames, beside the read bandwidth around them; 0 without any
  double gb_per_s() const { return ms.median > 0 ? bytes / ms.median / 1e6 : 0; }
  double gflop_per_s() const { return ms.median > 0 ? flops / ms.median / 1e6 : 0; }
};

/// The frames around one length of the context.
struct LengthReport {
  int32_t frames = 0;  ///< the row stands for the (at most 32) frames before this one
  double talker_ms = 0, attention_ms = 0, predictor_ms = 0, sampling_ms = 0, codec_ms = 0;  ///< medians
  double total_ms() const { return talker_ms + attention_ms + predictor_ms + sampling_ms + codec_ms; }
};

/// A reference recording through both encoders, of a Base model.
struct ReferenceReport {
  double audio_seconds = 0;  ///< 0 = not measured
  std::string why_not;       ///< of a Base model that was not measured
  double first_ms = 0;       ///< of the process's first recording; loading the encoders is not in it
  Spread ms;                 ///< of later ones
  double by_op_ms = 0;       ///< of one more, op by op
  std::vector<OpTime> ops;   ///< of that one, slowest first
};

struct BenchReport {
  // What was measured.
  std::string model_type, model_size, device;
  std::vector<std::string> device_notes;  ///< why it is not another one
  std::string weights;                    ///< how the matrices are held: f32, bf16 or int8
  std::string compute;                    ///< exact, or fast (which makes 16-bit integers of f32 and bf16)
  int32_t threads = 1;
  std::string threads_reason;
  std::string text, voice, language;
  uint64_t seed = 0;
  int32_t frames = 0, chunk = 0, warm_up_frames = 0, cache_capacity = 0;

  // The machine, before and after the runs.
  backend::DeviceSpeed speed_before, speed_after;
  Spread read_speed;  ///< bytes per second, between the chunks of the measured request
  double read_bandwidth()
      const;  ///< bytes per second: the median of those, else the better of before and after
  double peak_flops() const;

  // Loading.
  double load_ms = 0;
  int64_t load_major_faults = 0;  ///< above zero: files came from the disk
  uint64_t weight_bytes = 0, buffer_bytes = 0;

  // First audio: request to samples of the first frame.
  double cold_first_audio_ms = 0;            ///< of the process's first request
  Spread warm_first_audio_ms;                ///< later requests of the same voice
  int32_t prompt_rows = 0, reused_rows = 0;  ///< reused by the warm requests

  // The measured request.
  double compute_ms = 0, wall_ms = 0, audio_seconds = 0;
  double rtf = 0;  ///< compute seconds, prefill included and loading not, per second of audio
  uint64_t peak_rss_bytes = 0;
  bool peak_rss_since_load = false;  ///< false: the bandwidth buffer may be in it
  double cpu_seconds = 0;
  double cpu_share = 0;    ///< of wall time times threads
  double wait_share = -1;  ///< waiting for a processor, of running and waiting; -1 = unknown
  bool loaded() const;     ///< other work took part of the processors: the numbers are not the machine's
  /// Memory read faster or slower after the measurement than before it; on shared hosts it does by itself.
  bool memory_changed() const;

  StageReport cold_prefill, prefill;  ///< per request; the warm one reuses rows
  StageReport talker;                 ///< attention included
  StageReport attention, predictor, sampling, codec;
  StageReport language_model;  ///< talker, predictor and sampling
  double other_ms = 0;         ///< per frame: everything outside of the stages
  /// On a device that works behind the host: time of a whole request per frame, and the part of it in which
  /// the frames' queue had nothing to do (stages come from a second request, program by program).
  double frame_ms = 0, idle_share = 0;
  std::vector<backend::KernelTime> kernels;  ///< of a frame, each kernel's launches one after the other
  std::vector<LengthReport> lengths;
  ReferenceReport reference;
};

/// Loads the model, speaks a fixed text for `frames` frames whatever the stop token says, and measures.
/// Throws as Engine::open, and Error(invalid_argument) for options out of range.
BenchReport run_bench(const BenchOptions& options);

}  // namespace skald::diagnose
