// Reads /proc/self/cgroup: lines of "number:controllers:path", version 2 without controllers.
#include "base/control_group.h"

#include <fmt/format.h>

#include <fstream>
#include <string>

namespace skald {

namespace fs = std::filesystem;

void visit_control_groups(const fs::path& root, std::string_view controller,
                          const std::function<void(const fs::path&, bool)>& visit) {
  const std::string wanted = fmt::format(",{},", controller);
  std::ifstream groups(root / "proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool version2 = controllers.empty();
    if (!version2 && fmt::format(",{},", controllers).find(wanted) == std::string::npos) continue;
    const fs::path mount = root / "sys/fs/cgroup" / (version2 ? std::string() : std::string(controller));
    fs::path group = fs::path(line.substr(second + 1)).relative_path().lexically_normal();
    while (true) {
      visit(mount / group, version2);
      if (group.empty() || group == ".") break;
      group = group.parent_path();
    }
  }
}

}  // namespace skald
