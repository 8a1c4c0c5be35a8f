// A child process with a deadline.
#include "backend/gpu/code/child.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "skald/error.h"

extern char** environ;

namespace skald::backend::gpu {
namespace {

using Clock = std::chrono::steady_clock;

class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() { reset(); }
  int get() const { return fd_; }
  void reset(int fd = -1) {
    if (fd_ >= 0) close(fd_);
    fd_ = fd;
  }

 private:
  int fd_;
};

/// The settings of one posix_spawn.
class SpawnSetup {
 public:
  SpawnSetup(int output, const std::vector<int>& pass) {
    posix_spawn_file_actions_init(&actions_);
    posix_spawnattr_init(&attributes_);
    posix_spawn_file_actions_addopen(&actions_, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions_, output, 1);
    posix_spawn_file_actions_adddup2(&actions_, output, 2);
    for (size_t i = 0; i < pass.size(); ++i)
      posix_spawn_file_actions_adddup2(&actions_, pass[i], 3 + static_cast<int>(i));
    posix_spawn_file_actions_addclosefrom_np(&actions_, 3 + static_cast<int>(pass.size()));
    // A group of its own, so that whatever it starts dies with it; no signal blocked or ignored.
    sigset_t none, all;
    sigemptyset(&none), sigfillset(&all);
    posix_spawnattr_setsigmask(&attributes_, &none);
    posix_spawnattr_setsigdefault(&attributes_, &all);
    posix_spawnattr_setpgroup(&attributes_, 0);
    posix_spawnattr_setflags(&attributes_,
                             POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  }
  SpawnSetup(const SpawnSetup&) = delete;
  SpawnSetup& operator=(const SpawnSetup&) = delete;
  ~SpawnSetup() {
    posix_spawn_file_actions_destroy(&actions_);
    posix_spawnattr_destroy(&attributes_);
  }

  bool spawn(const std::filesystem::path& program, const std::vector<std::string>& arguments, pid_t& pid) {
    std::string name = program.string();
    std::vector<char*> argv{name.data()};
    std::vector<std::string> copies = arguments;
    for (std::string& a : copies) argv.push_back(a.data());
    argv.push_back(nullptr);
    return posix_spawn(&pid, program.c_str(), &actions_, &attributes_, argv.data(), environ) == 0;
  }

 private:
  posix_spawn_file_actions_t actions_;
  posix_spawnattr_t attributes_;
};

/// Reads what is there; false at the end of the stream.
bool take_output(int fd, std::string& output) {
  char bytes[4096];
  for (;;) {
    const ssize_t n = read(fd, bytes, sizeof bytes);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno == EAGAIN;
    if (n == 0) return false;
    output.append(bytes, static_cast<size_t>(n));
    if (output.size() > 2 * ChildResult::kMost) output.erase(0, output.size() - ChildResult::kMost);
  }
}

/// True when the child is gone; fills what it ended with.
bool reap(pid_t pid, ChildResult& result) {
  int status = 0;
  const pid_t got = waitpid(pid, &status, WNOHANG);
  if (got == 0 || (got < 0 && errno == EINTR)) return false;
  if (got < 0) return true;  // the program that we are part of reaps all children itself
  if (WIFSIGNALED(status)) result.signal = WTERMSIG(status);
  if (WIFEXITED(status)) result.exit_code = WEXITSTATUS(status);
  return true;
}

}  // namespace

std::string ChildResult::describe(int deadline_ms) const {
  if (!started) return "could not be started";
  if (timed_out) return fmt::format("did not end within {} s", (deadline_ms + 999) / 1000);
  if (signal) return fmt::format("was ended by signal {} ({})", signal, strsignal(signal));
  return fmt::format("ended with status {}", exit_code);
}

ChildResult run_child(const std::filesystem::path& program, const std::vector<std::string>& arguments,
                      const std::vector<int>& pass, int deadline_ms, const std::atomic<bool>* enough) {
  ChildResult result;
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0)
    throw Error(ErrorCode::io, fmt::format("cannot make a pipe: {}", std::strerror(errno)));
  const Descriptor out(ends[0]);
  Descriptor in(ends[1]);
  // The descriptors move to their places one by one: sources above the targets are never overwritten.
  std::vector<int> high;
  for (const int fd : pass) high.push_back(fcntl(fd, F_DUPFD_CLOEXEC, 100));
  const int high_in = fcntl(in.get(), F_DUPFD_CLOEXEC, 100);
  pid_t pid = 0;
  result.started = SpawnSetup(high_in, high).spawn(program, arguments, pid);
  for (const int fd : high) close(fd);
  close(high_in);
  in.reset();
  if (!result.started) return result;

  fcntl(out.get(), F_SETFL, O_NONBLOCK);
  bool open = true, gone = false;
  // Time that this process itself stood still (stopped, suspended) is not the child's: a step counts 200 ms
  // at most.
  std::chrono::milliseconds left(deadline_ms);
  for (auto before = Clock::now(); !gone && left.count() > 0 && !(enough && *enough);) {
    pollfd waiting{out.get(), POLLIN, 0};
    poll(&waiting, open ? 1 : 0, 10);
    if (open) open = take_output(out.get(), result.output);
    gone = reap(pid, result);
    const auto now = Clock::now();
    left -= std::min(std::chrono::duration_cast<std::chrono::milliseconds>(now - before),
                     std::chrono::milliseconds(200));
    if (now - before >= std::chrono::milliseconds(1)) before = now;
  }
  if (!gone) {
    result.timed_out = true;
    kill(-pid, SIGKILL);
    // One that hangs inside the kernel does not even die; it is left behind.
    for (int i = 0; i < 100 && !reap(pid, result); ++i) usleep(10000);
    result.signal = 0;
  }
  if (open) take_output(out.get(), result.output);
  if (result.output.size() > ChildResult::kMost)
    result.output.erase(0, result.output.size() - ChildResult::kMost);
  return result;
}

namespace {

/// One of several runs of a program, in a thread of its own.
struct Try {
  ~Try() {
    enough = true;
    if (thread.joinable()) thread.join();
  }
  std::atomic<bool> enough = false;
  std::thread thread;
};

/// What the tries tell each other.
struct Tries {
  std::mutex mutex;
  std::condition_variable ended;
  std::optional<ChildResult> first;
};

}  // namespace

ChildResult run_child_again(const std::filesystem::path& program, const std::vector<std::string>& arguments,
                            int deadline_ms, int again_ms) {
  Tries shared;
  std::vector<std::unique_ptr<Try>> tries;
  const auto start = [&](int left_ms) {
    tries.push_back(std::make_unique<Try>());
    Try& mine = *tries.back();
    mine.thread = std::thread([&, left_ms] {
      ChildResult result;  // not started, where that throws
      try {
        result = run_child(program, arguments, {}, left_ms, &mine.enough);
      } catch (const Error&) {
      }
      const std::lock_guard lock(shared.mutex);
      if (!mine.enough && !shared.first) shared.first = std::move(result);
      shared.ended.notify_all();
    });
  };
  for (int begun = 0;; begun += again_ms) {
    start(deadline_ms - begun);
    if (tries.size() > 2) tries[tries.size() - 2]->enough = true;
    std::unique_lock lock(shared.mutex);
    const auto any = [&] { return shared.first.has_value(); };
    if (begun + again_ms >= deadline_ms) {
      shared.ended.wait(lock, any);  // every try ends by the deadline
      break;
    }
    if (shared.ended.wait_for(lock, std::chrono::milliseconds(again_ms), any)) break;
  }
  tries.clear();
  return std::move(*shared.first);
}

MemoryFile::MemoryFile(const char* name) : fd_(memfd_create(name, MFD_CLOEXEC)) {
  if (fd_ < 0) throw Error(ErrorCode::io, fmt::format("cannot make a memory file: {}", std::strerror(errno)));
}

MemoryFile::~MemoryFile() { close(fd_); }

void MemoryFile::write(std::string_view bytes) const {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd_, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0)
      throw Error(ErrorCode::io, fmt::format("cannot write a memory file: {}", std::strerror(errno)));
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  lseek(fd_, 0, SEEK_SET);
}

std::string MemoryFile::read() const {
  std::string all;
  char bytes[65536];
  for (off_t at = 0;;) {
    const ssize_t n = pread(fd_, bytes, sizeof bytes, at);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return all;
    all.append(bytes, static_cast<size_t>(n));
    at += n;
  }
}

}  // namespace skald::backend::gpu
