// skald-rtc: starts GPU drivers and compiles kernels where a crash or a hang costs nothing.
//
//   skald-rtc probe hip|cuda LIBRARY [FOLDER...]   starts the driver; prints the compiler's version and file
//   skald-rtc compile                              the job on descriptor 3, the code to descriptor 4
//   skald-rtc sources FOLDER                       writes the kernel modules, for compiling ahead of time
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <exception>
#include <fstream>
#include <string>

#include "backend/gpu/code/job.h"
#include "backend/gpu/code/sources.h"

namespace skald::backend::gpu {
namespace {

std::string read_all(int fd) {
  std::string all;
  char bytes[65536];
  for (;;) {
    const ssize_t n = read(fd, bytes, sizeof bytes);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return all;
    all.append(bytes, static_cast<size_t>(n));
  }
}

bool write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return true;
}

int compile() {
  std::string code, message;
  int status = compile_here(decode_job(read_all(3)), code, message);
  if (status == kHelperDone && !write_all(4, code))
    status = kHelperCompileError, message = "cannot hand the code over";
  fmt::print("{}\n", message);
  return status;
}

int probe(Vendor vendor, const std::string& library, const std::vector<std::string>& folders) {
  std::string message;
  const int status = probe_here(vendor, library, folders, message);
  fmt::print("{}\n", message);
  return status;
}

int write_sources(const std::string& folder) {
  for (const SourceModule& module : kernel_modules()) {
    std::ofstream out(fmt::format("{}/{}-{}.cu", folder, module.name, module.digest), std::ios::binary);
    if (!(out << module.text).flush())
      return fmt::print(stderr, "cannot write to {}\n", folder), kHelperUsage;
  }
  return kHelperDone;
}

int run(int argc, char** argv) {
  const std::string verb = argc > 1 ? argv[1] : "";
  if (verb == "compile" && argc == 2) return compile();
  if (verb == "sources" && argc == 3) return write_sources(argv[2]);
  if (verb == "probe" && argc >= 4)
    return probe(std::string(argv[2]) == vendor_prefix(Vendor::nvidia) ? Vendor::nvidia : Vendor::amd,
                 argv[3], {argv + 4, argv + argc});
  fmt::print(stderr, "skald-rtc is started by skald itself; by hand: skald-rtc sources FOLDER\n");
  return kHelperUsage;
}

}  // namespace
}  // namespace skald::backend::gpu

int main(int argc, char** argv) {
  int status = skald::backend::gpu::kHelperUsage;
  try {
    status = skald::backend::gpu::run(argc, argv);
  } catch (const std::exception& e) {
    fmt::print("{}\n", e.what());
  }
  std::fflush(stdout);
  // The vendors' libraries may crash in their own clean-up.
  _exit(status);
}
