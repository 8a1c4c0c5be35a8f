// The life of the server, and the way of a request through it.
#include "server/service.h"

#include <fmt/format.h>

#include <random>

#include "server/socket_session.h"

namespace skald::server {

using Clock = Speech::Clock;

namespace {

std::string random_prefix() {
  std::random_device device;
  return fmt::format("{:08x}", device());
}

double seconds_since(Clock::time_point from) {
  return std::chrono::duration<double>(Clock::now() - from).count();
}

/// A client's own id of a request, if it can stand in a log.
std::string client_id(std::string_view given) {
  constexpr size_t kMost = 64;
  if (given.empty() || given.size() > kMost) return {};
  for (const char c : given) {
    const bool ok = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' ||
                    c == '_' || c == '.';
    if (!ok) return {};
  }
  return std::string(given);
}

/// An error as the log may have it. Sentences about a request may quote it; those about the server may not be
/// missed, without the names of voices in the paths of their files.
std::string sentence_of(const Error& error) {
  const std::string code(error_code_name(error.code()));
  if (http_status(error.code()) < 500 || error.code() == ErrorCode::runaway) return code;
  return fmt::format("{}: {}", code, without_voice_names(error.what()));
}

/// Whatever is 503 passes.
Headers retry_headers(const ApiError& error) {
  constexpr int kSeconds = 5;
  if (!error.retry_after && error.status() != 503) return {};
  return {{"Retry-After", std::to_string(error.retry_after.value_or(kSeconds))}};
}

constexpr size_t kFileRequests = 256;  // that may wait to read voices
constexpr uint64_t kBodyBytes = 1 << 20;
// Bodies up to this size are read on the sockets' thread, so that bad ones never wait for a slot.
constexpr size_t kSmallBody = 256 * 1024;

}  // namespace

Service::Service(ServerOptions options, LogSink log)
    : options_(std::move(options)), log_(std::move(log)), id_prefix_(random_prefix()) {
  if (options_.models.empty()) throw Error(ErrorCode::invalid_argument, "no model to serve");
  // The port first: who has to choose another should not wait for a model.
  http_ = HttpServer::listen(options_.http, *this);
  options_.api.cloning = options_.voices.cloning;
  options_.api.max_reference = options_.voices.upload_bytes;
  shelf_ = std::make_unique<VoiceShelf>(options_.voices);
  std::vector<ServedModel> served;
  const auto now =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch())
          .count();
  for (const ModelPlace& place : options_.models) {
    hosts_.push_back(std::make_unique<ModelHost>(place, options_.engine, log_));
    served.push_back({place.id, now, hosts_.back()->info(), nullptr});
    if (hosts_.back()->info().type == "base") served.back().kept = shelf_.get();
  }
  catalog_ = Catalog(std::move(served), options_.aliases);
  dispatcher_ = std::make_unique<Dispatcher>(static_cast<size_t>(options_.engine.slots), options_.queue);
  files_ = std::make_unique<Dispatcher>(1, kFileRequests);
}

Service::~Service() {
  drain();
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  if (maintenance_.joinable()) maintenance_.join();
  http_->stop();  // releases and cancels what is in work
  dispatcher_.reset();
  files_.reset();
}

void Service::start() {
  http_->start();
  hosts_.front()->load();
  started_ = true;
  maintenance_ = std::thread([this] { maintain(); });
}

void Service::drain() {
  {
    const std::lock_guard lock(mutex_);
    draining_ = true;
  }
  changed_.notify_all();
}

void Service::wait() {
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return draining_; });
  }
  http_->stop_accepting();
  // With its device lost, every request in work ends by itself, or it never will.
  const auto until = Clock::now() + std::chrono::seconds(faulted_ ? 2 : options_.drain_seconds);
  const auto pause = [] { std::this_thread::sleep_for(std::chrono::milliseconds(20)); };
  while (!dispatcher_->close() && Clock::now() < until) pause();
  // The last bytes are still on their way.
  const auto sent = std::min(until, Clock::now() + std::chrono::seconds(10));
  while (http_->connections() > 0 && Clock::now() < sent) pause();
}

/// Lets unused models go, and tries the first one again where it could not be loaded anew: as long as it
/// cannot, nobody may be sent here. Sleeps as long as nothing can be due.
void Service::maintain() {
  const auto limit = std::chrono::seconds(options_.unload_seconds);
  const auto pause = std::min(limit / 2 + std::chrono::seconds(1), std::chrono::seconds(30));
  std::unique_lock lock(mutex_);
  while (!ending_) {
    changed_.wait_for(lock, limit.count() > 0 ? pause : std::chrono::seconds(10), [&] { return ending_; });
    lock.unlock();
    for (const auto& host : hosts_) note_fault(*host);
    try {
      if (hosts_.front()->state() == ModelState::failed) hosts_.front()->acquire();
    } catch (const ApiError&) {  // the log has it
    }
    if (limit.count() > 0)
      for (const auto& host : hosts_) host->unload_if_idle(limit);
    lock.lock();
  }
}

std::string Service::new_id() { return fmt::format("{}-{}", id_prefix_, ++requests_); }

Headers Service::common_headers(const HttpRequest& request) {
  Headers out{
      {"X-Request-Id", request.id}, {"Cache-Control", "no-store"}, {"X-Content-Type-Options", "nosniff"}};
  if (const std::string origin = allowed_origin(options_.door, request.header("origin")); !origin.empty()) {
    out.emplace_back("Access-Control-Allow-Origin", origin);
    out.emplace_back("Access-Control-Expose-Headers", "*");
    out.emplace_back("Vary", "Origin");
  }
  return out;
}

Answer Service::protocol_error(int status, std::string_view code, std::string_view message) {
  metrics_.count_request("none", status);
  const ApiError error(status, std::string(code), std::string(message));
  return {status, "application/json", error_body(error, new_id()), retry_headers(error)};
}

// ---- the head

HttpApp::Verdict Service::judge(HttpRequest& request) {
  request.id = client_id(request.header("x-request-id"));
  if (request.id.empty()) request.id = new_id();
  const auto refuse_with = [&](const ApiError& error, Headers headers = {}) {
    metrics_.count_request("none", error.status());
    if (error.status() == 401) headers.emplace_back("WWW-Authenticate", "Bearer");
    return Verdict{
        Answer{error.status(), "application/json", error_body(error, request.id), std::move(headers)}, 0};
  };
  const RouteMatch match = request.bad_path ? RouteMatch{} : find_route(request.method, request.path);
  const bool preflight = request.method == "OPTIONS" && match.path_known;
  const Knock knock{request.method, request.header("host"), request.header("origin"),
                    request.header("authorization"), request.header("x-api-key")};
  const Guard guard = match.route ? match.route->guard : preflight ? Guard::open : Guard::key;
  if (const auto refusal = refuse_entry(options_.door, knock, guard)) return refuse_with(*refusal);
  if (preflight) {
    Headers headers{{"Allow", match.allow}};
    if (!allowed_origin(options_.door, request.header("origin")).empty()) {
      headers.emplace_back("Access-Control-Allow-Methods", match.allow);
      headers.emplace_back("Access-Control-Allow-Headers", "authorization, content-type, x-request-id");
      headers.emplace_back("Access-Control-Max-Age", "600");
    }
    return {Answer{204, "", "", std::move(headers)}, 0};
  }
  if (!match.path_known) return refuse_with(ApiError(404, "unknown_route", "there is nothing at this path"));
  if (!match.route)
    return refuse_with(ApiError(405, "method_not_allowed", "this path takes " + match.allow),
                       {{"Allow", match.allow}});
  const BodyKind kind = match.route->body;
  const std::string_view type = request.header("content-type");
  if (kind == BodyKind::json && !is_json_type(type))
    return refuse_with(
        ApiError(415, "unsupported_media_type", "send the body with Content-Type: application/json"));
  if (kind == BodyKind::form && !is_media_type(type, "application/x-www-form-urlencoded"))
    return refuse_with(ApiError(415, "unsupported_media_type",
                                "send the body with Content-Type: application/x-www-form-urlencoded"));
  if (kind == BodyKind::upload && !is_json_type(type) && !is_media_type(type, "multipart/form-data"))
    return refuse_with(
        ApiError(415, "unsupported_media_type", "send the voice as multipart/form-data or as JSON"));
  if (kind == BodyKind::socket && !request.upgrade)
    return refuse_with(ApiError(426, "upgrade_required", "this path is a WebSocket"),
                       {{"Upgrade", "websocket"}});
  if (kind != BodyKind::socket && request.upgrade)
    return refuse_with(ApiError(400, "no_websocket", "there is no WebSocket at this path"));
  // A recording grows by a third in base64.
  const uint64_t large = options_.voices.upload_bytes / 3 * 4 + kBodyBytes;
  return {std::nullopt, kind == BodyKind::none ? 0 : match.route->large ? large : kBodyBytes};
}

// ---- the whole request

/// What the table's routes do.
struct Routes {
  using Quick = Answer (Service::*)(const HttpRequest&);
  using Step = void (Service::*)(Service::Work&);
  struct Slow {
    Step prepare, run;
  };

  static Quick quick(std::string_view label) {
    if (label == "page") return &Service::page;
    if (label == "health") return &Service::health;
    if (label == "ready") return &Service::ready;
    if (label == "metrics") return &Service::metrics_page;
    if (label == "models") return &Service::models;
    if (label == "model") return &Service::model;
    if (label == "voices") return &Service::voices;
    if (label == "openapi") return &Service::openapi;
    if (label == "capabilities") return &Service::clone_capabilities;
    if (label == "remove") return &Service::remove_voice;
    return nullptr;
  }
  static bool reads_files(std::string_view label) { return label == "voices" || label == "remove"; }
  static Slow slow(std::string_view label) {
    if (label == "batch") return {&Service::prepare_batch, &Service::run_batch};
    if (label == "estimate") return {&Service::prepare_speech, &Service::run_estimate};
    if (label == "upload") return {&Service::prepare_upload, &Service::run_upload};
    if (label == "clone") return {&Service::prepare_clone, &Service::run_speech};
    if (label == "speech") return {&Service::prepare_speech, &Service::run_speech};
    return {&Service::prepare_form, &Service::run_speech};
  }
};

/// Whatever is thrown becomes an answer.
template <class Body>
void Service::answered(const HttpRequest& request, Reply& reply, std::string_view label, Body&& body) {
  try {
    body();
  } catch (const ApiError& error) {
    refuse(request, reply, error);
  } catch (const Error& error) {
    log_(LogLevel::error, fmt::format("{} {} failed: {}", request.id, label, sentence_of(error)));
    refuse(request, reply, to_api_error(error));
  } catch (const std::exception& error) {
    log_(LogLevel::error, fmt::format("{} {}: {}", request.id, label, error.what()));
    refuse(request, reply, ApiError(500, "internal", "the server failed; its log has the details"));
  }
}

void Service::handle(std::shared_ptr<HttpRequest> request, std::shared_ptr<Reply> reply) {
  const auto arrived = Clock::now();
  const Route& route = *find_route(request->method, request->path).route;
  const Routes::Quick quick = Routes::quick(route.label);
  const auto answer_now = [this, quick, label = route.label](const HttpRequest& to, Reply& through) {
    answered(to, through, label, [&] {
      Answer answer = (this->*quick)(to);
      metrics_.count_request(label, answer.status);
      through.send(std::move(answer));
    });
  };
  if (quick && !Routes::reads_files(route.label)) return answer_now(*request, *reply);
  answered(*request, *reply, route.label, [&] {
    if (quick) {
      auto task = std::make_shared<Task>();
      task->run = [=](double) { answer_now(*request, *reply); };
      if (!files_->submit(task)) throw queue_full();
      return;
    }
    auto work = std::make_shared<Work>();
    work->request = request, work->reply = reply, work->arrived = arrived;
    const Routes::Slow slow = Routes::slow(route.label);
    if (request->body.size() <= kSmallBody) {
      prepare(*work, slow.prepare);
    } else {
      work->late = slow.prepare;
    }
    enqueue(std::move(work), slow.run);
  });
}

/// Reads the body, which is of no use any more after that.
void Service::prepare(Work& work, void (Service::*step)(Work&)) {
  (this->*step)(work);
  std::string().swap(work.request->body);
}

void Service::enqueue(std::shared_ptr<Work> work, void (Service::*run)(Work&)) {
  // Which model is meant may not be known by now; model_of() looks again.
  const bool known = !work->late && work->items.empty();
  if (const auto refusal = unable(known ? std::optional(work->call.model) : std::nullopt))
    throw ApiError(*refusal);
  auto task = std::make_shared<Task>();
  std::weak_ptr<Task> weak = task;
  work->reply->on_gone([this, weak] {
    if (const auto waiting = weak.lock()) dispatcher_->withdraw(waiting.get());
  });
  Reply& reply = *work->reply;
  task->run = [this, work = std::move(work), run](double waited) { guarded(*work, waited, run); };
  if (!dispatcher_->submit(task)) {
    reply.on_gone({});
    throw queue_full();
  }
}

ApiError Service::queue_full() {
  metrics_.rejected.add();
  ApiError error(429, "server_busy", "all places are taken and the queue is full; try again later");
  error.retry_after = dispatcher_->retry_after();
  return error;
}

ApiError Service::queue_timeout() const {
  ApiError error(503, "queue_timeout", "no place became free in time; try again later");
  error.retry_after = dispatcher_->retry_after();
  return error;
}

/// Runs on a worker; whatever is thrown becomes an answer.
void Service::guarded(Work& work, double waited, void (Service::*run)(Work&)) {
  metrics_.queue_seconds.add(waited);
  work.reply->on_gone({});
  if (work.reply->gone()) return;
  const std::string_view label = find_route(work.request->method, work.request->path).route->label;
  try {
    if (waited > options_.request_seconds) throw queue_timeout();
    if (work.late) prepare(work, work.late);
    (this->*run)(work);
  } catch (const ApiError& error) {
    refuse(*work.request, *work.reply, error);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::cancelled && work.reply->gone()) return;
    note_end(work.request->id, work.call, error, label);
    refuse(*work.request, *work.reply, to_api_error(error));
  } catch (const std::exception& error) {
    log_(LogLevel::error, fmt::format("{} {}: {}", work.request->id, label, error.what()));
    refuse(*work.request, *work.reply,
           ApiError(500, "internal", "the server failed; its log has the details"));
  }
  metrics_.request_seconds.add(seconds_since(work.arrived));
}

void Service::refuse(const HttpRequest& request, Reply& reply, const ApiError& error) {
  const RouteMatch match = find_route(request.method, request.path);
  metrics_.count_request(match.route ? match.route->label : "none", error.status());
  Answer answer{error.status(), "application/json", error_body(error, request.id), {}};
  answer.headers = retry_headers(error);
  if (error.status() >= 500) {
    const std::lock_guard lock(mutex_);
    last_error_ = error.code();
  }
  reply.send(std::move(answer));
}

std::optional<ApiError> Service::unable(std::optional<size_t> model) const {
  const auto because = [](const std::string& reason) {
    ApiError error(503, reason, "the server cannot speak now (" + reason + "); try again");
    error.retry_after = 5;
    return error;
  };
  if (faulted_) return because("restarting");
  {
    const std::lock_guard lock(mutex_);
    if (draining_) return because("draining");
  }
  if (!started_) return because("loading");
  const auto loaded = model ? hosts_[*model]->peek() : nullptr;
  if (loaded && loaded->scheduler->state().wedged) return because("wedged");
  return std::nullopt;
}

std::shared_ptr<LoadedModel> Service::model_of(const SpeechCall& call) {
  note_fault(*hosts_[call.model]);
  if (const auto refusal = unable(call.model)) throw ApiError(*refusal);
  return hosts_[call.model]->acquire();
}

/// A model whose device failed is loaded anew by the next request, or by the next process.
void Service::note_fault(ModelHost& host, bool lost) {
  const auto loaded = host.peek();
  if (!loaded || !(lost || loaded->scheduler->state().fault)) return;
  if (options_.end_on_fault) {
    if (!faulted_.exchange(true)) drain();
    return;
  }
  log_(LogLevel::error,
       fmt::format("the device of model {} failed; the model is loaded anew", host.place().id));
  host.forget(*loaded);
}

void Service::note_end(const std::string& request_id, const SpeechCall& call, const Error& error,
                       std::string_view label) {
  metrics_.count_end(error_code_name(error.code()));
  const bool own = http_status(error.code()) >= 500 && error.code() != ErrorCode::runaway;
  log_(own ? LogLevel::error : LogLevel::note,
       fmt::format("{} {} failed: {}", request_id, label, sentence_of(error)));
  // The scheduler sees what fails in a frame; a prompt may meet the lost device first.
  const bool lost = error.code() == ErrorCode::device_lost || error.code() == ErrorCode::device_wedged;
  note_fault(*hosts_[call.model], lost);
}

void Service::count_audio(const Speech& speech) {
  if (speech.first_audio_ms() > 0) {
    metrics_.first_audio_seconds.add(speech.first_audio_ms() / 1000);
    metrics_.lateness_seconds.add(speech.lateness_seconds());
  }
  metrics_.frames.add(static_cast<double>(speech.result().frames));
  metrics_.audio_seconds.add(speech.audio_seconds());
}

void Service::note_end(const std::string& request_id, const Speech& speech, const ApiError& error) {
  count_audio(speech);
  metrics_.count_end(error.code());
  log_(LogLevel::note, fmt::format("{} speech failed: {}", request_id, error.code()));
}

void Service::note_end(const std::string& request_id, const SpeechCall& call, const Speech& speech,
                       const Error* error) {
  const SpeechResult r = speech.result();
  count_audio(speech);
  if (error) return note_end(request_id, call, *error);
  metrics_.real_time_factor.add(r.rtf);
  metrics_.count_end(stop_reason_name(r.stop));
  log_(LogLevel::note,
       fmt::format(
           "{} spoke {} tokens as {}: {} frames, stop {}, first audio {:.0f} ms, rtf {:.2f}, late {:.2f} s",
           request_id, r.text_tokens, audio::format_name(call.format), r.frames, stop_reason_name(r.stop),
           speech.first_audio_ms(), r.rtf, speech.lateness_seconds()));
}

std::shared_ptr<SocketSession> Service::open_socket(std::shared_ptr<HttpRequest> request,
                                                    std::shared_ptr<SocketOut> out) {
  metrics_.count_request("socket", 101);
  return make_socket_session(*this, std::move(request), std::move(out));
}

}  // namespace skald::server
