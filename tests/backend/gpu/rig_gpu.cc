// The devices of the GPU kernels' tests: the host stand-in, or, where SKALD_TEST_DEVICE names one ("cuda:0",
// "hip:0"), a GPU through the whole backend; see tools/gpu-check.sh.
#include <cstdlib>
#include <map>
#include <stdexcept>

#include "backend/gpu/gpu.h"
#include "kernel_device.h"
#include "rig.h"

namespace skald::backend::test {
namespace {

const char* given_device() { return std::getenv("SKALD_TEST_DEVICE"); }
const char* given_libraries() { return std::getenv("SKALD_GPU_LIBRARIES"); }

/// One GPU for all rigs of a program: opening it takes longer than most tests.
class SharedDevice final : public Backend {
 public:
  explicit SharedDevice(Backend& inner) : inner_(inner), others_(inner.weight_bytes()) {}
  std::string_view name() const override { return inner_.name(); }
  Weight load(WeightRole role, const TensorSource& source) override { return inner_.load(role, source); }
  Buffer allocate(std::string_view label, Dtype dtype, int64_t rows, int32_t width) override {
    return inner_.allocate(label, dtype, rows, width);
  }
  void write(const Buffer& to, std::span<const std::byte> bytes) override { inner_.write(to, bytes); }
  void read(const Buffer& from, std::span<std::byte> bytes) override { inner_.read(from, bytes); }
  void zero(const Buffer& view) override { inner_.zero(view); }
  Program record(std::string_view name, const std::function<void(Ops&)>& body) override {
    return inner_.record(name, body);
  }
  /// Faults are reported with the next read.
  void run(Program program) override {
    inner_.run(program);
    settle();
  }
  std::span<const OpRecord> ops(Program program) const override { return inner_.ops(program); }
  void run_op(Program program, size_t index) override {
    inner_.run_op(program, index);
    settle();
  }
  size_t weight_bytes() const override { return inner_.weight_bytes() - others_; }
  size_t buffer_bytes() const override { return inner_.buffer_bytes(); }

 private:
  void settle() {
    if (!word_) word_ = inner_.allocate("test.word", Dtype::i32, 1, 1);
    int32_t value = 0;
    inner_.read(word_, std::as_writable_bytes(std::span(&value, 1)));
  }

  Backend& inner_;
  size_t others_;  ///< bytes of rigs before this one
  Buffer word_;
};

std::unique_ptr<Backend> share_gpu(const std::string& weights, bool matrix) {
  static std::map<std::pair<std::string, bool>, std::unique_ptr<Backend>> opened;
  std::unique_ptr<Backend>& device = opened[{weights, matrix}];
  if (!device) {
    GpuOptions options;
    options.device = given_device(), options.weights = weights, options.matrix_units = matrix;
    if (given_libraries()) options.library_folders = {given_libraries()};
    if (const char* folder = std::getenv("SKALD_TEST_CACHE")) options.cache_folder = folder;
    device = make_gpu_backend(options);
  }
  return std::make_unique<SharedDevice>(*device);
}

}  // namespace

std::vector<std::string> rig_devices() {
  if (given_device()) return {"gpu"};
#if defined(SKALD_SIMT_ONE)
  return {"simt32", "simt32_order"};
#else
  return {"simt32", "simt64", "simt32_order"};
#endif
}

std::vector<int> rig_threads() { return {1}; }

bool rig_is_slow() { return !given_device() || given_libraries(); }

std::unique_ptr<Backend> make_rig_device(const std::string& name, int, const std::string& weights) {
  const std::string device = name.empty() ? rig_devices().front() : name;
  if (device.starts_with("gpu")) return share_gpu(weights, device == "gpu_matrix");
  std::unique_ptr<gpu::test::Executor> executor;
  if (device == "simt32") executor = gpu::test::make_simt_executor(32, false, 0);
  if (device == "simt64") executor = gpu::test::make_simt_executor(64, false, 0);
  if (device == "simt32_order") executor = gpu::test::make_simt_executor(32, false, 77);
  const bool matrix = device.ends_with("_matrix");
  if (device == "simt32_matrix") executor = gpu::test::make_simt_executor(32, false, 0);
  if (device == "simt64_matrix") executor = gpu::test::make_simt_executor(64, false, 77);
  if (device == "race") executor = gpu::test::make_simt_executor(32, true, 77);
  if (!executor) throw std::runtime_error("no device " + device);
  return std::make_unique<gpu::test::KernelDevice>(std::move(executor), weights, matrix);
}

}  // namespace skald::backend::test
