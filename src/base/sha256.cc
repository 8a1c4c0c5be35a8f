// SHA-256, straight from FIPS 180-4.
#include "base/sha256.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace skald {
namespace {

constexpr std::array<uint32_t, 64> kRounds = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

}  // namespace

void Sha256::block(const std::byte* bytes) {
  std::array<uint32_t, 64> w;
  for (size_t i = 0; i < 16; ++i)
    w[i] = std::to_integer<uint32_t>(bytes[4 * i]) << 24 | std::to_integer<uint32_t>(bytes[4 * i + 1]) << 16 |
           std::to_integer<uint32_t>(bytes[4 * i + 2]) << 8 | std::to_integer<uint32_t>(bytes[4 * i + 3]);
  for (size_t i = 16; i < 64; ++i) {
    const uint32_t a = w[i - 15], b = w[i - 2];
    w[i] = w[i - 16] + (std::rotr(a, 7) ^ std::rotr(a, 18) ^ a >> 3) + w[i - 7] +
           (std::rotr(b, 17) ^ std::rotr(b, 19) ^ b >> 10);
  }
  auto [a, b, c, d, e, f, g, h] = state_;
  for (size_t i = 0; i < 64; ++i) {
    const uint32_t t1 = h + (std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25)) + ((e & f) ^ (~e & g)) +
                        kRounds[i] + w[i];
    const uint32_t t2 =
        (std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
    h = g, g = f, f = e, e = d + t1, d = c, c = b, b = a, a = t1 + t2;
  }
  const std::array<uint32_t, 8> sums{a, b, c, d, e, f, g, h};
  for (size_t i = 0; i < 8; ++i) state_[i] += sums[i];
}

Sha256& Sha256::add(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const size_t filled = length_ % 64, take = std::min(64 - filled, bytes.size());
    std::memcpy(pending_.data() + filled, bytes.data(), take);
    length_ += take;
    bytes = bytes.subspan(take);
    if (length_ % 64 == 0) block(pending_.data());
  }
  return *this;
}

Sha256& Sha256::field(std::span<const std::byte> bytes) {
  const uint64_t size = bytes.size();
  return add(std::as_bytes(std::span(&size, 1))).add(bytes);
}

Digest Sha256::finish() {
  const uint64_t bits = length_ * 8;
  const std::byte end{0x80};
  add({&end, 1});
  while (length_ % 64 != 56) {
    const std::byte zero{0};
    add({&zero, 1});
  }
  std::array<std::byte, 8> tail;
  for (size_t i = 0; i < 8; ++i) tail[i] = static_cast<std::byte>(bits >> (56 - 8 * i));
  add(tail);
  Digest digest;
  for (size_t i = 0; i < 32; ++i) digest[i] = static_cast<uint8_t>(state_[i / 4] >> (24 - 8 * (i % 4)));
  return digest;
}

Digest sha256(std::span<const std::byte> bytes) { return Sha256().add(bytes).finish(); }

std::string hex(const Digest& digest, size_t digits) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (const uint8_t b : digest) text += kDigits[b >> 4], text += kDigits[b & 15];
  return text.substr(0, digits);
}

}  // namespace skald
