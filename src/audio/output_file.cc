// Output files: temporary name and rename, or direct writing that can be interrupted.
#include "audio/output_file.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>

#include <fmt/format.h>

namespace skald::audio {
namespace {

// A pipe that poll() calls writable takes this many bytes without blocking (POSIX: PIPE_BUF >= 512, Linux
// 4096).
constexpr size_t kPipeWrite = 4096;
constexpr int kPollMs = 100;

[[noreturn]] void throw_io(const char* doing, const std::string& name, int error) {
  throw Error(ErrorCode::io,
              fmt::format("cannot {} '{}': {}", doing, name, std::generic_category().message(error)));
}

/// The file behind symbolic links, there or not, so that a rename replaces the file and not the link.
std::filesystem::path resolve(std::filesystem::path path) {
  constexpr int kMostLinks = 40;  // Linux's own limit
  std::error_code error;
  for (int i = 0; i < kMostLinks && std::filesystem::is_symlink(path, error); ++i) {
    const auto next = std::filesystem::read_symlink(path, error);
    if (error) break;
    path = path.parent_path() / next;  // an absolute link replaces the folder
  }
  return path;
}

/// Creates a new file beside `target`; its name says whose it is, should the machine lose power.
int create_beside(const std::filesystem::path& target, std::filesystem::path& temporary) {
  for (int attempt = 0; attempt < 1000; ++attempt) {
    temporary = target.parent_path() / fmt::format(".skald-{}-{}.tmp", ::getpid(), attempt);
    const int fd = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd >= 0 || errno != EEXIST) return fd;
  }
  return -1;
}

}  // namespace

OutputFile::OutputFile(int fd, std::string name) : fd_(fd), name_(std::move(name)) {
  struct stat info {};
  regular_ = ::fstat(fd_, &info) == 0 && S_ISREG(info.st_mode);
  const off_t position = regular_ ? ::lseek(fd_, 0, SEEK_CUR) : -1;
  // pwrite() on an appending descriptor ignores its offset, so such a file cannot be patched.
  const int flags = ::fcntl(fd_, F_GETFL);
  seekable_ = position >= 0 && flags >= 0 && (flags & O_APPEND) == 0;
  if (seekable_) start_ = static_cast<uint64_t>(position);
}

std::unique_ptr<OutputFile> OutputFile::open(const std::filesystem::path& path) {
  const std::string name = path.string();
  struct stat info {};
  const bool exists = ::stat(path.c_str(), &info) == 0;
  if (!exists && errno != ENOENT) throw_io("write", name, errno);
  if (exists && S_ISDIR(info.st_mode)) throw_io("write", name, EISDIR);
  if (exists && !S_ISREG(info.st_mode)) {
    const int fd = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
    if (fd < 0) throw_io("open", name, errno);
    return std::unique_ptr<OutputFile>(new OutputFile(fd, name));
  }
  const std::filesystem::path target = resolve(path);
  // The rename would replace a write-protected file if its folder allows; the user who protected it expects
  // an error.
  if (exists && ::access(target.c_str(), W_OK) != 0) throw_io("write", name, errno);
  std::filesystem::path temporary;
  const int fd = create_beside(target, temporary);
  if (fd < 0) throw_io("create a file for", name, errno);
  if (exists) (void)::fchmod(fd, info.st_mode & 07777);
  std::unique_ptr<OutputFile> file(new OutputFile(fd, name));
  file->target_ = target;
  file->temporary_ = temporary;
  return file;
}

std::unique_ptr<OutputFile> OutputFile::attach(int fd, std::string name) {
  std::unique_ptr<OutputFile> file(new OutputFile(fd, std::move(name)));
  file->owned_ = false;
  return file;
}

OutputFile::~OutputFile() {
  if (fd_ >= 0 && owned_) ::close(fd_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void OutputFile::fail(const char* doing, int error) const {
  if (error == EPIPE) throw ClosedPipe(ErrorCode::io, fmt::format("the reader of '{}' closed it", name_));
  throw_io(doing, name_, error);
}

void OutputFile::wait_until_writable() {
  for (;;) {
    if (interrupted_)
      throw Error(ErrorCode::cancelled, fmt::format("writing to '{}' was interrupted", name_));
    pollfd entry{fd_, POLLOUT, 0};
    const int ready = ::poll(&entry, 1, kPollMs);
    if (ready > 0) return;  // errors and hang-ups too: write() names them
    if (ready < 0 && errno != EINTR) fail("write", errno);
  }
}

void OutputFile::write(std::string_view bytes) {
  while (!bytes.empty()) {
    if (!regular_) wait_until_writable();
    const size_t size = regular_ ? bytes.size() : std::min(bytes.size(), kPipeWrite);
    const ssize_t written = ::write(fd_, bytes.data(), size);
    if (written >= 0) {
      bytes.remove_prefix(static_cast<size_t>(written));
    } else if (errno != EINTR && errno != EAGAIN) {
      fail("write", errno);
    }
  }
}

void OutputFile::patch(uint64_t offset, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(start_ + offset));
    if (written < 0) {
      if (errno == EINTR) continue;
      fail("write", errno);
    }
    bytes.remove_prefix(static_cast<size_t>(written));
    offset += static_cast<uint64_t>(written);
  }
}

void OutputFile::commit() {
  if (owned_) {
    const int result = ::close(fd_);
    const int error = errno;
    fd_ = -1;
    if (result != 0 && error != EINTR) fail("finish", error);
  }
  if (temporary_.empty()) return;
  if (::rename(temporary_.c_str(), target_.c_str()) != 0) fail("rename the finished file to", errno);
  temporary_.clear();
}

}  // namespace skald::audio
