// ZIP archives with uncompressed members.
#include "voice/zip.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>

#include "voice/byte_reader.h"
#include "voice/voice_checks.h"

namespace skald::voice {
namespace {

constexpr size_t kEndSize = 22, kEntrySize = 46, kLocalSize = 30, kMostMembers = 4096;

uint32_t crc32(std::string_view bytes) {
  static const std::array<uint32_t, 256> table = [] {
    std::array<uint32_t, 256> t{};
    for (uint32_t i = 0; i < 256; ++i) {
      uint32_t c = i;
      for (int bit = 0; bit < 8; ++bit) c = c >> 1 ^ (c & 1 ? 0xEDB88320u : 0u);
      t[i] = c;
    }
    return t;
  }();
  uint32_t crc = 0xFFFFFFFFu;
  for (const char c : bytes) crc = table[(crc ^ static_cast<unsigned char>(c)) & 0xFF] ^ crc >> 8;
  return ~crc;
}

/// Checked access to a range of the file.
class Bytes {
 public:
  Bytes(std::string_view bytes, const std::string& file) : bytes_(bytes), file_(file) {}

  std::string_view at(uint64_t offset, uint64_t size) const {
    if (offset > bytes_.size() || size > bytes_.size() - offset)
      refuse(file_, fmt::format("is a damaged ZIP: {} bytes at {} lie outside of it", size, offset));
    return bytes_.substr(offset, size);
  }
  /// Of at most four bytes.
  uint32_t number(uint64_t offset, uint64_t width) const {
    return static_cast<uint32_t>(little_endian(at(offset, width)));
  }

 private:
  std::string_view bytes_;
  const std::string& file_;
};

/// The record at the end of the archive that says where the list of members is.
uint64_t find_end(std::string_view bytes, const std::string& file) {
  constexpr std::string_view kMark("PK\x05\x06", 4);
  constexpr size_t kMostComment = 0xFFFF;
  const size_t from = bytes.size() > kEndSize + kMostComment ? bytes.size() - kEndSize - kMostComment : 0;
  const size_t found = bytes.rfind(kMark);
  if (found == std::string_view::npos || found < from)
    refuse(file, "is a ZIP that was cut short: its end is missing");
  return found;
}

}  // namespace

std::map<std::string, std::string_view> read_zip(std::string_view bytes, const std::string& file) {
  const Bytes b(bytes, file);
  const uint64_t end = find_end(bytes, file);
  const uint32_t count = b.number(end + 10, 2);
  uint64_t at = b.number(end + 16, 4);
  if (count == 0 || count > kMostMembers)
    refuse(file, fmt::format("is a ZIP of {} members, expected 1 to {}", count, kMostMembers));
  std::map<std::string, std::string_view> members;
  uint64_t total = 0;
  for (uint32_t i = 0; i < count; ++i) {
    if (b.at(at, kEntrySize).substr(0, 4) != std::string_view("PK\x01\x02", 4))
      refuse(file, fmt::format("is a damaged ZIP: no member is listed at {}", at));
    const uint32_t flags = b.number(at + 8, 2), method = b.number(at + 10, 2), crc = b.number(at + 16, 4),
                   size = b.number(at + 20, 4), whole = b.number(at + 24, 4),
                   name_size = b.number(at + 28, 2), extra = b.number(at + 30, 2),
                   comment = b.number(at + 32, 2);
    const uint64_t local = b.number(at + 42, 4);
    const std::string name(b.at(at + kEntrySize, name_size));
    if ((flags & 1) != 0 || method != 0 || size != whole)
      refuse(file, "is a ZIP with compressed or encrypted members, which torch does not write");
    if (b.at(local, kLocalSize).substr(0, 4) != std::string_view("PK\x03\x04", 4))
      refuse(file, fmt::format("is a damaged ZIP: no member begins at {}", local));
    const uint64_t data = local + kLocalSize + b.number(local + 26, 2) + b.number(local + 28, 2);
    const std::string_view contents = b.at(data, size);
    total += size;
    if (total > bytes.size()) refuse(file, "is a ZIP whose members overlap");
    if (crc32(contents) != crc)
      refuse(file, fmt::format("is a damaged ZIP: member {} has another checksum", i));
    if (!members.emplace(name, contents).second)
      refuse(file, fmt::format("is a ZIP that lists member {} twice", i));
    at += kEntrySize + name_size + extra + comment;
  }
  return members;
}

}  // namespace skald::voice
