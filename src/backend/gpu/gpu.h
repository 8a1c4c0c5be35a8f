// The GPU backend's one public door: devices of AMD through HIP and of NVIDIA through CUDA, from one binary
// that was built with neither. Everything else under backend/gpu is private to it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "backend/ops.h"

namespace skald::backend {

struct GpuOptions {
  /// "gpu" (the best one), "discrete" (the best that is not integrated), "hip", "cuda", "hip:0", "cuda:1", a
  /// UUID, a PCI bus id, an architecture such as "gfx1100", or a full name.
  std::string device = "gpu";
  /// How matrices are held: "f32", "bf16", "int8" or "auto", as for the CPU.
  std::string weights = "auto";
  std::vector<std::filesystem::path> library_folders;  ///< searched before anything else
  std::filesystem::path code_folder;                   ///< with machine code made ahead of time; empty = none
  std::filesystem::path cache_folder;  ///< for machine code made on this machine; empty = not kept
  std::filesystem::path helper;  ///< the program skald-rtc; empty = where it is installed, see find_helper()
  bool fuse = true;              ///< programs are made of fused launches; run_op never is
  bool matrix_units = true;  ///< many rows by bf16 matrices on matrix units: the same products, other sums
  int deadline_ms = 20000;   ///< without any progress of the device: Error(device_wedged)
  int probe_deadline_ms = 30000;     ///< of a driver's start in a process of its own
  int compile_deadline_ms = 180000;  ///< of the vendor's compiler, for one architecture
  std::filesystem::path root = "/";  ///< of the standard folders; for tests
};

/// One GPU.
struct GpuInfo {
  std::string id;            ///< "hip:0", "cuda:1"
  std::string name;          ///< as the driver tells it
  std::string architecture;  ///< "gfx1100", "sm_90"
  std::string uuid;          ///< "GPU-..."; empty where the driver has none, or the same for several
  std::string bus_id;        ///< "0000:03:00.0"; empty where the driver does not tell
  std::string driver;        ///< version of driver and runtime, e.g. "HIP 6.2.41134"
  int index = 0;             ///< the driver's number
  bool nvidia = false, integrated = false;
  size_t memory = 0;  ///< bytes
  int compute_units = 0, warp = 0;
  int capability = 0;   ///< NVIDIA: 10 * major + minor
  std::string problem;  ///< why it cannot be used; empty = it can

  // Counted by list_gpus alone: pieces of machine code that it needs, those made ahead of time, and those
  // kept from an earlier start.
  int code_pieces = 0, code_prepared = 0, code_kept = 0;
};

/// A place that was tried for a library.
struct GpuAttempt {
  std::string path;
  bool opened = false;
  std::string outcome;  ///< the loader's own words, or the file it took
};

/// What one vendor's software on this machine offers.
struct GpuVendorReport {
  std::string vendor;  ///< "AMD", "NVIDIA"
  std::vector<GpuAttempt>
      attempts;          ///< for the driver library, in order; the last one is in use when it was opened
  std::string library;   ///< the driver library's file; empty = none
  std::string problem;   ///< why there are no devices of it; empty when there are
  std::string compiler;  ///< version and file of the run-time compiler; empty = none was found
  std::vector<std::string> architectures;  ///< that the compiler knows; empty = it does not tell
};

struct GpuList {
  std::vector<GpuInfo> devices;  ///< in the order in which they are chosen
  std::vector<GpuVendorReport> vendors;
};

/// The GPUs of this machine. Each driver is first started in a child process (the helper), since a broken one
/// may end its process or never return; without the helper it is started here. Never throws for what it
/// finds.
GpuList list_gpus(const GpuOptions& options = {});

/// Makes a device. Throws Error(device) when the one asked for cannot be used, with what was found and what
/// to do; Error(device_code) when there is no machine code for it and none can be made; Error(out_of_memory).
/// `chosen` gets the device's description.
std::unique_ptr<Backend> make_gpu_backend(const GpuOptions& options, GpuInfo* chosen = nullptr);

/// Where skald-rtc is: beside this program or library, or in libexec/skald of the same prefix. Empty =
/// nowhere.
std::filesystem::path find_helper();

}  // namespace skald::backend
