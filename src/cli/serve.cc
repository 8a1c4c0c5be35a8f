// skald serve: the speech server.
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "cli/command.h"
#include "cli/exit_status.h"
#include "cli/first_start.h"
#include "cli/option_types.h"
#include "cli/request_options.h"
#include "cli/voice_options.h"
#include "engine/devices.h"
#include "server/api_fields.h"
#include "server/front.h"
#include "server/front_text.h"
#include "server/service.h"

namespace skald::cli {
namespace {

using server::LogLevel;
using server::ServerOptions;

constexpr const char* kFooter =
    R"(Prints its address on standard output once it can speak. The page is at that address, the OpenAI interface
under /v1; docs/server.md has the routes, the fields and the clients.

Without a key the server answers under the names of its own machine only, and only to pages of its own. Keys
come from --api-key-file or SKALD_API_KEY. The first SIGTERM or SIGINT lets requests in work end, the second
ends the process.)";

void add_words(CLI::App& app, const std::string& name, const char* type, std::vector<std::string>& to,
               const std::string& help, const std::string& group) {
  app.add_option(name, to, help)
      ->type_name(type)
      ->group(group)
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

/// "NAME=VALUE" taken apart.
std::pair<std::string, std::string> pair_of(const std::string& word, const char* option) {
  const size_t equals = word.find('=');
  if (equals == 0 || equals == std::string::npos || equals + 1 == word.size())
    throw UsageError(fmt::format("--{} is '{}', but must be NAME=VALUE", option, word));
  return {word.substr(0, equals), word.substr(equals + 1)};
}

/// The keys of a file, one a line; blank lines and those with a # are none.
void read_keys(const std::string& path, std::vector<std::string>& keys) {
  std::ifstream in(path);
  if (!in) throw Error(ErrorCode::io, fmt::format("cannot read the keys in '{}'", path));
  for (std::string line; std::getline(in, line);) {
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ' || line.back() == '\t'))
      line.pop_back();
    if (!line.empty() && line.front() != '#') keys.push_back(line);
  }
  if (keys.empty()) throw UsageError(fmt::format("'{}' holds no key", path));
}

/// The last part of a folder's name: "Qwen3-TTS-12Hz-0.6B-CustomVoice" of a path that may end in a slash.
std::string folder_name(const std::filesystem::path& folder) {
  const auto normal = std::filesystem::absolute(folder).lexically_normal();
  const auto name = normal.has_filename() ? normal.filename() : normal.parent_path().filename();
  return name.empty() ? "skald" : name.string();
}

class Serve : public Command {
 public:
  explicit Serve(CLI::App& program)
      : app_(program.add_subcommand("serve", "Answer requests for speech over HTTP")) {
    add_engine_options(*app_, o_);
    add_door_options();
    add_limit_options();
    app_->add_flag("--routes", routes_, "Print the tables of routes and fields and end")->group("Reference");
    app_->footer(kFooter);
  }
  const CLI::App* app() const override { return app_; }

  int run(Session& session, const Arguments& arguments) override {
    if (routes_) {
      print(server::route_table() + "\n" + server::field_table());
      return kOk;
    }
    if (!arguments.operands.empty()) throw UsageError("serve takes no text: it comes in requests");
    if (!workers_.empty()) return run_front(session, arguments);
    complete(o_);
    complete_options(session.log);
    check_gpus_first(session, options_.engine);
    std::string identity;
    if (as_worker_) name_device(identity);
    server::Service service(options_, log_to(session));
    session.log.note(fmt::format("loading {}", options_.models.front().id));
    service.start();
    session.signals.on_signal([&service] { service.drain(); });
    session.signals.on_status([&] { session.log.note(service.status()); });
    print(server::worker_line(service.http().address(), identity));
    service.wait();
    // Whatever still waits for a lost device would hold up an end in order.
    if (service.faulted()) std::_Exit(kDevice);
    session.signals.on_signal(nullptr);
    session.signals.on_status({});
    session.log.note("stopped");
    return kOk;
  }

 private:
  static server::LogSink log_to(Session& session) {
    return [&session](LogLevel level, const std::string& line) {
      switch (level) {
        case LogLevel::note: return session.log.note(line);
        case LogLevel::warning: return session.log.warning(line);
        case LogLevel::error: return session.log.error(line);
      }
    };
  }

  /// A process for every device of --worker, this one for the connections.
  int run_front(Session& session, const Arguments& arguments) {
    if (app_->count("--device") > 0)
      throw UsageError("--device and --worker both name devices; leave --device out");
    check_host();
    server::FrontOptions options;
    options.http = options_.http;
    for (const std::string& worker : workers_) engine::check_device_name(worker);
    options.devices = workers_;
    options.drain_seconds = options_.drain_seconds;
    options.stuck_seconds = stuck_seconds_;
    options.words = worker_words(arguments);
    const auto front = server::Front::listen(std::move(options), log_to(session));
    if (const int status = front->start(); status != 0) return status;
    session.signals.on_signal([&front] { front->drain(); });
    session.signals.on_status([&] { session.log.note(front->status()); });
    print(front->address() + "\n");
    front->wait();
    session.signals.on_signal(nullptr);
    session.signals.on_status({});
    session.log.note("stopped");
    return kOk;
  }

  /// The words of this command for a worker: its own address, no workers of its own.
  std::vector<std::string> worker_words(const Arguments& arguments) const {
    std::vector<std::string> words;
    for (size_t i = 0; i < arguments.options.size(); ++i) {
      const std::string& word = arguments.options[i];
      const std::string name = word.substr(0, word.find('='));
      if (name != "--worker" && name != "--host" && name != "--port" && name != "--max-connections") {
        words.push_back(word);
      } else if (name == word) {
        ++i;  // its value
      }
    }
    // Beside the clients' connections there are those that look after the worker.
    const size_t connections = options_.http.connections + 16;
    words.insert(words.end(),
                 {"--as-worker", "--port", "0", "--max-connections", std::to_string(connections)});
    if (!server::is_loopback(options_.http.address) && no_key_)
      words.insert(words.end(), {"--allow-host", "*"});
    return words;
  }

  /// What the device calls itself: the name under which it is opened again, whatever is counted by then.
  void name_device(std::string& identity) {
    options_.end_on_fault = true;
    options_.engine.on_gpu = [&identity, next = options_.engine.on_gpu](const GpuFacts& gpu) {
      if (next) next(gpu);
      identity = gpu.uuid.empty() ? gpu.bus_id : gpu.uuid;
    };
  }

  void add_door_options() {
    constexpr const char* kDoor = "Who may come in";
    constexpr const char* kNames = "Models and voices by name";
    constexpr const char* kProcesses = "Processes";
    add_name(*app_, "--host", "NAME", options_.http.address,
             "Name or address to listen on (default 127.0.0.1); others need a key", kDoor);
    add_whole_number(
        *app_, "--port", 0, 65535, [this](int32_t v) { options_.http.port = static_cast<uint16_t>(v); },
        "Port to listen on (default 8000); 0 = any free one", kDoor);
    add_name(*app_, "--api-key-file", "FILE", key_file_, "Keys, one a line; also those of $SKALD_API_KEY",
             kDoor);
    app_->add_flag("--no-key", no_key_, "Listen beyond this machine without a key")->group(kDoor);
    app_->add_flag("--open-lists", options_.door.open_lists, "Lists of models and voices need no key")
        ->group(kDoor);
    add_words(*app_, "--allow-host", "NAME", options_.door.hosts,
              "Name under which this server may be asked without a key; repeatable", kDoor);
    add_words(*app_, "--cors-origin", "ORIGIN", options_.door.origins,
              "Pages of this origin may call, * = any; repeatable", kDoor);

    add_words(*app_, "--worker", "DEVICE", workers_,
              "Speak on this device in a process of its own, replaced when it fails; repeatable", kProcesses);
    add_whole_number(
        *app_, "--stuck-seconds", 1, 86400, [this](int32_t v) { stuck_seconds_ = v; },
        "A worker that does not answer for so long is replaced (default 20)", kProcesses);
    app_->add_flag("--as-worker", as_worker_)->group("");
    add_name(*app_, "--name", "NAME", name_, "Name of the model in requests (default: that of its folder)",
             kNames);
    add_words(*app_, "--add-model", "NAME=DIR", more_models_,
              "One more model, loaded when a request names it; repeatable", kNames);
    add_words(*app_, "--voice-alias", "NAME=VOICE", voice_aliases_, "Another name of a voice; repeatable",
              kNames);
    add_store_options(*app_, store_, kNames);
    app_->add_flag("--no-clone", no_clone_, "Make no voices from recordings")->group(kNames);
    app_->add_flag("--no-aliases", no_aliases_, "The cloud's names of models and voices mean nothing here")
        ->group(kNames);
  }

  void add_limit_options() {
    constexpr const char* kLimits = "Limits";
    const auto number = [this](const char* name, int32_t least, int32_t most,
                               std::function<void(int32_t)> set, const char* help) {
      add_whole_number(*app_, name, least, most, set, help, kLimits);
    };
    number(
        "--slots", 1, 256, [this](int32_t v) { o_.engine.slots = v; },
        "Requests in work at once (default 4); each takes memory for its cache");
    number(
        "--queue", 0, 100000, [this](int32_t v) { options_.queue = static_cast<size_t>(v); },
        "Requests that may wait for a slot (default 64); more get 429");
    number(
        "--max-input", 0, kAnyInt, [this](int32_t v) { options_.api.max_input = static_cast<size_t>(v); },
        "Characters of a text (default 4096); 0 = no limit");
    number(
        "--max-instructions", 0, kAnyInt,
        [this](int32_t v) { options_.api.max_instructions = static_cast<size_t>(v); },
        "Characters of instructions (default 4096); 0 = no limit");
    number(
        "--max-frames", 1, kAnyInt, [this](int32_t v) { options_.api.max_frames = v; },
        "Most frames a request may ask for");
    number(
        "--max-connections", 1, 100000,
        [this](int32_t v) { options_.http.connections = static_cast<size_t>(v); },
        "Connections at once (default 256)");
    number(
        "--max-voices", 0, 100000, [this](int32_t v) { options_.voices.most = static_cast<size_t>(v); },
        "Voices that may be kept (default 100)");
    number(
        "--request-seconds", 1, 86400, [this](int32_t v) { options_.request_seconds = v; },
        "Longest time of a request, waiting included (default 600)");
    number(
        "--text-wait-seconds", 1, 86400, [this](int32_t v) { options_.text_wait_seconds = v; },
        "How long a WebSocket utterance waits for more text (default 30)");
    number(
        "--unload-seconds", 0, kAnyInt, [this](int32_t v) { options_.unload_seconds = v; },
        "Let a model go that nobody used for so long; 0 = never (default)");
    number(
        "--drain-seconds", 0, 86400, [this](int32_t v) { options_.drain_seconds = v; },
        "Time for requests in work after the first signal (default 30)");
    app_->add_flag("--strict", options_.api.strict,
                   "Unknown fields and warnings that change the result are errors")
        ->group(kLimits);
  }

  /// Reads the keys; whoever listens beyond this machine needs one.
  void check_host() {
    if (!key_file_.empty()) read_keys(key_file_, options_.door.keys);
    if (const char* key = std::getenv("SKALD_API_KEY"); key != nullptr && *key != '\0')
      options_.door.keys.emplace_back(key);
    const std::string& host = options_.http.address;
    if (options_.door.keys.empty() && !server::is_loopback(host)) {
      if (!no_key_)
        throw UsageError(
            fmt::format("'{}' is not this machine alone: give a key with --api-key-file or "
                        "SKALD_API_KEY, or say --no-key",
                        host));
      options_.door.hosts.emplace_back("*");
    }
  }

  void complete_options(Log& log) {
    check_host();
    options_.voices.folder = store_folder(store_);
    options_.voices.cloning = !no_clone_;
    options_.engine = o_.engine;
    options_.engine.on_audit = audit_to(store_, log);
    options_.models.push_back({name_.empty() ? folder_name(o_.model) : name_, o_.model});
    for (const std::string& word : more_models_) {
      const auto [name, folder] = pair_of(word, "add-model");
      for (const server::ModelPlace& other : options_.models)
        if (other.id == name)
          throw UsageError(
              fmt::format("'{}' and '{}' would both be called \"{}\": give one of them another name",
                          other.folder.string(), folder, name));
      options_.models.push_back({name, folder});
    }
    for (const std::string& word : voice_aliases_)
      options_.aliases.voices.insert(pair_of(word, "voice-alias"));
    options_.aliases.enabled = !no_aliases_;
  }

  CLI::App* app_;
  RequestOptions o_ = [] {
    RequestOptions o;
    o.engine.slots = 4, o.engine.kept_voices = 4;
    return o;
  }();
  ServerOptions options_;
  StoreOptions store_;
  std::string key_file_, name_;
  std::vector<std::string> more_models_, voice_aliases_;
  std::vector<std::string> workers_;
  int stuck_seconds_ = 20;
  bool no_key_ = false, no_aliases_ = false, no_clone_ = false, routes_ = false, as_worker_ = false;
};

}  // namespace

std::unique_ptr<Command> make_serve(CLI::App& program) { return std::make_unique<Serve>(program); }

}  // namespace skald::cli
