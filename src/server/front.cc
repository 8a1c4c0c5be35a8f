// Workers and the bytes between them and the clients.
#include "server/front.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <condition_variable>
#include <csignal>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>

#include <fmt/format.h>

#include "server/api_error.h"
#include "server/front_text.h"
#include "server/listening.h"
#include "server/response_watch.h"
#include "server/worker_process.h"
#include "skald/error.h"

namespace skald::server {
namespace {

namespace net = boost::asio;
using boost::beast::tcp_stream;
using tcp = net::ip::tcp;
using std::chrono::seconds;
using Clock = std::chrono::steady_clock;
using ErrorCodeOf = boost::system::error_code;

auto into(ErrorCodeOf& ec) { return net::redirect_error(net::use_awaitable, ec); }

struct Worker {
  enum class State : uint8_t { starting, ready, down, ended };

  Worker(net::io_context& io, std::string name)
      : device(std::move(name)), wake(std::make_unique<net::steady_timer>(io)) {}

  std::string device;  ///< as it was named; the device's own identity once a worker has told it
  State state = State::starting;
  pid_t pid = -1;
  uint16_t port = 0;
  bool exited = true, sick = false, was_ready = false, watched = false;
  bool spoke = false;  ///< this process was ready
  int wait_status = 0;
  Patience patience;
  uint64_t restarts = 0;
  size_t tunnels = 0;
  Clock::time_point since;
  std::unique_ptr<net::steady_timer> wake;  ///< cancelled when something about it changed
};

/// A client and its worker.
struct Tunnel {
  Tunnel(tcp_stream c, tcp_stream w) : client(std::move(c)), worker(std::move(w)) {}
  tcp_stream client, worker;
  ResponseWatch watch;
  bool client_gone = false, worker_gone = false;
  bool worker_broke = false;  ///< it reset the connection: how a worker shows that an answer is not whole
};

void close(tcp_stream& stream, bool hard) {
  ErrorCodeOf ec;
  if (hard) stream.socket().set_option(net::socket_base::linger(true, 0), ec);
  if (!hard) stream.socket().shutdown(tcp::socket::shutdown_both, ec);
  stream.socket().close(ec);
}

class Workers final : public Front {
 public:
  Workers(FrontOptions options, LogSink log)
      : options_(std::move(options)), log_(std::move(log)), io_(1), children_(io_) {
    for (const Listener& one : open_listeners(options_.http, port_)) {
      acceptors_.emplace_back(io_);
      acceptors_.back().assign(one.v6 ? tcp::v6() : tcp::v4(), one.descriptor);
    }
    for (const std::string& device : options_.devices) workers_.emplace_back(io_, device);
  }

  ~Workers() override {
    drain();
    wait();
    // Timers may not outlive the context, nor may the context's coroutines outlive the workers.
    for (Worker& worker : workers_) worker.wake.reset();
  }

  std::string address() const override { return address_of(options_.http, port_); }

  int start() override {
    children_.add(SIGCHLD);
    net::co_spawn(io_, reap(), net::detached);
    for (tcp::acceptor& acceptor : acceptors_) net::co_spawn(io_, accept(acceptor), net::detached);
    for (Worker& worker : workers_) net::co_spawn(io_, live(worker), net::detached);
    thread_ = std::thread([this] { io_.run(); });
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return all_ready_ || failed_status_ || stopped_; });
    return failed_status_.value_or(0);
  }

  std::string status() const override {
    const std::lock_guard lock(mutex_);
    return status_;
  }

  void drain() override {
    net::post(io_, [this] { drain_here(); });
  }

  void wait() override {
    if (!thread_.joinable()) return;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return stopped_; });
    }
    net::post(io_, [this] { io_.stop(); });
    thread_.join();
  }

 private:
  // ---- workers

  net::awaitable<void> reap() {
    for (;;) {
      ErrorCodeOf ec;
      co_await children_.async_wait(into(ec));
      if (ec) co_return;
      for (Worker& w : workers_) {
        if (w.exited || ::waitpid(w.pid, &w.wait_status, WNOHANG) != w.pid) continue;
        w.exited = true;
        w.state = Worker::State::down;
        w.wake->cancel();
      }
      note_status();
    }
  }

  /// Starts a worker, and the next one whenever it ends.
  net::awaitable<void> live(Worker& w) {
    while (!draining_) {
      std::vector<std::string> words = options_.words;
      words.insert(words.end(), {"--device", w.device});
      WorkerProcess process;
      try {
        process = start_worker(words);
      } catch (const Error& error) {
        log_(LogLevel::error, error.what());
        w.wait_status = W_EXITCODE(1, 0);
      }
      if (process.pid < 0) {
        if (!w.was_ready) {
          fail_start(w);
          break;
        }
        co_await pause(w);
        continue;
      }
      w.pid = process.pid, w.exited = false, w.sick = false, w.spoke = false;
      w.state = Worker::State::starting;
      w.since = Clock::now();
      note_status();
      co_await until_ready(w, process.output);
      while (!w.exited) {
        ErrorCodeOf ec;
        w.wake->expires_after(std::chrono::hours(24));
        co_await w.wake->async_wait(into(ec));
      }
      if (draining_) break;
      if (!w.was_ready) {
        fail_start(w);
        break;
      }
      log_(LogLevel::error, fmt::format("the worker on {} ended with {}; starting another", w.device,
                                        end_of_process(w.wait_status)));
      co_await pause(w);
      ++w.restarts;
    }
    w.state = Worker::State::ended;
    note_status();
    stop_if_done();
  }

  /// The worker's one line: its address, then what its device calls itself.
  net::awaitable<void> until_ready(Worker& w, int output) {
    constexpr seconds kLongestLoad{900};  // with the compiler's time for a device that is new here
    net::posix::stream_descriptor pipe(io_, output);
    std::string line;
    ErrorCodeOf ec;
    net::steady_timer late(io_, kLongestLoad);
    late.async_wait([this, &w, pid = w.pid](const ErrorCodeOf& ended) {
      if (ended || w.pid != pid || w.exited) return;
      log_(LogLevel::error, fmt::format("the worker on {} does not get ready and is killed", w.device));
      ::kill(pid, SIGKILL);
    });
    co_await net::async_read_until(pipe, net::dynamic_buffer(line, 4096), '\n', into(ec));
    const std::optional<WorkerLine> said = ec ? std::nullopt : read_worker_line(line);
    if (!said || w.exited) {
      if (!w.exited) ::kill(w.pid, SIGKILL);
      co_return;
    }
    w.port = said->port;
    if (!said->identity.empty()) w.device = said->identity;
    w.state = Worker::State::ready;
    w.was_ready = w.spoke = true;
    if (w.restarts > 0) log_(LogLevel::note, fmt::format("the worker on {} can speak again", w.device));
    note_status();
  }

  net::awaitable<void> pause(Worker& w) {
    ErrorCodeOf ec;
    w.wake->expires_after(w.patience.after(w.spoke, Clock::now() - w.since));
    co_await w.wake->async_wait(into(ec));
  }

  /// As long as it has clients, asks a worker every now and then whether it is there.
  net::awaitable<void> look_after(Worker& w) {
    w.watched = true;
    const pid_t pid = w.pid;
    net::steady_timer timer(io_);
    ErrorCodeOf ec;
    while (w.tunnels > 0 && w.state == Worker::State::ready && w.pid == pid) {
      timer.expires_after(seconds(2));
      co_await timer.async_wait(into(ec));
      if (w.tunnels == 0 || w.pid != pid || w.exited) break;
      bool late = false;
      const std::string answer =
          co_await ask(w, "GET /ready HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
                       options_.stuck_seconds, &late);
      if (w.pid != pid || w.exited) break;
      if (draining_ || answer.empty()) {
        if (!late) continue;  // it closes, and ends by itself
      } else {
        w.sick = answer.find(" 503 ") == 8;
        if (longest_still_ms(answer) < 3000.0 * options_.stuck_seconds) continue;
      }
      log_(LogLevel::error, fmt::format("the worker on {} stands still and is killed", w.device));
      ::kill(pid, SIGKILL);
      break;
    }
    w.watched = false;
    if (w.pid == pid && w.tunnels == 0) w.sick = false;  // nobody asks any more; the next client finds out
  }

  /// A whole answer of a worker; empty when there is none, `late` when it does not come in time.
  net::awaitable<std::string> ask(Worker& w, std::string request, int patience, bool* late = nullptr) {
    tcp_stream stream(io_);
    ErrorCodeOf ec;
    stream.expires_after(seconds(patience));
    co_await stream.async_connect(tcp::endpoint(net::ip::address_v4::loopback(), w.port), into(ec));
    if (!ec) co_await net::async_write(stream, net::buffer(request), into(ec));
    std::string answer;
    std::array<char, 8192> bytes{};
    while (!ec) {
      const size_t got = co_await stream.async_read_some(net::buffer(bytes), into(ec));
      answer.append(bytes.data(), got);
    }
    if (ec != net::error::eof) answer.clear();
    if (late) *late = ec == boost::beast::error::timeout;
    co_return answer;
  }

  void fail_start(const Worker& w) {
    const std::lock_guard lock(mutex_);
    const bool code = WIFEXITED(w.wait_status) && WEXITSTATUS(w.wait_status) != 0;
    failed_status_ = code ? WEXITSTATUS(w.wait_status) : 1;
    changed_.notify_all();
    net::post(io_, [this] { drain_here(); });
  }

  void drain_here() {
    if (draining_) return;
    draining_ = true;
    ErrorCodeOf ec;
    for (tcp::acceptor& acceptor : acceptors_) acceptor.close(ec);
    for (Worker& w : workers_) {
      w.wake->cancel();
      if (!w.exited) ::kill(w.pid, SIGTERM);
    }
    net::co_spawn(io_, insist(), net::detached);
    stop_if_done();
  }

  /// Workers that do not end in time are ended.
  net::awaitable<void> insist() {
    net::steady_timer timer(io_, seconds(options_.drain_seconds + 5));
    ErrorCodeOf ec;
    co_await timer.async_wait(into(ec));
    for (const Worker& w : workers_)
      if (!w.exited) ::kill(w.pid, SIGKILL);
  }

  void stop_if_done() {
    const bool done =
        draining_ && std::all_of(workers_.begin(), workers_.end(), [](const Worker& w) {
          return w.exited && (w.state == Worker::State::ended || w.state == Worker::State::down);
        });
    if (!done || stopping_) return;
    stopping_ = true;
    net::co_spawn(io_, stop_soon(), net::detached);
  }

  /// The last bytes are still on their way to the clients.
  net::awaitable<void> stop_soon() {
    net::steady_timer timer(io_);
    ErrorCodeOf ec;
    for (int i = 0; i < 300 && connections_ > 0; ++i) {
      timer.expires_after(std::chrono::milliseconds(30));
      co_await timer.async_wait(into(ec));
    }
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    changed_.notify_all();
  }

  void note_status() {
    std::string text;
    bool all = true;
    for (const Worker& w : workers_) {
      all = all && w.was_ready;
      text += fmt::format("{}worker on {}: {}, process {}, {} connections, replaced {} times",
                          text.empty() ? "" : "; ", w.device, state_word(w), w.pid, w.tunnels, w.restarts);
    }
    const std::lock_guard lock(mutex_);
    status_ = std::move(text);
    all_ready_ = all;
    changed_.notify_all();
  }

  static const char* state_word(const Worker& w) {
    switch (w.state) {
      case Worker::State::starting: return w.was_ready ? "restarting" : "loading";
      case Worker::State::ready: return w.sick ? "sick" : "ready";
      case Worker::State::down: return w.was_ready ? "restarting" : "loading";
      case Worker::State::ended: return "ended";
    }
    return "";
  }

  // ---- clients

  net::awaitable<void> accept(tcp::acceptor& acceptor) {
    while (acceptor.is_open()) {
      ErrorCodeOf ec;
      tcp::socket socket = co_await acceptor.async_accept(into(ec));
      if (!ec) {
        net::co_spawn(io_, serve(std::move(socket)), net::detached);
        continue;
      }
      if (ec == net::error::operation_aborted) co_return;
      net::steady_timer rest(io_, std::chrono::milliseconds(100));  // no descriptors left
      co_await rest.async_wait(into(ec));
    }
  }

  struct Count {
    explicit Count(size_t& c) : counter(c) { ++counter; }
    ~Count() { --counter; }
    Count(const Count&) = delete;
    Count& operator=(const Count&) = delete;
    size_t& counter;
  };

  /// The worker with the fewest connections; healthy ones first, null where none can speak.
  Worker* choose() {
    Worker* best = nullptr;
    for (Worker& w : workers_) {
      if (w.state != Worker::State::ready) continue;
      if (!best || std::pair(w.sick, w.tunnels) < std::pair(best->sick, best->tunnels)) best = &w;
    }
    return best;
  }

  net::awaitable<void> serve(tcp::socket socket) {
    const Count count(connections_);
    ErrorCodeOf ec;
    socket.set_option(tcp::no_delay(true), ec);
    tcp_stream client(std::move(socket));
    std::string first;
    if (connections_ <= options_.http.connections) {
      first.resize(kPart);
      client.expires_after(seconds(options_.http.idle_seconds));
      const size_t got = co_await client.async_read_some(net::buffer(first), into(ec));
      first.resize(got);
      if (ec) co_return;
    }
    if (constexpr std::string_view kMetrics = "GET /metrics";
        kMetrics.starts_with(std::string_view(first).substr(0, kMetrics.size())))
      co_await whole_head(client, first);
    Worker* const w = choose();
    if (first.empty() || !w) {
      co_await say_why(client, std::move(first));
      co_return;
    }
    if (asks_for_metrics(first)) {
      co_await add_up_metrics(client, std::move(first));
      co_return;
    }
    const Count in_work(w->tunnels);  // before the next client chooses
    tcp_stream to_worker(io_);
    to_worker.expires_after(seconds(5));
    co_await to_worker.async_connect(tcp::endpoint(net::ip::address_v4::loopback(), w->port), into(ec));
    if (ec) {
      co_await say_why(client, std::move(first));
      co_return;
    }
    to_worker.socket().set_option(tcp::no_delay(true), ec);
    const auto tunnel = std::make_shared<Tunnel>(std::move(client), std::move(to_worker));
    if (!w->watched) net::co_spawn(io_, look_after(*w), net::detached);
    co_await through(*w, tunnel, std::move(first));
  }

  net::awaitable<void> through(Worker& w, std::shared_ptr<Tunnel> t, std::string first) {
    const pid_t pid = w.pid;
    ErrorCodeOf ec;
    t->watch.request_bytes(first);
    t->worker.expires_never();
    co_await net::async_write(t->worker, net::buffer(first), into(ec));
    net::co_spawn(io_, up(t), net::detached);
    std::string bytes(kPart, '\0');
    while (!t->client_gone) {
      const size_t got = co_await t->worker.async_read_some(net::buffer(bytes), into(ec));
      t->worker_broke = ec == net::error::connection_reset;
      if (ec) break;
      t->watch.answer_bytes(std::string_view(bytes).substr(0, got));
      t->client.expires_after(seconds(options_.http.write_seconds));
      co_await net::async_write(t->client, net::buffer(bytes.data(), got), into(ec));
      if (ec) t->client_gone = true;
    }
    t->worker_gone = true;
    close(t->worker, false);
    if (t->client_gone) {
      close(t->client, true);
      co_return;
    }
    co_await part(w, pid, *t);
  }

  /// What the client sends, until it hangs up.
  net::awaitable<void> up(std::shared_ptr<Tunnel> t) {
    std::string bytes(kPart, '\0');
    ErrorCodeOf ec;
    for (;;) {
      t->client.expires_never();
      const size_t got = co_await t->client.async_read_some(net::buffer(bytes), into(ec));
      if (ec) break;
      if (t->worker_gone) continue;  // the answer was sent without waiting for the rest
      t->watch.request_bytes(std::string_view(bytes).substr(0, got));
      co_await net::async_write(t->worker, net::buffer(bytes.data(), got), into(ec));
    }
    // A server takes the end of a request's bytes for a client that left; so be it here.
    t->client_gone = true;
    if (!t->worker_gone) close(t->worker, false);
  }

  /// The worker has closed: in order, or because it is no more. The client learns which.
  net::awaitable<void> part(Worker& w, pid_t pid, Tunnel& t) {
    ErrorCodeOf ec;
    net::steady_timer timer(io_);
    const Owed owed = t.watch.owed();
    const bool by_closing = t.watch.ends_by_closing();
    // The news of a process's end may come a little after that of its sockets; one that lost its device lets
    // others end first.
    const int rounds = owed == Owed::answer ? 125 : owed != Owed::rest || by_closing ? 10 : 0;
    for (int i = 0; i < rounds && !t.client_gone && w.pid == pid && !w.exited; ++i) {
      timer.expires_after(std::chrono::milliseconds(20));
      co_await timer.async_wait(into(ec));
    }
    const bool lost = w.pid != pid || w.exited;
    const bool in_order = w.pid == pid && w.wait_status == 0;
    // An answer that ends with its connection would look whole; of others the client knows their length.
    const bool broken = by_closing ? t.worker_broke || (lost && !in_order) : lost && !draining_;
    if (owed == Owed::rest && broken) {
      close(t.client, true);
      co_return;
    }
    std::string last;
    // A worker may close without an answer: a request that does not go on, one that was refused half way.
    if (owed == Owed::answer && (lost || draining_)) last = error_answer(lost_worker(), new_id());
    if (owed == Owed::message && lost) last = error_message(lost_worker(), new_id());
    if (owed == Owed::event && lost) last = error_event(lost_worker(), new_id(), t.watch.chunked());
    t.client.expires_after(seconds(options_.http.write_seconds));
    if (!last.empty()) co_await net::async_write(t.client, net::buffer(last), into(ec));
    t.client.socket().shutdown(tcp::socket::shutdown_send, ec);
    // A close with unread bytes would take the answer away from a client that is still sending.
    for (int i = 0; i < 100 && !t.client_gone; ++i) {
      timer.expires_after(std::chrono::milliseconds(20));
      co_await timer.async_wait(into(ec));
    }
    close(t.client, false);
  }

  static ApiError lost_worker() {
    ApiError error(503, "worker_lost",
                   "the process that spoke this request ended; another one takes its place");
    error.retry_after = 2;
    return error;
  }

  std::string new_id() { return fmt::format("front-{}", ++answers_); }

  /// Reads on to the blank line, or as far as it comes.
  net::awaitable<void> whole_head(tcp_stream& client, std::string& first) {
    ErrorCodeOf ec;
    client.expires_after(seconds(options_.http.header_seconds));
    while (!first.empty() && first.find("\r\n\r\n") == std::string::npos &&
           first.size() < options_.http.header_bytes && !ec) {
      std::array<char, 4096> bytes{};
      const size_t got = co_await client.async_read_some(net::buffer(bytes), into(ec));
      first.append(bytes.data(), got);
    }
  }

  /// Nobody can speak, or there are too many connections: answers by itself.
  net::awaitable<void> say_why(tcp_stream& client, std::string first) {
    ErrorCodeOf ec;
    co_await whole_head(client, first);
    std::vector<WorkerView> views;
    for (const Worker& w : workers_) views.push_back({w.device, state_word(w), w.restarts});
    const bool full = connections_ > options_.http.connections;
    const std::string wire = answer_without_worker(first, views, full, draining_, new_id());
    co_await net::async_write(client, net::buffer(wire), into(ec));
    client.socket().shutdown(tcp::socket::shutdown_send, ec);
    std::array<char, 4096> bytes{};
    client.expires_after(seconds(1));
    for (int i = 0; i < 256 && !ec; ++i) co_await client.async_read_some(net::buffer(bytes), into(ec));
  }

  net::awaitable<void> add_up_metrics(tcp_stream& client, std::string first) {
    ErrorCodeOf ec;
    const std::string request = closing_request(first);
    std::vector<std::string> answers;
    std::vector<WorkerView> views;
    for (Worker& w : workers_) {
      views.push_back({w.device, state_word(w), w.restarts});
      if (w.state != Worker::State::ready) continue;
      std::string answer = co_await ask(w, request, options_.stuck_seconds);
      if (!answer.empty()) answers.push_back(std::move(answer));
    }
    const std::string wire = summed_metrics(answers, views);
    client.expires_after(seconds(options_.http.write_seconds));
    co_await net::async_write(client, net::buffer(wire), into(ec));
    close(client, false);
  }

  static constexpr size_t kPart = 64 * 1024;

  const FrontOptions options_;
  const LogSink log_;

  // The thread of the sockets alone.
  std::deque<Worker> workers_;
  size_t connections_ = 0;
  uint64_t answers_ = 0;
  bool draining_ = false, stopping_ = false;
  net::io_context io_;
  net::signal_set children_;
  uint16_t port_ = 0;
  std::vector<tcp::acceptor> acceptors_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::string status_;
  bool all_ready_ = false, stopped_ = false;
  std::optional<int> failed_status_;
  std::thread thread_;
};

}  // namespace

std::unique_ptr<Front> Front::listen(FrontOptions options, LogSink log) {
  return std::make_unique<Workers>(std::move(options), std::move(log));
}

}  // namespace skald::server
