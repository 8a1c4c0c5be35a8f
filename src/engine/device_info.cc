// Device facts from the backends.
#include "engine/device_info.h"

#include "backend/cpu/cpu.h"

namespace skald::engine {

std::vector<std::string> cpu_targets() { return backend::cpu_targets(); }

}  // namespace skald::engine
