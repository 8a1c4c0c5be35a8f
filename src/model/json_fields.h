// Strict reading of JSON: bounded size and depth, no duplicate keys, every fault named by file and dotted
// key.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/fault.h"

namespace skald::model {

using Document = std::shared_ptr<const nlohmann::json>;

/// Parses one document whose outermost value is an object; a byte order mark is skipped. On damage adds a
/// fault with the byte offset and returns null. `file` is only named in messages.
Document parse_document(std::string_view text, const std::string& file, Faults& faults);

/// The text of a small file (at most 16 MiB). A file that is absent adds `model_not_found` with `consequence`
/// ("without it ..."); null then, and when it cannot be read.
std::optional<std::string> read_small_file(const std::filesystem::path& path, std::string_view consequence,
                                           Faults& faults);

/// Inclusive bounds of an integer.
struct Range {
  int64_t low, high;
};

/// Typed access to one JSON object. Every reader returns a harmless value after adding a fault, so that one
/// pass finds all of them. A reader of an object that is absent stays silent: its absence was already
/// reported.
class Fields {
 public:
  /// `document` must outlive this; null makes an absent object. `prefix` is empty or ends with a dot.
  Fields(const nlohmann::json* document, std::string file, std::string prefix, Faults& faults);

  bool present() const { return object_ != nullptr; }
  bool has(std::string_view key) const;  ///< there, and not null

  Fields object(std::string_view key) const;           ///< required
  Fields optional_object(std::string_view key) const;  ///< absent or null: not present()

  int32_t integer(std::string_view key, Range range) const;
  int32_t integer_or(std::string_view key, Range range, int32_t fallback) const;
  float number(std::string_view key, double low, double high) const;
  float number_or(std::string_view key, double low, double high, float fallback) const;
  bool boolean_or(std::string_view key, bool fallback) const;
  std::string text(std::string_view key) const;
  /// 1 to `most` integers.
  std::vector<int32_t> integers(std::string_view key, Range each, size_t most) const;
  std::vector<int32_t> integers_or(std::string_view key, Range each, size_t most,
                                   std::vector<int32_t> fallback) const;
  std::vector<std::string> texts_or_none(std::string_view key, size_t most) const;
  /// name -> integer; required, may be empty.
  std::map<std::string, int32_t> table(std::string_view key, Range each) const;
  /// name -> text, or nothing where the value is false; required, may be empty.
  std::map<std::string, std::optional<std::string>> text_or_false_table(std::string_view key) const;

  /// Values that this implementation depends on; absent keys pass, because the official default is the same.
  void only_null(std::string_view key, std::string_view reason) const;
  void only_boolean(std::string_view key, bool value, std::string_view reason) const;
  void only_text(std::string_view key, std::string_view value, std::string_view reason) const;

  /// As only_text, but the key is required.
  void require_text(std::string_view key, std::string_view value, std::string_view reason) const;

  size_t fault_count() const { return faults_->size(); }
  /// Adds an error about a key: "FILE: PREFIX.KEY MESSAGE".
  void fault(std::string_view key, std::string_view message) const;
  void warn(std::string_view key, std::string_view message, std::string_view fix) const;

 private:
  const nlohmann::json* find(std::string_view key, bool required) const;
  void wrong(std::string_view key, const nlohmann::json& found, std::string_view expected) const;
  std::optional<int32_t> as_integer(std::string_view key, const nlohmann::json& value, Range range) const;

  const nlohmann::json* object_;
  std::string file_, prefix_;
  Faults* faults_;
};

}  // namespace skald::model
