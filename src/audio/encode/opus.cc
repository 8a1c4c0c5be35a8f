// Ogg Opus, page by page (libopus, libogg). RFC 6716, RFC 7845.
#include <ogg/ogg.h>
#include <opus/opus.h>

#include <memory>
#include <utility>

#include "audio/encode/encoders.h"
#include "skald/error.h"

namespace skald::audio {
namespace {

constexpr int32_t kBitrate = 48000;
constexpr int kPacketMs = 20;
/// Packets of a page: as many as make a frame of the model at first, so that nothing waits for a page to
/// fill; later more, as a page costs 30 bytes.
constexpr int64_t kFirstPackets = 4, kLaterPackets = 10, kShortPages = 10;
constexpr int kSerial = 0x736b616c;  // one logical stream per file, so any number will do
constexpr size_t kMostPacketBytes = 1500;

template <class T>
void append_little_endian(std::string& to, T value) {
  for (size_t i = 0; i < sizeof(T); ++i) to += static_cast<char>(value >> (8 * i) & 0xFF);
}

class OpusEncoderStream final : public Encoder {
 public:
  explicit OpusEncoderStream(const EncoderSettings& s)
      : block_(s.sample_rate * kPacketMs / 1000),
        granules_per_sample_(static_cast<int64_t>(48000 / std::max(1u, s.sample_rate))),
        blocks_(block_) {
    int error = OPUS_OK;
    encoder_.reset(
        opus_encoder_create(static_cast<opus_int32>(s.sample_rate), 1, OPUS_APPLICATION_AUDIO, &error));
    if (error == OPUS_BAD_ARG)
      throw Error(ErrorCode::unsupported,
                  "Opus takes 8000, 12000, 16000, 24000 or 48000 samples a second, not " +
                      std::to_string(s.sample_rate));
    check(error);
    check(opus_encoder_ctl(encoder_.get(), OPUS_SET_BITRATE(kBitrate)));
    check(opus_encoder_ctl(encoder_.get(), OPUS_SET_SIGNAL(OPUS_SIGNAL_VOICE)));
    opus_int32 lookahead = 0;
    check(opus_encoder_ctl(encoder_.get(), OPUS_GET_LOOKAHEAD(&lookahead)));
    lookahead_ = lookahead;
    if (ogg_stream_init(&ogg_, kSerial) != 0) throw std::bad_alloc();
    write_headers(s.sample_rate);
  }
  ~OpusEncoderStream() override { ogg_stream_clear(&ogg_); }
  OpusEncoderStream(const OpusEncoderStream&) = delete;
  OpusEncoderStream& operator=(const OpusEncoderStream&) = delete;

  void add(std::span<const float> samples, std::string& out) override {
    samples_ += static_cast<int64_t>(samples.size());
    blocks_.add(samples, [&](std::span<const float> block) { encode(block, false); });
    out += std::exchange(ready_, {});
  }

  /// The encoder's delay keeps at least one more packet to come after the last sample, so the end mark always
  /// has a packet to stand on.
  void finish(std::string& out) override {
    std::vector<float> block(blocks_.rest().begin(), blocks_.rest().end());
    for (bool last = false; !last; block.clear()) {
      last = (packets_ + 1) * static_cast<int64_t>(block_) >= samples_ + lookahead_;
      block.resize(block_, 0.0f);
      encode(block, last);
    }
    flush();
    out += std::exchange(ready_, {});
  }

 private:
  struct Destroy {
    void operator()(OpusEncoder* encoder) const { opus_encoder_destroy(encoder); }
  };

  static void check(int error) {
    if (error < 0) throw Error(ErrorCode::internal, std::string("libopus failed: ") + opus_strerror(error));
  }

  int64_t skipped_granules() const { return lookahead_ * granules_per_sample_; }

  void write_headers(uint32_t sample_rate) {
    std::string head = "OpusHead";
    head += '\1';  // version
    head += '\1';  // channels
    append_little_endian(head, static_cast<uint16_t>(skipped_granules()));
    append_little_endian(head, sample_rate);
    append_little_endian(head, uint16_t{0});  // gain
    head += '\0';                             // mono or stereo
    put(head, 0, false);
    flush();
    const std::string vendor = opus_get_version_string();
    std::string tags = "OpusTags";
    append_little_endian(tags, static_cast<uint32_t>(vendor.size()));
    tags += vendor;
    append_little_endian(tags, uint32_t{0});  // comments
    put(tags, 0, false);
    flush();
  }

  void encode(std::span<const float> block, bool last) {
    unsigned char bytes[kMostPacketBytes];
    const int count = opus_encode_float(encoder_.get(), block.data(), static_cast<int>(block_), bytes,
                                        static_cast<opus_int32>(sizeof bytes));
    check(count);
    ++packets_;
    const int64_t decoded = packets_ * static_cast<int64_t>(block_) * granules_per_sample_;
    put({reinterpret_cast<const char*>(bytes), static_cast<size_t>(count)},
        last ? skipped_granules() + samples_ * granules_per_sample_ : decoded, last);
    if (++page_packets_ >= (pages_ < kShortPages ? kFirstPackets : kLaterPackets)) flush();
  }

  void put(std::string_view bytes, int64_t granule, bool last) {
    ogg_packet packet{};
    packet.packet = reinterpret_cast<unsigned char*>(const_cast<char*>(bytes.data()));  // is only read
    packet.bytes = static_cast<long>(bytes.size());
    packet.b_o_s = ogg_packets_ == 0;
    packet.e_o_s = last;
    packet.granulepos = granule;
    packet.packetno = ogg_packets_++;
    if (ogg_stream_packetin(&ogg_, &packet) != 0) throw Error(ErrorCode::internal, "libogg took no packet");
  }

  void flush() {
    ogg_page page;
    while (ogg_stream_flush(&ogg_, &page) != 0) {
      ready_.append(reinterpret_cast<const char*>(page.header), static_cast<size_t>(page.header_len));
      ready_.append(reinterpret_cast<const char*>(page.body), static_cast<size_t>(page.body_len));
    }
    if (page_packets_ > 0) ++pages_;
    page_packets_ = 0;
  }

  size_t block_;                 // samples of a packet
  int64_t granules_per_sample_;  // positions count 48,000 a second
  Blocks blocks_;
  std::unique_ptr<OpusEncoder, Destroy> encoder_;
  ogg_stream_state ogg_{};
  std::string ready_;
  int64_t lookahead_ = 0, samples_ = 0, packets_ = 0, ogg_packets_ = 0, pages_ = 0, page_packets_ = 0;
};

}  // namespace

std::unique_ptr<Encoder> make_opus_encoder(const EncoderSettings& settings) {
  return std::make_unique<OpusEncoderStream>(settings);
}

}  // namespace skald::audio
