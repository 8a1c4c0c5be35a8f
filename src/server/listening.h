// Sockets that listen, by the name or address of the options.
#pragma once

#include <cstdint>
#include <vector>

#include "server/http.h"

namespace skald::server {

struct Listener {
  int descriptor = -1;  ///< the caller's
  bool v6 = false;
};

/// One for every address of the name, all on one port, which is written to `port`. Throws Error(io) that
/// names address and port.
std::vector<Listener> open_listeners(const HttpLimits& limits, uint16_t& port);

/// "http://127.0.0.1:8000".
std::string address_of(const HttpLimits& limits, uint16_t port);

}  // namespace skald::server
