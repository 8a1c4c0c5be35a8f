// Sentence splitter: nothing lost, nothing unspoken alone, the same in chunks and fragments.
#include <utility>
#include <vector>

#include "skald/error.h"
#include "text/inspect.h"
#include "text/sentences.h"
#include "text/utf8.h"
#include "text_fuzz.h"

using namespace skald::text;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const size_t limit = 1 + data[0] % 64;
  const size_t step = 1 + data[1] % 16;
  const std::string_view text = as_text(data + 2, size - 2);
  try {
    const std::vector<Piece> pieces = split_sentences(text, limit);
    const bool spoken = anything_to_speak(text);
    size_t end = 0;
    for (const Piece& piece : pieces) {
      require(piece.offset == end && piece.length > 0);
      end += piece.length;
      require(anything_to_speak(text.substr(piece.offset, piece.length)) == spoken);
    }
    require(end == text.size());

    SentenceSplitter splitter(limit);
    std::vector<std::string> chunked;
    std::string open;
    const auto drain = [&] {
      while (auto fragment = splitter.next_fragment()) {
        open += fragment->text;
        if (fragment->ends_piece) chunked.push_back(std::exchange(open, {}));
      }
    };
    for (size_t pos = 0; pos < text.size(); pos += step) {
      splitter.push(text.substr(pos, step));
      drain();
    }
    splitter.finish();
    drain();
    require(open.empty() && chunked.size() == pieces.size());
    for (size_t i = 0; i < pieces.size(); ++i)
      require(chunked[i] == text.substr(pieces[i].offset, pieces[i].length));
  } catch (const skald::Error& error) {
    require(error.code() == skald::ErrorCode::invalid_text && !scan_utf8(text).ok(text.size()));
  }
  return 0;
}
