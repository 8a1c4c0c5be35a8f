// Speaker encoder: loading, recording, running. Specification section 7.
#include "model/speaker_encoder.h"

#include <fmt/format.h>

#include "model/mel_filters.h"
#include "skald/error.h"

namespace skald::model {

using backend::Activation;
using backend::Buffer;
using backend::Dtype;
using backend::Lanes;
using backend::PaddedConv;
using backend::WeightRole;

SpeakerEncoder::SpeakerEncoder(backend::Backend& device, const WeightLoader& loader,
                               const SpeakerEncoderConfig& config, const std::vector<int32_t>& lengths)
    : device_(device), config_(config) {
  const WeightLoader encoder = loader.exactly();
  const auto& channels = config.enc_channels;
  const auto& kernels = config.enc_kernel_sizes;
  const std::vector<float> filters = mel_filters(config.mel_dim, kFft, config.sample_rate);
  filters_ =
      encoder.derived(WeightRole::vector, "mel_filters", filters, {static_cast<int64_t>(filters.size())});
  entry_ = load_tdnn(
      encoder, "blocks.0.conv",
      {.in = config.mel_dim, .out = channels[0], .kernel = kernels[0], .dilation = config.enc_dilations[0]});
  for (size_t i = 1; i + 1 < channels.size(); ++i)
    blocks_.push_back(load_block(encoder.under("blocks." + std::to_string(i)), i));
  const int32_t joined = channels.back();
  joined_ = load_tdnn(
      encoder, "mfa.conv",
      {.in = joined, .out = joined, .kernel = kernels.back(), .dilation = config.enc_dilations.back()});
  load_pooling(encoder);
  allocate(lengths.back());
  programs_ = record_sizes(lengths, [&](int32_t samples) {
    return device.record(fmt::format("speaker_encoder x{}", samples / kHop),
                         [&](backend::Ops& ops) { record(ops, samples); });
  });
  program_ = programs_.back().program;
}

SpeakerEncoder::Tdnn SpeakerEncoder::load_tdnn(const WeightLoader& loader, const std::string& name,
                                               const Tdnn& shape) const {
  Tdnn tdnn = shape;
  tdnn.weight = loader.load(shape.kernel == 1 ? WeightRole::matrix : WeightRole::convolution,
                            name + ".weight", {shape.out, shape.in, shape.kernel});
  tdnn.bias = loader.vector(name + ".bias", shape.out);
  return tdnn;
}

SpeakerEncoder::Block SpeakerEncoder::load_block(const WeightLoader& loader, size_t index) const {
  const SpeakerEncoderConfig& c = config_;
  const int32_t width = c.enc_channels[index], part = width / c.enc_res2net_scale;
  Block block;
  block.before = load_tdnn(loader, "tdnn1.conv", {.in = width, .out = width});
  for (int32_t j = 0; j + 1 < c.enc_res2net_scale; ++j)
    block.parts.push_back(load_tdnn(
        loader, fmt::format("res2net_block.blocks.{}.conv", j),
        {.in = part, .out = part, .kernel = c.enc_kernel_sizes[index], .dilation = c.enc_dilations[index]}));
  block.after = load_tdnn(loader, "tdnn2.conv", {.in = width, .out = width});
  block.squeeze = loader.pointwise("se_block.conv1.weight", c.enc_se_channels, width);
  block.squeeze_bias = loader.vector("se_block.conv1.bias", c.enc_se_channels);
  block.excite = loader.pointwise("se_block.conv2.weight", width, c.enc_se_channels);
  block.excite_bias = loader.vector("se_block.conv2.bias", width);
  return block;
}

/// The attention sees every row beside the clip's means and deviations. Their part is the same for all rows,
/// so the weight is taken apart and that part computed once.
void SpeakerEncoder::load_pooling(const WeightLoader& loader) {
  const int32_t width = config_.enc_channels.back(), inner = config_.enc_attention_channels;
  const std::vector<float> whole = loader.floats("asp.tdnn.conv.weight", {inner, 3 * width, 1});
  std::vector<float> rows, statistics;
  for (int32_t o = 0; o < inner; ++o) {
    const auto row = whole.begin() + int64_t{o} * 3 * width;
    rows.insert(rows.end(), row, row + width);
    statistics.insert(statistics.end(), row + width, row + 3 * width);
  }
  attention_rows_ =
      loader.derived(WeightRole::convolution, "asp.tdnn.conv.weight.rows", rows, {inner, width, 1});
  attention_statistics_ =
      loader.derived(WeightRole::matrix, "asp.tdnn.conv.weight.statistics", statistics, {inner, 2 * width});
  attention_bias_ = loader.vector("asp.tdnn.conv.bias", inner);
  scores_ = loader.pointwise("asp.conv.weight", width, inner);
  scores_bias_ = loader.vector("asp.conv.bias", width);
  out_ = loader.pointwise("fc.weight", config_.enc_dim, 2 * width);
  out_bias_ = loader.vector("fc.bias", config_.enc_dim);
}

void SpeakerEncoder::allocate(int32_t max_samples) {
  const SpeakerEncoderConfig& c = config_;
  const int32_t width = c.enc_channels[0], joined = c.enc_channels.back();
  const int32_t frames = max_samples / kHop;
  const auto area = [&](const char* name, int32_t columns, int32_t rows) {
    return device_.allocate(fmt::format("speaker_encoder.{}", name), Dtype::f32, rows, columns);
  };
  const auto word = [&](const char* name) {
    return device_.allocate(fmt::format("speaker_encoder.{}", name), Dtype::i32, 1, 1);
  };
  samples_ = area("samples", 1, max_samples);
  mel_ = area("mel", c.mel_dim, frames);
  x_ = area("x", width, frames), u_ = area("u", width, frames), v_ = area("v", width, frames);
  blocks_out_ = area("blocks", joined, frames);
  pooled_in_ = area("joined", joined, frames);
  attention_ = area("attention", c.enc_attention_channels, frames);
  mean_ = area("mean", width, 1), gate_ = area("gate", width, 1);
  squeezed_ = area("squeezed", c.enc_se_channels, 1);
  statistics_ = area("statistics", 2 * joined, 1), pooled_ = area("pooled", 2 * joined, 1);
  attention_row_ = area("attention_row", c.enc_attention_channels, 1);
  vector_ = area("vector", c.enc_dim, 1);
  lane_slot_ = word("lane_slot"), sample_count_ = word("sample_count"), frame_count_ = word("frame_count");
}

Lanes SpeakerEncoder::one_row() const { return {.lanes = 1, .rows = 1, .slot = lane_slot_}; }

void SpeakerEncoder::record_tdnn(backend::Ops& ops, const Tdnn& tdnn, const Buffer& x, const Buffer& out,
                                 const Lanes& frames, const Buffer& add) const {
  if (tdnn.kernel == 1)
    return ops.linear({.x = x,
                       .weight = tdnn.weight,
                       .bias = tdnn.bias,
                       .activation = Activation::relu,
                       .out = out,
                       .lanes = frames});
  ops.padded_conv({.x = x,
                   .add = add,
                   .weight = tdnn.weight,
                   .bias = tdnn.bias,
                   .kernel = tdnn.kernel,
                   .dilation = tdnn.dilation,
                   .padding = PaddedConv::reflect,
                   .after = Activation::relu,
                   .out = out,
                   .lanes = frames});
}

void SpeakerEncoder::record(backend::Ops& ops, int32_t samples) const {
  const Lanes frames{.lanes = 1, .rows = samples / kHop, .slot = lane_slot_, .count = frame_count_};
  ops.label("speaker_encoder.mel");
  ops.log_mel({.x = samples_,
               .filters = filters_,
               .fft = kFft,
               .hop = kHop,
               .out = mel_,
               .lanes = {.lanes = 1, .rows = samples, .slot = lane_slot_, .count = sample_count_}});
  ops.label("speaker_encoder.blocks.0");
  record_tdnn(ops, entry_, mel_, x_, frames);
  Buffer x = x_;
  for (size_t i = 0; i < blocks_.size(); ++i) {
    ops.label(fmt::format("speaker_encoder.blocks.{}", i + 1));
    // Side by side, as the next stage wants them joined.
    const Buffer out = blocks_out_.columns(static_cast<int32_t>(i) * x_.width, x_.width);
    record_block(ops, blocks_[i], x, out, frames);
    x = out;
  }
  ops.label("speaker_encoder.mfa");
  record_tdnn(ops, joined_, blocks_out_, pooled_in_, frames);
  record_pooling(ops, frames);
}

void SpeakerEncoder::record_block(backend::Ops& ops, const Block& block, const Buffer& x, const Buffer& out,
                                  const Lanes& frames) const {
  record_tdnn(ops, block.before, x, u_, frames);
  const int32_t part = block.parts[0].in;
  ops.copy({.x = u_.columns(0, part), .out = v_.columns(0, part), .lanes = frames});
  for (size_t i = 0; i < block.parts.size(); ++i) {
    const int32_t at = static_cast<int32_t>(i + 1) * part;
    record_tdnn(ops, block.parts[i], u_.columns(at, part), v_.columns(at, part), frames,
                i == 0 ? Buffer{} : v_.columns(at - part, part));
  }
  record_tdnn(ops, block.after, v_, u_, frames);
  ops.statistics({.x = u_, .out = mean_, .lanes = frames});
  ops.linear({.x = mean_,
              .weight = block.squeeze,
              .bias = block.squeeze_bias,
              .activation = Activation::relu,
              .out = squeezed_,
              .lanes = one_row()});
  ops.linear({.x = squeezed_,
              .weight = block.excite,
              .bias = block.excite_bias,
              .activation = Activation::sigmoid,
              .out = gate_,
              .lanes = one_row()});
  ops.scale_rows({.x = u_, .gate = gate_, .residual = x, .out = out, .lanes = frames});
}

void SpeakerEncoder::record_pooling(backend::Ops& ops, const Lanes& frames) const {
  ops.label("speaker_encoder.asp");
  ops.statistics({.x = pooled_in_, .out = statistics_, .lanes = frames});
  ops.linear({.x = statistics_,
              .weight = attention_statistics_,
              .bias = attention_bias_,
              .out = attention_row_,
              .lanes = one_row()});
  ops.padded_conv({.x = pooled_in_,
                   .weight = attention_rows_,
                   .lane_bias = attention_row_,
                   .padding = PaddedConv::reflect,
                   .after = Activation::relu_tanh,
                   .out = attention_,
                   .lanes = frames});
  // The blocks' outputs are not needed any more.
  ops.linear({.x = attention_, .weight = scores_, .bias = scores_bias_, .out = blocks_out_, .lanes = frames});
  ops.statistics({.x = pooled_in_, .scores = blocks_out_, .out = pooled_, .lanes = frames});
  ops.label("speaker_encoder.fc");
  ops.linear({.x = pooled_, .weight = out_, .bias = out_bias_, .out = vector_, .lanes = one_row()});
}

void SpeakerEncoder::stage(std::span<const float> samples) {
  if (samples.size() < kLeastSamples || samples.size() > static_cast<size_t>(samples_.rows))
    throw Error(ErrorCode::internal, fmt::format("speaker encoder: {} samples are not within {}..{}",
                                                 samples.size(), kLeastSamples, samples_.rows));
  const auto count = static_cast<int32_t>(samples.size()), frames = count / kHop;
  program_ = smallest_for(programs_, count);
  device_.write(sample_count_, std::as_bytes(std::span(&count, 1)));
  device_.write(frame_count_, std::as_bytes(std::span(&frames, 1)));
  device_.write(samples_.row_range(0, count), std::as_bytes(samples));
}

std::vector<float> SpeakerEncoder::read_vector() const {
  std::vector<float> vector(static_cast<size_t>(config_.enc_dim));
  device_.read(vector_, std::as_writable_bytes(std::span(vector)));
  return vector;
}

std::vector<float> SpeakerEncoder::encode(std::span<const float> samples,
                                          const std::function<void()>& pause) {
  stage(samples);
  if (pause && device_.frames_ahead() == 0)
    for (size_t i = 0; i < device_.ops(program_).size(); ++i) device_.run_op(program_, i), pause();
  else
    device_.run(program_);
  return read_vector();
}

uint64_t SpeakerEncoder::weight_bytes(const SpeakerEncoderConfig& c) {
  const uint64_t width = static_cast<uint64_t>(c.enc_channels[0]),
                 joined = static_cast<uint64_t>(c.enc_channels.back());
  const uint64_t blocks = c.enc_channels.size() - 2,
                 part = width / static_cast<uint64_t>(c.enc_res2net_scale);
  uint64_t values = static_cast<uint64_t>(c.mel_dim) * width * static_cast<uint64_t>(c.enc_kernel_sizes[0]);
  values += blocks * (2 * width * width + 2 * width * static_cast<uint64_t>(c.enc_se_channels));
  values += blocks * width * part * static_cast<uint64_t>(c.enc_kernel_sizes[1]);
  values += joined * joined + 4 * joined * static_cast<uint64_t>(c.enc_attention_channels);
  return sizeof(float) * (values + 2 * joined * static_cast<uint64_t>(c.enc_dim));
}

uint64_t SpeakerEncoder::buffer_bytes(const SpeakerEncoderConfig& c, int32_t max_samples) {
  const int64_t row = c.mel_dim + 3 * int64_t{c.enc_channels[0]} + 2 * int64_t{c.enc_channels.back()} +
                      c.enc_attention_channels + kHop;
  return sizeof(float) * static_cast<uint64_t>(row) * static_cast<uint64_t>(max_samples / kHop);
}

}  // namespace skald::model
