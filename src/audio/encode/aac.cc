// AAC-LC in ADTS frames (VisualOn's encoder). Only built where the library is there.
#include <vo-aacenc/cmnMemory.h>
#include <vo-aacenc/voAAC.h>

#include <array>
#include <memory>

#include "audio/encode/encoders.h"
#include "audio/wav.h"
#include "skald/error.h"

namespace skald::audio {
namespace {

constexpr int kBitrate = 64000;
constexpr size_t kBlock = 1024;    // samples of a frame
constexpr size_t kRoom = 768 * 2;  // the longest frame of two channels, and its header
constexpr int kDelayBlocks = 2;    // frames until the encoder has given out a sample that came in

class AacEncoder final : public Encoder {
 public:
  explicit AacEncoder(const EncoderSettings& s) : blocks_(kBlock) {
    check(voGetAACEncAPI(&api_));
    memory_ = {cmnMemAlloc, cmnMemFree, cmnMemSet, cmnMemCopy, cmnMemCheck, cmnMemCompare, cmnMemMove};
    VO_CODEC_INIT_USERDATA user{};
    user.memflag = VO_IMF_USERMEMOPERATOR;
    user.memData = &memory_;
    check(api_.Init(&handle_, VO_AUDIO_CodingAAC, &user));
    AACENC_PARAM parameters{};
    parameters.sampleRate = static_cast<int>(s.sample_rate);
    parameters.bitRate = kBitrate;
    parameters.nChannels = 1;
    parameters.adtsUsed = 1;
    if (api_.SetParam(handle_, VO_PID_AAC_ENCPARAM, &parameters) != VO_ERR_NONE) {
      api_.Uninit(handle_);
      throw Error(ErrorCode::unsupported,
                  "AAC cannot be written at " + std::to_string(s.sample_rate) + " samples a second");
    }
  }
  ~AacEncoder() override { api_.Uninit(handle_); }
  AacEncoder(const AacEncoder&) = delete;
  AacEncoder& operator=(const AacEncoder&) = delete;

  void add(std::span<const float> samples, std::string& out) override {
    blocks_.add(samples, [&](std::span<const float> block) { encode(block, out); });
  }

  void finish(std::string& out) override {
    std::vector<float> block(blocks_.rest().begin(), blocks_.rest().end());
    for (int i = block.empty() ? 1 : 0; i <= kDelayBlocks; ++i, block.clear()) {
      block.resize(kBlock, 0.0f);
      encode(block, out);
    }
  }

 private:
  static void check(VO_U32 error) {
    if (error != VO_ERR_NONE)
      throw Error(ErrorCode::internal, "the AAC encoder failed with " + std::to_string(error));
  }

  void encode(std::span<const float> block, std::string& out) {
    std::array<int16_t, kBlock> values;
    for (size_t i = 0; i < kBlock; ++i) values[i] = to_pcm16(block[i]);
    std::array<unsigned char, kRoom> bytes;
    VO_CODECBUFFER input{}, output{};
    input.Buffer = reinterpret_cast<unsigned char*>(values.data());
    input.Length = sizeof values;
    check(api_.SetInputData(handle_, &input));
    output.Buffer = bytes.data();
    output.Length = bytes.size();
    VO_AUDIO_OUTPUTINFO info{};
    check(api_.GetOutputData(handle_, &output, &info));
    out.append(reinterpret_cast<const char*>(bytes.data()), output.Length);
  }

  VO_AUDIO_CODECAPI api_{};
  VO_MEM_OPERATOR memory_{};
  VO_HANDLE handle_ = nullptr;
  Blocks blocks_;
};

}  // namespace

std::unique_ptr<Encoder> make_aac_encoder(const EncoderSettings& settings) {
  return std::make_unique<AacEncoder>(settings);
}

}  // namespace skald::audio
