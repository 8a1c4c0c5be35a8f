// Samples to bytes: PCM and float, with and without a WAV header. Mono, little endian.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace skald::audio {

enum class SampleFormat { s16, f32 };

/// Bytes of one sample: 2 or 4, so that every data chunk has an even size and needs no pad byte.
constexpr uint32_t sample_bytes(SampleFormat format) { return format == SampleFormat::s16 ? 2 : 4; }

/// round-to-nearest-even(sample * 32767), clipped to [-32768, 32767]; NaN gives 0.
int16_t to_pcm16(float sample) noexcept;

/// Appends the samples as s16le or f32le; floats are written as they are.
void append_samples(std::span<const float> samples, SampleFormat format, std::string& out);

/// Length of the header: 44 for PCM; 58 for float, which also needs an extended `fmt ` and a `fact` chunk.
constexpr uint64_t wav_header_bytes(SampleFormat format) { return format == SampleFormat::s16 ? 44 : 58; }

/// Most samples whose sizes fit the 32-bit fields (about 24 hours of 16-bit speech).
constexpr uint64_t max_wav_samples(SampleFormat format) {
  return (0xFFFFFFFEull - wav_header_bytes(format)) / sample_bytes(format);
}

/// The bytes in front of the samples. Without a count every size field holds 0xFFFFFFFF, the usual mark of a
/// WAV whose length is not known yet. Throws Error(io) above max_wav_samples.
std::string wav_header(SampleFormat format, uint32_t sample_rate, std::optional<uint64_t> samples);

}  // namespace skald::audio
