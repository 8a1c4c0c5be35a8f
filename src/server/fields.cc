// Typed reading of request fields.
#include "server/fields.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "server/api_error.h"
#include "server/ascii.h"

namespace skald::server {
namespace {

[[noreturn]] void wrong(const char* name, const std::string& must) {
  throw ApiError(400, "invalid_argument", fmt::format("{} must be {}", name, must), name);
}

}  // namespace

const nlohmann::json* Fields::find(Names names) {
  const nlohmann::json* found = nullptr;
  for (const char* name : names) {
    read_.emplace(name);
    const auto it = object_.find(name);
    if (it == object_.end() || it->is_null()) continue;
    if (found && *found != *it)
      throw ApiError(400, "invalid_argument",
                     fmt::format("{} is given under two names with different values", *names.begin()),
                     *names.begin());
    found = &*it;
  }
  return found;
}

std::optional<std::string> Fields::text(Names names) {
  const nlohmann::json* value = find(names);
  if (!value) return std::nullopt;
  if (!value->is_string()) wrong(*names.begin(), "a string");
  return value->get<std::string>();
}

std::optional<bool> Fields::flag(Names names) {
  const nlohmann::json* value = find(names);
  if (!value) return std::nullopt;
  if (!value->is_boolean()) wrong(*names.begin(), "true or false");
  return value->get<bool>();
}

std::optional<double> Fields::number(Names names, double least, double most) {
  const nlohmann::json* value = find(names);
  if (!value) return std::nullopt;
  const double number = value->is_number() ? value->get<double>() : std::nan("");
  if (!(number >= least && number <= most))
    wrong(*names.begin(), fmt::format("a number within {}..{}", least, most));
  return number;
}

std::optional<int64_t> Fields::whole(Names names, int64_t least, int64_t most) {
  const nlohmann::json* value = find(names);
  if (!value) return std::nullopt;
  const auto refuse = [&] {
    wrong(*names.begin(), fmt::format("a whole number within {}..{}", least, most));
  };
  int64_t number = 0;
  if (value->is_number_unsigned()) {
    const auto big = value->get<uint64_t>();
    if (big > static_cast<uint64_t>(INT64_MAX)) refuse();
    number = static_cast<int64_t>(big);
  } else if (value->is_number_integer()) {
    number = value->get<int64_t>();
  } else if (value->is_number_float()) {  // 7.0 as some languages write it
    const auto real = value->get<double>();
    if (!(std::abs(real) < 9e15) || real != std::floor(real)) refuse();
    number = static_cast<int64_t>(real);
  } else {
    refuse();
  }
  if (number < least || number > most) refuse();
  return number;
}

std::optional<size_t> Fields::choice(Names names, std::initializer_list<const char*> choices) {
  const std::optional<std::string> value = text(names);
  if (!value) return std::nullopt;
  std::string list;
  size_t index = 0;
  for (const char* choice : choices) {
    if (lower(*value) == choice) return index;
    list += (index++ ? ", " : "") + std::string(choice);
  }
  wrong(*names.begin(), "one of " + list);
}

std::vector<std::string> Fields::unread() const {
  constexpr size_t kNames = 20, kLength = 40;
  std::vector<std::string> out;
  for (const auto& [name, value] : object_.items()) {
    if (read_.contains(name) || out.size() == kNames) continue;
    std::string shown;
    for (const char c : name.substr(0, kLength)) shown += c > ' ' && c < 127 && c != ',' ? c : '?';
    out.push_back(std::move(shown));
  }
  return out;
}

}  // namespace skald::server
