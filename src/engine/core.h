// What all streams of an engine share: device, model, tokenizer, the compute lock and the slots.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "backend/ops.h"
#include "engine/reference_cache.h"
#include "engine/voices.h"
#include "model/model.h"
#include "skald/skald.h"
#include "text/tokenizer.h"

namespace skald::engine {

using Clock = std::chrono::steady_clock;

/// Milliseconds between two moments.
double milliseconds(Clock::time_point from, Clock::time_point to);

/// A mutex that serves waiters in the order of arrival: streams on several threads take turns frame by frame,
/// where a std::mutex would let one of them go on for ever.
class FairMutex {
 public:
  void lock();
  void unlock();

 private:
  std::mutex mutex_;
  std::condition_variable turn_;
  uint64_t next_ticket_ = 0, serving_ = 0;
};

/// Slots of the model that no request uses. Any thread.
class SlotPool {
 public:
  explicit SlotPool(int32_t slots);
  /// A free slot. Throws Error(unsupported) when all are taken.
  int32_t take();
  void give_back(int32_t slot);
  bool any_taken() const;

 private:
  mutable std::mutex mutex_;
  std::vector<int32_t> free_;
  int32_t count_;
};

/// Shared by the engine and its streams, so that a stream outlives the engine object unharmed.
struct Core {
  Core(const EngineOptions& options, std::unique_ptr<backend::Backend> device,
       std::unique_ptr<model::Model> model, text::Tokenizer tokenizer);

  const model::ModelConfig& config() const { return model->config(); }
  int32_t groups() const { return config().talker.num_code_groups; }
  int32_t samples_per_frame() const { return config().codec.decode_upsample_rate; }

  EngineOptions options;
  std::unique_ptr<backend::Backend> device;  ///< before `model`, which it outlives
  std::unique_ptr<model::Model> model;       ///< under `compute`, except for its configuration
  text::Tokenizer tokenizer;
  std::vector<std::string> device_notes;  ///< see ModelInfo
  FairMutex compute;
  SlotPool slots;
  VoiceRegistry voices;
  std::string speaker_encoder;   ///< which one it is, see Model::speaker_encoder_hash
  std::mutex encoding;           ///< one stream of reference audio at a time; taken before `compute`
  bool encoders_loaded = false;  ///< under `compute`
  ReferenceCache references;     ///< under `compute`
};

/// Puts something between the model and its device, for measuring and comparing.
using DeviceWrap = std::function<std::unique_ptr<backend::Backend>(std::unique_ptr<backend::Backend>)>;

/// Checks options, memory and files, then loads. Throws as Engine::open.
std::shared_ptr<Core> load_core(const std::filesystem::path& dir, const EngineOptions& options,
                                const DeviceWrap& wrap = {});

/// A slot taken from the pool until release() or the end of the object.
class SlotLease {
 public:
  explicit SlotLease(std::shared_ptr<Core> core);
  SlotLease(const SlotLease&) = delete;
  SlotLease& operator=(const SlotLease&) = delete;
  ~SlotLease() { release(); }

  Core& core() const { return *core_; }
  int32_t slot() const { return slot_; }
  void release() noexcept;

 private:
  std::shared_ptr<Core> core_;
  int32_t slot_;
};

}  // namespace skald::engine
