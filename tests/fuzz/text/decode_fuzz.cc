// decode_text: valid UTF-8 or an error, and the same in pieces.
#include "skald/error.h"
#include "text/inspect.h"
#include "text/languages.h"
#include "text/utf8.h"
#include "text_fuzz.h"

using namespace skald::text;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view bytes = as_text(data + 1, size - 1);
  const size_t step = 1 + data[0] % 7;
  canonical_language(bytes);
  std::string whole, pieces;
  bool failed = false, pieces_failed = false;
  try {
    whole = decode_text(bytes);
  } catch (const skald::Error& error) {
    require(error.code() == skald::ErrorCode::invalid_text);
    failed = true;
  }
  try {
    TextDecoder decoder;
    for (size_t pos = 0; pos < bytes.size(); pos += step) pieces += decoder.push(bytes.substr(pos, step));
    pieces += decoder.finish();
  } catch (const skald::Error&) {
    pieces_failed = true;
  }
  require(failed == pieces_failed);
  if (failed) return 0;
  require(whole == pieces);
  require(scan_utf8(whole).ok(whole.size()));
  const std::string clean = clean_invisible(whole);
  require(scan_utf8(clean).ok(clean.size()));
  require(anything_to_speak(clean) == anything_to_speak(whole));
  invisible_code_points(whole);
  return 0;
}
