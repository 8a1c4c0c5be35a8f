// Tokenizer files: one of the three is replaced by the input; loading works or throws an Error.
#include "skald/error.h"
#include "text/tokenizer.h"
#include "text_fuzz.h"

using namespace skald::text;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const SmallTokenizer kFiles;
  if (size == 0) return 0;
  const std::string_view input = as_text(data + 1, size - 1);
  const int which = data[0] % 4;
  const std::string merges = which == 3 ? kFiles.merges + std::string(input) : kFiles.merges;
  try {
    const Tokenizer tokenizer = Tokenizer::from_contents(
        which == 0 ? input : std::string_view(kFiles.vocab), which == 1 ? input : std::string_view(merges),
        which == 2 ? input : std::string_view(kFiles.config));
    tokenizer.encode_text("abab ## the in <|im_end|>", SplitRule::qwen, true);
  } catch (const skald::Error& error) {
    require(error.code() == skald::ErrorCode::model_invalid);
  }
  return 0;
}
