// The fields of a JSON object, read one by one; what nobody asked for is known afterwards.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace skald::server {

/// Every getter takes the names of one field, the first being the one that messages use; null counts as
/// absent; two names at once must agree. All throw ApiError(400, invalid_argument) that names the field, the
/// value's fault and what is allowed.
class Fields {
 public:
  using Names = std::initializer_list<const char*>;

  explicit Fields(const nlohmann::json& object) : object_(object) {}

  const nlohmann::json* find(Names names);
  std::optional<std::string> text(Names names);
  std::optional<bool> flag(Names names);
  std::optional<double> number(Names names, double least, double most);
  std::optional<int64_t> whole(Names names, int64_t least, int64_t most);
  /// Index into `choices`, compared without case.
  std::optional<size_t> choice(Names names, std::initializer_list<const char*> choices);

  /// Names of the fields that no getter asked for, cut to what can be shown anywhere: 40 printable
  /// characters, at most 20 names.
  std::vector<std::string> unread() const;

 private:
  const nlohmann::json& object_;
  std::set<std::string, std::less<>> read_;
};

}  // namespace skald::server
