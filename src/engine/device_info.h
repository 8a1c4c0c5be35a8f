// What the devices of this machine offer, without opening one.
#pragma once

#include <string>
#include <vector>

namespace skald::engine {

/// Names of the SIMD targets that this build and machine both have, best first.
std::vector<std::string> cpu_targets();

}  // namespace skald::engine
