// Reading vocab.json, merges.txt and tokenizer_config.json; every complaint names the file and the line or
// entry.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/file_fault.h"
#include "skald/error.h"
#include "text/tokenizer.h"
#include "text/tokenizer_data.h"
#include "text/utf8.h"

namespace skald::text {
namespace {

using detail::TokenizerData;
using nlohmann::json;

constexpr size_t kMaxFile = 64u << 20;     // the published vocabulary has 2.8 MB
constexpr int64_t kMaxId = (1 << 22) - 1;  // keeps a damaged id from becoming a huge table
constexpr std::string_view kUtf8Mark = "\xEF\xBB\xBF";

/// The contents of a file and what messages call it.
struct Source {
  std::string name;
  std::string_view contents;

  size_t line_at(size_t offset) const {
    const auto end = contents.begin() + static_cast<std::ptrdiff_t>(std::min(offset, contents.size()));
    return 1 + static_cast<size_t>(std::count(contents.begin(), end, '\n'));
  }
  [[noreturn]] void fail(std::string_view what) const {
    throw Error(ErrorCode::model_invalid,
                fmt::format("{}: {}; take the file from the published model again", name, what));
  }
  [[noreturn]] void fail_line(size_t line, std::string_view what) const {
    throw Error(
        ErrorCode::model_invalid,
        fmt::format("{} line {}: {}; take the file from the published model again", name, line, what));
  }
};

Source source(std::string name, std::string_view contents) {
  if (contents.starts_with(kUtf8Mark)) contents.remove_prefix(kUtf8Mark.size());
  Source result{std::move(name), contents};
  const Utf8Scan scan = scan_utf8(contents);
  if (!scan.ok(contents.size())) result.fail_line(result.line_at(scan.valid), "bytes that are not UTF-8");
  return result;
}

/// A token as shown in messages: shortened, controls escaped.
std::string shown(std::string_view token) {
  std::string text;
  for (size_t pos = 0; pos < token.size();) {
    if (text.size() > 40) return "\"" + text + "...\"";
    const CodePoint cp = code_point_at(token, pos);
    if (cp.value < 0x20 || cp.value == 0x7F) {
      text += fmt::format("\\x{:02x}", static_cast<uint32_t>(cp.value));
    } else {
      append_utf8(text, cp.value);
    }
    pos += cp.length;
  }
  return "\"" + text + "\"";
}

/// GPT-2's printable alphabet for bytes (model-spec 2.1 step 4), inverted: code point to byte, -1 for no
/// byte.
constexpr std::array<int16_t, 324> byte_alphabet() {
  std::array<int16_t, 324> byte_of{};
  for (auto& entry : byte_of) entry = -1;
  size_t next = 256;
  for (int byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    byte_of[printable ? static_cast<size_t>(byte) : next++] = static_cast<int16_t>(byte);
  }
  return byte_of;
}
constexpr std::array<int16_t, 324> kByteOf = byte_alphabet();

/// The bytes a vocabulary entry stands for, or nothing if it has a character outside the alphabet.
std::optional<std::string> entry_bytes(std::string_view entry) {
  std::string bytes;
  for (size_t pos = 0; pos < entry.size();) {
    const CodePoint cp = code_point_at(entry, pos);
    if (cp.value >= kByteOf.size() || kByteOf[cp.value] < 0) return std::nullopt;
    bytes += static_cast<char>(kByteOf[cp.value]);
    pos += cp.length;
  }
  return bytes;
}

/// Puts (bytes, id) into both tables; returns what is wrong, if anything.
std::optional<std::string> add_token(TokenizerData& data, std::string bytes, int64_t id) {
  if (id < 0 || id > kMaxId) return fmt::format("the id {} is out of range", id);
  const auto index = static_cast<size_t>(id);
  if (index >= data.bytes_of.size()) data.bytes_of.resize(index + 1);
  if (!data.bytes_of[index].empty()) return fmt::format("the id {} is used twice", id);
  if (!data.ids.emplace(bytes, static_cast<int32_t>(id)).second)
    return std::string("the entry is there twice");
  data.bytes_of[index] = std::move(bytes);
  return std::nullopt;
}

/// Takes the one flat object of vocab.json entry by entry, so that a hostile file cannot build a deep tree.
class VocabularyReader : public nlohmann::json_sax<json> {
 public:
  VocabularyReader(const Source& file, TokenizerData& data) : file_(file), data_(data) {}

  bool start_object(size_t) override {
    if (inside_) fail_value();
    inside_ = true;
    return true;
  }
  bool key(std::string& name) override {
    name_ = name;
    return true;
  }
  bool number_unsigned(uint64_t id) override {
    if (!inside_) fail_value();
    std::optional<std::string> bytes = entry_bytes(name_);
    if (!bytes || bytes->empty()) file_.fail("the entry " + shown(name_) + " is no byte-level token");
    const auto problem =
        add_token(data_, std::move(*bytes), id > kMaxId ? kMaxId + 1 : static_cast<int64_t>(id));
    if (problem) file_.fail("entry " + shown(name_) + ": " + *problem);
    return true;
  }
  bool number_integer(int64_t) override { fail_value(); }
  bool number_float(double, const std::string&) override { fail_value(); }
  bool null() override { fail_value(); }
  bool boolean(bool) override { fail_value(); }
  bool string(std::string&) override { fail_value(); }
  bool binary(binary_t&) override { fail_value(); }
  bool start_array(size_t) override { fail_value(); }
  bool end_array() override { return true; }
  bool end_object() override { return true; }
  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception&) override {
    file_.fail_line(file_.line_at(position == 0 ? 0 : position - 1),
                    fmt::format("not valid JSON at byte {}", position));
  }

 private:
  [[noreturn]] void fail_value() const {
    if (!inside_) file_.fail("is no object of token and id");
    file_.fail("the value of " + shown(name_) + " is no id");
  }

  const Source& file_;
  TokenizerData& data_;
  std::string name_;
  bool inside_ = false;
};

void read_vocabulary(const Source& file, TokenizerData& data) {
  VocabularyReader reader(file, data);
  json::sax_parse(file.contents.begin(), file.contents.end(), &reader);
  for (int byte = 0; byte < 256; ++byte) {
    const auto it = data.ids.find(std::string(1, static_cast<char>(byte)));
    if (it == data.ids.end()) file.fail(fmt::format("there is no entry for the byte 0x{:02X}", byte));
    data.bpe.byte_ids[static_cast<size_t>(byte)] = it->second;
  }
}

/// One merge line "left right"; `made` marks the ids that merges produce.
void read_merge(const Source& file, size_t line_number, std::string_view line, TokenizerData& data,
                std::vector<bool>& made) {
  const size_t space = line.find(' ');
  const bool two =
      space != line.npos && space > 0 && space + 1 < line.size() && line.find(' ', space + 1) == line.npos;
  if (!two) file.fail_line(line_number, shown(line) + " is not two tokens with one space between them");
  const auto id_of = [&](const std::string& entry, const std::optional<std::string>& bytes) {
    const auto it = bytes ? data.ids.find(*bytes) : data.ids.end();
    if (it == data.ids.end())
      file.fail_line(line_number, "the token " + shown(entry) + " is not in vocab.json");
    return it->second;
  };
  const std::string left(line.substr(0, space));
  const std::string right(line.substr(space + 1));
  const int32_t left_id = id_of(left, entry_bytes(left));
  const int32_t right_id = id_of(right, entry_bytes(right));
  const int32_t merged = id_of(left + right, entry_bytes(left + right));
  data.bpe.add_merge(left_id, right_id, merged);
  made[static_cast<size_t>(merged)] = true;
}

void read_merges(const Source& file, TokenizerData& data) {
  std::vector<bool> made(data.bytes_of.size());
  data.bpe.reserve(static_cast<size_t>(std::count(file.contents.begin(), file.contents.end(), '\n')) + 1);
  size_t line_number = 0;
  for (size_t pos = 0; pos < file.contents.size();) {
    const size_t end = std::min(file.contents.find('\n', pos), file.contents.size());
    std::string_view line = file.contents.substr(pos, end - pos);
    pos = end + 1;
    ++line_number;
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ' || line.back() == '\t'))
      line.remove_suffix(1);
    if (line.empty()) continue;
    if (line_number == 1 && line.starts_with("#version")) continue;  // later lines with '#' are merges
    read_merge(file, line_number, line, data, made);
  }
  // A list that was cut short, or lost its lines with '#', still parses but tokenises differently.
  for (size_t id = 0; id < data.bytes_of.size(); ++id) {
    if (data.bytes_of[id].size() > 1 && !made[id]) {
      file.fail_line(line_number,
                     fmt::format("the list is incomplete, no merge makes entry {} of vocab.json", id));
    }
  }
}

/// One entry of added_tokens_decoder: "151644": {"content": "<|im_start|>", "lstrip": false, ...}.
void read_added_token(const Source& file, const std::string& key, const json& entry, TokenizerData& data) {
  const std::string where = "added token " + shown(key);
  int64_t id = -1;
  const auto [end, status] = std::from_chars(key.data(), key.data() + key.size(), id);
  if (status != std::errc() || end != key.data() + key.size()) file.fail(where + ": the key is no id");
  const auto content = entry.is_object() ? entry.find("content") : entry.end();
  if (!entry.is_object() || content == entry.end() || !content->is_string())
    file.fail(where + " has no \"content\"");
  const auto& literal = content->get_ref<const std::string&>();
  if (literal.empty() || literal.size() > kMaxAddedToken)
    file.fail(where + ": the content has no usable length");
  for (const char* flag : {"lstrip", "rstrip", "normalized", "single_word"}) {
    const auto value = entry.find(flag);
    if (value == entry.end() || (value->is_boolean() && !value->get<bool>())) continue;
    file.fail(fmt::format("{} has \"{}\", which no model of this family uses", where, flag));
  }
  if (const auto problem = add_token(data, literal, id)) file.fail(where + ": " + *problem);
  data.added.add(literal, static_cast<int32_t>(id));
}

void read_added_tokens(const Source& file, TokenizerData& data) {
  json config;
  try {
    config = json::parse(file.contents.begin(), file.contents.end());
  } catch (const json::parse_error& error) {
    file.fail_line(file.line_at(error.byte == 0 ? 0 : error.byte - 1),
                   fmt::format("not valid JSON at byte {}", error.byte));
  }
  const auto decoder = config.is_object() ? config.find("added_tokens_decoder") : config.end();
  if (!config.is_object() || decoder == config.end() || !decoder->is_object()) {
    file.fail("there is no object \"added_tokens_decoder\"");
  }
  for (const auto& [key, entry] : decoder->items()) read_added_token(file, key, entry, data);
  const auto required = [&](std::string_view literal) {
    const auto match = data.added.find(literal, 0, false);
    if (match.length != literal.size()) file.fail(fmt::format("the added token {} is missing", literal));
    return match.id;
  };
  data.im_start = required(kImStart);
  data.im_end = required(kImEnd);
}

std::string read_file(const std::filesystem::path& path) {
  if (const auto fault = file_fault(path)) throw fault->error();
  std::error_code status;
  const auto size = std::filesystem::file_size(path, status);
  if (status || size > kMaxFile) {
    throw Error(ErrorCode::model_invalid,
                fmt::format("{} is larger than {} bytes and no tokenizer file", path.string(), kMaxFile));
  }
  std::string contents(size, '\0');
  std::ifstream in(path, std::ios::binary);
  if (!in.read(contents.data(), static_cast<std::streamsize>(size))) {
    throw Error(ErrorCode::io, fmt::format("{} cannot be read", path.string()));
  }
  return contents;
}

std::shared_ptr<const TokenizerData> build(const Source& vocab, const Source& merges, const Source& config) {
  auto data = std::make_shared<TokenizerData>();
  read_vocabulary(vocab, *data);
  read_merges(merges, *data);
  read_added_tokens(config, *data);
  return data;
}

}  // namespace

Tokenizer Tokenizer::load(const std::filesystem::path& model_dir) {
  const auto vocab_path = model_dir / "vocab.json";
  const auto merges_path = model_dir / "merges.txt";
  const auto config_path = model_dir / "tokenizer_config.json";
  const std::string vocab = read_file(vocab_path);
  const std::string merges = read_file(merges_path);
  const std::string config = read_file(config_path);
  return Tokenizer(build(source(vocab_path.string(), vocab), source(merges_path.string(), merges),
                         source(config_path.string(), config)));
}

Tokenizer Tokenizer::from_contents(std::string_view vocab_json, std::string_view merges_txt,
                                   std::string_view tokenizer_config_json) {
  return Tokenizer(build(source("vocab.json", vocab_json), source("merges.txt", merges_txt),
                         source("tokenizer_config.json", tokenizer_config_json)));
}

}  // namespace skald::text
