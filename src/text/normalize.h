// Unicode NFC, and where a text can be cut so that both sides normalise on their own.
#pragma once

#include <string>
#include <string_view>

namespace skald::text {

/// Appends the NFC form of valid UTF-8. O(n log n) also for long runs of unordered combining marks.
void append_nfc(std::string_view utf8, std::string& out);

/// True if nothing before `c` can compose or change places with it: text may be cut before it.
bool nfc_starts(char32_t c);

/// True if moreover nothing that follows can change `c`: text may be cut after it.
bool nfc_closed(char32_t c);

}  // namespace skald::text
