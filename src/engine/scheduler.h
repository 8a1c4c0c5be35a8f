// Many requests on one model: whose frames run in the next program, and when their samples are made.
//
// One thread owns the work. Round after round it starts requests that came in (prompt), runs one frame of up
// to eight of them as one program, reads what they drew, and decodes what their readers want. Readers take
// samples from queues of their own and never touch the model, so a slow reader holds up nobody but itself. A
// request's codes do not depend on its company: the programs keep slots apart, and its randomness is its own.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/core.h"
#include "skald/skald.h"

namespace skald::engine {

struct SchedulerOptions {
  int32_t ready_frames = 50;  ///< frames a stream may be computed ahead of its reader
  /// Prompts that may run between two rounds of frames take about this long together; one always may.
  double start_budget_ms = 40;
  std::chrono::milliseconds wedged_after{10000};  ///< a round without progress for so long stands still
};

/// What a stream is to the choice of the next frames.
struct Candidate {
  /// Seconds of audio made beyond what a listener has heard since the first of it; none = not yet heard.
  std::optional<double> lead;
  uint64_t order = 0;  ///< of arrival
};

/// A listener with less than this is about to run dry; one with more can wait for those.
inline constexpr double kTightLead = 0.25, kAmpleLead = 1.0;

/// The candidates whose frame runs next, at most `width`: first those that nobody has heard yet, in the order
/// of arrival, then by lead. While any of them is unheard or tight, those with an ample lead yield.
std::vector<size_t> choose_frames(std::span<const Candidate> candidates, size_t width);

/// Frames to decode at once for a stream with this lead: one at first, then half of what the listener has in
/// hand; late ones take a few at a time, which is cheaper.
int32_t chunk_frames(std::optional<double> lead, int32_t most);

/// What the scheduler did and does, for metrics and health.
struct SchedulerState {
  int32_t active = 0;   ///< streams that are not over
  int32_t running = 0;  ///< of those, started and wanting frames in the last round
  uint64_t rounds = 0, frames = 0, prompts = 0;
  uint64_t width_sum = 0;      ///< of all rounds: frames / rounds is the mean width
  double busy_ms = 0;          ///< time spent on rounds
  double round_age_ms = 0;     ///< how long the round in work has taken; 0 = idle
  double still_ms = 0;         ///< how long it has been seen without progress of the device
  bool wedged = false;         ///< that is too long
  std::optional<Error> fault;  ///< what made the device unusable
};

/// Runs the streams of one model. Used from any thread.
class Scheduler {
 public:
  explicit Scheduler(std::shared_ptr<Core> core, const SchedulerOptions& options = {});
  /// Streams that are not over end with Error(cancelled).
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  /// An engine for one client, who listens to its streams one after the other: they share one pace. With
  /// `live` samples are handed over as soon as the listener needs them, else in large pieces. Streams take a
  /// slot when they are started, Error(unsupported) where none is free; how many clients there may be is the
  /// caller's business. A stream with a Diagnosis runs by itself. It must not outlive the scheduler.
  std::unique_ptr<Engine> client(bool live);

  SchedulerState state() const;

 private:
  class Loop;
  std::shared_ptr<Loop> loop_;
};

}  // namespace skald::engine
