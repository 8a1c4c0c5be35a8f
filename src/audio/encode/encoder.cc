// Formats by name, and the encoders of bare samples and WAV.
#include "audio/encode/encoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "audio/encode/encoders.h"
#include "audio/wav.h"
#include "skald/error.h"

namespace skald::audio {
namespace {

struct Description {
  Format format;
  std::string_view name, type;
};

constexpr std::array<Description, 7> kFormats{{{Format::mp3, "mp3", "audio/mpeg"},
                                               {Format::opus, "opus", "audio/ogg"},
                                               {Format::aac, "aac", "audio/aac"},
                                               {Format::flac, "flac", "audio/flac"},
                                               {Format::wav, "wav", "audio/wav"},
                                               {Format::pcm, "pcm", "audio/pcm"},
                                               {Format::f32, "f32", "audio/x-f32le"}}};

const Description& describe(Format format) { return kFormats[static_cast<size_t>(format)]; }

/// Samples as they are, behind a header or not.
class SampleEncoder final : public Encoder {
 public:
  SampleEncoder(SampleFormat format, std::string header, std::optional<uint64_t> announced)
      : format_(format), header_(std::move(header)), announced_(announced) {}

  void add(std::span<const float> samples, std::string& out) override {
    out += std::exchange(header_, {});
    append_samples(samples, format_, out);
    count_ += samples.size();
  }
  void finish(std::string& out) override {
    out += std::exchange(header_, {});
    if (announced_ && *announced_ != count_)
      throw Error(ErrorCode::internal,
                  fmt::format("a WAV of {} samples was announced, but {} came", *announced_, count_));
  }

 private:
  SampleFormat format_;
  std::string header_;
  std::optional<uint64_t> announced_;
  uint64_t count_ = 0;
};

}  // namespace

std::span<const Format> all_formats() {
  static constexpr std::array kAll{Format::mp3, Format::opus, Format::aac, Format::flac,
                                   Format::wav, Format::pcm,  Format::f32};
  return kAll;
}

std::string_view format_name(Format format) noexcept { return describe(format).name; }
std::string_view content_type(Format format) noexcept { return describe(format).type; }

std::optional<Format> find_format(std::string_view name) {
  const auto blank = [](char c) { return c == ' ' || c == '\t'; };
  while (!name.empty() && blank(name.front())) name.remove_prefix(1);
  while (!name.empty() && blank(name.back())) name.remove_suffix(1);
  const auto same = [](char a, char b) { return (a >= 'A' && a <= 'Z' ? a - 'A' + 'a' : a) == b; };
  for (const Description& d : kFormats)
    if (std::equal(name.begin(), name.end(), d.name.begin(), d.name.end(), same)) return d.format;
  return std::nullopt;
}

bool format_available(Format format) noexcept { return format != Format::aac || SKALD_HAVE_AAC; }

std::unique_ptr<Encoder> make_encoder(const EncoderSettings& s) {
  switch (s.format) {
    case Format::mp3: return make_mp3_encoder(s);
    case Format::opus: return make_opus_encoder(s);
    case Format::flac: return make_flac_encoder(s);
    case Format::wav:
      return std::make_unique<SampleEncoder>(
          SampleFormat::s16, wav_header(SampleFormat::s16, s.sample_rate, s.samples), s.samples);
    case Format::pcm: return std::make_unique<SampleEncoder>(SampleFormat::s16, "", std::nullopt);
    case Format::f32: return std::make_unique<SampleEncoder>(SampleFormat::f32, "", std::nullopt);
    case Format::aac: break;
  }
#if SKALD_HAVE_AAC
  return make_aac_encoder(s);
#else
  throw Error(ErrorCode::unsupported, "this build has no AAC encoder; take another format");
#endif
}

}  // namespace skald::audio
