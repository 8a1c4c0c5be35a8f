// Audio files of any common kind to float samples, through libsndfile: WAV, FLAC, MP3, Ogg Vorbis and Opus,
// AIFF, AU, CAF.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "skald/voice.h"

namespace skald::audio {

struct DecodeLimits {
  uint64_t bytes = 100'000'000;  ///< of the file; 0 = no limit
  /// Of the audio; 0 = no limit. Limits its samples too, to kMostSamplesPerSecond for each: a few bytes of a
  /// compressed file can hold very many channels of silence.
  double seconds = 0;
};
inline constexpr int32_t kMostSamplesPerSecond = 2 * 96000;

/// The container that the first bytes announce, "WAV" or "MP4" for example, whether it can be read or not; ""
/// = none that is known.
std::string_view container_of(std::string_view head) noexcept;

/// A file being decoded piece by piece. Every error is an Error(audio_invalid) that names the file and the
/// container, or Error(io) where the file itself cannot be read.
class AudioReader {
 public:
  /// "-" is standard input. What is no regular file is read into memory first, up to limits.bytes (else 1
  /// GB).
  static std::unique_ptr<AudioReader> open(const std::string& path, const DecodeLimits& limits);
  /// The bytes must outlive the reader.
  static std::unique_ptr<AudioReader> parse(std::string_view bytes, std::string name,
                                            const DecodeLimits& limits);
  virtual ~AudioReader() = default;

  virtual int32_t channels() const = 0;
  virtual int32_t sample_rate() const = 0;
  /// What the header says, 0 = nothing. A file that was cut short has fewer.
  virtual uint64_t announced_frames() const = 0;
  /// Interleaved samples, `to` holding whole frames; returns how many were read, 0 at the end. Throws when
  /// the file is longer than limits.seconds, or holds more samples than those may have.
  virtual size_t read(std::span<float> to) = 0;
};

/// All of it. Without a limit of seconds its size in memory is unbounded.
Recording read_all(AudioReader& reader);
/// "ends early: N of M samples are there" where fewer were read (of each channel) than the file announces,
/// else empty.
std::string ends_early(const AudioReader& reader, uint64_t frames);

}  // namespace skald::audio
