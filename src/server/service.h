// The server: routes between the sockets and the models.
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <thread>
#include <vector>

#include "server/catalog.h"
#include "server/dispatcher.h"
#include "server/door.h"
#include "server/http.h"
#include "server/log_line.h"
#include "server/metrics.h"
#include "server/model_host.h"
#include "server/openai.h"
#include "server/routes.h"
#include "server/speech.h"
#include "server/voice_shelf.h"

namespace skald::server {

struct ServerOptions {
  HttpLimits http;
  DoorRules door;
  ApiRules api;
  AliasRules aliases;
  EngineOptions engine;
  ShelfOptions voices;
  std::vector<ModelPlace> models;  ///< the first one is loaded at once and speaks where none is named
  size_t queue = 64;               ///< requests that may wait for a slot
  int request_seconds = 600;       ///< longest time of a request, waiting included
  int unload_seconds = 0;          ///< a model nobody used for so long is let go; 0 = never
  int drain_seconds = 30;          ///< requests in work may take so long after the first signal
  int text_wait_seconds = 30;      ///< a WebSocket utterance waits so long for more text
  bool end_on_fault = false;       ///< a worker: when its device fails, it ends for another to take its place
};

/// Lives from before the first connection to after the last.
class Service final : public HttpApp {
 public:
  /// Reads the models' configurations and binds the port; loads nothing yet. Throws Error.
  Service(ServerOptions options, LogSink log);
  ~Service() override;

  const HttpServer& http() const { return *http_; }
  /// Answers from now on; loads the first model. Throws Error when it cannot be loaded.
  void start();
  /// A few lines about where every loaded model stands, for a person who asks why nothing happens.
  std::string status() const;
  /// From any thread, also a signal's: stops taking requests; wait() returns once those in work are done.
  void drain();
  /// Until drain() was called and its time is over or its work done.
  void wait();
  /// Whether the device failed and the process should end; nothing of it should be waited for.
  bool faulted() const { return faulted_; }

  // HttpApp
  Verdict judge(HttpRequest& request) override;
  void handle(std::shared_ptr<HttpRequest> request, std::shared_ptr<Reply> reply) override;
  std::shared_ptr<SocketSession> open_socket(std::shared_ptr<HttpRequest> request,
                                             std::shared_ptr<SocketOut> out) override;
  Answer protocol_error(int status, std::string_view code, std::string_view message) override;
  Headers common_headers(const HttpRequest& request) override;

  // ---- what routes and sessions use

  /// A request on its way through a worker.
  struct Work {
    std::shared_ptr<HttpRequest> request;
    std::shared_ptr<Reply> reply;
    SpeechCall call;
    std::vector<SpeechCall> items;                  ///< of a batch
    std::vector<std::optional<ApiError>> refusals;  ///< of the items
    Speech::Clock::time_point arrived;
    bool api_route = false;
    Upload upload;
    void (Service::*late)(Work&) = nullptr;  ///< what is still to be read of a large body
  };

  const Catalog& catalog() const { return catalog_; }
  const ServerOptions& options() const { return options_; }
  Metrics& metrics() { return metrics_; }
  Dispatcher& dispatcher() { return *dispatcher_; }
  const LogSink& log() const { return log_; }
  /// Why the server takes no request now, or none for this model; empty = it does.
  std::optional<ApiError> unable(std::optional<size_t> model) const;
  /// The model of a call, loaded. Throws ApiError(503).
  std::shared_ptr<LoadedModel> model_of(const SpeechCall& call);
  /// Gives a call for a Base model its voice: from the recording in it, or from the shelf. Throws.
  void give_voice(SpeechCall& call, LoadedModel& model, const std::string& request_id);
  struct Given {
    size_t model = 0;
    Reference reference;
    std::shared_ptr<const Voice> voice;
  };
  /// The same, but from the recording of the call before where that is the same one.
  void give_voice_again(SpeechCall& call, LoadedModel& model, const std::string& request_id, Given& before);
  /// Counts and logs the end of a speech; a fault of the device makes the model load anew.
  void note_end(const std::string& request_id, const SpeechCall& call, const Speech& speech,
                const Error* error);
  void note_end(const std::string& request_id, const SpeechCall& call, const Error& error,
                std::string_view label = "speech");
  /// The same for a speech that the server ended itself.
  void note_end(const std::string& request_id, const Speech& speech, const ApiError& error);
  ApiError queue_full();
  ApiError queue_timeout() const;
  std::string new_id();

 private:
  friend struct Routes;

  template <class Body>
  void answered(const HttpRequest& request, Reply& reply, std::string_view label, Body&& body);
  void prepare(Work& work, void (Service::*step)(Work&));
  void enqueue(std::shared_ptr<Work> work, void (Service::*run)(Work&));
  void guarded(Work& work, double waited, void (Service::*run)(Work&));
  void refuse(const HttpRequest& request, Reply& reply, const ApiError& error);

  // Answers that are ready at once.
  Answer page(const HttpRequest& request);
  Answer openapi(const HttpRequest& request);
  Answer health(const HttpRequest& request);
  Answer ready(const HttpRequest& request);
  Answer metrics_page(const HttpRequest& request);
  Answer models(const HttpRequest& request);
  Answer model(const HttpRequest& request);
  Answer audio_models(const HttpRequest& request);
  Answer voices(const HttpRequest& request);
  Answer clone_capabilities(const HttpRequest& request);
  Answer remove_voice(const HttpRequest& request);

  // Requests that go through a worker: what they check at once, and what they do there.
  void prepare_speech(Work& work);
  void prepare_form(Work& work);
  void prepare_batch(Work& work);
  void prepare_clone(Work& work);
  void prepare_upload(Work& work);
  void run_upload(Work& work);
  void run_speech(Work& work);
  void run_batch(Work& work);
  nlohmann::ordered_json speak_item(Work& work, size_t index, Given& given);
  void run_estimate(Work& work);
  void stream(Work& work, LoadedModel& model, Speech& speech);

  void count_audio(const Speech& speech);
  void note_fault(ModelHost& host, bool lost = false);
  std::string not_ready() const;
  void maintain();

  ServerOptions options_;
  LogSink log_;
  Metrics metrics_;
  std::unique_ptr<VoiceShelf> shelf_;
  std::vector<std::unique_ptr<ModelHost>> hosts_;
  Catalog catalog_;
  std::unique_ptr<Dispatcher> dispatcher_;
  std::unique_ptr<Dispatcher> files_;  ///< for what reads or removes voices
  std::atomic<uint64_t> requests_ = 0;
  std::string id_prefix_;
  Speech::Clock::time_point began_ = Speech::Clock::now();

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool draining_ = false, ending_ = false;
  std::atomic<bool> faulted_ = false, started_ = false;
  std::string last_error_;  ///< code of the last 5xx

  std::thread maintenance_;
  std::unique_ptr<HttpServer> http_;
};

}  // namespace skald::server
