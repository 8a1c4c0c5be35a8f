// The messages of a WebSocket and the utterances behind them.
#include "server/socket_session.h"

#include <fmt/format.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <nlohmann/json.hpp>

#include "server/json_text.h"
#include "server/service.h"
#include "text/utf8.h"

namespace skald::server {
namespace {

using Json = nlohmann::ordered_json;
using namespace std::chrono_literals;

/// The text of one utterance, from the sockets' thread to the one that speaks.
class Inbox {
 public:
  void add(const std::string& text) {
    change([&] { text_ += text; });
  }
  void flush() {
    change([&] { flush_ = true; });
  }
  void end() {
    change([&] { ended_ = true; });
  }
  void cancel() {
    change([&] { cancelled_ = true; });
  }

  /// Blocks for text, the end, or a pause after which whole sentences may be spoken; at most until
  /// `deadline`.
  engine::TextArrival next(std::chrono::seconds patience, Speech::Clock::time_point deadline) {
    constexpr auto kPause = 300ms;
    std::unique_lock lock(mutex_);
    const auto ready = [&] { return cancelled_ || ended_ || !text_.empty() || flush_; };
    const bool soon = wake_.wait_for(lock, said_quiet_ ? 0ms : kPause, ready);
    if (!soon && !said_quiet_) {
      said_quiet_ = true;
      return {{}, false, true};
    }
    const auto until = std::min(Speech::Clock::now() + patience, deadline);
    const bool came = soon || wake_.wait_until(lock, until, ready);
    if (cancelled_) throw Error(ErrorCode::cancelled, "cancelled");
    if (Speech::Clock::now() >= deadline)
      throw Error(ErrorCode::invalid_argument, "the text of the utterance took too long to come");
    if (!came)
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("no text came for {} s; end an utterance with input.done", patience.count()));
    said_quiet_ = false;
    const bool flush = std::exchange(flush_, false);
    if (!text_.empty()) return {std::exchange(text_, {}), false, false};
    return {{}, ended_, flush && !ended_};
  }

 private:
  template <class Body>
  void change(Body&& body) {
    {
      const std::lock_guard lock(mutex_);
      body();
    }
    wake_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  std::string text_;
  bool ended_ = false, flush_ = false, cancelled_ = false, said_quiet_ = true;
};

struct Utterance {
  int64_t number = 0;
  bool empty = false;  ///< input.done without any text
  SpeechCall call;
  Inbox inbox;
  size_t characters = 0;
  Speech::Clock::time_point arrived = Speech::Clock::now();
  Speech* speech = nullptr;  ///< while it speaks; under the session's lock
  bool cancelled = false;
};

class Session final : public SocketSession, public std::enable_shared_from_this<Session> {
 public:
  Session(Service& service, std::shared_ptr<HttpRequest> request, std::shared_ptr<SocketOut> out)
      : service_(service), request_(std::move(request)), out_(std::move(out)) {}

  void on_text(std::string message) override {
    try {
      const nlohmann::json body = parse_object(message);
      const auto type = body.find("type");
      if (type == body.end() || !type->is_string())
        throw ApiError(400, "invalid_argument", "every message needs the string type", "type");
      take(type->get<std::string>(), body);
    } catch (const ApiError& error) {
      send_error(error);
    } catch (const std::exception& error) {
      service_.log()(LogLevel::error, fmt::format("{} socket: {}", request_->id, error.what()));
      send_error(ApiError(500, "internal", "the server failed; its log has the details"));
    }
  }
  void on_binary() override {
    send_error(ApiError(400, "invalid_argument", "messages are JSON text, not binary"));
  }
  void on_gone() override {
    const std::lock_guard lock(mutex_);
    gone_ = true;
    cancel_all();
  }

 private:
  void take(const std::string& type, const nlohmann::json& body) {
    std::unique_lock lock(mutex_);
    if (type == "session.config") return configure(body);
    if (type == "input.text") return add_text(body);
    if (type == "input.flush") return void(open_ && (open_->inbox.flush(), true));
    if (type == "input.done") return end_text();
    if (type == "input.cancel") {
      out_->drop_binary();
      return cancel_all();
    }
    if (type == "session.close") {
      if (open_) end_text();
      closing_ = true;
      return advance();
    }
    throw ApiError(
        400, "unknown_message",
        "type must be session.config, input.text, input.flush, input.done, input.cancel or session.close",
        "type");
  }

  void configure(const nlohmann::json& body) {
    if (open_)
      throw ApiError(400, "text_waiting",
                     "there is text of an utterance that has not ended; send input.done first");
    nlohmann::json fields = body;
    fields.erase("type");
    if (!fields.contains("response_format")) fields["response_format"] = "pcm";
    SpeechCall call = read_speech(fields, service_.catalog(), service_.options().api, TextField::absent);
    call.delivery = Delivery::chunked;
    if (call.request.layout == TextLayout::automatic) call.request.layout = TextLayout::ahead;
    config_ = std::move(call);
    Json answer{{"type", "session.configured"}, {"request_id", request_->id}};
    if (!config_->ignored.empty()) answer["ignored"] = config_->ignored;
    send(answer);
  }

  void add_text(const nlohmann::json& body) {
    const auto text = body.find("text");
    if (text == body.end() || !text->is_string())
      throw ApiError(400, "invalid_argument", "text must be a string", "text");
    if (!config_) throw ApiError(400, "not_configured", "send session.config first");
    if (closing_) throw ApiError(400, "closing", "the session is closing");
    const std::string piece = text->get<std::string>();
    if (piece.empty()) return;
    const size_t most = service_.options().api.max_input, count = text::count_code_points(piece);
    if (most > 0 && (open_ ? open_->characters : 0) + count > most)
      throw ApiError(400, "text_too_long", fmt::format("an utterance may have {} characters", most), "text");
    if (!open_) {
      if (queue_.size() >= kWaiting)
        throw ApiError(429, "server_busy", "too many utterances of this session are waiting");
      open_ = new_utterance();
      open_->call = *config_;
      queue_.push_back(open_);
    }
    open_->characters += count;
    open_->inbox.add(piece);
    advance();
  }

  void end_text() {
    if (open_) {
      open_->inbox.end();
      open_.reset();
      return;
    }
    auto utterance = new_utterance();
    utterance->empty = true;
    queue_.push_back(std::move(utterance));
    advance();
  }

  std::shared_ptr<Utterance> new_utterance() {
    auto utterance = std::make_shared<Utterance>();
    utterance->number = next_number_++;
    return utterance;
  }

  void cancel_all() {
    for (const auto& u : queue_) {
      u->cancelled = true;
      if (!gone_) send_done(*u, {{"cancelled", true}});
    }
    queue_.clear();
    open_.reset();
    if (!active_) return;
    active_->cancelled = true;
    active_->inbox.cancel();
    if (active_->speech) active_->speech->cancel();
  }

  /// Starts the next utterance if none is in work.
  void advance() {
    while (!active_ && !queue_.empty()) {
      const std::shared_ptr<Utterance> next = std::move(queue_.front());
      queue_.pop_front();
      if (next->empty) {
        send_done(*next, {{"frames", 0}, {"empty", true}});
        continue;
      }
      std::optional<ApiError> refusal = service_.unable(next->call.model);
      if (!refusal) {
        active_ = next;
        auto task = std::make_shared<Task>();
        task->run = [self = shared_from_this(), next](double waited) { self->run(*next, waited); };
        if (service_.dispatcher().submit(task)) continue;
        active_.reset();
        refusal = service_.queue_full();
      }
      if (open_ == next) open_.reset();
      send_done(*next, {{"error", error_of(*refusal)}});
    }
    if (closing_ && !active_ && queue_.empty() && !std::exchange(closed_, true)) {
      send({{"type", "session.done"}, {"utterances", next_number_}});
      out_->close();
    }
  }

  /// On a worker.
  void run(Utterance& utterance, double waited) {
    service_.metrics().queue_seconds.add(waited);
    utterance.call.request.request_id = fmt::format("{}.{}", request_->id, utterance.number);
    Json end;
    try {
      if (waited > service_.options().request_seconds) throw service_.queue_timeout();
      end = speak(utterance);
    } catch (const ApiError& error) {
      end = {{"error", error_of(error)}};
    } catch (const Error& error) {
      service_.note_end(utterance.call.request.request_id, utterance.call, error);
      end = {{"error", error_of(to_api_error(error))}};
    } catch (const std::exception& error) {
      service_.log()(LogLevel::error, fmt::format("{} socket: {}", request_->id, error.what()));
      end = {{"error", error_of(ApiError(500, "internal", "the server failed; its log has the details"))}};
    }
    const std::lock_guard lock(mutex_);
    if (utterance.cancelled) end = {{"cancelled", true}};
    send_done(utterance, end);
    if (open_.get() == &utterance) open_.reset();
    active_.reset();
    if (!gone_) advance();
  }

  Json speak(Utterance& utterance) {
    const auto model = service_.model_of(utterance.call);
    service_.give_voice(utterance.call, *model, utterance.call.request.request_id);
    const std::chrono::seconds patience(service_.options().text_wait_seconds);
    // The time of a request counts from here: the utterances before this one are not its own.
    const auto now = Speech::Clock::now();
    const auto deadline = now + std::chrono::seconds(service_.options().request_seconds);
    Speech speech(*model->scheduler, utterance.call, utterance.arrived,
                  std::chrono::ceil<std::chrono::seconds>(deadline - utterance.arrived),
                  [&] { return utterance.inbox.next(patience, deadline); });
    const Link link(*this, utterance, speech);
    bool begun = false;
    try {
      for (bool last = false; !last;) {
        Speech::Part part = speech.next();
        last = part.last;
        if (part.bytes.empty()) continue;
        if (!std::exchange(begun, true))
          send({{"type", "audio.start"},
                {"utterance", utterance.number},
                {"format", audio::format_name(utterance.call.format)},
                {"sample_rate", speech.sample_rate()},
                {"request_id", utterance.call.request.request_id}});
        service_.metrics().bytes_sent.add(static_cast<double>(part.bytes.size()));
        if (!out_->send_binary(std::move(part.bytes))) speech.cancel();
      }
    } catch (const ApiError& error) {
      service_.note_end(utterance.call.request.request_id, speech, error);
      throw;
    } catch (const Error& error) {
      service_.note_end(utterance.call.request.request_id, utterance.call, speech, &error);
      throw ApiError(to_api_error(error));
    }
    service_.note_end(utterance.call.request.request_id, utterance.call, speech, nullptr);
    const SpeechResult r = speech.result();
    return {{"frames", r.frames},
            {"seed", r.seed},
            {"finish_reason", stop_reason_name(r.stop)},
            {"rtf", r.rtf},
            {"first_audio_ms", speech.first_audio_ms()},
            {"usage", usage_json(usage_of(r))}};
  }

  /// Lets cancel_all reach the speech while there is one.
  struct Link {
    Link(Session& s, Utterance& u, Speech& speech) : session(s), utterance(u) {
      const std::lock_guard lock(session.mutex_);
      utterance.speech = &speech;
      if (utterance.cancelled || session.gone_) speech.cancel();
    }
    ~Link() {
      const std::lock_guard lock(session.mutex_);
      utterance.speech = nullptr;
    }
    Link(const Link&) = delete;
    Link& operator=(const Link&) = delete;
    Session& session;
    Utterance& utterance;
  };

  static Json error_of(const ApiError& error) { return Json::parse(error_body(error, ""))["error"]; }
  void send(const Json& message) { out_->send_text(to_text(message)); }
  void send_error(const ApiError& error) { send({{"type", "error"}, {"error", error_of(error)}}); }
  void send_done(const Utterance& utterance, const Json& more) {
    Json message{{"type", "audio.done"}, {"utterance", utterance.number}};
    message.update(more);
    send(message);
  }

  static constexpr size_t kWaiting = 64;

  Service& service_;
  const std::shared_ptr<HttpRequest> request_;
  const std::shared_ptr<SocketOut> out_;

  std::mutex mutex_;
  std::optional<SpeechCall> config_;
  std::deque<std::shared_ptr<Utterance>> queue_;
  std::shared_ptr<Utterance> open_;    ///< takes text; waits in the queue or is active
  std::shared_ptr<Utterance> active_;  ///< on a worker, or on its way to one
  int64_t next_number_ = 0;
  bool closing_ = false, closed_ = false, gone_ = false;
};

}  // namespace

std::shared_ptr<SocketSession> make_socket_session(Service& service, std::shared_ptr<HttpRequest> request,
                                                   std::shared_ptr<SocketOut> out) {
  return std::make_shared<Session>(service, std::move(request), std::move(out));
}

}  // namespace skald::server
