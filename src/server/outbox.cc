// Bounded queues towards the sockets.
#include "server/outbox.h"

#include <utility>

namespace skald::server {

void Exchange::begin(HttpHead head) {
  {
    const std::lock_guard lock(mutex_);
    // A second head would stand in the body of the first.
    if (std::exchange(begun_, true)) {
      aborted_ = !ended_;
    } else {
      head_ = std::move(head);
    }
  }
  notify_();
}

bool Exchange::write(std::string bytes) {
  if (bytes.empty()) return !gone();
  {
    std::unique_lock lock(mutex_);
    room_.wait(lock, [&] { return unsent_ < bound_ || gone_; });
    if (gone_ || aborted_ || ended_) return false;
    unsent_ += bytes.size();
    parts_.push_back(std::move(bytes));
  }
  notify_();
  return true;
}

void Exchange::end(Headers trailers) {
  {
    const std::lock_guard lock(mutex_);
    trailers_ = std::move(trailers);
    ended_ = true;
  }
  notify_();
}

void Exchange::abort() {
  {
    const std::lock_guard lock(mutex_);
    aborted_ = true;
  }
  notify_();
}

bool Exchange::gone() const {
  const std::lock_guard lock(mutex_);
  return gone_;
}

void Exchange::on_gone(std::function<void()> handler) {
  {
    const std::lock_guard lock(mutex_);
    if (!gone_) {
      on_gone_ = std::move(handler);
      return;
    }
  }
  if (handler) handler();
}

bool Exchange::ready() const {
  const std::lock_guard lock(mutex_);
  return head_ || !parts_.empty() || ended_ || aborted_ || gone_;
}

Exchange::Pending Exchange::take(size_t most) {
  const std::lock_guard lock(mutex_);
  Pending out;
  out.head = std::exchange(head_, std::nullopt);
  while (!parts_.empty() && out.bytes.size() < most) {
    out.bytes.empty() ? void(out.bytes = std::move(parts_.front())) : void(out.bytes += parts_.front());
    parts_.pop_front();
  }
  if (parts_.empty()) out.ended = ended_, out.aborted = aborted_, out.trailers = trailers_;
  return out;
}

void Exchange::sent(size_t bytes) {
  const std::lock_guard lock(mutex_);
  unsent_ -= bytes;
  room_.notify_all();
}

/// The handler runs under the lock, so that on_gone({}) returns only when it is no longer running.
void Exchange::set_gone() {
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(gone_, true)) return;
    room_.notify_all();
    if (const auto handler = std::exchange(on_gone_, nullptr)) handler();
  }
  notify_();
}

bool WebSocketOut::put(Message message) {
  {
    std::unique_lock lock(mutex_);
    if (message.binary) room_.wait(lock, [&] { return unsent_ < bound_ || gone_; });
    if (gone_) return false;
    // Words may not wait, so a client that makes them and reads none is given up.
    gone_ = !message.binary && unsent_ >= 2 * bound_;
    if (gone_) {
      queue_.clear();
      room_.notify_all();
    } else {
      unsent_ += message.bytes.size();
      queue_.push_back(std::move(message));
    }
  }
  notify_();
  return !gone();
}

bool WebSocketOut::gone() const {
  const std::lock_guard lock(mutex_);
  return gone_;
}

void WebSocketOut::drop_binary() {
  const std::lock_guard lock(mutex_);
  std::erase_if(queue_, [&](const Message& m) {
    if (m.binary) unsent_ -= m.bytes.size();
    return m.binary;
  });
  room_.notify_all();
}

bool WebSocketOut::ready() const {
  const std::lock_guard lock(mutex_);
  return gone_ || !queue_.empty();
}

std::optional<WebSocketOut::Message> WebSocketOut::take() {
  const std::lock_guard lock(mutex_);
  if (gone_ || queue_.empty()) return std::nullopt;
  Message out = std::move(queue_.front());
  queue_.pop_front();
  unsent_ -= out.bytes.size();
  room_.notify_all();
  return out;
}

void WebSocketOut::set_gone() {
  {
    const std::lock_guard lock(mutex_);
    gone_ = true;
    room_.notify_all();
  }
  notify_();
}

}  // namespace skald::server
