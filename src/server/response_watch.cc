// Heads and last bytes of answers that pass.
#include "server/response_watch.h"

#include <algorithm>

namespace skald::server {
namespace {

constexpr size_t kHead = 16 * 1024;

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return out;
}

}  // namespace

void ResponseWatch::request_bytes(std::string_view bytes) {
  if (!bytes.empty() && !upgraded_) unanswered_ = true;
}

void ResponseWatch::answer_bytes(std::string_view bytes) {
  constexpr size_t kTail = 4;
  if (bytes.empty() || upgraded_) return;
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
  events_ = head.find("\r\ncontent-type: text/event-stream") != std::string::npos;
  chunked_ = head.find("\r\ntransfer-encoding: chunked") != std::string::npos;
  by_closing_ = !upgraded_ && !chunked_ && head.find("\r\ncontent-length:") == std::string::npos;
}

Owed ResponseWatch::owed() const {
  if (unanswered_) return Owed::answer;
  // The end of an event is that of a chunk; behind the last chunk stand two line ends of their own.
  if (events_ && !in_head_ && tail_ == (chunked_ ? "\n\n\r\n" : tail_.substr(0, 2) + "\n\n"))
    return Owed::event;
  return Owed::rest;
}

}  // namespace skald::server
