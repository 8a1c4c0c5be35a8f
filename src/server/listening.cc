// Resolving and binding.
#include "server/listening.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ip/v6_only.hpp>

#include <fmt/format.h>

#include "skald/error.h"

namespace skald::server {

std::vector<Listener> open_listeners(const HttpLimits& limits, uint16_t& port) {
  namespace net = boost::asio;
  using tcp = net::ip::tcp;
  try {
    net::io_context io(1);
    tcp::resolver resolver(io);
    const auto found = resolver.resolve(limits.address, std::to_string(limits.port), tcp::resolver::passive);
    port = limits.port;
    std::vector<tcp::acceptor> acceptors;
    for (const auto& entry : found) {
      tcp::endpoint endpoint = entry.endpoint();
      endpoint.port(port);
      tcp::acceptor acceptor(io);
      acceptor.open(endpoint.protocol());
      acceptor.set_option(net::socket_base::reuse_address(true));
      if (endpoint.address().is_v6()) acceptor.set_option(net::ip::v6_only(true));
      acceptor.bind(endpoint);
      acceptor.listen(net::socket_base::max_listen_connections);
      port = acceptor.local_endpoint().port();
      acceptors.push_back(std::move(acceptor));
    }
    std::vector<Listener> out;
    for (tcp::acceptor& acceptor : acceptors) {
      const bool v6 = acceptor.local_endpoint().address().is_v6();
      out.push_back({acceptor.release(), v6});
    }
    return out;
  } catch (const boost::system::system_error& e) {
    throw Error(
        ErrorCode::io,
        fmt::format("cannot listen on {} port {}: {}; choose another with --host and --port, or end what "
                    "listens there",
                    limits.address, limits.port, e.code().message()));
  }
}

std::string address_of(const HttpLimits& limits, uint16_t port) {
  const bool v6 = limits.address.find(':') != std::string::npos;
  return fmt::format("http://{}{}{}:{}", v6 ? "[" : "", limits.address, v6 ? "]" : "", port);
}

}  // namespace skald::server
