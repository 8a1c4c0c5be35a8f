// One table for every spelling of a language: names, ISO 639 codes, BCP-47 tags.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace skald::text {

/// A language the published models know (model-spec 1.8).
struct Language {
  std::string_view name;     ///< as in the model's table, e.g. "english"
  std::string_view code;     ///< ISO 639-1, e.g. "en"
  std::string_view aliases;  ///< further codes and names in lower case, separated by blanks
};

/// The ten languages, in the order of the model's table.
std::span<const Language> known_languages() noexcept;

/// The name used in a model's language table for any spelling: "en", "EN", "en-US", "en_GB.UTF-8", "eng" and
/// "English" give "english"; "", "auto", "null", "none" and "und" give "auto". What the table does not know
/// (a dialect name, "nl", "en;de") comes back trimmed and in lower case, for the caller to look up in the
/// model's table and refuse.
std::string canonical_language(std::string_view spelling);

/// ISO 639-1 code of a canonical name, or empty; for messages that list names with codes.
std::string_view language_code(std::string_view canonical_name) noexcept;

}  // namespace skald::text
