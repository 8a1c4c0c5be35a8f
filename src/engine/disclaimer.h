// Words before cloned speech that tell a listener what they hear.
#pragma once

#include <string_view>

namespace skald::engine {

/// "This voice was made by a computer." in a language of text::known_languages; English for any other.
std::string_view default_disclaimer(std::string_view canonical_language) noexcept;

}  // namespace skald::engine
