// What a client is owed when the process that speaks for it is gone: told from the bytes that passed.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace skald::server {

/// How a connection stands at the end of its worker.
enum class Owed : uint8_t {
  answer,   ///< a request was passed on, and no byte of an answer came back: an error can still be one
  message,  ///< a WebSocket between two messages: an error can be the last one
  event,    ///< events were being sent, the last one whole: an error can be one more
  rest,     ///< something else; what is missing can only be shown by breaking off
};

/// Follows one connection. It reads heads just far enough to know events and WebSockets from other answers.
class ResponseWatch {
 public:
  void request_bytes(std::string_view bytes);
  void answer_bytes(std::string_view bytes);

  Owed owed() const;
  /// Whether the answer in work comes in chunks.
  bool chunked() const { return chunked_; }
  /// Whether nothing but the end of the connection tells that the answer is whole.
  bool ends_by_closing() const { return by_closing_; }

 private:
  void read_head();
  void follow_frames(std::string_view bytes);

  bool unanswered_ = false, in_head_ = false, upgraded_ = false, events_ = false, chunked_ = false;
  bool by_closing_ = false;
  std::string head_, tail_;
  std::string frame_head_;   ///< of a WebSocket's frame, while it is not whole
  uint64_t frame_left_ = 0;  ///< bytes of the frame that are still to come
};

}  // namespace skald::server
