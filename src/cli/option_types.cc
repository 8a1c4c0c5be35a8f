// Checked conversion of option values.
#include "cli/option_types.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "cli/arguments.h"
#include "engine/settings.h"

namespace skald::cli {
namespace {

/// The whole word as a number; false if it is none or does not fit.
template <class T>
bool parse(const std::string& word, T& value) {
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  return error == std::errc() && end == word.data() + word.size();
}

[[noreturn]] void reject(const std::string& name, const std::string& word, const std::string& range) {
  throw UsageError(fmt::format("--{} is '{}', but must be {}", name, word, range));
}

/// "--output,-o" -> "output"
std::string plain_name(const std::string& names) { return names.substr(2, names.find(',') - 2); }

void add(CLI::App& app, const std::string& names, const std::string& type,
         std::function<void(const std::string&)> set, const std::string& help, const std::string& group) {
  app.add_option_function<std::string>(names, set, help)->type_name(type)->group(group);
}

}  // namespace

void add_text(CLI::App& app, const std::string& name, const char* type, std::string& to,
              const std::string& help, const std::string& group) {
  add(
      app, name, type, [&to](const std::string& word) { to = word; }, help, group);
}

void add_name(CLI::App& app, const std::string& name, const char* type, std::string& to,
              const std::string& help, const std::string& group) {
  const auto convert = [&to, name](const std::string& word) {
    if (word.empty()) reject(plain_name(name), word, "a name");
    to = word;
  };
  add(app, name, type, convert, help, group);
}

void add_whole_number(CLI::App& app, const std::string& name, int32_t least, int32_t most,
                      std::function<void(int32_t)> set, const std::string& help, const std::string& group) {
  const auto convert = [=](const std::string& word) {
    int64_t value = 0;
    const bool number = parse(word, value) && value >= least;
    if (most == kModelLimit) {
      if (!number) reject(plain_name(name), word, fmt::format("a whole number of at least {}", least));
      return set(static_cast<int32_t>(std::min<int64_t>(value, kAnyInt)));
    }
    if (!number || value > most)
      reject(plain_name(name), word, fmt::format("a whole number within {}..{}", least, most));
    set(static_cast<int32_t>(value));
  };
  add(app, name, "N", convert, help, group);
}

void add_seed(CLI::App& app, const std::string& name, std::function<void(uint64_t)> set,
              const std::string& help, const std::string& group) {
  const auto convert = [=](const std::string& word) {
    uint64_t value = 0;
    if (!parse(word, value)) reject(plain_name(name), word, "a whole number within 0..18446744073709551615");
    set(value);
  };
  add(app, name, "N", convert, help, group);
}

void add_real_number(CLI::App& app, const std::string& name, Range range, std::function<void(float)> set,
                     const std::string& help, const std::string& group) {
  const auto convert = [=](const std::string& word) {
    float value = 0;
    const bool number = parse(word, value) && std::isfinite(value);
    constexpr float kLeast = engine::kLeastDivisor, kMost = 1 / kLeast;
    const bool good = range == Range::share    ? value > 0 && value <= 1
                      : range == Range::factor ? value >= kLeast && value <= kMost
                                               : value == 0 || value >= kLeast;
    if (!number || !good) {
      reject(plain_name(name), word,
             range == Range::share    ? "above 0 and at most 1"
             : range == Range::factor ? "within 1e-6..1e6"
                                      : "0 or a finite number of at least 1e-6");
    }
    set(value);
  };
  add(app, name, "X", convert, help, group);
}

void add_choice(CLI::App& app, const std::string& name, const std::vector<std::string>& names,
                std::function<void(size_t)> set, const std::string& help, const std::string& group) {
  const auto convert = [=](const std::string& word) {
    const auto found = std::find(names.begin(), names.end(), word);
    if (found == names.end())
      reject(plain_name(name), word, fmt::format("one of {}", fmt::join(names, ", ")));
    set(static_cast<size_t>(found - names.begin()));
  };
  add(app, name, fmt::format("{}", fmt::join(names, "|")), convert, help, group);
}

}  // namespace skald::cli
