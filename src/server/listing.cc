// The routes that answer at once: the page, lists, health, metrics.
#include <fmt/format.h>

#include <algorithm>

#include <nlohmann/json.hpp>

#include "server/api_fields.h"
#include "server/form.h"
#include "server/json_text.h"
#include "server/page.h"
#include "server/service.h"

namespace skald::server {
namespace {

using Json = nlohmann::ordered_json;

const char* state_name(ModelState state) {
  switch (state) {
    case ModelState::unloaded: return "unloaded";
    case ModelState::loading: return "loading";
    case ModelState::ready: return "ready";
    case ModelState::failed: return "failed";
  }
  return "failed";
}

}  // namespace

Answer Service::page(const HttpRequest& request) {
  const std::string name = request.path == "/" ? "index.html" : request.path.substr(1);
  for (const PageFile& file : page_files()) {
    if (file.name != name) continue;
    return {
        200,
        std::string(file.type),
        std::string(file.text),
        {{"Content-Security-Policy",
          "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' "
          "data:; "
          "media-src 'self' blob:; worker-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors "
          "'none'"},
         {"Referrer-Policy", "no-referrer"}}};
  }
  throw ApiError(404, "unknown_route", "there is nothing at this path");
}

Answer Service::openapi(const HttpRequest&) {
  return {200, "application/json", openapi_document(format_list()), {}};
}

Answer Service::models(const HttpRequest& request) {
  return {200,
          "application/json",
          request.path == "/v1/models" ? models_body(catalog_) : audio_models_body(catalog_),
          {}};
}

Answer Service::model(const HttpRequest& request) {
  const Route& route = *find_route(request.method, request.path).route;
  return {200, "application/json", model_body(catalog_, rest_of_path(route, request.path)), {}};
}

Answer Service::voices(const HttpRequest& request) {
  const auto query = parse_form(request.query);
  const auto model = query.find("model");
  return {200, "application/json", voices_body(catalog_, model == query.end() ? "" : model->second), {}};
}

Answer Service::clone_capabilities(const HttpRequest&) {
  const auto& models = catalog_.models();
  const auto base =
      std::find_if(models.begin(), models.end(), [](const ServedModel& m) { return m.info.type == "base"; });
  const bool supported = options_.voices.cloning && base != models.end();
  return {200,
          "application/json",
          to_text({{"supported", supported},
                   {"model_type", (supported ? *base : models.front()).info.type},
                   {"model", supported ? Json(base->id) : Json(nullptr)},
                   {"icl_mode_available", supported},
                   {"x_vector_mode_available", supported},
                   {"voices_kept", !options_.voices.folder.empty()},
                   {"max_bytes", options_.voices.upload_bytes},
                   {"max_seconds", options_.voices.seconds},
                   {"consent_required", true}}),
          {}};
}

/// Why nothing can be spoken now, as a word; empty = it can.
std::string Service::not_ready() const {
  if (faulted_) return "restarting";
  {
    const std::lock_guard lock(mutex_);
    if (draining_) return "draining";
  }
  if (!started_) return "loading";
  if (hosts_.front()->state() == ModelState::failed) return "model_failed";
  for (const auto& host : hosts_) {
    const auto loaded = host->peek();
    if (!loaded) continue;  // not asked for, or let go for want of use: the next request loads it
    const engine::SchedulerState state = loaded->scheduler->state();
    if (state.fault) return std::string(error_code_name(state.fault->code()));
    if (state.wedged) return "wedged";
  }
  return "";
}

std::string Service::status() const {
  const std::string reason = not_ready();
  std::string out = fmt::format("{}; {} requests in work, {} waiting", reason.empty() ? "ready" : reason,
                                dispatcher_->running(), dispatcher_->waiting());
  for (const auto& host : hosts_) {
    const auto loaded = host->peek();
    if (!loaded) continue;
    const engine::SchedulerState s = loaded->scheduler->state();
    out += fmt::format("; model {}: {} streams, {} rounds, this one for {:.0f} ms; {}", host->place().id,
                       s.active, s.rounds, s.round_age_ms, loaded->scheduler->client(false)->status());
  }
  return out;
}

Answer Service::health(const HttpRequest&) {
  return {200,
          "application/json",
          to_text({{"status", "alive"},
                   {"uptime_seconds", std::chrono::duration<double>(Speech::Clock::now() - began_).count()}}),
          {}};
}

Answer Service::ready(const HttpRequest&) {
  const std::string reason = not_ready();
  Json models = Json::array();
  for (const auto& host : hosts_) {
    Json entry{{"id", host->place().id}, {"state", state_name(host->state())}};
    if (const auto loaded = host->peek()) {
      const engine::SchedulerState s = loaded->scheduler->state();
      entry["device"] = loaded->core->device->name();
      entry["active"] = s.active;
      entry["rounds"] = s.rounds;
      entry["round_age_ms"] = s.round_age_ms;
      entry["still_ms"] = s.still_ms;
    }
    models.push_back(std::move(entry));
  }
  Json body{{"status", reason.empty() ? "ready" : reason},
            {"running", dispatcher_->running()},
            {"waiting", dispatcher_->waiting()},
            {"slots", options_.engine.slots},
            {"models", std::move(models)}};
  {
    const std::lock_guard lock(mutex_);
    if (!last_error_.empty()) body["last_error"] = last_error_;
  }
  Answer answer{reason.empty() ? 200 : 503, "application/json", to_text(body), {}};
  if (!reason.empty()) answer.headers.emplace_back("Retry-After", "5");
  return answer;
}

Answer Service::metrics_page(const HttpRequest&) {
  std::string out = metrics_.text();
  Metrics::gauge("skald_ready", "1 while the server can speak.", not_ready().empty(), out);
  Metrics::counter("skald_connections_total", "Connections taken.", static_cast<double>(http_->accepted()),
                   out);
  Metrics::gauge("skald_open_connections", "Connections now.", static_cast<double>(http_->connections()),
                 out);
  Metrics::gauge("skald_requests_running", "Requests in work.", static_cast<double>(dispatcher_->running()),
                 out);
  Metrics::gauge("skald_requests_waiting", "Requests waiting for a place.",
                 static_cast<double>(dispatcher_->waiting()), out);
  engine::SchedulerState sum;
  backend::DeviceCounters counters;
  for (const auto& host : hosts_) {
    const auto loaded = host->peek();
    if (!loaded) continue;
    const engine::SchedulerState s = loaded->scheduler->state();
    sum.active += s.active, sum.rounds += s.rounds, sum.width_sum += s.width_sum, sum.prompts += s.prompts;
    sum.busy_ms += s.busy_ms, sum.round_age_ms = std::max(sum.round_age_ms, s.round_age_ms);
    const backend::DeviceCounters c = loaded->core->device->counters();
    counters.programs += c.programs, counters.waits += c.waits,
        counters.lost_completions += c.lost_completions;
  }
  Metrics::gauge("skald_slots_active", "Streams that are not over.", sum.active, out);
  Metrics::gauge("skald_round_age_seconds", "How long the device has been at its work.",
                 sum.round_age_ms / 1000, out);
  const auto count = [&](const char* name, const char* help, uint64_t value) {
    Metrics::counter(name, help, static_cast<double>(value), out);
  };
  count("skald_rounds_total", "Frame programs run.", sum.rounds);
  count("skald_round_streams_total", "Streams in those programs, summed.", sum.width_sum);
  count("skald_prompts_total", "Prompts computed.", sum.prompts);
  count("skald_device_programs_total", "Programs handed to the device.", counters.programs);
  count("skald_device_waits_total", "Times the driver was asked for completion.", counters.waits);
  count("skald_lost_completions_total", "Work that was done without the driver saying so.",
        counters.lost_completions);
  Metrics::counter("skald_busy_seconds_total", "Seconds of work on the device.", sum.busy_ms / 1000, out);
  return {200, "text/plain; version=0.0.4; charset=utf-8", std::move(out), {}};
}

}  // namespace skald::server
