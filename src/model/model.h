// A loaded model on one backend: slots, prefill, frames, codec. Knows no text, no hardware and no threads.
//
// Used from one thread at a time (the engine serialises). One frame is two programs: `frame_codes` draws
// code0 and runs the code predictor, `frame_step` feeds the frame back through the talker.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/ops.h"
#include "model/config.h"
#include "model/prompt.h"

namespace skald::model {

struct ModelOptions {
  int32_t slots = 1;
  int32_t cache_capacity = 4096;           ///< talker positions per slot
  int32_t codec_chunk = 16;                ///< most frames of one codec call; see Model::encode_chunk
  int32_t reference_samples = 62 * 24000;  ///< longest reference clip of the speaker encoder
  int32_t prefix_entries = 1;              ///< prompt prefixes kept of voices that spoke; 0 = none
  double matrix_bytes = 4;  ///< estimate only: of one matrix element of the main file, as packed
};

/// Bytes that a model needs, known from its configuration alone.
struct MemoryEstimate {
  uint64_t weights = 0, cache = 0, buffers = 0;
  uint64_t total() const { return weights + cache + buffers; }
};
MemoryEstimate estimate_memory(const ModelConfig& config, const ModelOptions& options);

/// Whether every matrix of a snapshot's main file is BF16, which a backend can hold without loss in two
/// bytes.
bool has_bf16_matrices(const std::filesystem::path& dir);

class Model {
 public:
  /// Reads configuration and tensors of a snapshot. The backend must outlive the model.
  static std::unique_ptr<Model> load(const std::filesystem::path& dir, backend::Backend& device,
                                     const ModelOptions& options);
  virtual ~Model() = default;
  virtual const ModelConfig& config() const = 0;

  // A request's life in a slot.
  virtual void begin(int32_t slot,
                     const backend::SlotSettings& settings) = 0;  ///< resets everything of the slot
  /// Returns the rows that were copied from an earlier request of the same voice instead of computed.
  virtual int32_t prefill(int32_t slot, const Prompt& prompt, std::span<const float> x_vector) = 0;
  virtual void append_text(int32_t slot, std::span<const int32_t> text_ids) = 0;  ///< rows fed one per frame
  virtual void frame_codes(std::span<const int32_t> slots) = 0;  ///< code0, predictor, publish
  virtual void frame_step(
      std::span<const int32_t> slots) = 0;  ///< the published frame back through the talker
  virtual void release(int32_t slot) = 0;   ///< the slot is idle

  /// Frames that may be asked for before the first of them is looked at; 0 = a call returns when it is done.
  virtual int32_t frames_ahead() const = 0;
  /// How often frame_codes was called with the slot since the model was loaded.
  virtual int32_t runs(int32_t slot) const = 0;
  /// Waits for run number `run` of the slot's frame_codes, which must be one of its last
  /// Backend::kReportedRuns, and returns what it left; `codes` [groups] are those of its frame. Where
  /// frames_ahead() is not 0 it may be called beside other calls. Throws Error(device_wedged) when the device
  /// stands still.
  virtual backend::FrameReport await_frame(int32_t slot, int32_t run, std::span<int32_t> codes) const = 0;

  virtual backend::SlotStatus status(int32_t slot) const = 0;
  virtual int32_t frames(int32_t slot) const = 0;
  virtual void read_codes(int32_t slot, int32_t frame, std::span<int32_t> codes) const = 0;  ///< [groups]

  // Diagnosis: before frame_codes, and after it.
  virtual void force(int32_t slot,
                     std::span<const int32_t> codes) = 0;  ///< [groups], -1 = draw; until changed
  virtual void set_noise(int32_t slot, std::span<const float> talker, std::span<const float> predictor) = 0;
  virtual std::vector<float> prompt_rows(const Prompt& prompt, std::span<const float> x_vector) = 0;
  virtual void read_hidden(int32_t slot, std::span<float> to) const = 0;  ///< of the slot's last row
  virtual void read_logits(int32_t slot, std::span<float> to) const = 0;
  virtual void read_probs(std::span<float> to) const = 0;             ///< of the last frame of one slot alone
  virtual void read_predictor_logits(std::span<float> to) const = 0;  ///< [(groups - 1) * codes]
  virtual void read_predictor_probs(std::span<float> to) const = 0;

  // Codec: codes [frames * groups] to frames * samples_per_frame samples; the stream continues until reset.
  virtual void codec_reset(int32_t slot) = 0;
  virtual void codec_decode(int32_t slot, std::span<const int32_t> codes, std::span<float> samples) = 0;
  /// The state of the slot's stream, to be continued later in any slot.
  virtual std::vector<std::byte> codec_save(int32_t slot) const = 0;
  virtual void codec_restore(int32_t slot, std::span<const std::byte> state) = 0;

  // Reference audio, 24 kHz mono. One stream at a time; the encoders are loaded by load_encoders(), once.
  virtual MemoryEstimate encoder_memory() const = 0;
  /// This and speaker_vector() take seconds. They call `pause` again and again while the device is at rest:
  /// other work on the model may be done in it, but for reference audio. May be empty.
  virtual void load_encoders(const std::function<void()>& pause = {}) = 0;
  /// Which speaker encoder this is: SHA-256 over its biases; empty for a model without one.
  virtual std::string speaker_encoder_hash() const = 0;
  /// SpeakerEncoder::kLeastSamples to reference_samples samples -> [hidden]. Base models.
  virtual std::vector<float> speaker_vector(std::span<const float> samples,
                                            const std::function<void()>& pause = {}) = 0;
  virtual void encode_reset() = 0;
  virtual int32_t encode_chunk() const = 0;  ///< most frames that encode() works through at once
  /// The next samples of the stream; appends codes [frames * groups]. Only the last call may end inside a
  /// frame.
  virtual void encode(std::span<const float> samples, std::vector<int32_t>& codes) = 0;
};

}  // namespace skald::model
