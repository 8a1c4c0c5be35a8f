// The devices of the GPU kernels' tests: the host stand-in, and a real GPU where SKALD_TEST_CUBINS names its
// code.
#include <cstdlib>
#include <stdexcept>

#include "kernel_device.h"
#include "rig.h"

namespace skald::backend::test {
namespace {

const char* cubin_folder() { return std::getenv("SKALD_TEST_CUBINS"); }

}  // namespace

std::vector<std::string> rig_devices() {
  if (cubin_folder()) return {"cuda"};
  return {"simt32", "simt64", "simt32_order"};
}

std::vector<int> rig_threads() { return {1}; }

bool rig_is_slow() { return !cubin_folder(); }

std::unique_ptr<Backend> make_rig_device(const std::string& name, int, const std::string& weights) {
  const std::string device = name.empty() ? rig_devices().front() : name;
  std::unique_ptr<gpu::test::Executor> executor;
  if (device == "cuda") executor = gpu::test::make_cuda_executor(cubin_folder());
  if (device == "simt32") executor = gpu::test::make_simt_executor(32, false, 0);
  if (device == "simt64") executor = gpu::test::make_simt_executor(64, false, 0);
  if (device == "simt32_order") executor = gpu::test::make_simt_executor(32, false, 77);
  if (device == "race") executor = gpu::test::make_simt_executor(32, true, 77);
  if (!executor) throw std::runtime_error("no device " + device);
  return std::make_unique<gpu::test::KernelDevice>(std::move(executor), weights);
}

}  // namespace skald::backend::test
