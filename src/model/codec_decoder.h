// Codec decoder: codes to 24 kHz samples, stateful and exact for any chunking. Specification section 8.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/ops.h"
#include "model/config.h"
#include "model/transformer.h"
#include "model/weights.h"

namespace skald::model {

/// One decoder per model; every slot has its own stream state. Programs are recorded for 1, 4, 16, ... frames
/// and take any smaller count, so all memory is there before the first frame.
class CodecDecoder {
 public:
  CodecDecoder(backend::Backend& device, const WeightLoader& decoder, const CodecConfig& config,
               int32_t slots, int32_t max_frames);

  int32_t samples_per_frame() const { return samples_per_frame_; }
  /// Values of one frame at the stage that has most: each of three scratch areas holds so many per frame.
  static int64_t widest_stage(const CodecDecoderConfig& config);
  /// The slot's stream starts anew: zero history, position 0.
  void reset(int32_t slot);
  /// codes [frames * groups] -> samples [frames * samples_per_frame], continuing the slot's stream.
  void decode(int32_t slot, std::span<const int32_t> codes, std::span<float> samples);
  /// Everything that the slot's stream carries; a stream restored from it goes on with the same samples.
  std::vector<std::byte> save(int32_t slot) const;
  void restore(int32_t slot, std::span<const std::byte> state);

 private:
  struct Convolution {
    backend::Weight weight, bias;
    int32_t in = 0, out = 0, kernel = 1, dilation = 1;  ///< for a transposed one `dilation` is its stride
    backend::Buffer state;
  };
  struct Upsample {
    Convolution transposed, depthwise;
    backend::Weight norm, norm_bias, expand, expand_bias, contract, contract_bias, gamma;
  };
  struct Residual {
    backend::Snake snake1, snake2;
    Convolution conv1, conv2;
  };
  struct Block {
    backend::Snake snake;
    Convolution transposed;
    std::vector<Residual> residuals;
  };
  /// A program for up to `frames` frames.
  struct ChunkClass {
    int32_t frames = 0;
    backend::Program program;
  };
  /// Rows flow through three scratch areas; `a` holds the current activation after every stage.
  struct Scratch {
    backend::Buffer a, b, c;
  };
  /// What one recording needs at hand.
  struct Recording;

  void load_quantizer(const WeightLoader& loader);
  void load_upsampling(const WeightLoader& loader);
  void load_blocks(const WeightLoader& loader);
  Convolution load_conv(const WeightLoader& loader, const std::string& name, int32_t in, int32_t out,
                        int32_t kernel, int32_t dilation);
  Convolution load_transposed(const WeightLoader& loader, const std::string& name, int32_t in, int32_t out,
                              int32_t kernel, int32_t stride);
  backend::Snake load_snake(const WeightLoader& loader, const std::string& name, int32_t channels);
  backend::Buffer allocate_state(const std::string& label, int32_t history, int32_t channels);
  void allocate_scratch(int32_t max_frames);
  /// The slot's part of every buffer that outlives a call.
  std::vector<backend::Buffer> carried(int32_t slot) const;

  void write_word(const backend::Buffer& to, int32_t value, int32_t& set);
  void record_chunk(backend::Ops& ops, int32_t frames) const;
  void record_quantizer(Recording& r) const;
  void record_transformer(Recording& r) const;
  void record_upsample(Recording& r, const Upsample& stage, size_t index) const;
  void record_block(Recording& r, const Block& block, size_t index) const;
  void record_residual(Recording& r, const Residual& unit) const;
  static void record_conv(Recording& r, const Convolution& conv, const backend::Snake& snake,
                          const backend::Buffer& x, const backend::Buffer& out,
                          const backend::Buffer& residual = {}, float clip = 0);

  backend::Backend& device_;
  CodecDecoderConfig config_;
  int32_t slots_, samples_per_frame_, groups_;

  std::vector<std::vector<float>> codebooks_;  ///< divided once; tables read them in place
  std::vector<backend::Weight> tables_;
  backend::Weight first_projection_, rest_projection_;
  Convolution pre_conv_;
  backend::Weight input_projection_, input_bias_, final_norm_, output_projection_, output_bias_;
  std::unique_ptr<DecoderStack> transformer_;
  std::vector<Upsample> upsamples_;
  Convolution entry_;
  std::vector<Block> blocks_;
  backend::Snake exit_snake_;
  Convolution exit_;

  struct State {
    backend::Buffer buffer;
    int32_t rows_per_slot;
  };
  std::vector<State> states_;  ///< every carried history, for reset

  backend::Buffer lane_slot_, lane_count_, position_;
  int32_t slot_set_ = -1, count_set_ = -1;  ///< what lane_slot_ and lane_count_ hold
  backend::Buffer ids_;                     ///< [max_frames, groups]
  backend::Buffer quantized_;
  Scratch scratch_;
  StackBuffers stack_;
  std::vector<ChunkClass> classes_;
};

}  // namespace skald::model
