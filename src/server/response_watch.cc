// Heads and last bytes of answers that pass.
#include "server/response_watch.h"

#include <algorithm>

#include "server/ascii.h"

namespace skald::server {
namespace {

constexpr size_t kHead = 16 * 1024;

}  // namespace

void ResponseWatch::request_bytes(std::string_view bytes) {
  if (!bytes.empty() && !upgraded_) unanswered_ = true;
}

void ResponseWatch::answer_bytes(std::string_view bytes) {
  constexpr size_t kTail = 4;
  if (upgraded_) return follow_frames(bytes);
  if (bytes.empty()) return;
  if (unanswered_) {
    unanswered_ = false;
    in_head_ = true, events_ = chunked_ = by_closing_ = false;
    head_.clear();
  }
  if (in_head_) {
    head_ += bytes.substr(0, kHead);
    read_head();
  }
  tail_ += bytes.substr(bytes.size() - std::min(bytes.size(), kTail));
  if (tail_.size() > kTail) tail_.erase(0, tail_.size() - kTail);
}

void ResponseWatch::read_head() {
  const size_t end = head_.find("\r\n\r\n");
  if (end == std::string::npos && head_.size() < kHead) return;
  const std::string head = lower(std::string_view(head_).substr(0, end));
  in_head_ = false;
  if (head.find(" 100 ") == 8) {  // the answer itself is still to come
    unanswered_ = true;
    return;
  }
  upgraded_ = head.find(" 101 ") == 8;
  if (upgraded_) return follow_frames(std::string_view(head_).substr(end + 4));
  events_ = head.find("\r\ncontent-type: text/event-stream") != std::string::npos;
  chunked_ = head.find("\r\ntransfer-encoding: chunked") != std::string::npos;
  by_closing_ = !upgraded_ && !chunked_ && head.find("\r\ncontent-length:") == std::string::npos;
}

/// Heads of unmasked frames (RFC 6455, 5.2): two bytes, then the length where seven bits do not hold it.
void ResponseWatch::follow_frames(std::string_view bytes) {
  while (!bytes.empty()) {
    if (frame_left_ > 0) {
      const uint64_t passed = std::min<uint64_t>(frame_left_, bytes.size());
      frame_left_ -= passed;
      bytes.remove_prefix(passed);
      continue;
    }
    frame_head_ += bytes.front();
    bytes.remove_prefix(1);
    if (frame_head_.size() < 2) continue;
    const auto length = static_cast<unsigned char>(frame_head_[1]) & 127u;
    const size_t more = length == 126 ? 2 : length == 127 ? 8 : 0;
    if (frame_head_.size() < 2 + more) continue;
    frame_left_ = more == 0 ? length : 0;
    for (size_t i = 0; i < more; ++i)
      frame_left_ = frame_left_ << 8 | static_cast<unsigned char>(frame_head_[2 + i]);
    frame_head_.clear();
  }
}

Owed ResponseWatch::owed() const {
  if (upgraded_) return frame_left_ == 0 && frame_head_.empty() ? Owed::message : Owed::rest;
  if (unanswered_) return Owed::answer;
  // The end of an event is that of a chunk; behind the last chunk stand two line ends of their own.
  if (events_ && !in_head_ && tail_ == (chunked_ ? "\n\n\r\n" : tail_.substr(0, 2) + "\n\n"))
    return Owed::event;
  return Owed::rest;
}

}  // namespace skald::server
