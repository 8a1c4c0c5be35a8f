// Speaker encoder of Base models: 24 kHz samples to one vector of the talker's width. Specification
// section 7.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "backend/ops.h"
#include "model/config.h"
#include "model/sized_programs.h"
#include "model/weights.h"

namespace skald::model {

/// Works on a whole clip at once, since its pooling looks at all of it.
class SpeakerEncoder {
 public:
  static constexpr int32_t kFft = 1024, kHop = 256;
  /// Samples of the shortest clip: five mel frames, so that every padding has something to mirror.
  static constexpr int32_t kLeastSamples = 5 * kHop;

  /// `loader` loads the tensors under "speaker_encoder.", always exactly. `lengths`: most
  /// samples of each program, in ascending order; a clip goes to the smallest that holds it.
  SpeakerEncoder(backend::Backend& device, const WeightLoader& loader, const SpeakerEncoderConfig& config,
                 const std::vector<int32_t>& lengths);

  /// kLeastSamples to lengths.back() samples -> [enc_dim]. On a device that does not work behind the host it
  /// stops after every op and calls `pause`, if there is one.
  std::vector<float> encode(std::span<const float> samples, const std::function<void()>& pause = {});

  static uint64_t weight_bytes(const SpeakerEncoderConfig& config);
  static uint64_t buffer_bytes(const SpeakerEncoderConfig& config, int32_t max_samples);

  // For comparing stages, as in CodecEncoder.
  void stage(std::span<const float> samples);
  backend::Program program() const { return program_; }
  std::vector<float> read_vector() const;

 private:
  /// A convolution that keeps the length, then ReLU.
  struct Tdnn {
    backend::Weight weight, bias;
    int32_t in = 0, out = 0, kernel = 1, dilation = 1;
  };
  struct Block {
    Tdnn before, after;
    std::vector<Tdnn> parts;  ///< of Res2Net: the first part passes unchanged
    backend::Weight squeeze, squeeze_bias, excite, excite_bias;
  };

  Tdnn load_tdnn(const WeightLoader& loader, const std::string& name, const Tdnn& shape) const;
  Block load_block(const WeightLoader& loader, size_t index) const;
  void load_pooling(const WeightLoader& loader);
  void allocate(int32_t max_samples);
  void record(backend::Ops& ops, int32_t samples) const;  ///< at most
  void record_tdnn(backend::Ops& ops, const Tdnn& tdnn, const backend::Buffer& x, const backend::Buffer& out,
                   const backend::Lanes& frames, const backend::Buffer& add = {}) const;
  void record_block(backend::Ops& ops, const Block& block, const backend::Buffer& x,
                    const backend::Buffer& out, const backend::Lanes& frames) const;
  void record_pooling(backend::Ops& ops, const backend::Lanes& frames) const;
  backend::Lanes one_row() const;  ///< what is pooled

  backend::Backend& device_;
  SpeakerEncoderConfig config_;
  backend::Weight filters_;
  Tdnn entry_, joined_;
  std::vector<Block> blocks_;
  backend::Weight attention_rows_, attention_statistics_, attention_bias_;  ///< asp.tdnn in two parts
  backend::Weight scores_, scores_bias_, out_, out_bias_;

  backend::Buffer lane_slot_, sample_count_, frame_count_;
  backend::Buffer samples_, mel_, x_, u_, v_, blocks_out_, pooled_in_, attention_;
  backend::Buffer mean_, squeezed_, gate_, statistics_, attention_row_, pooled_, vector_;  ///< one row each
  std::vector<SizedProgram> programs_;
  backend::Program program_;  ///< of what is staged
};

}  // namespace skald::model
