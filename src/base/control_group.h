// Where Linux keeps the limits of the groups this process belongs to.
#pragma once

#include <filesystem>
#include <functional>
#include <string_view>

namespace skald {

/// Calls `visit(folder, version2)` for the process's group of `controller` ("cpu", "memory") and every group
/// above it, in version 1 and version 2 of the hierarchy: limits apply at every level. Folders need not
/// exist. `root` is "/", or in tests a small tree with proc/self/cgroup and sys/fs/cgroup below it.
void visit_control_groups(
    const std::filesystem::path& root, std::string_view controller,
    const std::function<void(const std::filesystem::path& folder, bool version2)>& visit);

}  // namespace skald
