// Base64.
#include "server/base64.h"

#include <array>
#include <cstdint>

namespace skald::server {
namespace {

constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

constexpr std::array<int8_t, 256> values() {
  std::array<int8_t, 256> table{};
  table.fill(-1);
  for (size_t i = 0; i < kDigits.size(); ++i)
    table[static_cast<unsigned char>(kDigits[i])] = static_cast<int8_t>(i);
  return table;
}

}  // namespace

std::string to_base64(std::string_view bytes) {
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t at = 0; at < bytes.size(); at += 3) {
    const size_t left = bytes.size() - at;
    const auto byte = [&](size_t i) -> uint32_t {
      return i < left ? static_cast<unsigned char>(bytes[at + i]) : 0;
    };
    const uint32_t word = byte(0) << 16 | byte(1) << 8 | byte(2);
    for (size_t i = 0; i < 4; ++i) out += i <= left ? kDigits[word >> (18 - 6 * i) & 63] : '=';
  }
  return out;
}

std::optional<std::string> from_base64(std::string_view text) {
  static constexpr std::array<int8_t, 256> kValues = values();
  if (text.size() % 4 != 0) return std::nullopt;
  std::string out;
  out.reserve(text.size() / 4 * 3);
  for (size_t at = 0; at < text.size(); at += 4) {
    const bool last = at + 4 == text.size();
    const size_t padding = !last ? 0 : text[at + 2] == '=' ? 2 : text[at + 3] == '=' ? 1 : 0;
    uint32_t word = 0;
    for (size_t i = 0; i < 4; ++i) {
      const int8_t value = i < 4 - padding ? kValues[static_cast<unsigned char>(text[at + i])] : int8_t{0};
      if (value < 0 || (i >= 4 - padding && text[at + i] != '=')) return std::nullopt;
      word = word << 6 | static_cast<uint32_t>(value);
    }
    if (padding > 0 && (word & (padding == 2 ? 0xFFFFu : 0xFFu)) != 0) return std::nullopt;  // loose bits
    for (size_t i = 0; i < 3 - padding; ++i) out += static_cast<char>(word >> (16 - 8 * i) & 0xFF);
  }
  return out;
}

}  // namespace skald::server
