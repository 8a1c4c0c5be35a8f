// What the tests of src/text share: the committed vocabulary, random texts, expected errors.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "skald/error.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

namespace skald::text {

inline std::filesystem::path fixture_dir() { return std::filesystem::path(SKALD_FIXTURES) / "text"; }

inline std::string read_bytes(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in) << path;
  return {std::istreambuf_iterator<char>(in), {}};
}

/// The part of the real vocabulary that the fixture texts need.
inline const Tokenizer& fixture_tokenizer() {
  static const Tokenizer tokenizer = Tokenizer::load(fixture_dir() / "vocabulary");
  return tokenizer;
}

inline constexpr SplitRule kRules[] = {SplitRule::qwen, SplitRule::mistral};

/// Texts made of characters that matter to some stage: composition, spaces, case, contractions, added tokens.
inline std::string random_text(std::mt19937& rng, size_t longest) {
  static const std::vector<std::string> kParts{"a",
                                               "b",
                                               "Z",
                                               "É",
                                               "e",
                                               "ß",
                                               "'s",
                                               "'LL",
                                               "'",
                                               "ſ",
                                               " ",
                                               " ",
                                               "  ",
                                               "\n",
                                               "\r\n",
                                               "\r",
                                               "\t",
                                               "\u00a0",
                                               "\u2003",
                                               "\u180e",
                                               "\u3000",
                                               ".",
                                               ",",
                                               "!",
                                               "/",
                                               "#",
                                               "-",
                                               "1",
                                               "23",
                                               "½",
                                               "中",
                                               "文",
                                               "。",
                                               "ก",
                                               "\u0e34",
                                               "\u0301",
                                               "\u0327",
                                               "\u0338",
                                               "=",
                                               "<",
                                               "\u1100",
                                               "\u1161",
                                               "\u11a8",
                                               "가",
                                               "\u0915",
                                               "\u093c",
                                               "\u0958",
                                               "\u0344",
                                               "\u05e9",
                                               "\u05c1",
                                               "😀",
                                               "\u200d",
                                               "\u200b",
                                               "\ufeff",
                                               "ǅ",
                                               "ʰ",
                                               "A",
                                               "BC",
                                               "word",
                                               "Hello",
                                               " the",
                                               "<|im_end|>",
                                               "<|im_",
                                               "<tts_pad>",
                                               "<tts_text_bos>",
                                               "<tts_text_bos_single>",
                                               "<t",
                                               "|>",
                                               "\U0001d15e",
                                               "\U00011099",
                                               "\U000110ba",
                                               "\U0010ffff"};
  std::uniform_int_distribution<size_t> length(0, longest);
  std::uniform_int_distribution<size_t> part(0, kParts.size() - 1);
  std::uniform_int_distribution<char32_t> any(0x80, 0x2ffff);
  std::string text;
  for (size_t i = length(rng); i > 0; --i) {
    const char32_t random = any(rng);
    const bool surrogate = random >= 0xd800 && random < 0xe000;
    if (part(rng) % 8 == 0 && !surrogate) {
      append_utf8(text, random);
    } else {
      text += kParts[part(rng)];
    }
  }
  return text;
}

/// Runs `body`, which must throw an Error, and returns it.
template <class Body>
Error expect_error(Body&& body) {
  try {
    body();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "no error";
  return Error(ErrorCode::internal, "none");
}

}  // namespace skald::text
