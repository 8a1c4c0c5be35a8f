// A folder of voices: names, atomic writes, no path but those made here.
#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "skald/voice.h"
#include "voice/voice_checks.h"

namespace skald {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSuffix = ".safetensors";

[[noreturn]] void fail_io(const fs::path& path, const char* doing, int error) {
  throw Error(ErrorCode::io, fmt::format("cannot {} '{}': {}", doing, path.string(), std::strerror(error)));
}

/// Names as messages have them: a file may have any.
std::string ascii_of(std::string_view name) {
  std::string shown;
  for (const char c : name) shown += c >= ' ' && c <= '~' ? c : '?';
  return shown;
}

void require_name(std::string_view name) {
  if (valid_voice_name(name)) return;
  throw Error(
      ErrorCode::unknown_voice,
      fmt::format("\"{}\" cannot be the name of a voice: a name is 1 to 64 letters, digits, '-' and '_', and "
                  "begins with a letter or digit",
                  ascii_of(name.substr(0, 80))));
}

bool same_but_for_case(std::string_view a, std::string_view b) {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [&](char x, char y) { return lower(x) == lower(y); });
}

/// Names of the files that could be voices, sorted. Dot files are ours in the making.
std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code failure;
  for (fs::directory_iterator at(folder, failure), end; !failure && at != end; at.increment(failure)) {
    const std::string file = at->path().filename().string();
    if (file[0] != '.' && file.ends_with(kSuffix))
      names.push_back(file.substr(0, file.size() - kSuffix.size()));
  }
  if (failure && failure != std::errc::no_such_file_or_directory)
    throw Error(ErrorCode::io, fmt::format("cannot read '{}': {}", folder.string(), failure.message()));
  std::sort(names.begin(), names.end());
  return names;
}

/// The bytes of a regular file; links are not followed.
std::string read_file(const fs::path& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0 && errno == ELOOP) voice::refuse(path.filename().string(), "is a link, which is not followed");
  if (fd < 0) fail_io(path, "open", errno);
  std::string bytes;
  struct stat info {};
  int error = ::fstat(fd, &info) != 0 ? errno : 0;
  const bool usable =
      error == 0 && S_ISREG(info.st_mode) && info.st_size <= static_cast<off_t>(voice::kMostFileBytes);
  if (usable) bytes.resize(static_cast<size_t>(info.st_size));
  for (size_t done = 0; usable && done < bytes.size();) {
    const ssize_t n = ::pread(fd, bytes.data() + done, bytes.size() - done, static_cast<off_t>(done));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      error = n < 0 ? errno : 0;
      bytes.resize(done);
      break;
    }
    done += static_cast<size_t>(n);
  }
  ::close(fd);
  if (error != 0) fail_io(path, "read", error);
  if (!usable) voice::refuse(path.filename().string(), "is no regular file of a voice's size");
  return bytes;
}

/// A whole file that has no name yet where the system can make such: one that is ended meanwhile leaves
/// nothing. Elsewhere it has a name of its own, and disappears unless it was moved.
class TemporaryFile {
 public:
  TemporaryFile(const fs::path& folder, std::string_view name, std::string_view bytes)
      : path_((folder / fmt::format(".{}-XXXXXX", name)).string()) {
    // By /proc it gets its name.
    if (::access("/proc/self/fd", X_OK) == 0)
      fd_ = ::open(folder.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
    named_ = fd_ < 0;
    if (named_) fd_ = ::mkstemp(path_.data());
    if (fd_ < 0) fail_io(folder, "write into", errno);
    if (const int error = fill(bytes); error != 0) {
      discard();
      fail_io(folder, "write into", error);
    }
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  ~TemporaryFile() { discard(); }

  /// Gives the file its name; false where there is one of that name and it must stay.
  bool move_to(const fs::path& target, bool replace) {
    if (!named_ && !replace) {
      if (link_to(target)) return true;
      if (errno == EEXIST) return false;
      fail_io(target, "write", errno);
    }
    if (!named_) take_name(target);
    if (replace) {
      rename_to(target);
      return true;
    }
    if (::link(path_.c_str(), target.c_str()) == 0) return true;
    if (errno == EEXIST) return false;
    // A file system without links: the name is taken first.
    const int fd = ::open(target.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0 && errno == EEXIST) return false;
    if (fd < 0) fail_io(target, "write", errno);
    ::close(fd);
    rename_to(target);
    return true;
  }

 private:
  /// 0, or what the system said.
  int fill(std::string_view bytes) const {
    for (size_t done = 0; done < bytes.size();) {
      const ssize_t n = ::write(fd_, bytes.data() + done, bytes.size() - done);
      if (n < 0 && errno != EINTR) return errno;
      if (n > 0) done += static_cast<size_t>(n);
    }
    return ::fsync(fd_) == 0 ? 0 : errno;
  }
  bool link_to(const fs::path& target) const {
    const std::string own = fmt::format("/proc/self/fd/{}", fd_);
    return ::linkat(AT_FDCWD, own.c_str(), AT_FDCWD, target.c_str(), AT_SYMLINK_FOLLOW) == 0;
  }
  /// A name for as long as a rename takes: nothing else puts a file in the place of another.
  void take_name(const fs::path& target) {
    constexpr int kTries = 100;
    const std::string stem = path_.substr(0, path_.size() - 6);
    for (int i = 0; i < kTries && !named_; ++i) {
      path_ = fmt::format("{}{}.{}", stem, ::getpid(), i);
      named_ = link_to(path_);
      if (!named_ && errno != EEXIST) break;
    }
    if (!named_) fail_io(target, "write", errno);
  }
  void rename_to(const fs::path& target) {
    if (::rename(path_.c_str(), target.c_str()) != 0) fail_io(target, "write", errno);
    named_ = false;  // the name may be another's by the time that this ends
  }
  void discard() {
    if (named_) ::unlink(path_.c_str());
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }

  std::string path_;
  int fd_ = -1;
  bool named_ = false;
};

/// Keeps other processes from giving names in the folder meanwhile: of names that differ in case alone both
/// could be free. A file system without locks goes without.
class FolderLock {
 public:
  explicit FolderLock(const fs::path& folder)
      : fd_(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
    constexpr int kTries = 500, kPauseUs = 10000;  // 5 s
    for (int i = 0; fd_ >= 0 && ::flock(fd_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK; ++i) {
      if (i == kTries) {
        ::close(fd_);
        throw Error(ErrorCode::io,
                    fmt::format("another process keeps the folder '{}' locked", folder.string()));
      }
      ::usleep(kPauseUs);
    }
  }
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;
  ~FolderLock() {
    if (fd_ >= 0) ::close(fd_);
  }

 private:
  int fd_;
};

}  // namespace

fs::path VoiceFolder::file_of(std::string_view name) const {
  require_name(name);
  const fs::path exact = folder_ / (std::string(name) + std::string(kSuffix));
  struct stat info {};
  if (::lstat(exact.c_str(), &info) == 0) return exact;
  const std::vector<std::string> names = names_in(folder_);
  for (const std::string& other : names)
    if (same_but_for_case(name, other)) return folder_ / (other + std::string(kSuffix));
  return exact;
}

bool VoiceFolder::has(std::string_view name) const {
  struct stat info {};
  return ::lstat(file_of(name).c_str(), &info) == 0;
}

std::vector<VoiceFolder::Entry> VoiceFolder::list() const {
  std::vector<Entry> entries;
  for (const std::string& name : names_in(folder_)) {
    Entry entry{.name = name, .problem = {}, .voice = {}};
    try {
      entry.voice = load(name);
    } catch (const Error& e) {
      entry.problem = e.what();
    }
    entries.push_back(std::move(entry));
  }
  return entries;
}

Voice VoiceFolder::load(std::string_view name) const {
  const fs::path file = file_of(name);
  struct stat info {};
  if (::lstat(file.c_str(), &info) != 0) {
    const std::vector<std::string> names = names_in(folder_);
    throw Error(
        ErrorCode::unknown_voice,
        fmt::format("unknown voice \"{}\"; {}", name,
                    names.empty()
                        ? fmt::format("there are no voices in '{}'", folder_.string())
                        : fmt::format("there are: {}", ascii_of(fmt::format("{}", fmt::join(names, ", "))))));
  }
  Voice voice = read_voice(read_file(file), file.filename().string());
  voice.name = file.stem().string();  // whoever moved the file gave it another name
  return voice;
}

void VoiceFolder::save(const Voice& voice, bool replace) {
  require_name(voice.name);
  require_consent(voice);
  const std::string bytes = write_voice(voice);
  std::error_code failure;
  fs::create_directories(folder_, failure);
  if (failure)
    throw Error(ErrorCode::io, fmt::format("cannot make '{}': {}", folder_.string(), failure.message()));
  TemporaryFile temporary(folder_, voice.name, bytes);
  const FolderLock lock(folder_);
  const fs::path file = file_of(voice.name);
  const std::string present = file.stem().string();
  const auto exists = [&] {
    return Error(
        ErrorCode::voice_exists,
        fmt::format("a voice \"{}\" is there; it stays as it is unless replacing it is asked for", present));
  };
  if (present != voice.name && !replace) throw exists();
  if (!temporary.move_to(file, replace)) throw exists();
}

void VoiceFolder::remove(std::string_view name) {
  const fs::path file = file_of(name);
  if (::unlink(file.c_str()) == 0) return;
  if (errno != ENOENT) fail_io(file, "remove", errno);
  load(name);  // throws with the names there are
}

void VoiceFolder::rename(std::string_view from, const std::string& to, bool replace) {
  Voice voice = load(from);
  const fs::path old = file_of(from);
  require_name(to);
  if (voice.name == to) return;
  const bool only_case = same_but_for_case(voice.name, to);
  voice.name = to;
  if (only_case) {
    // The old file would be found under the new name.
    require_consent(voice);
    TemporaryFile temporary(folder_, to, write_voice(voice));
    const FolderLock lock(folder_);
    temporary.move_to(folder_ / (to + std::string(kSuffix)), true);
  } else {
    save(voice, replace);
  }
  if (::unlink(old.c_str()) != 0 && errno != ENOENT) fail_io(old, "remove", errno);
}

}  // namespace skald
