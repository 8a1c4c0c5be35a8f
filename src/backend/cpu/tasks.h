// How work is cut into tasks for the pool. Every element is computed the same way whatever the cut.
#pragma once

#include <algorithm>
#include <cstdint>

#include "backend/cpu/kernels.h"
#include "base/pool.h"

namespace skald::backend::cpu {

constexpr int kRowChunk = 48;           ///< most rows of one product task: sums stay in the first level cache
constexpr int64_t kForkWork = 1 << 15;  ///< multiply-adds below which a fork costs more than it saves
constexpr int64_t kTaskWork = 1 << 13;  ///< elements of cheap row work per task

/// Consecutive column groups of one task: `end` is not included.
struct GroupRange {
  int first = 0, end = 0;
};

/// Column groups of one task. With few rows the product is limited by memory, and a thread that stays on
/// neighbouring groups can fetch the next one ahead; there are some tasks per thread, so that one that is not
/// scheduled holds up little. At most kRowChunk sums per column: the task's sums fit kTileSums.
inline int groups_per_task(int threads, int64_t rows, int groups) {
  constexpr int kTasksPerThread = 4;
  const int even = groups / (threads * kTasksPerThread);
  return std::max(1, std::min(even, static_cast<int>(kRowChunk / 4 / rows)));
}

/// Calls body(first row, rows, GroupRange, thread) for every tile of `rows` rows by `groups` column groups.
/// `work` is the number of multiply-adds of the whole.
template <class Body>
void for_tiles(Pool& pool, int64_t rows, int groups, int64_t work, Body&& body) {
  const int64_t chunks = (rows + kRowChunk - 1) / kRowChunk;
  if (chunks == 0 || groups == 0) return;
  const int range = groups_per_task(pool.threads(), rows, groups);
  // Even chunks; a multiple of 6 leaves no partial register tile except in the last.
  const int64_t size = std::min<int64_t>(kRowChunk, ((rows + chunks - 1) / chunks + 5) / 6 * 6);
  const auto tile = [&](int task, int thread) {
    const int group = static_cast<int>(task / chunks) * range;
    const int64_t first = task % chunks * size;
    if (first < rows)
      body(static_cast<int>(first), static_cast<int>(std::min(size, rows - first)),
           GroupRange{group, std::min(groups, group + range)}, thread);
  };
  const int tasks = static_cast<int>(chunks * ((groups + range - 1) / range));
  if (work < kForkWork)
    for (int i = 0; i < tasks; ++i) tile(i, 0);
  else
    pool.run(tasks, tile);
}

/// Calls body(row, thread) for every row, `work` elements each, in tasks of at least kTaskWork elements.
template <class Body>
void for_rows(Pool& pool, int64_t rows, int64_t work, Body&& body) {
  const int64_t per_task = std::max<int64_t>(1, kTaskWork / std::max<int64_t>(1, work));
  const int64_t tasks = (rows + per_task - 1) / per_task;
  pool.run(static_cast<int>(tasks), [&](int task, int thread) {
    const int64_t end = std::min(rows, (task + 1) * per_task);
    for (int64_t r = task * per_task; r < end; ++r) body(static_cast<int>(r), thread);
  });
}

}  // namespace skald::backend::cpu
