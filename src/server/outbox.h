// Bytes on their way from a worker to the sockets' thread: bounded, and told when the client is gone.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <string>

#include "server/http.h"

namespace skald::server {

/// An answer on its way. The writer's side is Reply; the sockets' thread takes from the other side.
class Exchange final : public Reply {
 public:
  /// A writer waits while `bound` bytes or more are unsent. `notify` is called, from any thread and under no
  /// lock of the caller, whenever there is something new to take.
  Exchange(size_t bound, std::function<void()> notify) : bound_(bound), notify_(std::move(notify)) {}

  void begin(HttpHead head) override;
  bool write(std::string bytes) override;
  void end(Headers trailers) override;
  void abort() override;
  bool gone() const override;
  void on_gone(std::function<void()> handler) override;

  struct Pending {
    std::optional<HttpHead> head;
    std::string bytes;
    bool ended = false, aborted = false;  ///< nothing follows `bytes`
    Headers trailers;
  };
  /// Whether there is something to take, or nobody to send it to.
  bool ready() const;
  /// What can be sent now: whole writes until there are `most` bytes or more.
  Pending take(size_t most);
  /// So many bytes have left.
  void sent(size_t bytes);
  /// The client is gone: writers are released, and whoever asked is told.
  void set_gone();

 private:
  const size_t bound_;
  const std::function<void()> notify_;
  mutable std::mutex mutex_;
  std::condition_variable room_;
  std::optional<HttpHead> head_;
  std::deque<std::string> parts_;
  size_t unsent_ = 0;
  bool begun_ = false, ended_ = false, aborted_ = false, gone_ = false;
  Headers trailers_;
  std::function<void()> on_gone_;
};

/// Messages on their way to a WebSocket client. Audio waits while `bound` bytes or more are unsent; words do
/// not, and a client that leaves twice as much unread is given up.
class WebSocketOut final : public SocketOut {
 public:
  struct Message {
    bool binary = false, close = false;
    std::string bytes;
  };

  WebSocketOut(size_t bound, std::function<void()> notify) : bound_(bound), notify_(std::move(notify)) {}

  bool send_text(std::string message) override { return put({false, false, std::move(message)}); }
  bool send_binary(std::string bytes) override { return put({true, false, std::move(bytes)}); }
  void drop_binary() override;
  void close() override { put({false, true, {}}); }

  bool ready() const;
  /// The next message; none = the client is gone.
  std::optional<Message> take();
  void set_gone();

 private:
  bool put(Message message);
  bool gone() const;

  const size_t bound_;
  const std::function<void()> notify_;
  mutable std::mutex mutex_;
  std::condition_variable room_;
  std::deque<Message> queue_;
  size_t unsent_ = 0;
  bool gone_ = false;
};

}  // namespace skald::server
