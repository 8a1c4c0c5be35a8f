// Codec encoder: 24 kHz samples to codes, in bounded memory whatever the length. Specification section 9.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/ops.h"
#include "model/config.h"
#include "model/sized_programs.h"
#include "model/transformer.h"
#include "model/weights.h"

namespace skald::model {

/// One stream of samples at a time, worked through in chunks; any chunking gives the same codes. The right
/// end is padded layer by layer as in the reference, so codes of ceil(samples / samples per frame) frames
/// come out.
class CodecEncoder {
 public:
  /// Positions at 25 Hz that the transformer looks back at, itself included: 320 s. The reference looks back
  /// at everything; longer files differ from it beyond this length and stay within bounded memory.
  static constexpr int32_t kWindow = 8000;

  /// `loader` loads the tensors under "encoder.", always exactly. `chunks`: most frames of each program, in
  /// ascending order; a chunk is worked through by the smallest that holds it.
  CodecEncoder(backend::Backend& device, const WeightLoader& loader, const CodecConfig& config,
               const std::vector<int32_t>& chunks);

  int32_t samples_per_frame() const { return rates_.front(); }
  /// A new stream: zero history, position 0.
  void reset();
  /// The next samples; appends the codes [frames * groups] of every frame that they begin. Only the last call
  /// of a stream may end inside a frame.
  void encode(std::span<const float> samples, std::vector<int32_t>& codes);

  /// Bytes of weights as loaded, and of buffers, known from the configuration alone.
  static uint64_t weight_bytes(const CodecConfig& config);
  static uint64_t buffer_bytes(const CodecConfig& config, int32_t max_frames);

  // For comparing stages: a chunk step by step. `stage` chooses `program` and sets its inputs, `read_codes`
  // reads its result.
  void stage(std::span<const float> samples);
  backend::Program program() const { return program_; }
  void read_codes(std::vector<int32_t>& codes) const;

 private:
  struct Convolution {
    backend::Weight weight, bias;
    int32_t in = 0, out = 0, kernel = 1, dilation = 1, stride = 1;
    backend::Buffer state;
  };
  struct Residual {
    Convolution conv1, conv2;
  };
  /// Residual units at one rate, then the convolution to the next one.
  struct Block {
    std::vector<Residual> residuals;
    Convolution down;
  };
  struct Codebook {
    std::vector<float> entries;  ///< divided once; the table reads them in place
    backend::Weight table, matrix, half_square;
  };

  Convolution load_conv(const WeightLoader& loader, const std::string& name, const Convolution& shape,
                        bool bias = true);
  void load_convolutions(const WeightLoader& loader);
  void load_quantizer(const WeightLoader& loader);
  Codebook load_codebook(const WeightLoader& loader) const;
  void allocate(int32_t widest);
  void record(backend::Ops& ops, int32_t frames) const;
  void record_blocks(backend::Ops& ops, const backend::Buffer& out, int32_t frames) const;
  void record_quantizer(backend::Ops& ops, const backend::Lanes& frames) const;
  void record_conv(backend::Ops& ops, const Convolution& conv, backend::Activation before,
                   const backend::Buffer& x, const backend::Buffer& out, const backend::Lanes& lanes,
                   const backend::Buffer& residual = {}) const;
  /// The lanes of the rows of `frames` frames at level `level`: 0 = samples, then after each strided
  /// convolution.
  backend::Lanes lanes(size_t level, int32_t frames) const;

  backend::Backend& device_;
  CodecEncoderConfig config_;
  int32_t groups_, max_frames_;
  std::vector<int32_t> rates_;  ///< rows per frame at every level, the last one 1

  Convolution entry_, exit_, downsample_;
  std::vector<Block> blocks_;
  std::unique_ptr<DecoderStack> transformer_;
  backend::Weight semantic_projection_, acoustic_projection_;
  std::vector<Codebook> codebooks_;  ///< of the groups, the semantic one first

  std::vector<backend::Buffer> states_;  ///< every carried history, for reset
  backend::Buffer lane_slot_, counts_, position_;
  backend::Buffer samples_, a_, b_;  ///< a_ and b_: room for the widest level
  StackBuffers stack_;
  backend::Buffer latent_, projected_, codes_;
  std::vector<SizedProgram> programs_;
  backend::Program program_;  ///< of what is staged
  int32_t staged_frames_ = 0;
  bool ended_ = false;
};

}  // namespace skald::model
