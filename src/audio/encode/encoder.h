// Samples to the bytes of a response: encoders fed chunks of any size, yielding bytes as soon as they are
// complete.
//
// Bytes depend on the samples alone: any chunking gives the same bytes. Mono only.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace skald::audio {

/// Containers and codings of a response. `wav` is 16-bit PCM; `pcm` and `f32` are bare samples, little
/// endian; `opus` is Ogg Opus, `aac` ADTS, `flac` native FLAC of 16 bits.
enum class Format : uint8_t { mp3, opus, aac, flac, wav, pcm, f32 };

/// Every format, in the order in which lists show them.
std::span<const Format> all_formats();
std::string_view format_name(Format format) noexcept;
/// The media type of the bytes.
std::string_view content_type(Format format) noexcept;
/// The format of a name in any case, blanks around it ignored; none for an unknown name.
std::optional<Format> find_format(std::string_view name);
/// Whether this build can encode it: AAC needs a library that not every system has.
bool format_available(Format format) noexcept;
/// Whether decoding gives back exactly the samples that `pcm` holds (`f32`: that were handed in).
constexpr bool is_lossless(Format format) {
  return format == Format::flac || format == Format::wav || format == Format::pcm || format == Format::f32;
}

/// What an encoder is told beforehand.
struct EncoderSettings {
  Format format = Format::wav;
  uint32_t sample_rate = 24000;
  /// Length, where it is known: `wav` and `flac` state it. A WAV of unknown length has 0xFFFFFFFF in its size
  /// fields, a FLAC stream 0.
  std::optional<uint64_t> samples;
};

/// One encoded stream. Used from one thread.
class Encoder {
 public:
  virtual ~Encoder() = default;
  /// Takes samples in [-1, 1] and appends the bytes that are complete, headers included. Throws
  /// Error(internal) where the coding library fails; the encoder is of no use afterwards.
  virtual void add(std::span<const float> samples, std::string& out) = 0;
  /// Appends what is left. Nothing may follow. Throws Error(internal) also when a length that was announced
  /// was not kept.
  virtual void finish(std::string& out) = 0;
};

/// Throws Error(unsupported) for a format this build has not, or a sample rate the coding has not;
/// Error(io) for a WAV that is too long for its size fields.
std::unique_ptr<Encoder> make_encoder(const EncoderSettings& settings);

/// Samples in blocks of a fixed size, whatever chunks they come in.
class Blocks {
 public:
  explicit Blocks(size_t size) : size_(size) {}
  /// Calls body(block) for every block that is complete.
  template <class Body>
  void add(std::span<const float> samples, Body&& body) {
    while (!samples.empty()) {
      const size_t taken = std::min(size_ - held_.size(), samples.size());
      held_.insert(held_.end(), samples.begin(), samples.begin() + static_cast<std::ptrdiff_t>(taken));
      samples = samples.subspan(taken);
      if (held_.size() < size_) return;
      body(std::span<const float>(held_));
      held_.clear();
    }
  }
  /// The samples of the unfinished block.
  std::span<const float> rest() const { return held_; }

 private:
  size_t size_;
  std::vector<float> held_;
};

}  // namespace skald::audio
