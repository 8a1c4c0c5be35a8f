// What the front says by itself, and what it reads of its workers. Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "server/api_error.h"

namespace skald::server {

/// The line by which a worker tells that it can speak: "http://127.0.0.1:PORT IDENTITY".
struct WorkerLine {
  uint16_t port = 0;
  std::string identity;  ///< of its device; empty = the device has none beside its name
};
std::optional<WorkerLine> read_worker_line(std::string_view line);
std::string worker_line(std::string_view address, std::string_view identity);

struct WorkerView {
  std::string device, state;  ///< "loading", "ready", "sick", "restarting", "ended"
  uint64_t restarts = 0;
};

/// A whole answer, head and body, after which the connection ends.
std::string error_answer(const ApiError& error, const std::string& request_id);
/// The last event of a stream of events, in a chunk of its own where the answer comes in chunks.
std::string error_event(const ApiError& error, const std::string& request_id, bool chunked);
/// The last messages of a WebSocket: the error, and its close (1012, the service restarts).
std::string error_message(const ApiError& error, const std::string& request_id);
/// The answer to a request that begins with these bytes while no worker can take it: health is alive,
/// everything else is 503 `too_many_connections`, `draining`, `loading` or `restarting`.
std::string answer_without_worker(std::string_view request, std::span<const WorkerView> workers, bool full,
                                  bool draining, const std::string& request_id);

/// The longest time without progress in an answer to GET /ready; 0 where there is none.
double longest_still_ms(std::string_view answer);

/// Whether these first bytes are a whole head that asks for the metrics.
bool asks_for_metrics(std::string_view request);
/// The head of a request, to be answered on a connection of its own.
std::string closing_request(std::string_view request);
/// Answers to GET /metrics as one: every series summed (of the gauges that cannot be, the largest) and in the
/// group of its name, and the series of the workers. An answer that is not 200 is passed on as it is.
std::string summed_metrics(std::span<const std::string> answers, std::span<const WorkerView> workers);

}  // namespace skald::server
