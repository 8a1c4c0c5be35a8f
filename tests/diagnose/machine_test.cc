// Device nodes and sysfs, from small trees.
#include "diagnose/machine.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "model/snapshot_files.h"

namespace skald::diagnose {
namespace {

namespace fs = std::filesystem;
using skald::test::TempDir;

void put(const fs::path& file, const std::string& text) {
  fs::create_directories(file.parent_path());
  skald::test::write_file(file, text);
}

/// A machine with a discrete and an integrated Radeon.
void lay_out_radeons(const TempDir& dir) {
  put(dir / "proc/sys/kernel/osrelease", "6.8.0-45-generic\n");
  put(dir / "etc/group", "root:x:0:\nvideo:x:44:\nrender:x:992:someone\n");
  put(dir / "dev/kfd", "");
  put(dir / "dev/dri/renderD128", "");
  put(dir / "dev/dri/card1", "");
  for (const char* card : {"card1", "card2"}) {
    const fs::path device = dir / "sys/class/drm" / card / "device";
    put(device / "vendor", "0x1002\n");
    put(device / "power_dpm_force_performance_level", card == std::string("card1") ? "auto\n" : "low\n");
  }
  const fs::path big = dir / "sys/class/drm/card1/device";
  put(big / "device", "0x744c\n");
  put(big / "mem_info_vram_total", "25753026560\n");
  put(big / "mem_info_vram_used", "1073741824\n");
  put(big / "mem_info_gtt_total", "16000000000\n");
  put(big / "pp_dpm_sclk", "0: 500Mhz\n1: 1200Mhz *\n2: 2482Mhz\n");
  put(big / "pp_dpm_mclk", "0: 96Mhz *\n1: 1249Mhz \n");
  put(dir / "sys/class/drm/card1-HDMI-A-1/status", "connected\n");
  put(dir / "sys/class/kfd/kfd/topology/nodes/0/properties", "cpu_cores_count 16\ngfx_target_version 0\n");
  const fs::path node = dir / "sys/class/kfd/kfd/topology/nodes/1";
  put(node / "properties", "cpu_cores_count 0\nsimd_count 192\ngfx_target_version 110000\n");
  put(node / "mem_banks/0/properties",
      "heap_type 1\nsize_in_bytes 25753026560\nwidth 384\nmem_clk_max 1249\n");
}

TEST(Machine, RadeonsInSysfs) {
  const TempDir dir;
  lay_out_radeons(dir);
  const Machine m = read_machine(dir.path(), {.user = 0, .groups = {}});
  EXPECT_EQ(m.kernel, "6.8.0-45-generic");
  EXPECT_FALSE(m.wsl);
  EXPECT_EQ(m.container, "");
  ASSERT_EQ(m.cards.size(), 2u);  // not the connector
  const GraphicsCard& c = m.cards[0];
  EXPECT_TRUE(c.amd());
  EXPECT_EQ(c.device, 0x744cu);
  EXPECT_EQ(c.memory, 25753026560u);
  EXPECT_EQ(c.shared_memory, 16000000000u);
  EXPECT_EQ(c.clock_policy, "auto");
  EXPECT_EQ(c.clock, "1200Mhz");
  EXPECT_EQ(c.highest_clock, "2482Mhz");
  EXPECT_EQ(c.memory_clock, "96Mhz");
  EXPECT_EQ(c.highest_memory_clock, "1249Mhz");
  EXPECT_FALSE(m.cards[1].memory);
  ASSERT_EQ(m.kfd_nodes.size(), 1u);  // node 0 is the processor
  EXPECT_EQ(m.kfd_nodes[0].architecture, "gfx1100");
  EXPECT_NEAR(m.kfd_nodes[0].bytes_per_second, 2.0 * 1249e6 * 384 / 8, 1);
  EXPECT_TRUE(m.has_amd());
  EXPECT_FALSE(m.has_nvidia());
  ASSERT_EQ(m.render_nodes.size(), 1u);
  EXPECT_EQ(m.render_nodes[0].path, "/dev/dri/renderD128");
}

TEST(Machine, PermissionsByOwnerGroupAndMode) {
  const TempDir dir;
  lay_out_radeons(dir);
  const fs::path kfd = dir / "dev/kfd";
  const auto node = [&](mode_t mode, Identity who) {
    ::chmod(kfd.c_str(), mode);
    return read_machine(dir.path(), who).kfd;
  };
  struct stat s {};
  ::stat(kfd.c_str(), &s);
  const uint32_t other = s.st_uid + 1;
  EXPECT_TRUE(node(0660, {.user = s.st_uid, .groups = {}}).usable);
  EXPECT_TRUE(node(0660, {.user = other, .groups = {7, s.st_gid}}).usable);
  EXPECT_FALSE(node(0660, {.user = other, .groups = {s.st_gid + 1}}).usable);
  EXPECT_FALSE(node(0640, {.user = other, .groups = {s.st_gid}}).usable);  // reading alone is not enough
  EXPECT_TRUE(node(0666, {.user = other, .groups = {}}).usable);
  EXPECT_TRUE(node(0600, {.user = 0, .groups = {}}).usable);
  EXPECT_EQ(node(0660, {.user = 0, .groups = {}}).mode, "0660");
  if (::geteuid() == 0) {
    ASSERT_EQ(::chown(kfd.c_str(), 0, 992), 0);
    EXPECT_EQ(node(0660, {.user = other, .groups = {}}).group, "render");
    ASSERT_EQ(::chown(kfd.c_str(), 0, 12345), 0);
    EXPECT_EQ(node(0660, {.user = other, .groups = {}}).group, "12345");  // a group without a name here
  }
  fs::remove(kfd);
  EXPECT_FALSE(read_machine(dir.path(), {}).kfd.exists);
}

TEST(Machine, NvidiaNodesAndModule) {
  const TempDir dir;
  for (const char* name : {"nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm", "nvidia-caps", "null"})
    put(dir / "dev" / name, "");
  put(dir / "sys/module/nvidia/version", "550.54.15\n");
  const Machine m = read_machine(dir.path(), {});
  ASSERT_EQ(m.nvidia_nodes.size(), 4u);
  EXPECT_EQ(m.nvidia_driver, "550.54.15");
  EXPECT_TRUE(m.has_nvidia());
  EXPECT_FALSE(m.has_amd());
}

TEST(Machine, ContainersAndWindows) {
  const auto with = [](const std::string& file, const std::string& text) {
    const TempDir dir;
    put(dir / file, text);
    return read_machine(dir.path(), {});
  };
  EXPECT_EQ(with(".dockerenv", "").container, "docker");
  EXPECT_EQ(with("run/.containerenv", "").container, "podman");
  EXPECT_EQ(with("proc/self/cgroup", "0::/kubepods/burstable/pod1\n").container, "kubepods");
  EXPECT_EQ(with("proc/1/environ", std::string("PATH=/bin\0container=lxc\0X=1", 25)).container, "lxc");
  EXPECT_EQ(with("proc/self/cgroup", "0::/user.slice\n").container, "");
  EXPECT_TRUE(with("dev/dxg", "").wsl);
  EXPECT_TRUE(with("proc/sys/kernel/osrelease", "5.15.90.1-microsoft-standard-WSL2\n").wsl);
}

TEST(Machine, FilesThatMakeNoSense) {
  const TempDir dir;
  put(dir / "sys/class/drm/card0/device/vendor", "");
  put(dir / "sys/class/drm/card0/device/mem_info_vram_total", "many\n");
  put(dir / "sys/class/drm/card0/device/pp_dpm_sclk", "no table\n:\n");
  put(dir / "sys/class/kfd/kfd/topology/nodes/1/properties", "gfx_target_version\n");
  put(dir / "etc/group", "::::\nrender\nx:y\n");
  put(dir / "dev/kfd", "");
  const Machine m = read_machine(dir.path(), {});
  ASSERT_EQ(m.cards.size(), 1u);
  EXPECT_FALSE(m.cards[0].amd());
  EXPECT_FALSE(m.cards[0].memory);
  EXPECT_TRUE(m.kfd_nodes.empty());
  EXPECT_TRUE(m.kfd.exists);
}

TEST(Machine, AnEmptyTree) {
  const TempDir dir;
  const Machine m = read_machine(dir.path(), {});
  EXPECT_FALSE(m.has_amd());
  EXPECT_FALSE(m.has_nvidia());
  EXPECT_TRUE(m.cards.empty());
}

TEST(Architecture, OfTheKernelsNumber) {
  EXPECT_EQ(architecture_of(110003), "gfx1103");
  EXPECT_EQ(architecture_of(90010), "gfx90a");
  EXPECT_EQ(architecture_of(90402), "gfx942");
  EXPECT_EQ(architecture_of(120001), "gfx1201");
}

}  // namespace
}  // namespace skald::diagnose
