// MP3, frame by frame (LAME).
#include <lame/lame.h>

#include <memory>
#include <mutex>

#include "audio/encode/encoders.h"
#include "skald/error.h"

namespace skald::audio {
namespace {

constexpr int kBitrate = 96;        // kbit/s
constexpr size_t kBlock = 576;      // a frame at 24 kHz (MPEG-2)
constexpr size_t kRoom = 8 * 1024;  // LAME's own bound for a block, 1.25 * samples + 7200, and its flush

/// LAME fills tables of the process when an encoder is made, without any lock of its own.
std::mutex& setup_lock() {
  static std::mutex mutex;
  return mutex;
}

class Mp3Encoder final : public Encoder {
 public:
  explicit Mp3Encoder(const EncoderSettings& s) : blocks_(kBlock) {
    const std::lock_guard lock(setup_lock());
    lame_.reset(lame_init());
    if (!lame_) throw std::bad_alloc();
    lame_t e = lame_.get();
    lame_set_errorf(e, &silent), lame_set_debugf(e, &silent), lame_set_msgf(e, &silent);
    lame_set_num_channels(e, 1);
    lame_set_mode(e, MONO);
    lame_set_in_samplerate(e, static_cast<int>(s.sample_rate));
    lame_set_out_samplerate(e, static_cast<int>(s.sample_rate));
    lame_set_brate(e, kBitrate);
    lame_set_quality(e, 3);
    // A header with the number of frames would be wrong in a stream, and so would one per piece: none.
    lame_set_bWriteVbrTag(e, 0);
    lame_set_write_id3tag_automatic(e, 0);
    // Every frame carries its own data: it can be played as soon as it is there.
    lame_set_disable_reservoir(e, 1);
    if (lame_init_params(e) < 0)
      throw Error(ErrorCode::unsupported,
                  "MP3 cannot be written at " + std::to_string(s.sample_rate) + " samples a second");
  }

  void add(std::span<const float> samples, std::string& out) override {
    blocks_.add(samples, [&](std::span<const float> block) { encode(block, out); });
  }

  void finish(std::string& out) override {
    if (!blocks_.rest().empty()) encode(blocks_.rest(), out);
    unsigned char bytes[kRoom];
    append(bytes, lame_encode_flush(lame_.get(), bytes, kRoom), out);
  }

 private:
  struct Close {
    void operator()(lame_t lame) const { lame_close(lame); }
  };

  static void silent(const char*, va_list) {}

  void encode(std::span<const float> block, std::string& out) {
    unsigned char bytes[kRoom];
    append(bytes,
           lame_encode_buffer_ieee_float(lame_.get(), block.data(), nullptr, static_cast<int>(block.size()),
                                         bytes, kRoom),
           out);
  }

  static void append(const unsigned char* bytes, int count, std::string& out) {
    if (count < 0) throw Error(ErrorCode::internal, "LAME failed with " + std::to_string(count));
    out.append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(count));
  }

  std::unique_ptr<lame_global_struct, Close> lame_;
  Blocks blocks_;
};

}  // namespace

std::unique_ptr<Encoder> make_mp3_encoder(const EncoderSettings& settings) {
  return std::make_unique<Mp3Encoder>(settings);
}

}  // namespace skald::audio
