// What a machine shows of its GPUs without any GPU software: device nodes, permissions, sysfs.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace skald::diagnose {

/// Who asks for access.
struct Identity {
  uint32_t user = 0;
  std::vector<uint32_t> groups;
  static Identity of_process();
};

/// A file in /dev.
struct DeviceNode {
  std::string path;  ///< "/dev/kfd"
  bool exists = false;
  bool usable = false;  ///< for reading and writing, by this identity and by this process
  std::string group;    ///< its group's name, or the number where it has none
  uint32_t group_id = 0;
  std::string mode;  ///< "0660"
};

/// A graphics card in sysfs.
struct GraphicsCard {
  std::string name;     ///< "card0"
  std::string address;  ///< "0000:03:00.0"
  uint32_t vendor = 0, device = 0;
  std::string driver;                                          ///< "amdgpu"
  std::optional<uint64_t> memory, memory_used, shared_memory;  ///< bytes; shared: of the host (GTT)
  std::string clock_policy;  ///< power_dpm_force_performance_level: "auto", "high", "low", ...
  std::string clock, highest_clock, memory_clock, highest_memory_clock;  ///< "800Mhz"
  bool amd() const { return vendor == 0x1002; }
  bool nvidia() const { return vendor == 0x10de; }
};

/// A GPU as AMD's kernel driver describes it to the runtime.
struct KfdNode {
  int number = 0;
  std::string architecture;     ///< the true one, "gfx1103", whatever an override says
  uint64_t memory = 0;          ///< bytes of its largest bank
  double bytes_per_second = 0;  ///< width times clock of that bank; 0 = not told
};

struct Machine {
  std::string kernel;     ///< release
  bool wsl = false;       ///< Linux under Windows
  std::string container;  ///< "docker", "podman", ...; empty = none found
  DeviceNode kfd, dxg;
  std::vector<DeviceNode> render_nodes, nvidia_nodes;
  std::vector<GraphicsCard> cards;
  std::vector<KfdNode> kfd_nodes;
  std::string nvidia_driver;  ///< of the kernel module; empty = not loaded
  bool has_amd() const;       ///< hardware or its driver is there
  bool has_nvidia() const;
};

/// `root` stands for "/" in tests.
Machine read_machine(const std::filesystem::path& root, const Identity& identity);

/// "gfx90a" of 90010, the number in the kernel driver's files.
std::string architecture_of(uint64_t gfx_target_version);

}  // namespace skald::diagnose
