// What the fuzz targets of src/text share.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

namespace skald::text {

inline std::string_view as_text(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

/// Ends the run with a crash that the fuzzer reports.
inline void require(bool condition) {
  if (!condition) std::abort();
}

/// A complete small tokenizer: every byte, a few merges, three added tokens.
struct SmallTokenizer {
  std::string vocab, merges, config;

  SmallTokenizer() {
    vocab = "{";
    int next = 256;
    for (int byte = 0; byte < 256; ++byte) {
      const bool printable = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
      vocab += (byte == 0 ? "\"" : ",\"") + escaped(printable ? byte : next++) + "\":" + std::to_string(byte);
    }
    const char* const kMerges[][2] = {{"a", "b"},  {"ab", "ab"}, {"#", "#"}, {"i", "n"},
                                      {"th", "e"}, {"t", "h"},   {"a", "a"}, {"aa", "aa"}};
    int id = 256;
    merges = "#version: 0.2\n";
    for (const auto& [left, right] : kMerges) {
      vocab += std::string(",\"") + left + right + "\":" + std::to_string(id++);
      merges += std::string(left) + " " + right + "\n";
    }
    vocab += "}";
    config =
        R"({"added_tokens_decoder": {"300": {"content": "<|im_start|>"}, "301": {"content": "<|im_end|>"}, "302": {"content": "<|im_"}}})";
  }

 private:
  static std::string escaped(int code_point) {
    constexpr char kHex[] = "0123456789abcdef";
    std::string out = "\\u";
    for (int shift = 12; shift >= 0; shift -= 4) out += kHex[code_point >> shift & 15];
    return out;
  }
};

}  // namespace skald::text
