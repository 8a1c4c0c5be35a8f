// Programs for the same work at several sizes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "backend/ops.h"

namespace skald::model {

struct SizedProgram {
  int32_t most = 0;  ///< what it holds: frames, samples
  backend::Program program;
};

/// `record(size)` for each of `sizes`, which ascend; the largest first, since a GPU keeps scratch that it
/// outgrew.
template <class Record>
std::vector<SizedProgram> record_sizes(const std::vector<int32_t>& sizes, Record&& record) {
  std::vector<SizedProgram> programs(sizes.size());
  for (size_t i = sizes.size(); i-- > 0;) programs[i] = {sizes[i], record(sizes[i])};
  return programs;
}

/// The smallest that holds `count`, which is at most what the last one holds.
inline backend::Program smallest_for(const std::vector<SizedProgram>& programs, int32_t count) {
  return std::find_if(programs.begin(), programs.end() - 1,
                      [&](const SizedProgram& p) { return p.most >= count; })
      ->program;
}

}  // namespace skald::model
