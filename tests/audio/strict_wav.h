// A WAV reader for tests that accepts nothing it would have to guess.
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

namespace skald::test {

struct StrictWav {
  uint16_t format = 0, channels = 0, bits = 0;
  uint32_t rate = 0;
  bool placeholder = false;  ///< the sizes are 0xFFFFFFFF
  std::string data;
};

/// Parses the whole file; every chunk size, derived field and total must agree. Throws std::runtime_error.
inline StrictWav parse_strict_wav(std::string_view bytes) {
  const auto require = [](bool ok, const char* what) {
    if (!ok) throw std::runtime_error(what);
  };
  const auto number = [&](size_t at, size_t width) {
    require(at + width <= bytes.size(), "ends inside a field");
    uint32_t value = 0;
    std::memcpy(&value, bytes.data() + at, width);
    return value;
  };
  StrictWav wav;
  require(bytes.size() >= 12 && bytes.substr(0, 4) == "RIFF" && bytes.substr(8, 4) == "WAVE", "no RIFF WAVE");
  const uint32_t riff = number(4, 4);
  wav.placeholder = riff == 0xFFFFFFFFu;
  require(wav.placeholder || uint64_t{riff} + 8 == bytes.size(), "RIFF size is not the size of the file");
  std::optional<uint32_t> fact;
  bool have_format = false;
  for (size_t at = 12;;) {
    const std::string_view name = bytes.substr(at, 4);
    const uint32_t size = number(at + 4, 4);
    at += 8;
    if (name == "data") {
      require(have_format, "data before fmt");
      require(wav.placeholder == (size == 0xFFFFFFFFu), "only one of the sizes is unknown");
      wav.data = bytes.substr(at);
      require(wav.placeholder || wav.data.size() == size, "data size is not what follows");
      break;
    }
    require(size % 2 == 0 && at + size <= bytes.size(), "bad chunk size");
    if (name == "fmt ") {
      have_format = true;
      wav.format = static_cast<uint16_t>(number(at, 2));
      wav.channels = static_cast<uint16_t>(number(at + 2, 2));
      wav.rate = number(at + 4, 4);
      wav.bits = static_cast<uint16_t>(number(at + 14, 2));
      const uint32_t align = number(at + 12, 2);
      require(align == wav.channels * wav.bits / 8u, "block alignment");
      require(number(at + 8, 4) == wav.rate * align, "byte rate");
      require(wav.format == 1 ? size == 16 : size == 18 && number(at + 16, 2) == 0, "fmt size");
    } else {
      require(name == "fact" && size == 4, "unexpected chunk");
      fact = number(at, 4);
    }
    at += size;
  }
  const uint32_t width = wav.bits / 8u;
  require(width > 0 && wav.data.size() % width == 0, "part of a sample");
  require(wav.format == 1 || fact, "float without fact chunk");
  if (fact) require(wav.placeholder ? *fact == 0xFFFFFFFFu : *fact == wav.data.size() / width, "fact count");
  return wav;
}

}  // namespace skald::test
