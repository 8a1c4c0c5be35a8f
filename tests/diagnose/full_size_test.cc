// The model recorded at its published size, on a device that computes nothing: bytes and arithmetic of a
// frame are those of specification 12.2.
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <nlohmann/json.hpp>

#include "diagnose/timed_device.h"
#include "model/checkpoint.h"
#include "model/model.h"
#include "model/snapshot_files.h"

namespace skald::diagnose {
namespace {

namespace fs = std::filesystem;
using backend::Buffer;
using backend::Program;
using backend::Weight;

/// Counts what it is given and remembers small buffers; large ones read as zeros.
class HollowDevice final : public backend::Backend {
 public:
  std::string_view name() const override { return "hollow"; }
  Weight load(backend::WeightRole role, const backend::TensorSource& source) override {
    size_t elements = 1;
    for (const int64_t n : source.shape) elements *= static_cast<size_t>(n);
    if (role != backend::WeightRole::table) weight_bytes_ += elements * sizeof(float);
    return {weights_++};
  }
  Buffer allocate(std::string_view, backend::Dtype dtype, int64_t rows, int32_t width) override {
    const size_t bytes = static_cast<size_t>(rows) * static_cast<size_t>(width) * dtype_size(dtype);
    if (bytes <= kSmall) memory_[buffers_].resize(bytes);
    return {.id = buffers_++,
            .dtype = dtype,
            .rows = static_cast<int32_t>(rows),
            .width = width,
            .stride = width};
  }
  void write(const Buffer& to, std::span<const std::byte> bytes) override {
    if (std::byte* at = locate(to)) std::memcpy(at, bytes.data(), bytes.size());
  }
  void read(const Buffer& from, std::span<std::byte> bytes) override {
    std::memset(bytes.data(), 0, bytes.size());
    if (const std::byte* at = locate(from)) std::memcpy(bytes.data(), at, bytes.size());
  }
  void zero(const Buffer& view) override {
    if (std::byte* at = locate(view))
      std::memset(at, 0, static_cast<size_t>(view.rows) * view.width * dtype_size(view.dtype));
  }
  Program record(std::string_view, const std::function<void(backend::Ops&)>& body) override {
    Ignore ops;
    body(ops);
    return {programs_++};
  }
  void run(Program) override {}
  std::span<const backend::OpRecord> ops(Program) const override { return {}; }
  void run_op(Program, size_t) override {}
  size_t weight_bytes() const override { return weight_bytes_; }
  size_t buffer_bytes() const override { return 0; }

 private:
  static constexpr size_t kSmall = 1 << 20;

  struct Ignore final : backend::Ops {
    void gather_sum(const backend::GatherSum&) override {}
    void linear(const backend::Linear&) override {}
    void gated_pair(const backend::GatedPair&) override {}
    void rope_angles(const backend::RopeAngles&) override {}
    void qkv_rope(const backend::QkvRope&) override {}
    void attention(const backend::Attention&) override {}
    void store_rows(const backend::StoreRows&) override {}
    void copy(const backend::Copy&) override {}
    void sample(const backend::Sample&) override {}
    void publish_frame(const backend::PublishFrame&) override {}
    void advance(const backend::Advance&) override {}
    void conv(const backend::Conv&) override {}
    void conv_transposed(const backend::ConvTransposed&) override {}
    void depthwise(const backend::Depthwise&) override {}
    void label(std::string_view) override {}
  };

  std::byte* locate(const Buffer& view) {
    const auto found = memory_.find(view.id);
    if (found == memory_.end()) return nullptr;
    return found->second.data() + view.offset * static_cast<int64_t>(dtype_size(view.dtype));
  }

  int32_t weights_ = 0, buffers_ = 0, programs_ = 0;
  size_t weight_bytes_ = 0;
  std::map<int32_t, std::vector<std::byte>> memory_;
};

void write_tensors(const fs::path& dir, const std::vector<model::ExpectedTensor>& expected) {
  std::vector<test::RawTensor> tensors;
  for (const model::ExpectedTensor& t : expected) tensors.push_back({t.name, "F32", t.shape, {}});
  test::write_sparse(dir / "model.safetensors", tensors);
}

TEST(FullSize, AFrameOf06BMovesAndComputesWhatTheSpecificationSays) {
  const test::TempDir dir;
  test::copy_model_without_weights("tiny-cv", dir.path());
  const fs::path published = fs::path(SKALD_SOURCE_DIR) / "tests/model/published";
  const auto overwrite = fs::copy_options::overwrite_existing;
  fs::copy_file(published / "config.json", dir / "config.json", overwrite);
  fs::copy_file(published / "speech_tokenizer_config.json", dir / "speech_tokenizer/config.json", overwrite);
  const model::ModelConfig config = model::load_config(dir.path());
  ASSERT_EQ(config.talker.layers, 28);
  write_tensors(dir.path(), expected_tensors(config));
  write_tensors(dir / "speech_tokenizer", expected_codec_tensors(config.codec));

  TimedDevice device(std::make_unique<HollowDevice>());
  const auto model = model::Model::load(dir.path(), device, {});
  device.time(true);
  const int32_t slot = 0;
  model->begin(slot, {});
  model->frame_codes({&slot, 1});
  model->frame_step({&slot, 1});
  std::vector<int32_t> codes(static_cast<size_t>(config.talker.num_code_groups));
  std::vector<float> samples(static_cast<size_t>(config.codec.decode_upsample_rate));
  model->codec_decode(slot, codes, samples);

  StageTimes frame;
  for (const StageTimes& run : device.take_runs()) frame += run;
  const auto expect_near = [](double got, double want) { EXPECT_NEAR(got / want, 1, 0.02) << got; };
  expect_near(frame[Stage::talker].work.weight_bytes, 1774e6);
  expect_near(frame[Stage::predictor].work.weight_bytes, 4844e6);
  expect_near(frame[Stage::talker].work.flops, 2 * 0.4435e9);
  expect_near(frame[Stage::talker_attention].work.flops, 2 * 114'688);  // one position so far
  expect_near(frame[Stage::predictor].work.flops, 2 * 1.2897e9);
  expect_near(frame[Stage::codec].work.flops, 2 * 2.4806e9);
  expect_near(frame[Stage::codec].work.weight_bytes, 4 * 105.64e6);
  EXPECT_EQ(frame[Stage::sampling].ops, 16 + 2);  // the draws, the logits' copy, publishing
  EXPECT_EQ(frame[Stage::prefill].ops, 0);
}

}  // namespace
}  // namespace skald::diagnose
