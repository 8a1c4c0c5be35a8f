// Options of one kind of value each: ranges and names are checked here, with one wording, whatever CLI11 is
// installed.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace CLI {
class App;
}

namespace skald::cli {

inline constexpr int32_t kAnyInt = std::numeric_limits<int32_t>::max();
inline constexpr int32_t kModelLimit = -1;

/// A word, as it stands.
void add_text(CLI::App& app, const std::string& name, const char* type, std::string& to,
              const std::string& help, const std::string& group);
/// The name of something that must be there: an empty word, such as an unset variable of a script, is not
/// taken for a missing option.
void add_name(CLI::App& app, const std::string& name, const char* type, std::string& to,
              const std::string& help, const std::string& group);
/// A decimal number within least..most; kAnyInt = no upper limit but the type's, kModelLimit = the model has
/// one, and the library states it when it has opened the model.
void add_whole_number(CLI::App& app, const std::string& name, int32_t least, int32_t most,
                      std::function<void(int32_t)> set, const std::string& help, const std::string& group);
/// 0 to 2^64 - 1.
void add_seed(CLI::App& app, const std::string& name, std::function<void(uint64_t)> set,
              const std::string& help, const std::string& group);

/// temperature: 0, or at least engine::kLeastDivisor; factor: that or more, up to its reciprocal; share:
/// above 0 and at most 1.
enum class Range { temperature, factor, share };
void add_real_number(CLI::App& app, const std::string& name, Range range, std::function<void(float)> set,
                     const std::string& help, const std::string& group);

/// One of some names; `set` gets its index.
void add_choice(CLI::App& app, const std::string& name, const std::vector<std::string>& names,
                std::function<void(size_t)> set, const std::string& help, const std::string& group);
/// The same for an enumeration whose values are in the order of `names`, beginning with `first`.
template <class Enum>
void add_choice(CLI::App& app, const std::string& name, Enum& to, Enum first,
                const std::vector<std::string>& names, const std::string& help, const std::string& group) {
  add_choice(
      app, name, names, [&to, first](size_t i) { to = static_cast<Enum>(static_cast<size_t>(first) + i); },
      help, group);
}

}  // namespace skald::cli
