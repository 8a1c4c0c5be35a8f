// The server in front of its workers: one process for the connections, one for every device.
//
// A worker is this program once more, a whole server on a port of this machine. The front passes bytes
// between a client and the worker with the fewest connections. When a worker crashes, stands still or loses
// its device, the requests it had in work end with a named error, and a new one takes its place; the
// connections of the others, and the port, stay.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "server/http.h"
#include "server/log_line.h"

namespace skald::server {

struct FrontOptions {
  HttpLimits http;
  std::vector<std::string> devices;  ///< one worker each, as the operator named them
  std::vector<std::string> words;    ///< of every worker; its device is added
  int drain_seconds = 30;
  int stuck_seconds = 20;  ///< a worker with clients that does not answer for so long is killed
};

class Front {
 public:
  /// Binds the port; starts nothing yet. Throws Error(io).
  static std::unique_ptr<Front> listen(FrontOptions options, LogSink log);
  virtual ~Front() = default;
  virtual std::string address() const = 0;
  /// Answers from now on, with 503 until a worker can speak. Returns when all of them can: 0, or the exit
  /// status of one that ended before.
  virtual int start() = 0;
  virtual std::string status() const = 0;  ///< a line about every worker
  /// From any thread: no new connections, and the workers drain.
  virtual void drain() = 0;
  /// Until drain() was called and every worker has ended.
  virtual void wait() = 0;
};

}  // namespace skald::server
