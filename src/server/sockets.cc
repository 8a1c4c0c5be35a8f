// The listening sockets (Boost.Beast): reading requests within their limits, writing answers as they come.
//
// One thread runs every connection as a coroutine. What takes time happens elsewhere; an Exchange or a
// WebSocketOut carries bytes from there to here.
#include <sys/socket.h>

#include <atomic>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/buffers_to_string.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http.hpp>
#include <boost/beast/websocket.hpp>
#include <functional>
#include <set>
#include <thread>

#include <fmt/format.h>

#include "server/ascii.h"
#include "server/form.h"
#include "server/http.h"
#include "server/listening.h"
#include "server/outbox.h"

namespace skald::server {
namespace {

namespace net = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
namespace websocket = beast::websocket;
using tcp = net::ip::tcp;
using std::chrono::seconds;
using ErrorCodeOf = boost::system::error_code;

/// Wakes a coroutine from any thread. The coroutine looks at its state, then waits; both happen in one step
/// of the sockets' thread, and so does the waking, so that none is lost.
class Wakeup : public std::enable_shared_from_this<Wakeup> {
 public:
  explicit Wakeup(net::io_context& io) : io_(io), timer_(io) {}
  std::function<void()> notifier() {
    return [self = shared_from_this()] { net::post(self->io_, [self] { self->timer_.cancel(); }); };
  }
  /// Until `box` has something for its client.
  template <class Box>
  net::awaitable<void> wait(const Box& box) {
    while (!box.ready()) {
      ErrorCodeOf ec;
      timer_.expires_after(std::chrono::hours(24));
      co_await timer_.async_wait(net::redirect_error(net::use_awaitable, ec));
    }
  }

 private:
  net::io_context& io_;
  net::steady_timer timer_;
};

/// Tells an exchange when its client hangs up while there is nothing to send.
class Watch : public std::enable_shared_from_this<Watch> {
 public:
  Watch(tcp::socket& socket, std::shared_ptr<Exchange> exchange)
      : socket_(&socket), exchange_(std::move(exchange)) {}
  void start() {
    socket_->async_wait(tcp::socket::wait_read,
                        net::bind_cancellation_slot(
                            signal_.slot(), [self = shared_from_this()](ErrorCodeOf ec) { self->look(ec); }));
  }
  void stop() {
    socket_ = nullptr;
    signal_.emit(net::cancellation_type::total);
  }

 private:
  void look(ErrorCodeOf ec) {
    if (!socket_ || ec == net::error::operation_aborted) return;
    char byte = 0;
    const auto got = ec ? -1 : ::recv(socket_->native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    // Bytes are the client's next request: it is alive, and stays unwatched from here on.
    if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) exchange_->set_gone();
  }

  tcp::socket* socket_;
  std::shared_ptr<Exchange> exchange_;
  net::cancellation_signal signal_;
};

std::string clean_value(std::string value) {
  for (char& c : value)
    if (c < ' ' || c > '~') c = '?';
  return value;
}

/// How one answer is written.
struct Manner {
  bool http11 = true, keep_alive = true, head_only = false, trailers = false;
};

std::string head_text(const HttpHead& head, const Headers& common, const Manner& manner, bool chunked) {
  const auto reason = http::obsolete_reason(static_cast<http::status>(head.status));
  std::string out = fmt::format("HTTP/1.{} {} {}\r\n", manner.http11 ? 1 : 0, head.status,
                                std::string_view(reason.data(), reason.size()));
  for (const Headers* list : {&head.headers, &common})
    for (const auto& [name, value] : *list) out += name + ": " + clean_value(value) + "\r\n";
  if (chunked) {
    out += "Transfer-Encoding: chunked\r\n";
  } else if (head.length && head.status != 204) {
    out += fmt::format("Content-Length: {}\r\n", *head.length);
  }
  out += manner.keep_alive ? "Connection: keep-alive\r\n\r\n" : "Connection: close\r\n\r\n";
  return out;
}

bool is_http_error(const ErrorCodeOf& ec) {
  static const auto& category = http::make_error_code(http::error::bad_method).category();
  return ec.category() == category;
}

class Sockets final : public HttpServer {
 public:
  Sockets(const HttpLimits& limits, HttpApp& app) : limits_(limits), app_(app), io_(1) { bind(); }
  ~Sockets() override { stop(); }

  uint16_t port() const override { return port_; }
  std::string address() const override { return address_of(limits_, port_); }
  size_t connections() const override { return connections_; }
  uint64_t accepted() const override { return accepted_; }

  void start() override {
    for (tcp::acceptor& acceptor : acceptors_) net::co_spawn(io_, accept(acceptor), net::detached);
    thread_ = std::thread([this] { io_.run(); });
  }

  void stop_accepting() override {
    draining_ = true;
    net::post(io_, [this] {
      ErrorCodeOf ec;
      for (tcp::acceptor& acceptor : acceptors_) acceptor.close(ec);
      for (beast::tcp_stream* stream : idle_) stream->cancel();
    });
  }

  void stop() override {
    if (!thread_.joinable()) return;
    net::post(io_, [this] {
      // What is cut off must not look whole where the answer ends with its connection.
      ErrorCodeOf ec;
      for (beast::tcp_stream* stream : answering_)
        stream->socket().set_option(net::socket_base::linger(true, 0), ec);
      io_.stop();
    });
    thread_.join();
    std::set<std::shared_ptr<Exchange>> exchanges;
    exchanges.swap(exchanges_);
    for (const auto& e : exchanges) e->set_gone();
    for (const auto& out : outs_) out->set_gone();
    std::set<std::shared_ptr<SocketSession>> sessions;
    sessions.swap(sessions_);
    for (const auto& session : sessions) session->on_gone();
  }

 private:
  using Parser = http::request_parser<http::string_body>;
  using WebSocket = websocket::stream<beast::tcp_stream>;
  static constexpr size_t kPart = 64 * 1024;  // bytes of one write

  void bind() {
    for (const Listener& one : open_listeners(limits_, port_)) {
      acceptors_.emplace_back(io_);
      acceptors_.back().assign(one.v6 ? tcp::v6() : tcp::v4(), one.descriptor);
    }
  }

  net::awaitable<void> accept(tcp::acceptor& acceptor) {
    while (acceptor.is_open()) {
      ErrorCodeOf ec;
      tcp::socket socket = co_await acceptor.async_accept(net::redirect_error(net::use_awaitable, ec));
      if (!ec) {
        net::co_spawn(io_, connection(std::move(socket)), net::detached);
        continue;
      }
      if (ec == net::error::operation_aborted) co_return;
      // Out of descriptors: wait for some to be closed instead of turning in circles.
      net::steady_timer pause(io_, std::chrono::milliseconds(100));
      co_await pause.async_wait(net::redirect_error(net::use_awaitable, ec));
    }
  }

  struct Count {
    explicit Count(std::atomic<size_t>& c) : counter(c) { ++counter; }
    ~Count() { --counter; }
    Count(const Count&) = delete;
    Count& operator=(const Count&) = delete;
    std::atomic<size_t>& counter;
  };

  net::awaitable<void> connection(tcp::socket socket) {
    const Count count(connections_);
    ++accepted_;
    ErrorCodeOf ec;
    socket.set_option(tcp::no_delay(true), ec);
    beast::tcp_stream stream(std::move(socket));
    beast::flat_buffer buffer;
    bool again = true;
    if (connections_ > limits_.connections) {
      co_await refuse(stream, 503, "too_many_connections",
                      "the server has no connection left; try again later");
      again = false;
    }
    while (again) again = co_await one_request(stream, buffer);
    if (stream.socket().is_open()) co_await linger(stream, buffer);
  }

  /// Reads one request and answers it; false = the connection is over.
  net::awaitable<bool> one_request(beast::tcp_stream& stream, beast::flat_buffer& buffer) {
    const bool any = co_await first_bytes(stream, buffer);
    if (!any) {
      close(stream);
      co_return false;
    }
    Parser parser;
    parser.header_limit(limits_.header_bytes);
    parser.body_limit(boost::none);
    parser.eager(false);
    ErrorCodeOf ec;
    stream.expires_after(seconds(limits_.header_seconds));
    co_await http::async_read_header(stream, buffer, parser, net::redirect_error(net::use_awaitable, ec));
    if (ec) {
      if (ec == http::error::header_limit) {
        co_await refuse(stream, 431, "header_too_large", "the head of the request is too large");
      } else if (is_http_error(ec) && ec != http::error::end_of_stream &&
                 ec != http::error::partial_message) {
        co_await refuse(stream, 400, "malformed_request", "this is not HTTP/1.1 as the server knows it");
      } else {
        close(stream);
      }
      co_return false;
    }
    auto request = std::make_shared<HttpRequest>();
    const bool understood = fill(*request, parser.get());
    if (!understood) {
      co_await refuse(stream, 400, "malformed_request", "the request needs exactly one Host header");
      co_return false;
    }
    if (!plain_framing(parser.get())) {
      co_await refuse(stream, 501, "unsupported_coding",
                      "a body comes with a Content-Length or in the transfer coding \"chunked\" alone");
      co_return false;
    }
    Manner manner = manner_of(parser.get());
    HttpApp::Verdict verdict = app_.judge(*request);
    const auto length = parser.content_length();
    if (!verdict.refusal && length && *length > verdict.body_limit)
      verdict.refusal = app_.protocol_error(
          413, "body_too_large", fmt::format("the body may have at most {} bytes", verdict.body_limit));
    if (verdict.refusal) {
      manner.keep_alive = manner.keep_alive && parser.is_done();
      const Line refusal = line();
      refusal.reply->send(*std::move(verdict.refusal));
      const bool kept = co_await answer(stream, refusal, *request, manner);
      co_return kept;
    }
    if (request->upgrade) {
      co_await web_socket(stream, std::move(request), parser);
      co_return false;
    }
    const bool whole = co_await read_body(stream, buffer, parser, verdict.body_limit);
    if (!whole) co_return false;
    request->body = std::move(parser.get().body());
    const Line to_client = line();
    app_.handle(request, to_client.reply);
    const bool kept = co_await answer(stream, to_client, *request, manner);
    co_return kept;
  }

  /// Waits for the start of a request; idle connections are told apart from slow ones here.
  net::awaitable<bool> first_bytes(beast::tcp_stream& stream, beast::flat_buffer& buffer) {
    if (buffer.size() > 0) co_return true;
    if (draining_) co_return false;
    ErrorCodeOf ec;
    idle_.insert(&stream);
    stream.expires_after(seconds(limits_.idle_seconds));
    const size_t got =
        co_await stream.async_read_some(buffer.prepare(4096), net::redirect_error(net::use_awaitable, ec));
    idle_.erase(&stream);
    buffer.commit(got);
    co_return !ec;
  }

  net::awaitable<bool> read_body(beast::tcp_stream& stream, beast::flat_buffer& buffer, Parser& parser,
                                 uint64_t limit) {
    ErrorCodeOf ec;
    if (parser.is_done()) co_return true;
    parser.body_limit(limit);
    const std::string expect = lower(
        std::string_view(parser.get()[http::field::expect].data(), parser.get()[http::field::expect].size()));
    stream.expires_after(seconds(limits_.body_seconds));
    if (expect == "100-continue") {
      const std::string go = "HTTP/1.1 100 Continue\r\n\r\n";
      co_await net::async_write(stream, net::buffer(go), net::redirect_error(net::use_awaitable, ec));
      if (ec) co_return false;
    }
    co_await http::async_read(stream, buffer, parser, net::redirect_error(net::use_awaitable, ec));
    if (!ec) co_return true;
    if (ec == http::error::body_limit) {
      co_await refuse(stream, 413, "body_too_large",
                      fmt::format("the body may have at most {} bytes", limit));
    } else if (is_http_error(ec) && ec != http::error::partial_message) {
      co_await refuse(stream, 400, "malformed_request", "the body is not what its headers announce");
    } else {
      close(stream);
    }
    co_return false;
  }

  template <class Message>
  static bool fill(HttpRequest& to, const Message& from) {
    const auto view = [](auto text) { return std::string_view(text.data(), text.size()); };
    const auto hosts = from.equal_range(http::field::host);
    if (std::distance(hosts.first, hosts.second) > 1) return false;
    if (from.version() == 11 && hosts.first == hosts.second) return false;
    to.method = view(from.method_string());
    const std::string_view target = view(from.target());
    const size_t mark = target.find('?');
    const auto path = percent_decode(target.substr(0, mark), false);
    to.bad_path = !path;
    to.path = path.value_or("");
    if (mark != std::string_view::npos) to.query = target.substr(mark + 1);
    for (const auto& field : from) to.headers.emplace(lower(view(field.name_string())), view(field.value()));
    to.upgrade = websocket::is_upgrade(from);
    return true;
  }

  /// Beast passes by a coding that it does not know: the body would be read as the next request.
  template <class Message>
  static bool plain_framing(const Message& from) {
    const auto codings = from.equal_range(http::field::transfer_encoding);
    if (codings.first == codings.second) return true;
    const auto value = codings.first->value();
    return std::next(codings.first) == codings.second && from.version() == 11 &&
           lower(std::string_view(value.data(), value.size())) == "chunked" &&
           from.find(http::field::content_length) == from.end();
  }

  template <class Message>
  Manner manner_of(const Message& from) const {
    Manner m;
    m.http11 = from.version() == 11;
    m.keep_alive = from.keep_alive() && !draining_;
    m.head_only = from.method() == http::verb::head;
    const auto te = from[http::field::te];
    m.trailers =
        m.http11 && lower(std::string_view(te.data(), te.size())).find("trailers") != std::string::npos;
    return m;
  }

  /// An answer and what wakes its writer.
  struct Line {
    std::shared_ptr<Wakeup> wakeup;
    std::shared_ptr<Exchange> reply;
  };
  Line line() {
    auto wakeup = std::make_shared<Wakeup>(io_);
    auto reply = std::make_shared<Exchange>(limits_.unsent_bytes, wakeup->notifier());
    return {std::move(wakeup), std::move(reply)};
  }

  /// Writes an answer as it comes; false = the connection is over.
  net::awaitable<bool> answer(beast::tcp_stream& stream, const Line& to, const HttpRequest& request,
                              Manner manner) {
    exchanges_.insert(to.reply);
    answering_.insert(&stream);
    const auto watch = std::make_shared<Watch>(stream.socket(), to.reply);
    watch->start();
    const bool kept = co_await write_answer(stream, to, request, manner);
    watch->stop();
    answering_.erase(&stream);
    exchanges_.erase(to.reply);
    if (!kept) to.reply->set_gone();
    co_return kept;
  }

  net::awaitable<bool> write_answer(beast::tcp_stream& stream, const Line& to, const HttpRequest& request,
                                    Manner manner) {
    Exchange& reply = *to.reply;
    bool chunked = false;
    for (;;) {
      co_await to.wakeup->wait(reply);
      if (reply.gone()) {
        close(stream);
        co_return false;
      }
      Exchange::Pending part = reply.take(kPart);
      std::string wire;
      if (part.head) {
        chunked = !part.head->length && manner.http11 && !manner.head_only;
        if (!part.head->length && !manner.http11) manner.keep_alive = false;
        if (draining_) manner.keep_alive = false;
        wire = head_text(*part.head, app_.common_headers(request), manner, chunked);
      }
      append_body(wire, part, chunked, manner);
      if (!wire.empty()) {
        ErrorCodeOf ec;
        stream.expires_after(seconds(limits_.write_seconds));
        co_await net::async_write(stream, net::buffer(wire), net::redirect_error(net::use_awaitable, ec));
        if (ec) {
          close(stream);
          co_return false;
        }
        reply.sent(part.bytes.size());
      }
      if (part.aborted) {
        // A chunked body without its last chunk is visibly not whole; without chunks only a reset is.
        chunked ? close(stream) : reset(stream);
        co_return false;
      }
      if (part.ended) co_return manner.keep_alive;
    }
  }

  static void append_body(std::string& wire, const Exchange::Pending& part, bool chunked,
                          const Manner& manner) {
    if (!part.bytes.empty() && !manner.head_only) {
      if (chunked) wire += fmt::format("{:x}\r\n", part.bytes.size());
      wire += part.bytes;
      if (chunked) wire += "\r\n";
    }
    if (!part.ended || part.aborted || !chunked) return;
    wire += "0\r\n";
    if (manner.trailers)
      for (const auto& [name, value] : part.trailers) wire += name + ": " + clean_value(value) + "\r\n";
    wire += "\r\n";
  }

  /// An answer of the sockets themselves; the connection ends after it.
  net::awaitable<void> refuse(beast::tcp_stream& stream, int status, std::string_view code,
                              std::string message) {
    Answer answer = app_.protocol_error(status, code, message);
    HttpHead head{answer.status, answer.headers, answer.body.size()};
    head.headers.emplace_back("Content-Type", answer.type);
    Manner manner;
    manner.keep_alive = false;
    const std::string wire = head_text(head, {}, manner, false) + answer.body;
    ErrorCodeOf ec;
    stream.expires_after(seconds(limits_.write_seconds));
    co_await net::async_write(stream, net::buffer(wire), net::redirect_error(net::use_awaitable, ec));
  }

  /// Ends a connection whose client may still be sending: a close with unread bytes would take the answer
  /// away from it.
  net::awaitable<void> linger(beast::tcp_stream& stream, beast::flat_buffer& buffer) {
    constexpr size_t kMost = 32 << 20;
    ErrorCodeOf ec;
    stream.socket().shutdown(tcp::socket::shutdown_send, ec);
    size_t dropped = 0;
    stream.expires_after(seconds(5));
    while (!ec && dropped < kMost) {
      buffer.clear();
      dropped += co_await stream.async_read_some(buffer.prepare(16 * 1024),
                                                 net::redirect_error(net::use_awaitable, ec));
    }
    close(stream);
  }

  static void close(beast::tcp_stream& stream) {
    ErrorCodeOf ec;
    stream.socket().shutdown(tcp::socket::shutdown_both, ec);
    stream.socket().close(ec);
  }
  static void reset(beast::tcp_stream& stream) {
    ErrorCodeOf ec;
    stream.socket().set_option(net::socket_base::linger(true, 0), ec);
    stream.socket().close(ec);
  }

  // ---- WebSockets

  net::awaitable<void> web_socket(beast::tcp_stream& stream, std::shared_ptr<HttpRequest> request,
                                  Parser& parser) {
    constexpr size_t kMessage = 256 * 1024;
    auto wakeup = std::make_shared<Wakeup>(io_);
    auto out = std::make_shared<WebSocketOut>(limits_.unsent_bytes, wakeup->notifier());
    stream.expires_never();
    auto ws = std::make_shared<WebSocket>(std::move(stream));
    websocket::stream_base::timeout timeout{seconds(limits_.header_seconds),
                                            seconds(limits_.idle_seconds * 4), true};
    ws->set_option(timeout);
    ws->read_message_max(kMessage);
    ws->auto_fragment(false);  // a piece of audio is one frame
    ErrorCodeOf ec;
    co_await ws->async_accept(parser.get(), net::redirect_error(net::use_awaitable, ec));
    if (ec) co_return;
    const auto session = app_.open_socket(std::move(request), out);
    if (!session) co_return;
    outs_.insert(out);
    sessions_.insert(session);
    net::co_spawn(io_, write_messages(ws, out, wakeup), net::detached);
    beast::flat_buffer buffer;
    while (!ec) {
      buffer.clear();
      co_await ws->async_read(buffer, net::redirect_error(net::use_awaitable, ec));
      if (ec) break;
      ws->got_text() ? session->on_text(beast::buffers_to_string(buffer.data())) : session->on_binary();
    }
    outs_.erase(out);
    sessions_.erase(session);
    out->set_gone();
    session->on_gone();
  }

  net::awaitable<void> write_messages(std::shared_ptr<WebSocket> ws, std::shared_ptr<WebSocketOut> out,
                                      std::shared_ptr<Wakeup> wakeup) {
    // Whoever takes nothing for too long is cut off, which ends the reading side as well.
    net::steady_timer late(io_);
    const auto cut = [ws] { beast::get_lowest_layer(*ws).close(); };
    for (;;) {
      co_await wakeup->wait(*out);
      const auto message = out->take();
      if (!message) co_return cut();
      ErrorCodeOf ec;
      late.expires_after(seconds(limits_.write_seconds));
      late.async_wait([cut](ErrorCodeOf cancelled) {
        if (!cancelled) cut();
      });
      if (message->close) {
        co_await ws->async_close(websocket::close_code::normal, net::redirect_error(net::use_awaitable, ec));
        co_return;
      }
      ws->binary(message->binary);
      co_await ws->async_write(net::buffer(message->bytes), net::redirect_error(net::use_awaitable, ec));
      if (ec) co_return;
      late.cancel();
    }
  }

  const HttpLimits limits_;
  HttpApp& app_;
  std::atomic<size_t> connections_ = 0;
  std::atomic<uint64_t> accepted_ = 0;
  std::atomic<bool> draining_ = false;
  // The sockets' thread alone, until it has ended.
  std::set<beast::tcp_stream*> idle_, answering_;
  std::set<std::shared_ptr<Exchange>> exchanges_;
  std::set<std::shared_ptr<WebSocketOut>> outs_;
  std::set<std::shared_ptr<SocketSession>> sessions_;
  net::io_context io_;  // its end destroys coroutines, which use all of the above
  uint16_t port_ = 0;
  std::vector<tcp::acceptor> acceptors_;
  std::thread thread_;
};

}  // namespace

std::unique_ptr<HttpServer> HttpServer::listen(const HttpLimits& limits, HttpApp& app) {
  return std::make_unique<Sockets>(limits, app);
}

}  // namespace skald::server
