// Answers and lines of the front.
#include "server/front_text.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "server/ascii.h"
#include "server/json_text.h"

namespace skald::server {
namespace {

using Json = nlohmann::ordered_json;

std::string whole(int status, std::string_view reason, std::string_view type, std::string_view body,
                  std::string_view more_headers = {}, bool head_only = false) {
  return fmt::format(
      "HTTP/1.1 {} {}\r\nContent-Type: {}\r\nContent-Length: {}\r\n{}Cache-Control: no-store\r\n"
      "X-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n{}",
      status, reason, type, body.size(), more_headers, head_only ? std::string_view() : body);
}

std::string with_id(const ApiError& error, const std::string& id, bool head_only) {
  std::string headers = fmt::format("X-Request-Id: {}\r\n", id);
  if (error.retry_after) headers += fmt::format("Retry-After: {}\r\n", *error.retry_after);
  return whole(error.status(), "Service Unavailable", "application/json", error_body(error, id), headers,
               head_only);
}

/// The word behind the first blank of a request line, without its query.
std::string_view path_of(std::string_view request) {
  const std::string_view line = request.substr(0, request.find("\r\n"));
  const size_t begin = line.find(' ');
  if (begin == std::string_view::npos) return {};
  const std::string_view target = line.substr(begin + 1, line.find(' ', begin + 1) - begin - 1);
  return target.substr(0, target.find('?'));
}

std::string_view body_of(std::string_view answer) {
  const size_t blank = answer.find("\r\n\r\n");
  return blank == std::string_view::npos ? std::string_view() : answer.substr(blank + 4);
}

const char* reason_of(std::span<const WorkerView> workers, bool full, bool draining) {
  if (full) return "too_many_connections";
  if (draining) return "draining";
  const bool loading =
      std::any_of(workers.begin(), workers.end(), [](const WorkerView& w) { return w.state == "loading"; });
  return loading ? "loading" : "restarting";
}

/// Series of several processes, those of one name together as the format asks for.
class Series {
 public:
  void add(std::string_view text) {
    std::string group;
    while (!text.empty()) {
      const size_t end = std::min(text.find('\n'), text.size());
      const std::string_view line = text.substr(0, end);
      text.remove_prefix(std::min(end + 1, text.size()));
      const size_t blank = line.rfind(' ');
      if (line.empty() || blank == std::string_view::npos) continue;
      if (line.starts_with('#')) {
        group = line.substr(0, line.find(' ', 7));  // "# HELP name", "# TYPE name"
        group.erase(0, std::min<size_t>(7, group.size()));
        put(group, std::string(line), 0);
        continue;
      }
      const std::string name(line.substr(0, blank));
      double value = 0;
      std::from_chars(line.data() + blank + 1, line.data() + line.size(), value);
      put(!group.empty() && name.starts_with(group) ? group : name.substr(0, name.find('{')), name, value);
    }
  }
  std::string text() const {
    std::string out;
    for (const std::string& group : order_)
      for (const std::string& line : groups_.at(group))
        out += line.starts_with('#') ? line + "\n" : fmt::format("{} {}\n", line, values_.at(line));
    return out;
  }

 private:
  void put(const std::string& group, const std::string& name, double value) {
    const auto [at, added] = values_.emplace(name, value);
    if (added) {
      std::vector<std::string>& lines = groups_[group];
      if (lines.empty()) order_.push_back(group);
      lines.push_back(name);
    } else if (name == "skald_ready" || name == "skald_round_age_seconds") {
      at->second = std::max(at->second, value);
    } else {
      at->second += value;
    }
  }

  std::vector<std::string> order_;                          ///< of the groups
  std::map<std::string, std::vector<std::string>> groups_;  ///< comments and names of series
  std::map<std::string, double> values_;
};

}  // namespace

std::optional<WorkerLine> read_worker_line(std::string_view line) {
  if (line.empty() || line.back() != '\n') return std::nullopt;
  line.remove_suffix(1);
  const std::string_view address = line.substr(0, line.find(' '));
  const size_t colon = address.rfind(':');
  if (!address.starts_with("http://") || colon == std::string_view::npos) return std::nullopt;
  WorkerLine out;
  const char* const end = address.data() + address.size();
  const auto read = std::from_chars(address.data() + colon + 1, end, out.port);
  if (read.ec != std::errc() || read.ptr != end || out.port == 0) return std::nullopt;
  if (address.size() < line.size()) out.identity = line.substr(address.size() + 1);
  return out;
}

std::string worker_line(std::string_view address, std::string_view identity) {
  return fmt::format("{}{}{}\n", address, identity.empty() ? "" : " ", identity);
}

std::string error_answer(const ApiError& error, const std::string& request_id) {
  return with_id(error, request_id, false);
}

std::string error_event(const ApiError& error, const std::string& request_id, bool chunked) {
  Json event{{"type", "speech.audio.error"}};
  event.update(Json::parse(error_body(error, request_id)));
  const std::string text = "data: " + to_text(event) + "\n\n";
  return chunked ? fmt::format("{:x}\r\n{}\r\n0\r\n\r\n", text.size(), text) : text;
}

std::string error_message(const ApiError& error, const std::string& request_id) {
  Json message{{"type", "error"}};
  message.update(Json::parse(error_body(error, request_id)));
  const std::string text = to_text(message);
  std::string out("\x81\x7e", 2);
  out += static_cast<char>(text.size() >> 8);
  out += static_cast<char>(text.size() & 255);
  return out + text + std::string("\x88\x02\x03\xf4", 4);
}

std::string answer_without_worker(std::string_view request, std::span<const WorkerView> workers, bool full,
                                  bool draining, const std::string& request_id) {
  const bool head_only = request.starts_with("HEAD ");
  const std::string_view path = path_of(request);
  const char* const reason = reason_of(workers, full, draining);
  if (path == "/health" && !full)
    return whole(200, "OK", "application/json", to_text({{"status", "alive"}}), {}, head_only);
  if (path == "/ready" && !full)
    return whole(503, "Service Unavailable", "application/json",
                 to_text({{"status", reason}, {"models", Json::array()}}), "Retry-After: 2\r\n", head_only);
  ApiError error(503, reason,
                 full ? std::string("the server has no connection left; try again later")
                      : fmt::format("the server cannot speak now ({}); try again", reason));
  error.retry_after = 2;
  return with_id(error, request_id, head_only);
}

double longest_still_ms(std::string_view answer) {
  const nlohmann::json body = nlohmann::json::parse(body_of(answer), nullptr, false);
  double longest = 0;
  if (!body.is_object() || !body.contains("models") || !body["models"].is_array()) return 0;
  for (const auto& model : body["models"])
    if (model.is_object() && model.contains("still_ms") && model["still_ms"].is_number())
      longest = std::max(longest, model["still_ms"].get<double>());
  return longest;
}

bool asks_for_metrics(std::string_view request) {
  return request.starts_with("GET ") && path_of(request) == "/metrics" &&
         request.find("\r\n\r\n") != std::string_view::npos;
}

std::string closing_request(std::string_view request) {
  std::string out;
  std::string_view head = request.substr(0, request.find("\r\n\r\n"));
  while (!head.empty()) {
    const size_t end = std::min(head.find("\r\n"), head.size());
    const std::string line(head.substr(0, end));
    head.remove_prefix(std::min(end + 2, head.size()));
    if (lower(line.substr(0, line.find(':'))) != "connection") out += line + "\r\n";
  }
  return out + "Connection: close\r\n\r\n";
}

std::string summed_metrics(std::span<const std::string> answers, std::span<const WorkerView> workers) {
  for (const std::string& answer : answers)
    if (!answer.starts_with("HTTP/1.1 200 ")) return answer;
  Series series;
  for (const std::string& answer : answers) series.add(body_of(answer));
  std::string body = series.text();
  body += "# HELP skald_worker_up 1 while the worker can speak.\n# TYPE skald_worker_up gauge\n";
  for (size_t i = 0; i < workers.size(); ++i)
    body += fmt::format("skald_worker_up{{worker=\"{}\"}} {}\n", i, workers[i].state == "ready" ? 1 : 0);
  body +=
      "# HELP skald_worker_restarts_total Workers that were replaced.\n"
      "# TYPE skald_worker_restarts_total counter\n";
  for (size_t i = 0; i < workers.size(); ++i)
    body += fmt::format("skald_worker_restarts_total{{worker=\"{}\"}} {}\n", i, workers[i].restarts);
  return whole(200, "OK", "text/plain; version=0.0.4; charset=utf-8", body);
}

}  // namespace skald::server
