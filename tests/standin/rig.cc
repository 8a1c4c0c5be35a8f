// What tests on the stand-in drivers share.
#include "standin/rig.h"

#include <dlfcn.h>

#include <cstdlib>
#include <fstream>
#include <stdexcept>

namespace skald::standin {

namespace fs = std::filesystem;

fs::path standin_folder(const std::string& name) { return fs::path(STANDIN_LIBRARIES) / name; }
fs::path helper_program() { return STANDIN_HELPER; }
fs::path code_cache() { return fs::path(STANDIN_LIBRARIES) / "code"; }

Standin::Standin(Face face, const std::string& devices, const std::string& faults) {
  const bool cuda = face == Face::cuda;
  folder_ = standin_folder(cuda ? "cuda" : face == Face::hip ? "hip" : "hip5");
  library_ = (folder_ / (cuda                ? "libcuda.so.1"
                         : face == Face::hip ? "libamdhip64.so.6"
                                             : "libamdhip64.so.5"))
                 .string();
  prefix_ = cuda ? "STANDIN_CUDA" : "STANDIN_HIP";
  const std::string all = !devices.empty() ? devices : cuda ? "sm_90:8192:d" : "gfx1100:8192:d";
  setenv((prefix_ + "_DEVICES").c_str(), all.c_str(), 1);
  configure(all.c_str(), faults);
}

Standin::~Standin() {
  configure(nullptr, "");
  unsetenv((prefix_ + "_DEVICES").c_str());
  unsetenv((prefix_ + "_FAULTS").c_str());
}

void Standin::set_faults(const std::string& faults) { configure(nullptr, faults); }

void Standin::configure(const char* devices, const std::string& faults) const {
  setenv((prefix_ + "_FAULTS").c_str(), faults.c_str(), 1);
  void* library = dlopen(library_.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) throw std::runtime_error(dlerror());
  reinterpret_cast<void (*)(const char*, const char*)>(dlsym(library, "standin_configure"))(devices,
                                                                                            faults.c_str());
}

unsigned long Standin::count(const char* what) const {
  void* library = dlopen(library_.c_str(), RTLD_NOW | RTLD_LOCAL);
  return reinterpret_cast<unsigned long (*)(const char*)>(dlsym(library, "standin_count"))(what);
}

backend::GpuOptions Standin::options() const {
  backend::GpuOptions o;
  o.device = prefix_ == "STANDIN_CUDA" ? "cuda" : "hip";
  o.library_folders = {folder_};
  o.cache_folder = code_cache();
  o.helper = helper_program();
  o.root = "/nowhere";
  return o;
}

TempFolder::TempFolder() {
  std::string name = (fs::temp_directory_path() / "skald-test-XXXXXX").string();
  if (!mkdtemp(name.data())) throw std::runtime_error("mkdtemp failed");
  path_ = name;
}

TempFolder::~TempFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

void TempFolder::link(const fs::path& to, const fs::path& name) const {
  fs::create_directories((path_ / name).parent_path());
  fs::create_symlink(to, path_ / name);
}

void TempFolder::write(const fs::path& name, const std::string& text) const {
  fs::create_directories((path_ / name).parent_path());
  std::ofstream(path_ / name, std::ios::binary) << text;
}

}  // namespace skald::standin
