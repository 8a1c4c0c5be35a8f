// Samples to bytes and the WAV header.
#include "audio/wav.h"

#include <bit>
#include <cmath>
#include <cstring>

#include <fmt/format.h>

#include "skald/error.h"

namespace skald::audio {
namespace {

static_assert(std::endian::native == std::endian::little, "samples are copied as they lie in memory");

constexpr uint32_t kUnknownSize = 0xFFFFFFFFu;

template <class T>
void append_value(std::string& out, T value) {
  char bytes[sizeof(T)];
  std::memcpy(bytes, &value, sizeof(T));
  out.append(bytes, sizeof(T));
}

}  // namespace

int16_t to_pcm16(float sample) noexcept {
  if (std::isnan(sample)) return 0;
  const float scaled = sample * 32767.0f;
  if (scaled >= 32767.0f) return 32767;
  if (scaled <= -32768.0f) return -32768;
  return static_cast<int16_t>(std::lrintf(scaled));
}

void append_samples(std::span<const float> samples, SampleFormat format, std::string& out) {
  const size_t start = out.size();
  out.resize(start + samples.size() * sample_bytes(format));
  char* to = out.data() + start;
  if (format == SampleFormat::f32) {
    if (!samples.empty()) std::memcpy(to, samples.data(), samples.size_bytes());
    return;
  }
  for (const float sample : samples) {
    const int16_t value = to_pcm16(sample);
    std::memcpy(to, &value, sizeof value);
    to += sizeof value;
  }
}

std::string wav_header(SampleFormat format, uint32_t sample_rate, std::optional<uint64_t> samples) {
  if (samples && *samples > max_wav_samples(format)) {
    throw Error(
        ErrorCode::io,
        fmt::format("a WAV file holds at most {} samples, not {}; longer audio needs the headerless form",
                    max_wav_samples(format), *samples));
  }
  const bool is_float = format == SampleFormat::f32;
  const uint32_t width = sample_bytes(format);
  const uint32_t data_bytes = samples ? static_cast<uint32_t>(*samples * width) : kUnknownSize;
  const uint32_t header_bytes = static_cast<uint32_t>(wav_header_bytes(format));
  std::string out;
  out.reserve(header_bytes);
  out += "RIFF";
  append_value<uint32_t>(out, samples ? data_bytes + header_bytes - 8 : kUnknownSize);
  out += "WAVEfmt ";
  append_value<uint32_t>(out, is_float ? 18 : 16);
  append_value<uint16_t>(out, is_float ? 3 : 1);  // IEEE float, PCM
  append_value<uint16_t>(out, 1);                 // channels
  append_value<uint32_t>(out, sample_rate);
  append_value<uint32_t>(out, sample_rate * width);
  append_value<uint16_t>(out, static_cast<uint16_t>(width));
  append_value<uint16_t>(out, static_cast<uint16_t>(width * 8));
  if (is_float) {
    append_value<uint16_t>(out, 0);  // size of the extension
    out += "fact";
    append_value<uint32_t>(out, 4);
    append_value<uint32_t>(out, samples ? static_cast<uint32_t>(*samples) : kUnknownSize);
  }
  out += "data";
  append_value<uint32_t>(out, data_bytes);
  return out;
}

}  // namespace skald::audio
