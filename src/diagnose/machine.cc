// Reads /dev, /proc and /sys.
#include "diagnose/machine.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <map>

namespace skald::diagnose {
namespace {

namespace fs = std::filesystem;

/// First line of a file without its end; empty when it cannot be read.
std::string line_of(const fs::path& file) {
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  while (!line.empty() && (line.back() == ' ' || line.back() == '\r')) line.pop_back();
  return line;
}

std::string text_of(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  constexpr size_t kMost = 1 << 16;
  std::string text(kMost, '\0');
  in.read(text.data(), kMost);
  text.resize(static_cast<size_t>(in.gcount()));
  return text;
}

std::optional<uint64_t> number_in(const std::string& text, int base = 10) {
  const size_t skip = base == 16 && text.starts_with("0x") ? 2 : 0;
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data() + skip, text.data() + text.size(), value, base);
  if (error != std::errc()) return std::nullopt;
  return value;
}

std::vector<fs::path> entries(const fs::path& folder) {
  std::vector<fs::path> all;
  std::error_code failure;
  for (fs::directory_iterator it(folder, failure), end; !failure && it != end; it.increment(failure))
    all.push_back(it->path());
  std::sort(all.begin(), all.end());
  return all;
}

/// "card1" for "card", but not "card1-HDMI-A-1".
bool numbered(const std::string& name, std::string_view stem) {
  return name.size() > stem.size() && name.starts_with(stem) &&
         std::all_of(name.begin() + static_cast<std::ptrdiff_t>(stem.size()), name.end(),
                     [](unsigned char c) { return c >= '0' && c <= '9'; });
}

/// "name:x:gid:members" lines.
std::string group_name(const fs::path& root, uint32_t id) {
  std::ifstream in(root / "etc/group");
  for (std::string line; std::getline(in, line);) {
    const size_t name = line.find(':'), password = line.find(':', name + 1);
    if (password == std::string::npos) continue;
    if (number_in(line.substr(password + 1)) == id) return line.substr(0, name);
  }
  return std::to_string(id);
}

/// By mode and owner: a tree in a test is judged for any identity.
bool mode_allows(const struct stat& s, const Identity& who) {
  if (who.user == 0) return true;
  const unsigned bits = s.st_mode & 0777u;
  const bool in_group = std::find(who.groups.begin(), who.groups.end(), s.st_gid) != who.groups.end();
  const unsigned mine = s.st_uid == who.user ? bits >> 6 : in_group ? bits >> 3 : bits;
  return (mine & 6u) == 6u;
}

DeviceNode node_of(const fs::path& root, const std::string& path, const Identity& who) {
  DeviceNode node;
  node.path = path;
  const fs::path file = root / path.substr(1);
  struct stat s {};
  if (::stat(file.c_str(), &s) != 0) return node;
  node.exists = true;
  node.group_id = s.st_gid, node.group = group_name(root, s.st_gid);
  node.mode = fmt::format("{:04o}", s.st_mode & 07777u);
  // access() as well: in a container that maps users, modes do not tell everything.
  node.usable = mode_allows(s, who) && ::access(file.c_str(), R_OK | W_OK) == 0;
  return node;
}

/// The line with a star of a table "0: 500Mhz\n1: 800Mhz *\n", and the last one.
void read_clocks(const fs::path& file, std::string& now, std::string& highest) {
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    const size_t colon = line.find(": ");
    if (colon == std::string::npos) continue;
    const bool current = line.find('*') != std::string::npos;
    std::string value = line.substr(colon + 2);
    value = value.substr(0, value.find_first_of(" *"));
    if (current) now = value;
    highest = value;
  }
}

GraphicsCard card_of(const fs::path& folder) {
  GraphicsCard card;
  card.name = folder.filename().string();
  const fs::path device = folder / "device";
  std::error_code failure;
  card.address = fs::read_symlink(device, failure).filename().string();
  card.driver = fs::read_symlink(device / "driver", failure).filename().string();
  card.vendor = static_cast<uint32_t>(number_in(line_of(device / "vendor"), 16).value_or(0));
  card.device = static_cast<uint32_t>(number_in(line_of(device / "device"), 16).value_or(0));
  card.memory = number_in(line_of(device / "mem_info_vram_total"));
  card.memory_used = number_in(line_of(device / "mem_info_vram_used"));
  card.shared_memory = number_in(line_of(device / "mem_info_gtt_total"));
  card.clock_policy = line_of(device / "power_dpm_force_performance_level");
  read_clocks(device / "pp_dpm_sclk", card.clock, card.highest_clock);
  read_clocks(device / "pp_dpm_mclk", card.memory_clock, card.highest_memory_clock);
  return card;
}

/// "name value" lines.
std::map<std::string, uint64_t> properties(const fs::path& file) {
  std::map<std::string, uint64_t> all;
  std::ifstream in(file);
  std::string name, value;
  while (in >> name >> value)
    if (const auto number = number_in(value)) all[name] = *number;
  return all;
}

std::optional<KfdNode> kfd_node_of(const fs::path& folder) {
  const auto facts = properties(folder / "properties");
  const auto version = facts.find("gfx_target_version");
  if (version == facts.end() || version->second == 0) return std::nullopt;  // a processor
  KfdNode node;
  node.number = static_cast<int>(number_in(folder.filename().string()).value_or(0));
  node.architecture = architecture_of(version->second);
  for (const fs::path& bank : entries(folder / "mem_banks")) {
    auto about = properties(bank / "properties");
    if (about["size_in_bytes"] < node.memory) continue;
    node.memory = about["size_in_bytes"];
    // Two transfers a clock.
    node.bytes_per_second =
        2e6 * static_cast<double>(about["mem_clk_max"]) * static_cast<double>(about["width"]) / 8;
  }
  return node;
}

std::string container_of(const fs::path& root) {
  std::error_code failure;
  if (fs::exists(root / ".dockerenv", failure)) return "docker";
  if (fs::exists(root / "run/.containerenv", failure)) return "podman";
  const std::string first = text_of(root / "proc/1/environ");
  if (const size_t at = first.find("container="); at != std::string::npos) {
    const std::string rest = first.substr(at + 10);
    return rest.substr(0, rest.find('\0'));
  }
  const std::string groups = text_of(root / "proc/self/cgroup");
  for (const char* name : {"docker", "podman", "kubepods", "lxc"})
    if (groups.find(name) != std::string::npos) return name;
  return "";
}

}  // namespace

Identity Identity::of_process() {
  Identity who;
  who.user = ::geteuid();
  const int count = ::getgroups(0, nullptr);
  std::vector<gid_t> groups(static_cast<size_t>(std::max(count, 0)));
  if (count > 0 && ::getgroups(count, groups.data()) < 0) groups.clear();
  who.groups.assign(groups.begin(), groups.end());
  who.groups.push_back(::getegid());
  return who;
}

std::string architecture_of(uint64_t version) {
  return fmt::format("gfx{}{:x}{:x}", version / 10000, version / 100 % 100, version % 100);
}

bool Machine::has_amd() const {
  return kfd.exists || !kfd_nodes.empty() ||
         std::any_of(cards.begin(), cards.end(), [](const GraphicsCard& c) { return c.amd(); });
}

bool Machine::has_nvidia() const {
  return !nvidia_driver.empty() || !nvidia_nodes.empty() ||
         std::any_of(cards.begin(), cards.end(), [](const GraphicsCard& c) { return c.nvidia(); });
}

Machine read_machine(const fs::path& root, const Identity& who) {
  Machine m;
  m.kernel = line_of(root / "proc/sys/kernel/osrelease");
  m.kfd = node_of(root, "/dev/kfd", who);
  m.dxg = node_of(root, "/dev/dxg", who);
  m.wsl = m.dxg.exists || m.kernel.find("microsoft") != std::string::npos;
  m.container = container_of(root);
  for (const fs::path& path : entries(root / "dev/dri"))
    if (numbered(path.filename().string(), "renderD"))
      m.render_nodes.push_back(node_of(root, "/dev/dri/" + path.filename().string(), who));
  for (const fs::path& path : entries(root / "dev")) {
    const std::string name = path.filename().string();
    if (numbered(name, "nvidia") || name == "nvidiactl" || name == "nvidia-uvm")
      m.nvidia_nodes.push_back(node_of(root, "/dev/" + name, who));
  }
  for (const fs::path& path : entries(root / "sys/class/drm"))
    if (numbered(path.filename().string(), "card")) m.cards.push_back(card_of(path));
  for (const fs::path& path : entries(root / "sys/class/kfd/kfd/topology/nodes"))
    if (auto node = kfd_node_of(path)) m.kfd_nodes.push_back(*node);
  std::sort(m.kfd_nodes.begin(), m.kfd_nodes.end(),
            [](const KfdNode& a, const KfdNode& b) { return a.number < b.number; });
  if (const std::string line = line_of(root / "sys/module/nvidia/version"); !line.empty())
    m.nvidia_driver = line;
  return m;
}

}  // namespace skald::diagnose
