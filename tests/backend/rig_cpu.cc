// The devices of the CPU's tests: every SIMD target of this machine.
#include "backend/cpu/cpu.h"
#include "rig.h"

namespace skald::backend::test {

std::vector<std::string> rig_devices() { return cpu_targets(); }

std::vector<int> rig_threads() { return {1, 3}; }

bool rig_is_slow() { return false; }

std::unique_ptr<Backend> make_rig_device(const std::string& name, int threads, const std::string& weights) {
  const bool fast = weights.starts_with("fast ");  // "fast auto", "fast int8": compute "fast"
  return make_cpu_backend({.threads = threads,
                           .target = name,
                           .weights = fast ? weights.substr(5) : weights,
                           .compute = fast ? "fast" : "exact"});
}

}  // namespace skald::backend::test
