// The bounded byte queue.
#include "engine/text_queue.h"

#include <algorithm>

namespace skald::engine {

bool TextQueue::push(std::string_view bytes) {
  std::unique_lock lock(mutex_);
  writable_.wait(lock, [&] { return bytes_.size() < kBound || finished_ || closed_; });
  return add(bytes);
}

bool TextQueue::try_push(std::string_view bytes) {
  const std::lock_guard lock(mutex_);
  return bytes_.size() < kBound && add(bytes);
}

bool TextQueue::add(std::string_view bytes) {
  if (finished_ || closed_) return false;
  bytes_ += bytes;
  readable_.notify_all();
  return true;
}

void TextQueue::finish() {
  const std::lock_guard lock(mutex_);
  finished_ = true;
  readable_.notify_all();
  writable_.notify_all();
}

void TextQueue::close() noexcept {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  readable_.notify_all();
  writable_.notify_all();
}

bool TextQueue::take(size_t most, std::string& out) {
  const std::lock_guard lock(mutex_);
  const size_t count = std::min(most, bytes_.size());
  out.assign(bytes_, 0, count);
  bytes_.erase(0, count);
  if (bytes_.size() < kBound) writable_.notify_all();
  return count > 0;
}

bool TextQueue::exhausted() const {
  const std::lock_guard lock(mutex_);
  return finished_ && bytes_.empty();
}

void TextQueue::wait() const {
  std::unique_lock lock(mutex_);
  readable_.wait(lock, [&] { return !bytes_.empty() || finished_ || closed_; });
}

}  // namespace skald::engine
