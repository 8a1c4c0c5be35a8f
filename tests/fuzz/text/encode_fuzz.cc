// Text through encode, and the incremental tokenizer against it, cut where the input says.
#include <algorithm>

#include "skald/error.h"
#include "text/incremental.h"
#include "text/utf8.h"
#include "text_fuzz.h"

using namespace skald::text;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const SmallTokenizer kFiles;
  static const Tokenizer kTokenizer = Tokenizer::from_contents(kFiles.vocab, kFiles.merges, kFiles.config);
  if (size < 2) return 0;
  const SplitRule rule = data[0] & 1 ? SplitRule::mistral : SplitRule::qwen;
  const bool raw = data[0] & 2;
  size_t step = 1 + data[1] % 16;
  const std::string_view text = as_text(data + 2, size - 2);

  IncrementalTokenizer stream(kTokenizer, rule, raw);
  const bool valid = scan_utf8(text).ok(text.size());
  try {
    const std::vector<int32_t> ids = kTokenizer.encode_text(text, rule, raw);
    require(valid);
    const std::vector<int32_t> expected(ids.begin() + kTextHead,
                                        std::max(ids.begin() + kTextHead, ids.end() - kTextTail));
    for (size_t pos = 0; pos < text.size(); pos += step) {
      stream.push(text.substr(pos, step));
      require(stream.ids().size() <= expected.size());
      require(std::equal(stream.ids().begin(), stream.ids().end(), expected.begin()));
    }
    stream.finish();
    require(stream.ids() == expected);
  } catch (const skald::Error& error) {
    require(!valid && error.code() == skald::ErrorCode::invalid_text);
  }
  return 0;
}
