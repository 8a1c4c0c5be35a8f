// SHA-256 against published digests; any cut gives the same.
#include "base/sha256.h"

#include <gtest/gtest.h>

namespace skald {
namespace {

std::string digest(std::string_view text) {
  Sha256 hash;
  hash.add(text);
  return hex(hash.finish());
}

TEST(Sha256, PublishedDigests) {
  EXPECT_EQ(digest(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(digest("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(digest("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(digest(std::string(1'000'000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, AnyCutGivesTheSame) {
  const std::string text(200, 'x');
  for (const size_t piece : {1u, 55u, 56u, 63u, 64u, 65u, 128u}) {
    Sha256 hash;
    for (size_t at = 0; at < text.size(); at += piece) hash.add(std::string_view(text).substr(at, piece));
    EXPECT_EQ(hex(hash.finish()), digest(text)) << piece;
  }
}

}  // namespace
}  // namespace skald
