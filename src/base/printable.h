// Text of others in front of a terminal.
#pragma once

#include <string>
#include <string_view>

namespace skald {

/// The text with '?' in the place of what a terminal could take for a command: control characters, U+0080 to
/// U+009F among them, and bytes that are no UTF-8.
std::string printable(std::string_view text);

}  // namespace skald
