// A WebSocket: text in pieces, audio out, one utterance after the other. docs/server.md has the messages.
#pragma once

#include <memory>

#include "server/http.h"

namespace skald::server {

class Service;

std::shared_ptr<SocketSession> make_socket_session(Service& service, std::shared_ptr<HttpRequest> request,
                                                   std::shared_ptr<SocketOut> out);

}  // namespace skald::server
