// FLAC of 16 bits, block by block (libFLAC).
#include <FLAC/stream_encoder.h>

#include <memory>
#include <utility>

#include "audio/encode/encoders.h"
#include "audio/wav.h"
#include "skald/error.h"

namespace skald::audio {
namespace {

/// Samples of a block. libFLAC looks one sample beyond a block before it writes it, so half a frame of the
/// model (40 ms) lets the first frame be heard at once.
constexpr uint32_t kBlock = 960;

class FlacEncoder final : public Encoder {
 public:
  explicit FlacEncoder(const EncoderSettings& s) : encoder_(FLAC__stream_encoder_new()) {
    if (!encoder_) throw std::bad_alloc();
    FLAC__StreamEncoder* const e = encoder_.get();
    bool ok = FLAC__stream_encoder_set_channels(e, 1);
    ok = ok && FLAC__stream_encoder_set_bits_per_sample(e, 16);
    ok = ok && FLAC__stream_encoder_set_sample_rate(e, s.sample_rate);
    ok = ok && FLAC__stream_encoder_set_compression_level(e, 5);
    ok = ok && FLAC__stream_encoder_set_blocksize(e, kBlock);

    ok = ok && FLAC__stream_encoder_set_total_samples_estimate(e, s.samples.value_or(0));
    if (!ok) throw Error(ErrorCode::internal, "libFLAC refuses its settings");
    const auto status = FLAC__stream_encoder_init_stream(e, &write, nullptr, nullptr, nullptr, this);
    if (status != FLAC__STREAM_ENCODER_INIT_STATUS_OK)
      throw Error(ErrorCode::unsupported,
                  std::string("FLAC cannot be written: ") + FLAC__StreamEncoderInitStatusString[status]);
  }

  void add(std::span<const float> samples, std::string& out) override {
    values_.clear();
    for (const float sample : samples) values_.push_back(to_pcm16(sample));
    if (!FLAC__stream_encoder_process_interleaved(encoder_.get(), values_.data(),
                                                  static_cast<uint32_t>(values_.size())))
      fail();
    out += std::exchange(ready_, {});
  }

  void finish(std::string& out) override {
    if (!FLAC__stream_encoder_finish(encoder_.get())) fail();
    out += std::exchange(ready_, {});
  }

 private:
  struct Delete {
    void operator()(FLAC__StreamEncoder* encoder) const { FLAC__stream_encoder_delete(encoder); }
  };

  static FLAC__StreamEncoderWriteStatus write(const FLAC__StreamEncoder*, const FLAC__byte bytes[],
                                              size_t count, uint32_t, uint32_t, void* self) {
    try {
      static_cast<FlacEncoder*>(self)->ready_.append(reinterpret_cast<const char*>(bytes), count);
      return FLAC__STREAM_ENCODER_WRITE_STATUS_OK;
    } catch (...) {  // no exception may pass through C
      return FLAC__STREAM_ENCODER_WRITE_STATUS_FATAL_ERROR;
    }
  }

  [[noreturn]] void fail() const {
    throw Error(ErrorCode::internal, std::string("libFLAC failed: ") +
                                         FLAC__stream_encoder_get_resolved_state_string(encoder_.get()));
  }

  std::string ready_;  // before encoder_, whose end may still write
  std::vector<FLAC__int32> values_;
  std::unique_ptr<FLAC__StreamEncoder, Delete> encoder_;
};

}  // namespace

std::unique_ptr<Encoder> make_flac_encoder(const EncoderSettings& settings) {
  return std::make_unique<FlacEncoder>(settings);
}

}  // namespace skald::audio
