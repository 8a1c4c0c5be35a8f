// Runs launches on a real NVIDIA GPU through the driver's interface, for tests alone: one function at a time,
// waiting after each.
#include <dlfcn.h>

#include <fstream>
#include <iterator>
#include <map>
#include <stdexcept>

#include "backend/gpu/kernels/kernels.h"
#include "kernel_device.h"

namespace skald::backend::gpu::test {
namespace {

class CudaExecutor final : public Executor {
 public:
  CudaExecutor(void* library, const std::string& folder) {
    load(library, "cuInit", init_), load(library, "cuDeviceGet", device_get_);
    load(library, "cuDevicePrimaryCtxRetain", retain_), load(library, "cuCtxSetCurrent", set_current_);
    load(library, "cuModuleLoad", module_load_), load(library, "cuModuleGetFunction", get_function_);
    load(library, "cuMemAlloc_v2", alloc_), load(library, "cuMemFree_v2", free_);
    load(library, "cuMemcpyHtoD_v2", to_device_), load(library, "cuMemcpyDtoH_v2", to_host_);
    load(library, "cuMemsetD8_v2", set_), load(library, "cuLaunchKernel", launch_);
    load(library, "cuCtxSynchronize", synchronize_), load(library, "cuFuncSetAttribute", set_attribute_);
    int device = 0;
    void* context = nullptr;
    check(init_(0), "cuInit"), check(device_get_(&device, 0), "cuDeviceGet");
    check(retain_(&context, device), "cuDevicePrimaryCtxRetain"),
        check(set_current_(context), "cuCtxSetCurrent");
    for (const KernelModule& m : kKernelModules) {
      void* module = nullptr;
      const std::string file = folder + "/" + std::string(m.name) + ".cubin";
      check(module_load_(&module, file.c_str()), file);
      for (const std::string_view kernel : m.kernels) {
        void* function = nullptr;
        check(get_function_(&function, module, std::string(kernel).c_str()), std::string(kernel));
        functions_[std::string(kernel)] = function;
      }
    }
  }
  ~CudaExecutor() override {
    for (const uint64_t a : allocations_) free_(a);
  }

  std::string name() const override { return "cuda"; }
  DeviceTraits traits() const override { return {32, 132}; }
  uint64_t allocate(size_t bytes, bool) override {
    uint64_t at = 0;
    check(alloc_(&at, bytes + 16), "cuMemAlloc");
    check(set_(at, 0, bytes + 16), "cuMemset");
    allocations_.push_back(at);
    return at;
  }
  void write(uint64_t to, const void* from, size_t bytes) override {
    if (bytes > 0) check(to_device_(to, from, bytes), "cuMemcpyHtoD");
  }
  void read(void* to, uint64_t from, size_t bytes) override {
    if (bytes > 0) check(to_host_(to, from, bytes), "cuMemcpyDtoH");
  }
  void launch(const Launch& l) override {
    const auto found = functions_.find(l.kernel);
    if (found == functions_.end()) throw std::runtime_error("no kernel " + l.kernel);
    size_t size = l.args.size();
    void* extra[] = {reinterpret_cast<void*>(1), const_cast<std::byte*>(l.args.data()),
                     reinterpret_cast<void*>(2), &size, nullptr};
    check(launch_(found->second, l.blocks, 1, 1, l.threads, 1, 1, l.dynamic_shared, nullptr, nullptr, extra),
          l.kernel);
    check(synchronize_(), l.kernel);
  }

 private:
  template <class F>
  static void load(void* library, const char* name, F& function) {
    function = reinterpret_cast<F>(dlsym(library, name));
    if (!function) throw std::runtime_error(std::string("libcuda has no ") + name);
  }
  static void check(int status, const std::string& what) {
    if (status != 0) throw std::runtime_error(what + ": CUDA error " + std::to_string(status));
  }

  int (*init_)(unsigned) = nullptr;
  int (*device_get_)(int*, int) = nullptr;
  int (*retain_)(void**, int) = nullptr;
  int (*set_current_)(void*) = nullptr;
  int (*module_load_)(void**, const char*) = nullptr;
  int (*get_function_)(void**, void*, const char*) = nullptr;
  int (*alloc_)(uint64_t*, size_t) = nullptr;
  int (*free_)(uint64_t) = nullptr;
  int (*to_device_)(uint64_t, const void*, size_t) = nullptr;
  int (*to_host_)(void*, uint64_t, size_t) = nullptr;
  int (*set_)(uint64_t, unsigned char, size_t) = nullptr;
  int (*launch_)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**,
                 void**) = nullptr;
  int (*synchronize_)() = nullptr;
  int (*set_attribute_)(void*, int, int) = nullptr;
  std::map<std::string, void*> functions_;
  std::vector<uint64_t> allocations_;
};

}  // namespace

std::unique_ptr<Executor> make_cuda_executor(const std::string& folder) {
  void* const library = dlopen("libcuda.so.1", RTLD_NOW);
  return library ? std::make_unique<CudaExecutor>(library, folder) : nullptr;
}

}  // namespace skald::backend::gpu::test
