// Prompt prefixes of voices that were spoken with before.
#include "model/prefix_cache.h"

#include <algorithm>
#include <string>

namespace skald::model {

using backend::Dtype;

PrefixCache::PrefixCache(backend::Backend& device, const DecoderStack& stack, int32_t slots, int32_t entries,
                         int32_t rows)
    : device_(device), rows_(rows), entries_(entries) {
  if (entries == 0) return;
  store_ = stack.allocate_store(device, entries, rows);
  lane_slot_ = device.allocate("prefix.lane_slot", Dtype::i32, 1, 1);
  lane_count_ = device.allocate("prefix.lane_count", Dtype::i32, 1, 1);
  const backend::Lanes lanes{.lanes = 1, .rows = rows, .slot = lane_slot_, .count = lane_count_};
  for (int32_t slot = 0; slot < slots; ++slot)
    save_.push_back(device.record("prefix.save " + std::to_string(slot),
                                  [&](backend::Ops& ops) { stack.record_save(ops, slot, store_, lanes); }));
  for (int32_t entry = 0; entry < entries; ++entry)
    restore_.push_back(device.record("prefix.restore " + std::to_string(entry), [&](backend::Ops& ops) {
      stack.record_restore(ops, entry, store_, lanes);
    }));
}

std::span<const PromptRow> PrefixCache::prefix_of(const Prompt& prompt) const {
  return std::span(prompt.rows).first(static_cast<size_t>(std::min(prompt.prefix_rows, rows_)));
}

void PrefixCache::copy(backend::Program program, int32_t to, size_t rows) {
  const auto count = static_cast<int32_t>(rows);
  device_.write(lane_slot_, std::as_bytes(std::span(&to, 1)));
  device_.write(lane_count_, std::as_bytes(std::span(&count, 1)));
  device_.run(program);
}

int32_t PrefixCache::restore(int32_t slot, const Prompt& prompt, std::span<const float> x_vector) {
  const auto prefix = prefix_of(prompt);
  for (size_t i = 0; i < entries_.size(); ++i) {
    Entry& entry = entries_[i];
    if (entry.rows.empty() ||
        !std::equal(entry.rows.begin(), entry.rows.end(), prefix.begin(), prefix.end()) ||
        !std::equal(entry.x_vector.begin(), entry.x_vector.end(), x_vector.begin(), x_vector.end()))
      continue;
    copy(restore_[i], slot, entry.rows.size());
    entry.last_use = ++uses_;
    return static_cast<int32_t>(entry.rows.size());
  }
  return 0;
}

void PrefixCache::save(int32_t slot, const Prompt& prompt, std::span<const float> x_vector) {
  const auto prefix = prefix_of(prompt);
  if (entries_.empty() || prefix.empty()) return;
  const auto oldest = std::min_element(entries_.begin(), entries_.end(), [](const Entry& a, const Entry& b) {
    return a.last_use < b.last_use;
  });
  oldest->rows.clear();  // known again only when the copy is whole
  copy(save_[static_cast<size_t>(slot)], static_cast<int32_t>(oldest - entries_.begin()), prefix.size());
  oldest->x_vector.assign(x_vector.begin(), x_vector.end());
  oldest->rows.assign(prefix.begin(), prefix.end());
  oldest->last_use = ++uses_;
}

}  // namespace skald::model
