// Machine code kept on disk.
#include "backend/gpu/code/cache.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <system_error>

namespace skald::backend::gpu {

namespace fs = std::filesystem;

namespace {

/// What stands in front of the code in a file.
struct Header {
  char magic[8] = {'s', 'k', 'a', 'l', 'd', 'g', 'p', '1'};
  uint64_t size = 0;
  Digest key{}, content{};
};
static_assert(sizeof(Header) == 80);

class File {
 public:
  explicit File(int fd) : fd_(fd) {}
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() {
    if (fd_ >= 0) close(fd_);
  }
  bool write_all(std::span<const std::byte> bytes) const {
    while (!bytes.empty()) {
      const ssize_t n = ::write(fd_, bytes.data(), bytes.size());
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return false;
      bytes = bytes.subspan(static_cast<size_t>(n));
    }
    return true;
  }
  bool sync() const { return fsync(fd_) == 0; }

 private:
  int fd_;
};

}  // namespace

Digest CodeKey::digest() const {
  return Sha256()
      .field(architecture)
      .field(module)
      .field(source_digest)
      .field(options)
      .field(compiler)
      .finish();
}

std::string CodeKey::file_name() const {
  return fmt::format("{}-{}-{}.code", architecture, module, hex(digest(), 24));
}

std::optional<std::vector<std::byte>> CodeCache::find(const CodeKey& key) const {
  if (folder_.empty()) return std::nullopt;
  const fs::path file = folder_ / key.file_name();
  std::error_code failure;
  const uintmax_t size = fs::file_size(file, failure);
  std::ifstream in(file, std::ios::binary);
  Header header;
  const Header right;
  if (!in.read(reinterpret_cast<char*>(&header), sizeof header) ||
      std::memcmp(header.magic, right.magic, sizeof header.magic) != 0 || header.key != key.digest() ||
      failure || header.size != size - sizeof header)
    return std::nullopt;
  std::vector<std::byte> code(header.size);
  if (!in.read(reinterpret_cast<char*>(code.data()), static_cast<std::streamsize>(code.size())) ||
      sha256(code) != header.content)
    return std::nullopt;
  return code;
}

std::string CodeCache::keep(const CodeKey& key, std::span<const std::byte> code) const {
  if (folder_.empty()) return {};
  std::error_code failure;
  fs::create_directories(folder_, failure);
  const fs::path path = folder_ / key.file_name();
  std::string temporary = path.string() + ".XXXXXX";
  const auto failed = [&](const char* what) {
    const int error = errno;
    unlink(temporary.c_str());
    return fmt::format("cannot {} '{}': {}", what, temporary, std::strerror(error));
  };
  Header header;
  header.size = code.size(), header.key = key.digest(), header.content = sha256(code);
  {
    const int fd = mkostemp(temporary.data(), O_CLOEXEC);
    if (fd < 0) return failed("create");
    const File file(fd);
    if (!file.write_all(std::as_bytes(std::span(&header, 1))) || !file.write_all(code) || !file.sync())
      return failed("write");
  }
  if (rename(temporary.c_str(), path.c_str()) != 0) return failed("rename");
  return {};
}

}  // namespace skald::backend::gpu
