// Stall guard: a sliding window of code0 with counts.
#include "engine/guards.h"

namespace skald::engine {

bool StallGuard::add(int32_t code0, bool text_consumed) {
  if (window_ <= 0) return false;
  if (!text_consumed) {
    recent_.clear(), counts_.clear();
    return false;
  }
  recent_.push_back(code0);
  ++counts_[code0];
  if (recent_.size() > static_cast<size_t>(window_)) {
    const auto oldest = counts_.find(recent_.front());
    if (--oldest->second == 0) counts_.erase(oldest);
    recent_.pop_front();
  }
  return recent_.size() == static_cast<size_t>(window_) && counts_.size() <= kFewCodes;
}

}  // namespace skald::engine
