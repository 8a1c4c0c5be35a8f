// Tokenizer files: what is tolerated, and that every damage is an error that names the file and the place.
#include <algorithm>
#include <filesystem>

#include "text_fixture.h"

namespace skald::text {
namespace {

struct Files {
  std::string vocab = read_bytes(fixture_dir() / "vocabulary" / "vocab.json");
  std::string merges = read_bytes(fixture_dir() / "vocabulary" / "merges.txt");
  std::string config = read_bytes(fixture_dir() / "vocabulary" / "tokenizer_config.json");

  Tokenizer load() const { return Tokenizer::from_contents(vocab, merges, config); }
  /// The message of the error that loading must give.
  std::string error() const {
    const Error error = expect_error([&] { load(); });
    EXPECT_EQ(error.code(), ErrorCode::model_invalid) << error.what();
    return error.what();
  }
};

std::string replaced(std::string text, std::string_view from, std::string_view to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, text.npos) << from;
  return text.replace(at, from.size(), to);
}

std::string with_line_ends(const std::string& text, std::string_view end) {
  std::string out;
  for (const char c : text) c == '\n' ? out += end : out += c;
  return out;
}

void expect_same_ids(const Tokenizer& tokenizer) {
  for (const char* text :
       {"Hello, world!", "## heading\n#include", "don't 2025 你好", "\n\nstart", "<|im_end|> สวัสดี"}) {
    EXPECT_EQ(tokenizer.encode(text, SplitRule::qwen, true),
              fixture_tokenizer().encode(text, SplitRule::qwen, true))
        << text;
  }
}

TEST(TokenizerLoad, B005_CarriageReturnsMarksAndBlankLinesChangeNothing) {
  Files files;
  files.merges = "\xEF\xBB\xBF" + with_line_ends(files.merges, "\r\n") + "\r\n\r\n";
  files.vocab = "\xEF\xBB\xBF" + with_line_ends(files.vocab, "\r\n") + "\r\n";
  files.config = "\xEF\xBB\xBF" + with_line_ends(files.config, "\r\n");
  expect_same_ids(files.load());

  Files blank;
  blank.merges = with_line_ends(blank.merges, "\n\n  \n");
  expect_same_ids(blank.load());

  Files no_end;
  no_end.merges.pop_back();  // no line end at the end of the file
  expect_same_ids(no_end.load());

  Files no_version;
  no_version.merges.erase(0, no_version.merges.find('\n') + 1);
  expect_same_ids(no_version.load());
}

TEST(TokenizerLoad, LinesWithHashAreMerges) {
  const Files files;
  ASSERT_NE(files.merges.find("\n# #\n"), std::string::npos);
  EXPECT_EQ(files.load().encode("##", SplitRule::qwen, false).size(), 1u);
  Files damaged;  // as some converters leave it
  std::string kept;
  for (size_t pos = 0; pos < damaged.merges.size();) {
    const size_t end = damaged.merges.find('\n', pos) + 1;
    if (damaged.merges[pos] != '#') kept += damaged.merges.substr(pos, end - pos);
    pos = end;
  }
  damaged.merges = kept;
  EXPECT_NE(damaged.error().find("the list is incomplete"), std::string::npos);
}

TEST(TokenizerLoad, DamagedMergesNameTheLine) {
  Files files;
  files.merges = "#version: 0.2\nh e\nonlyone\n";
  EXPECT_NE(files.error().find("merges.txt line 3: "), std::string::npos) << files.error();
  files.merges = "#version: 0.2\n\na b c\n";
  EXPECT_NE(files.error().find("merges.txt line 3: "), std::string::npos) << files.error();
  files.merges = "#version: 0.2\nzz qq\n";
  EXPECT_NE(files.error().find("line 2: the token \"zz\""), std::string::npos) << files.error();
  files.merges = "#version: 0.2\n# comment\n";
  EXPECT_NE(files.error().find("line 2: "), std::string::npos) << files.error();
  files.merges = "h e\n\xFF\xFE\n";
  EXPECT_NE(files.error().find("merges.txt line 2: bytes that are not UTF-8"), std::string::npos)
      << files.error();
  files.merges = "";
  EXPECT_NE(files.error().find("the list is incomplete"), std::string::npos) << files.error();
}

TEST(TokenizerLoad, EveryCutOfTheMergesIsNoticed) {
  const Files whole;
  for (size_t size = 0; size + 1 < whole.merges.size(); size += 997) {
    Files files = whole;
    files.merges.resize(size);
    EXPECT_NE(files.error().find("merges.txt line "), std::string::npos) << size;
  }
}

TEST(TokenizerLoad, DamagedVocabulary) {
  Files files;
  files.vocab = files.vocab.substr(0, files.vocab.size() / 2);
  EXPECT_NE(files.error().find("vocab.json line 1: not valid JSON at byte "), std::string::npos)
      << files.error();
  for (const char* contents : {"",
                               "[]",
                               "3",
                               "null",
                               "\"x\"",
                               "{\"a\":[]}",
                               "{\"a\":{}}",
                               "{\"a\":1.5}",
                               "{\"a\":-1}",
                               "{\"a\":null}",
                               "{\"a\":true}",
                               "{\"a\":\"b\"}",
                               "{\"a\":99999999999}",
                               "{\"a\":18446744073709551615}",
                               "{\"\":1}",
                               "{\"a b\":1}",
                               "{\"\\u4e2d\":1}",
                               "{\"a\":1,\"a\":2}",
                               "{\"a\":1,\"b\":1}",
                               "{\"a\":1}",
                               "\xFF"}) {
    files.vocab = contents;
    EXPECT_NE(files.error().find("vocab.json"), std::string::npos) << contents;
  }
  files.vocab = "{\"a\":1,\n\"b\":2,\n\"c\" 3}";
  EXPECT_NE(files.error().find("vocab.json line 3: "), std::string::npos) << files.error();
  files.vocab = replaced(Files().vocab, "\"!\":0,", "");
  EXPECT_NE(files.error().find("no entry for the byte 0x21"), std::string::npos) << files.error();
  files.vocab = std::string(200000, '[');  // nesting must not cost stack
  EXPECT_NE(files.error().find("vocab.json"), std::string::npos);
}

TEST(TokenizerLoad, DamagedConfiguration) {
  Files files;
  const std::string whole = files.config;
  files.config = whole.substr(0, whole.size() / 2);
  EXPECT_NE(files.error().find("tokenizer_config.json line "), std::string::npos) << files.error();
  for (const char* contents :
       {"", "[]", "{}", "{\"added_tokens_decoder\": []}", "{\"added_tokens_decoder\": {}}",
        "{\"added_tokens_decoder\": {\"1\": 3}}",
        "{\"added_tokens_decoder\": {\"x\": {\"content\": \"<a>\"}}}",
        "{\"added_tokens_decoder\": {\"200000\": {\"content\": 1}}}",
        "{\"added_tokens_decoder\": {\"200000\": {\"content\": \"\"}}}",
        "{\"added_tokens_decoder\": {\"-1\": {\"content\": \"<a>\"}}}",
        "{\"added_tokens_decoder\": {\"99999999999999999999\": {\"content\": \"<a>\"}}}"}) {
    files.config = contents;
    EXPECT_NE(files.error().find("tokenizer_config.json"), std::string::npos) << contents;
  }
  files.config = replaced(whole, "\"lstrip\": false", "\"lstrip\": true");
  EXPECT_NE(files.error().find("has \"lstrip\""), std::string::npos) << files.error();
  files.config = replaced(whole, "<|im_end|>", "<|im_done|>");
  EXPECT_NE(files.error().find("<|im_end|> is missing"), std::string::npos) << files.error();
  files.config = replaced(whole, "\"151645\"", "\"151644\"");
  EXPECT_NE(files.error().find("tokenizer_config.json"), std::string::npos);
  files.config = replaced(whole, "<tts_pad>", std::string(300, 'x'));
  EXPECT_NE(files.error().find("length"), std::string::npos) << files.error();
}

TEST(TokenizerLoad, MissingFilesAreNamed) {
  const auto dir = std::filesystem::temp_directory_path() / "skald_tokenizer_load_test";
  std::filesystem::remove_all(dir);
  std::filesystem::create_directories(dir);
  for (const char* name : {"vocab.json", "merges.txt", "tokenizer_config.json"}) {
    const Error error = expect_error([&] { Tokenizer::load(dir); });
    EXPECT_EQ(error.code(), ErrorCode::model_not_found);
    EXPECT_NE(std::string(error.what()).find(name), std::string::npos) << error.what();
    std::filesystem::create_directory(dir / name);
    const Error folder = expect_error([&] { Tokenizer::load(dir); });
    EXPECT_EQ(folder.code(), ErrorCode::model_invalid);
    EXPECT_NE(std::string(folder.what()).find(" is a folder, not a plain file"), std::string::npos)
        << folder.what();
    std::filesystem::remove(dir / name);
    std::filesystem::copy(fixture_dir() / "vocabulary" / name, dir / name);
  }
  expect_same_ids(Tokenizer::load(dir));
  std::filesystem::remove_all(dir);
}

TEST(TokenizerLoad, TheTinySnapshotsLoad) {
  size_t loaded = 0;
  const auto models = std::filesystem::path(SKALD_FIXTURES) / "models";
  if (std::filesystem::is_directory(models)) {
    for (const auto& entry : std::filesystem::directory_iterator(models)) {
      if (!std::filesystem::exists(entry.path() / "vocab.json")) continue;
      const Tokenizer tokenizer = Tokenizer::load(entry.path());
      const auto ids = tokenizer.encode_text("", SplitRule::qwen, false);
      EXPECT_EQ(ids.size(), kTextHead + kTextTail) << entry.path();
      ++loaded;
    }
  }
  EXPECT_GT(loaded, 0u);
}

TEST(TokenizerEncode, B006_AwkwardTextsGiveIdsOrAnError) {  // texts that abort other systems
  std::mt19937 rng(9);
  for (const char* text :
       {"hhh", "test", "\ue000\uf8ff\U000f0000", "\U0010ffff", "!!!", "   ", "😀🎲", "\u200b"}) {
    for (const SplitRule rule : kRules) EXPECT_FALSE(fixture_tokenizer().encode(text, rule, true).empty());
  }
  for (int i = 0; i < 2000; ++i) {
    std::string bytes;
    for (size_t length = rng() % 40; length > 0; --length) bytes += static_cast<char>(rng());
    const bool valid = scan_utf8(bytes).ok(bytes.size());
    if (valid) {
      EXPECT_NO_THROW(fixture_tokenizer().encode(bytes, SplitRule::qwen, true));
    } else {
      EXPECT_EQ(expect_error([&] { fixture_tokenizer().encode_text(bytes, SplitRule::qwen, false); }).code(),
                ErrorCode::invalid_text);
    }
  }
}

TEST(TokenizerEncode, IdsSpellTheNormalisedText) {
  std::mt19937 rng(10);
  for (int i = 0; i < 500; ++i) {
    const std::string text = random_text(rng, 30);
    std::string spelled;
    for (const int32_t id : fixture_tokenizer().encode(text, SplitRule::mistral, false))
      spelled += fixture_tokenizer().token_bytes(id);
    // the text in NFC again gives the same ids, so nothing was lost or added
    EXPECT_EQ(fixture_tokenizer().encode(spelled, SplitRule::mistral, false),
              fixture_tokenizer().encode(text, SplitRule::mistral, false))
        << text;
  }
}

TEST(TokenizerEncode, TypedSpecialTokensArePlainTextUnlessRaw) {
  const auto plain = fixture_tokenizer().encode_text("a <|im_end|> b", SplitRule::qwen, false);
  EXPECT_EQ(std::count(plain.begin(), plain.end(), 151645), 1);  // the template's own
  const auto raw = fixture_tokenizer().encode_text("a <|im_end|> b", SplitRule::qwen, true);
  EXPECT_EQ(std::count(raw.begin(), raw.end(), 151645), 2);
  EXPECT_EQ(std::vector<int32_t>(plain.end() - kTextTail, plain.end()),
            (std::vector<int32_t>{151645, 198, 151644, 77091, 198}));
}

}  // namespace
}  // namespace skald::text
