// Requests and answers between the sockets and the routes; nothing here knows a socket.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace skald::server {

using Headers = std::vector<std::pair<std::string, std::string>>;

struct HttpRequest {
  std::string method;                                       ///< upper case, as sent
  std::string path;                                         ///< percent-decoded, without the query
  std::string query;                                        ///< as sent
  std::map<std::string, std::string, std::less<>> headers;  ///< names in lower case; the first of equal names
  std::string body;
  std::string id;         ///< of the request, for headers and logs
  bool upgrade = false;   ///< asks for a WebSocket
  bool bad_path = false;  ///< the path held a broken escape

  std::string_view header(std::string_view name) const {
    const auto it = headers.find(name);
    return it == headers.end() ? std::string_view() : std::string_view(it->second);
  }
};

/// The start of an answer.
struct HttpHead {
  int status = 200;
  Headers headers;
  std::optional<uint64_t> length;  ///< of the body; absent = unknown, sent in chunks
};

/// A whole answer.
struct Answer {
  int status = 200;
  std::string type = "application/json";
  std::string body;
  Headers headers;
};

/// The way back to one client. Any one thread at a time, but for the handler of on_gone.
class Reply {
 public:
  virtual ~Reply() = default;
  /// The head, once, before any part of the body; a second one breaks the connection off, as abort().
  virtual void begin(HttpHead head) = 0;
  /// Bytes of the body; waits while too much is unsent. False = the client is gone.
  virtual bool write(std::string bytes) = 0;
  /// The body is whole. `trailers` go to clients that asked for them.
  virtual void end(Headers trailers = {}) = 0;
  /// The body is not whole, and the client must see it: the connection breaks.
  virtual void abort() = 0;
  virtual bool gone() const = 0;
  /// Called once, from another thread, when the client is gone; at once if it is by now. It may not call
  /// back. An empty handler takes the one before away, and waits for it if it is running.
  virtual void on_gone(std::function<void()> handler) = 0;

  void send(Answer answer) {
    HttpHead head{answer.status, std::move(answer.headers), answer.body.size()};
    if (!answer.type.empty()) head.headers.emplace_back("Content-Type", std::move(answer.type));
    begin(std::move(head));
    write_parts(answer.body);
    end();
  }
  /// write() in parts, so that a slow client has to take some of it in time, not all of it.
  bool write_parts(std::string_view bytes) {
    constexpr size_t kPart = 64 * 1024;
    bool ok = true;
    for (size_t at = 0; at < bytes.size() && ok; at += kPart)
      ok = write(std::string(bytes.substr(at, kPart)));
    return ok;
  }
};

/// One side of a WebSocket: what the session sends. Any thread.
class SocketOut {
 public:
  virtual ~SocketOut() = default;
  /// False = the client is gone, or (binary only) too slow for its queue after a wait.
  virtual bool send_text(std::string message) = 0;
  virtual bool send_binary(std::string bytes) = 0;
  /// Takes back what was not sent of the audio.
  virtual void drop_binary() = 0;
  virtual void close() = 0;
};

/// The other side: what comes in, on the thread of the sockets; must not block.
class SocketSession {
 public:
  virtual ~SocketSession() = default;
  virtual void on_text(std::string message) = 0;
  virtual void on_binary() = 0;  ///< nobody sends binary messages here
  virtual void on_gone() = 0;    ///< the last call
};

/// What the sockets ask of the server behind them, on their thread; nothing of it may block.
class HttpApp {
 public:
  virtual ~HttpApp() = default;
  struct Verdict {
    std::optional<Answer> refusal;  ///< sent without reading the body
    uint64_t body_limit = 0;        ///< bytes
  };
  /// After the head, before the body.
  virtual Verdict judge(HttpRequest& request) = 0;
  /// The whole request; answered through `reply`, now or later.
  virtual void handle(std::shared_ptr<HttpRequest> request, std::shared_ptr<Reply> reply) = 0;
  /// A WebSocket on this path; null = there is none (judge has let it pass, so the path has one).
  virtual std::shared_ptr<SocketSession> open_socket(std::shared_ptr<HttpRequest> request,
                                                     std::shared_ptr<SocketOut> out) = 0;
  /// An answer that the sockets give by themselves: malformed requests, limits, too many connections.
  virtual Answer protocol_error(int status, std::string_view code, std::string_view message) = 0;
  /// Headers of every answer.
  virtual Headers common_headers(const HttpRequest& request) = 0;
};

struct HttpLimits {
  std::string address = "127.0.0.1";
  uint16_t port = 8000;  ///< 0 = any free one
  size_t connections = 256;
  uint32_t header_bytes = 16 * 1024;
  int header_seconds = 10, body_seconds = 60, idle_seconds = 75, write_seconds = 30;
  size_t unsent_bytes = 1 << 20;  ///< of one answer, before its writer has to wait
};

/// The listening sockets and their thread.
class HttpServer {
 public:
  /// Binds at once. Throws Error(io) that names address and port.
  static std::unique_ptr<HttpServer> listen(const HttpLimits& limits, HttpApp& app);
  virtual ~HttpServer() = default;
  virtual uint16_t port() const = 0;
  virtual std::string address() const = 0;  ///< "http://127.0.0.1:8000"
  virtual void start() = 0;                 ///< answers from now on
  /// No new connections; idle ones are closed, answers in work go on.
  virtual void stop_accepting() = 0;
  /// Closes everything and ends the thread.
  virtual void stop() = 0;
  virtual size_t connections() const = 0;  ///< now
  virtual uint64_t accepted() const = 0;   ///< so far
};

}  // namespace skald::server
