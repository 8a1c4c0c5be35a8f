// The one table of routes: what the server answers, and what its reference says about it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "server/door.h"
#include "server/http.h"

namespace skald::server {

class Service;

/// How a body has to arrive.
enum class BodyKind : uint8_t { none, json, form, upload, socket };  // upload: multipart or JSON

struct Route {
  std::string_view method;
  std::string_view path;   ///< a trailing "{...}" stands for the rest
  std::string_view label;  ///< in metrics
  Guard guard;
  BodyKind body;
  std::string_view summary;  ///< one sentence of the reference
  bool large = false;        ///< the body may hold a recording
};

std::span<const Route> all_routes();

/// The route of a request. `path_known` tells a wrong method from a wrong path.
struct RouteMatch {
  const Route* route = nullptr;
  bool path_known = false;
  std::string allow;  ///< methods of the path, for the Allow header
};
RouteMatch find_route(std::string_view method, std::string_view path);

/// The routes as a table in Markdown: the one that docs/server.md shows.
std::string route_table();

/// What stands at the place of "{...}".
std::string_view rest_of_path(const Route& route, std::string_view path);

}  // namespace skald::server
