// Runs launches on the host stand-in.
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <map>
#include <stdexcept>

#include "kernel_device.h"
#include "simt_rt.h"

namespace skald::backend::gpu::test {
namespace {

/// Every allocation ends at a page that cannot be touched, or begins behind one, so that an access outside is
/// found.
class GuardedMemory {
 public:
  ~GuardedMemory() {
    for (const auto& [at, bytes] : mappings_) munmap(at, bytes);
  }
  uint64_t allocate(size_t bytes, bool aligned) {
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const size_t step = aligned ? 256 : 16, used = (bytes + step - 1) / step * step;
    const size_t whole = (used + page - 1) / page * page;
    void* const at = mmap(nullptr, whole + 2 * page, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) throw std::runtime_error("no memory");
    mprotect(at, page, PROT_NONE);
    mprotect(static_cast<char*>(at) + page + whole, page, PROT_NONE);
    mappings_.emplace_back(at, whole + 2 * page);
    return reinterpret_cast<uint64_t>(at) + page + whole - used;
  }

 private:
  std::vector<std::pair<void*, size_t>> mappings_;
};

/// Loaded once per process.
simt::Module& module_for(int warp, bool race) {
  static std::map<std::pair<int, bool>, std::unique_ptr<simt::Module>> modules;
  std::unique_ptr<simt::Module>& m = modules[{warp, race}];
  if (!m)
    m = std::make_unique<simt::Module>(std::string(SKALD_SIMT_FOLDER "/simt_kernels_") +
                                       std::to_string(warp) + (race ? "_race" : "") + ".so");
  return *m;
}

class SimtExecutor final : public Executor {
 public:
  SimtExecutor(int warp, bool race, unsigned seed)
      : module_(module_for(warp, race)), race_(race), seed_(seed) {}

  std::string name() const override { return "simt" + std::to_string(module_.warp) + (race_ ? " race" : ""); }
  DeviceTraits traits() const override { return {module_.warp, 8, false, module_.warp == 32}; }
  uint64_t allocate(size_t bytes, bool aligned) override { return memory_.allocate(bytes, aligned); }
  void write(uint64_t to, const void* from, size_t bytes) override {
    if (bytes > 0) std::memcpy(reinterpret_cast<void*>(to), from, bytes);
  }
  void read(void* to, uint64_t from, size_t bytes) override {
    if (bytes > 0) std::memcpy(to, reinterpret_cast<const void*>(from), bytes);
  }
  void launch(const Launch& l) override {
    const simt_kernel* kernel = module_.find(l.kernel);
    if (!kernel) throw std::runtime_error("no kernel " + l.kernel);
    if (kernel->args_size != l.args.size())
      throw std::runtime_error(l.kernel + ": arguments of another size");
    if (l.threads == 0 || l.threads > 1024 || l.threads % 64 != 0 || l.blocks == 0)
      throw std::runtime_error(l.kernel + ": impossible size");
    const std::string problem =
        runner_.run(module_, *kernel, l.args.data(), static_cast<int>(l.blocks), static_cast<int>(l.threads),
                    l.dynamic_shared, seed_ ? seed_++ : 0);
    if (!problem.empty()) throw std::runtime_error(problem);
  }

 private:
  simt::Module& module_;
  simt::Runner runner_;
  GuardedMemory memory_;
  bool race_;
  unsigned seed_;
};

}  // namespace

std::unique_ptr<Executor> make_simt_executor(int warp, bool race, unsigned seed) {
  return std::make_unique<SimtExecutor>(warp, race, seed);
}

}  // namespace skald::backend::gpu::test
