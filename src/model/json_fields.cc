// Strict reading of JSON: parsing with limits, files, typed fields.
#include "model/json_fields.h"

#include <fmt/format.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <unordered_set>
#include <utility>

namespace skald::model {
namespace {

using nlohmann::json;

constexpr int kDeepest = 32;
constexpr uintmax_t kLargestFile = 16u << 20;
constexpr std::string_view kFix = "take this file from the model's repository again or correct the value";

/// Thrown by the parser's callback, which has no other way to stop.
struct Refused {
  std::string why;
};

/// Watches nesting and keys while nlohmann builds the document, which by itself keeps the last of two equal
/// keys.
class Watch {
 public:
  bool operator()(int depth, json::parse_event_t event, const json& value) {
    switch (event) {
      case json::parse_event_t::object_start:
        if (depth >= kDeepest) throw Refused{fmt::format("is nested deeper than {} levels", kDeepest)};
        keys_.emplace_back();
        break;
      case json::parse_event_t::object_end: keys_.pop_back(); break;
      case json::parse_event_t::array_start:
        if (depth >= kDeepest) throw Refused{fmt::format("is nested deeper than {} levels", kDeepest)};
        break;
      case json::parse_event_t::key: {
        const auto& key = value.get_ref<const std::string&>();
        if (!keys_.back().insert(key).second) throw Refused{"has the key " + quote(key) + " twice"};
        break;
      }
      default: break;
    }
    return true;
  }

 private:
  std::vector<std::unordered_set<std::string>> keys_;
};

std::string brief(const json& value) {
  if (value.is_object()) return "an object";
  if (value.is_array() && value.size() > 8) return fmt::format("a list of {}", value.size());
  std::string text = value.dump(-1, ' ', false, json::error_handler_t::replace);
  if (text.size() > 60) text = text.substr(0, 60) + "...";
  return text;
}

}  // namespace

Document parse_document(std::string_view text, const std::string& file, Faults& faults) {
  const size_t mark = text.substr(0, 3) == "\xEF\xBB\xBF" ? 3 : 0;
  const char* const begin = text.data() + mark;
  const auto refuse = [&](const std::string& why) {
    faults.push_back({ErrorCode::model_invalid, file + " " + why, "download the file again"});
    return nullptr;
  };
  // nlohmann takes a zero byte for the end of its input.
  const size_t zero = text.find('\0');
  if (zero != std::string_view::npos) return refuse(fmt::format("is not valid JSON at byte {}", zero));
  try {
    auto document = std::make_shared<json>(json::parse(begin, text.data() + text.size(), Watch()));
    if (!document->is_object()) return refuse("does not hold a JSON object");
    return document;
  } catch (const Refused& refused) {
    return refuse(refused.why);
  } catch (const json::parse_error& error) {
    return refuse(fmt::format("is not valid JSON at byte {}", mark + (error.byte > 0 ? error.byte - 1 : 0)));
  } catch (const json::exception&) {
    return refuse("holds a number that no type can represent");
  }
}

std::optional<std::string> read_small_file(const std::filesystem::path& path, std::string_view consequence,
                                           Faults& faults) {
  const std::string file = path.string();
  const auto refuse = [&](ErrorCode code, std::string what, std::string fix) {
    faults.push_back({code, std::move(what), std::move(fix)});
    return std::nullopt;
  };
  if (add_file_fault(path, consequence, faults)) return std::nullopt;
  std::error_code failure;
  const uintmax_t size = std::filesystem::file_size(path, failure);
  if (failure || size > kLargestFile) {
    return refuse(ErrorCode::model_invalid,
                  failure ? fmt::format("{} cannot be read ({})", file, failure.message())
                          : fmt::format("{} has {} bytes, more than any such file of a model", file, size),
                  "download the file again");
  }
  std::ifstream stream(path, std::ios::binary);
  std::string text(static_cast<size_t>(size), '\0');
  if (!stream.read(text.data(), static_cast<std::streamsize>(size))) {
    return refuse(ErrorCode::io, fmt::format("{} cannot be read ({})", file, std::strerror(errno)),
                  "check the permissions of the file");
  }
  return text;
}

Fields::Fields(const json* document, std::string file, std::string prefix, Faults& faults)
    : object_(document), file_(std::move(file)), prefix_(std::move(prefix)), faults_(&faults) {}

void Fields::fault(std::string_view key, std::string_view message) const {
  faults_->push_back({ErrorCode::model_invalid, fmt::format("{}: {}{} {}", file_, prefix_, key, message),
                      std::string(kFix)});
}

void Fields::warn(std::string_view key, std::string_view message, std::string_view fix) const {
  faults_->push_back({ErrorCode::model_invalid, fmt::format("{}: {}{} {}", file_, prefix_, key, message),
                      std::string(fix), true});
}

void Fields::wrong(std::string_view key, const json& found, std::string_view expected) const {
  fault(key, fmt::format("is {}, expected {}", brief(found), expected));
}

const json* Fields::find(std::string_view key, bool required) const {
  if (object_ == nullptr) return nullptr;
  const auto found = object_->find(std::string(key));
  if (found == object_->end()) {
    if (required) fault(key, "is missing");
    return nullptr;
  }
  if (found->is_null()) {
    if (required) fault(key, "is null");
    return nullptr;
  }
  return &*found;
}

bool Fields::has(std::string_view key) const { return find(key, false) != nullptr; }

Fields Fields::object(std::string_view key) const {
  const json* value = find(key, true);
  if (value != nullptr && !value->is_object()) wrong(key, *value, "an object"), value = nullptr;
  return Fields(value, file_, fmt::format("{}{}.", prefix_, key), *faults_);
}

Fields Fields::optional_object(std::string_view key) const {
  if (has(key)) return object(key);
  return Fields(nullptr, file_, fmt::format("{}{}.", prefix_, key), *faults_);
}

std::optional<int32_t> Fields::as_integer(std::string_view key, const json& value, Range range) const {
  // Comparing as int64 needs care for unsigned values above its range.
  const bool fits = value.is_number_integer() && (!value.is_number_unsigned() ||
                                                  value.get<uint64_t>() <= static_cast<uint64_t>(INT64_MAX));
  if (fits) {
    const auto number = value.get<int64_t>();
    if (number >= range.low && number <= range.high) return static_cast<int32_t>(number);
  }
  wrong(key, value, fmt::format("an integer from {} to {}", range.low, range.high));
  return std::nullopt;
}

int32_t Fields::integer(std::string_view key, Range range) const {
  const json* value = find(key, true);
  return value == nullptr ? 0 : as_integer(key, *value, range).value_or(0);
}

int32_t Fields::integer_or(std::string_view key, Range range, int32_t fallback) const {
  const json* value = find(key, false);
  return value == nullptr ? fallback : as_integer(key, *value, range).value_or(fallback);
}

float Fields::number(std::string_view key, double low, double high) const {
  return find(key, true) == nullptr ? 0.0f : number_or(key, low, high, 0.0f);
}

float Fields::number_or(std::string_view key, double low, double high, float fallback) const {
  const json* value = find(key, false);
  if (value == nullptr) return fallback;
  const double number = value->is_number() ? value->get<double>() : std::nan("");
  if (number >= low && number <= high) return static_cast<float>(number);
  wrong(key, *value, fmt::format("a number from {} to {}", low, high));
  return fallback;
}

bool Fields::boolean_or(std::string_view key, bool fallback) const {
  const json* value = find(key, false);
  if (value == nullptr) return fallback;
  if (value->is_boolean()) return value->get<bool>();
  wrong(key, *value, "true or false");
  return fallback;
}

std::string Fields::text(std::string_view key) const {
  const json* value = find(key, true);
  if (value == nullptr) return {};
  if (value->is_string()) return value->get<std::string>();
  wrong(key, *value, "a string");
  return {};
}

std::vector<int32_t> Fields::integers(std::string_view key, Range each, size_t most) const {
  const json* value = find(key, true);
  if (value == nullptr) return {};
  if (!value->is_array() || value->empty() || value->size() > most) {
    wrong(key, *value, fmt::format("a list of 1 to {} integers", most));
    return {};
  }
  std::vector<int32_t> out;
  for (size_t i = 0; i < value->size(); ++i) {
    out.push_back(as_integer(fmt::format("{}[{}]", key, i), (*value)[i], each).value_or(0));
  }
  return out;
}

std::vector<int32_t> Fields::integers_or(std::string_view key, Range each, size_t most,
                                         std::vector<int32_t> fallback) const {
  return has(key) ? integers(key, each, most) : std::move(fallback);
}

std::vector<std::string> Fields::texts_or_none(std::string_view key, size_t most) const {
  const json* value = find(key, false);
  if (value == nullptr) return {};
  std::vector<std::string> out;
  if (value->is_array() && value->size() <= most) {
    for (const json& entry : *value) {
      if (entry.is_string()) out.push_back(entry.get<std::string>());
    }
    if (out.size() == value->size()) return out;
  }
  wrong(key, *value, fmt::format("a list of at most {} strings", most));
  return {};
}

std::map<std::string, int32_t> Fields::table(std::string_view key, Range each) const {
  std::map<std::string, int32_t> out;
  const Fields entries = object(key);
  if (!entries.present()) return out;
  for (const auto& [name, value] : entries.object_->items()) {
    if (const auto number = entries.as_integer(quote(name), value, each)) out.emplace(name, *number);
  }
  return out;
}

std::map<std::string, std::optional<std::string>> Fields::text_or_false_table(std::string_view key) const {
  std::map<std::string, std::optional<std::string>> out;
  const Fields entries = object(key);
  if (!entries.present()) return out;
  for (const auto& [name, value] : entries.object_->items()) {
    if (value.is_string()) {
      out.emplace(name, value.get<std::string>());
    } else if (value.is_boolean() && !value.get<bool>()) {
      out.emplace(name, std::nullopt);
    } else {
      entries.wrong(quote(name), value, "false or a string");
    }
  }
  return out;
}

void Fields::only_null(std::string_view key, std::string_view reason) const {
  if (const json* value = find(key, false)) wrong(key, *value, fmt::format("null ({})", reason));
}

void Fields::only_boolean(std::string_view key, bool value, std::string_view reason) const {
  const json* found = find(key, false);
  if (found != nullptr && *found != json(value)) wrong(key, *found, fmt::format("{} ({})", value, reason));
}

void Fields::only_text(std::string_view key, std::string_view value, std::string_view reason) const {
  const json* found = find(key, false);
  if (found != nullptr && *found != json(value))
    wrong(key, *found, fmt::format("\"{}\" ({})", value, reason));
}

void Fields::require_text(std::string_view key, std::string_view value, std::string_view reason) const {
  if (find(key, true) != nullptr) only_text(key, value, reason);
}

}  // namespace skald::model
