// Small files that ask for much memory or time: refused for what they are, within a bound of memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <utility>

#include "heap_limit.h"
#include "skald/voice.h"
#include "voice/pickle.h"
#include "voice/zip.h"

namespace skald::test {
namespace {

using namespace std::string_literals;
using testing::HasSubstr;

/// What refuses `bytes`; the test fails where that takes more than `most` bytes of memory.
template <class Reader>
std::string refusal(Reader&& reader, const std::string& bytes, size_t most = 150 << 20) {
  try {
    const HeapLimit limit(most);
    reader(bytes);
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::voice_invalid) << e.what();
    return e.what();
  } catch (const std::bad_alloc&) {
    ADD_FAILURE() << bytes.size() << " bytes took more than " << most << " bytes of memory";
    return {};
  }
  ADD_FAILURE() << "accepted";
  return {};
}

const auto as_pickle = [](const std::string& bytes) { voice::read_pickle(bytes, "file"); };
const auto as_zip = [](const std::string& bytes) { voice::read_zip(bytes, "file"); };
const auto as_voices = [](const std::string& bytes) { import_voices(bytes, "file"); };

std::string le(uint64_t v, int bytes) {
  std::string out;
  for (int i = 0; i < bytes; ++i) out += i < 8 ? static_cast<char>(v >> (8 * i)) : '\0';
  return out;
}

std::string times(size_t count, const std::string& part) {
  std::string out;
  for (size_t i = 0; i < count; ++i) out += part;
  return out;
}

// ---- pickles

std::string text(const std::string& s) { return std::string("X").append(le(s.size(), 4)) + s; }
std::string keep(char slot) { return {'q', slot}; }
std::string recall(char slot) { return {'h', slot}; }
const std::string kStart = "\x80\x02", kPair = "K\1K\1s";

TEST(HostilePickle, ADictionaryThatIsItsOwnState) {
  EXPECT_THAT(refusal(as_pickle, kStart + "}" + keep('\1') + kPair + times(34, recall('\1') + "b") + "."),
              HasSubstr("too many values"));
}

TEST(HostilePickle, ManyCopiesOfOneState) {
  const std::string large = "}"s + keep('\1') + kPair + times(16, recall('\1') + "b");
  EXPECT_THAT(refusal(as_pickle, kStart + large + times(5000, "}"s + recall('\1') + "b0") + "."),
              HasSubstr("too many values"));
}

TEST(HostilePickle, OneValueRememberedOverAndOver) {
  EXPECT_THAT(refusal(as_pickle, kStart + "N" + std::string(4 << 20, '\x94') + "."),
              HasSubstr("remembers too many"));
}

TEST(HostilePickle, LongNamesCopiedByEveryUse) {
  const std::string name(1 << 20, 'a');
  const std::string global = text(name) + keep('\1') + "0" + text("VoiceClonePromptItem") + keep('\2') + "0";
  EXPECT_THAT(
      refusal(as_pickle, kStart + global + times(1000, recall('\1') + recall('\2') + "\x93" + "0") + "."),
      HasSubstr("too long"));
  const std::string storage = "("s + text("storage") + "ctorch\nFloatStorage\n" + text(name) + text("cpu") +
                              "K\1t" + keep('\1') + "0";
  EXPECT_THAT(refusal(as_pickle, kStart + storage + times(1000, recall('\1') + "Q0") + "."),
              HasSubstr("too long"));
}

// ---- archives

uint32_t crc32(const std::string& bytes) {
  uint32_t crc = 0xFFFFFFFFu;
  for (const char c : bytes) {
    crc ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320u : 0u);
  }
  return ~crc;
}

/// Members by name; all but `also` have data of their own, those have the first one's.
std::string zip(const std::vector<std::pair<std::string, std::string>>& members,
                const std::vector<std::string>& also = {}) {
  std::string out, list;
  const auto enter = [&](const std::string& name, const std::string& data, size_t at) {
    list += "PK\1\2" + le(0, 12) + le(crc32(data), 4) + le(data.size(), 4) + le(data.size(), 4) +
            le(name.size(), 2) + le(0, 12) + le(at, 4) + name;
  };
  for (const auto& [name, data] : members) {
    enter(name, data, out.size());
    out += "PK\3\4" + le(0, 10) + le(crc32(data), 4) + le(data.size(), 4) + le(data.size(), 4) +
           le(name.size(), 2) + le(0, 2) + name + data;
  }
  for (const std::string& name : also) enter(name, members[0].second, 0);
  const size_t at = out.size(), count = members.size() + also.size();
  return out + list + "PK\5\6" + le(0, 4) + le(count, 2) + le(count, 2) + le(list.size(), 4) + le(at, 4) +
         le(0, 2);
}

TEST(HostileZip, MembersOverTheSameBytes) {
  const std::string data(10000, 'x');
  EXPECT_EQ(voice::read_zip(zip({{"first", data}, {"second", data}}), "file").size(), 2u);
  EXPECT_THAT(refusal(as_zip, zip({{"first", data}}, {"second"})), HasSubstr("overlap"));
}

/// A tensor of torch over the whole of data/`key`.
std::string tensor(const std::string& type, const std::string& key, size_t rows, size_t columns) {
  const auto number = [](size_t n) { return std::string("J").append(le(n, 4)); };
  const std::string storage = "("s + text("storage") + "ctorch\n" + type + "\n" + text(key) + text("cpu") +
                              number(rows * columns) + "tQ";
  return "ctorch._utils\n_rebuild_tensor_v2\n(" + storage + std::string("K\0", 2) + "(" + number(rows) +
         number(columns) + "t(" + number(columns) + "K\1t\x89" + "ccollections\nOrderedDict\n)Rt" + "R";
}

/// An archive whose prompts are `count` times the same one, of `frames` frames.
std::string prompts(size_t count, size_t frames) {
  const std::string item = "}("s + text("ref_spk_embedding") + tensor("FloatStorage", "1", 1, 4) +
                           text("ref_code") + tensor("CharStorage", "0", frames, 16) + text("ref_text") +
                           text("words") + "u" + keep('\1') + "0";
  return zip({{"a/data.pkl", kStart + item + "](" + times(count, recall('\1')) + "e."},
              {"a/data/0", std::string(frames * 16, '\1')},
              {"a/data/1", std::string(16, '\0')}});
}

TEST(HostileTorch, OnePromptOverAndOver) {
  EXPECT_EQ(import_voices(prompts(3, 2), "file").size(), 3u) << "the builder of this test";
  EXPECT_THAT(refusal(as_voices, prompts(1025, 1)), HasSubstr("1025 voice prompts"));
  EXPECT_THAT(refusal(as_voices, prompts(1000, 1 << 14)), HasSubstr("over and over"));
}

// ---- voice packs

/// `names` share one speaker vector and one tensor of codes.
std::string pack(const std::vector<std::string>& listed, const std::vector<std::string>& named,
                 uint64_t frames, uint64_t groups) {
  const auto string = [](const std::string& s) { return le(s.size(), 8) + s; };
  const auto list = [&](const std::string& key, const std::vector<std::string>& values) {
    std::string out = string(key) + le(9, 4) + le(8, 4) + le(values.size(), 8);
    for (const std::string& v : values) out += string(v);
    return out;
  };
  std::string out = "GGUF" + le(3, 4) + le(2 * named.size(), 8) + le(3, 8);
  out += string("general.architecture") + le(8, 4) + string("qwen3tts.voicepack");
  out += list("voicepack.names", listed);
  out += list("voicepack.ref_texts", std::vector<std::string>(listed.size(), "words"));
  for (const std::string& name : named) {
    out += string("voicepack.spk." + name + ".embd") + le(1, 4) + le(4, 8) + le(0, 4) + le(0, 8);
    out += string("voicepack.code." + name + ".codes") + le(2, 4) + le(groups, 8) + le(frames, 8) +
           le(26, 4) + le(32, 8);
  }
  out.resize((out.size() + 31) / 32 * 32);
  return out + std::string(32 + 4 * frames * groups, '\0');
}

TEST(HostileGguf, OneVoiceOverAndOver) {
  EXPECT_EQ(import_voices(pack({"a", "b"}, {"a", "b"}, 2, 16), "file").size(), 2u)
      << "the builder of this test";
  EXPECT_THAT(refusal(as_voices, pack(std::vector<std::string>(4096, "a"), {"a"}, 1 << 14, 64)),
              HasSubstr("lists a voice twice"));
  std::vector<std::string> names;
  for (int i = 0; i < 100; ++i) names.push_back("voice" + std::to_string(i));
  EXPECT_THAT(refusal(as_voices, pack(names, names, 1 << 14, 64)), HasSubstr("overlap"));
}

// ---- JSON

TEST(HostileJson, ManyValues) {
  const std::string bytes = "{\"a\":[1" + times(30 << 20, ",1") + "]}";
  EXPECT_THAT(refusal(as_voices, bytes), HasSubstr("larger than any"));
}

}  // namespace
}  // namespace skald::test
