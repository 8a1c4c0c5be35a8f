// Routes by method and path.
#include "server/routes.h"

#include <array>

namespace skald::server {
namespace {

constexpr std::array kRoutes{
    Route{"GET", "/", "page", Guard::open, BodyKind::none, "The page: speak, listen, look at what it costs."},
    Route{"GET", "/app.js", "page", Guard::open, BodyKind::none, "The page's script."},
    Route{"GET", "/player.js", "page", Guard::open, BodyKind::none, "The page's audio worklet."},
    Route{"GET", "/style.css", "page", Guard::open, BodyKind::none, "The page's style."},
    Route{"GET", "/openapi.json", "openapi", Guard::listing, BodyKind::none,
          "The routes and fields as an OpenAPI document."},
    Route{"POST", "/v1/audio/speech", "speech", Guard::key, BodyKind::json,
          "Speech: the body of the OpenAI contract and more; audio, chunks of audio or server-sent events "
          "back.",
          true},
    Route{"POST", "/v1/audio/speech/batch", "batch", Guard::key, BodyKind::json,
          "Up to 32 speeches with shared defaults; every item has its own status.", true},
    Route{"POST", "/v1/audio/speech/estimate", "estimate", Guard::key, BodyKind::json,
          "What a speech would take: tokens, prompt rows, the bound of its frames. Speaks nothing."},
    Route{"GET", "/v1/audio/speech/stream", "socket", Guard::key, BodyKind::socket,
          "WebSocket: text in pieces, audio out."},
    Route{"GET", "/v1/models", "models", Guard::listing, BodyKind::none,
          "The models, and the cloud's names for them."},
    Route{"GET", "/v1/models/{id}", "model", Guard::listing, BodyKind::none, "One model."},
    Route{"GET", "/v1/audio/models", "models", Guard::listing, BodyKind::none,
          "The models in the shape that Open WebUI reads."},
    Route{"GET", "/v1/audio/voices", "voices", Guard::listing, BodyKind::none,
          "The voices; ?model= names one model."},
    Route{"GET", "/v1/voices", "voices", Guard::listing, BodyKind::none, "The same."},
    Route{"GET", "/voices", "voices", Guard::listing, BodyKind::none, "The same."},
    Route{"POST", "/v1/audio/voices", "upload", Guard::key, BodyKind::upload,
          "A recording becomes a voice that is kept; needs consent.", true},
    Route{"POST", "/v1/voices", "upload", Guard::key, BodyKind::upload, "The same.", true},
    Route{"DELETE", "/v1/audio/voices/{name}", "remove", Guard::key, BodyKind::none,
          "A kept voice is deleted."},
    Route{"DELETE", "/v1/voices/{name}", "remove", Guard::key, BodyKind::none, "The same."},
    Route{"POST", "/v1/audio/voice-clone", "clone", Guard::key, BodyKind::json,
          "Speech in the voice of a recording that comes with the request; needs consent.", true},
    Route{"GET", "/v1/audio/voice-clone/capabilities", "capabilities", Guard::listing, BodyKind::none,
          "Whether a recording can be sent with a request."},
    Route{"POST", "/api/generate", "generate", Guard::key, BodyKind::form, "A form; one WAV back."},
    Route{"POST", "/api/stream", "stream", Guard::key, BodyKind::form,
          "A form; 16-bit samples back as they are made."},
    Route{"GET", "/health", "health", Guard::open, BodyKind::none,
          "Alive: 200 as long as the server answers."},
    Route{"GET", "/ready", "ready", Guard::open, BodyKind::none,
          "Able to speak: 200, or 503 while loading, draining, or with a device that stands still."},
    Route{"GET", "/metrics", "metrics", Guard::key, BodyKind::none, "Counters in Prometheus' text format."},
};

bool matches(const Route& route, std::string_view path) {
  const size_t brace = route.path.find('{');
  if (brace == std::string_view::npos) return route.path == path;
  return path.size() > brace && path.substr(0, brace) == route.path.substr(0, brace);
}

}  // namespace

std::span<const Route> all_routes() { return kRoutes; }

std::string route_table() {
  std::string out = "| route | body | key | what |\n|---|---|---|---|\n";
  for (const Route& r : kRoutes) {
    const char* body = r.body == BodyKind::json     ? "JSON"
                       : r.body == BodyKind::form   ? "form"
                       : r.body == BodyKind::upload ? "multipart or JSON"
                                                    : "";
    const char* key = r.guard == Guard::key       ? "yes"
                      : r.guard == Guard::listing ? "unless `--open-lists`"
                                                  : "";
    out += "| `" + std::string(r.method) + " " + std::string(r.path) + "` | " + body + " | " + key + " | " +
           std::string(r.summary) + " |\n";
  }
  return out;
}

RouteMatch find_route(std::string_view method, std::string_view path) {
  RouteMatch match;
  const bool head = method == "HEAD";
  for (const Route& route : kRoutes) {
    if (!matches(route, path)) continue;
    match.path_known = true;
    if (!match.allow.empty()) match.allow += ", ";
    match.allow += route.method == "GET" && route.body != BodyKind::socket ? "GET, HEAD" : route.method;
    if (!match.route && (route.method == method || (head && route.method == "GET"))) match.route = &route;
  }
  if (match.path_known) match.allow += ", OPTIONS";
  return match;
}

std::string_view rest_of_path(const Route& route, std::string_view path) {
  const size_t brace = route.path.find('{');
  return brace == std::string_view::npos ? std::string_view() : path.substr(brace);
}

}  // namespace skald::server
