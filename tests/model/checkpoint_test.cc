// Safetensors files and the tensors that a configuration implies: all damage is an error with a name.
#include "model/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "model/safetensors.h"
#include "snapshot_files.h"

namespace skald::model {
namespace {

using test::json;
using test::RawTensor;
using test::TempDir;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

/// The message of the error that parsing gives, or "" when it succeeds.
std::string parse_message(const std::string& file) {
  try {
    parse_safetensors(bytes_of(file), "f.safetensors");
    return "";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::model_invalid);
    EXPECT_THAT(error.what(), HasSubstr("f.safetensors"));
    return error.what();
  }
}

template <class Call>
void expect_error(ErrorCode code, const ::testing::Matcher<std::string>& message, Call&& call) {
  try {
    call();
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    EXPECT_THAT(error.what(), message);
  }
}

std::vector<RawTensor> two_tensors() {
  return {test::tensor<float>("a", "F32", {2, 3}, {0, 1, 2, 3, 4, 5}),
          test::tensor<uint16_t>("b", "BF16", {2}, {0x3f80, 0x4000})};
}

// ---- the header

TEST(Safetensors, ReadsTensorsAndMetadata) {
  const std::string header = R"({"__metadata__":{"format":"pt"},)"
                             R"("x":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]},)"
                             R"("none":{"shape":[0,7],"data_offsets":[8,8],"dtype":"F16"},)"
                             R"("scalar":{"data_offsets":[8,16],"dtype":"I64","shape":[]}}   )";
  const auto tensors = parse_safetensors(bytes_of(test::safetensors(header, std::string(16, 'x'))), "f");
  ASSERT_EQ(tensors.size(), 3u);
  EXPECT_EQ(tensors[0].name, "x");
  EXPECT_EQ(tensors[0].type, "F32");
  EXPECT_THAT(tensors[0].shape, ElementsAre(2, 1));
  EXPECT_EQ(tensors[0].offset, 8 + header.size());
  EXPECT_EQ(tensors[0].bytes, 8u);
  EXPECT_EQ(tensors[1].bytes, 0u);
  EXPECT_EQ(tensors[2].offset, 16 + header.size());
}

TEST(Safetensors, EveryTruncationIsAnError) {
  const std::string file = test::safetensors(two_tensors());
  ASSERT_EQ(parse_message(file), "");
  for (size_t size = 0; size < file.size(); ++size) {
    EXPECT_THAT(parse_message(file.substr(0, size)), HasSubstr("; ")) << size;
  }
  EXPECT_THAT(parse_message(file + "x"), HasSubstr("1 bytes follow the last tensor"));
}

TEST(Safetensors, EveryFlippedHeaderByteIsHarmless) {
  const std::string file = test::safetensors(two_tensors());
  const size_t header_end = file.size() - 28;
  for (size_t i = 0; i < header_end; ++i) {
    for (const int bit : {0, 3, 5, 7}) {
      std::string damaged = file;
      damaged[i] = static_cast<char>(damaged[i] ^ (1 << bit));
      try {  // a changed name is still a valid file
        for (const TensorEntry& tensor : parse_safetensors(bytes_of(damaged), "f")) {
          EXPECT_LE(tensor.offset + tensor.bytes, damaged.size());
        }
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::model_invalid);
      }
    }
  }
}

struct HeaderCase {
  const char *header, *message;
};

TEST(Safetensors, DamagedHeadersAreNamed) {
  const HeaderCase cases[] = {
      {"", "does not begin with '{'"},
      {"[]", "does not begin with '{'"},
      {" {}", "does not begin with '{'"},
      {R"({"a":1})", "a number where it must not be"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}} x)", "not valid JSON at byte 63"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"a":{"dtype":"F32","shape":[2],"data_offsets":[8,16]}})",
       "tensor 'a' is listed twice"},
      {R"({"a":{"dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8]}})",
       "tensor 'a' has 'dtype' twice"},
      {R"({"__metadata__":{"k":"1","k":"2"}})", "__metadata__ has 'k' twice"},
      {R"({"__metadata__":{},"__metadata__":{}})", "'__metadata__' twice"},
      {R"({"__metadata__":{"k":{"deep":1}}})", "an object where it must not be"},
      {R"({"__metadata__":{"k":1}})", "a number where it must not be"},
      {R"({"a":{"dtype":"F32","shape":[2]}})", "tensor 'a' has no data_offsets"},
      {R"({"a":{"dtype":"F32","data_offsets":[0,8]}})", "tensor 'a' has no shape"},
      {R"({"a":{"shape":[2],"data_offsets":[0,8]}})", "tensor 'a' has no dtype"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"extra":1}})",
       "tensor 'a' has the unknown key 'extra'"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0]}})",
       "tensor 'a' has 1 data_offsets, expected 2"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8,9]}})",
       "tensor 'a' has 3 data_offsets, expected 2"},
      {R"({"a":{"dtype":7,"shape":[2],"data_offsets":[0,8]}})",
       "a number where it must not be, in or after tensor 'a'"},
      {R"({"a":{"dtype":"F32","shape":2,"data_offsets":[0,8]}})", "a number where it must not be"},
      {R"({"a":{"dtype":"F32","shape":[[2]],"data_offsets":[0,8]}})", "a list where it must not be"},
      {R"({"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", "a negative number"},
      {R"({"a":{"dtype":"F32","shape":[2.0],"data_offsets":[0,8]}})", "a number that is no integer"},
      {R"({"a":{"dtype":"F32","shape":[null],"data_offsets":[0,8]}})", "null"},
      {R"({"a":{"dtype":"F32","shape":[true],"data_offsets":[0,8]}})", "a boolean"},
      {R"({"a":{"dtype":"F32","shape":[99999999999999999999],"data_offsets":[0,8]}})",
       "a number that is no integer"},
      {R"({"a":{"dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,8]}})", "beyond 63 bits"},
      {R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", "impossible shape"},
      {R"({"a":{"dtype":"F32","shape":[9223372036854775807,2],"data_offsets":[0,8]}})", "impossible shape"},
      {R"({"a":{"dtype":"F32","shape":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1],"data_offsets":[0,4]}})",
       "more than 16 dimensions"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", "run backwards"},
      {R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", "has 8 bytes, expected 12 for F32 [3]"},
      {R"({"a":{"dtype":"BF16","shape":[2],"data_offsets":[0,8]}})", "has 8 bytes, expected 4 for BF16 [2]"},
      {R"({"a":{"dtype":"F32","shape":[5],"data_offsets":[0,20]}})", "only 16 bytes follow the header"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[18446744073709551608,18446744073709551615]}})",
       "only 16 bytes follow"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})",
       "tensor 'b' begins at byte"},
      {R"({"a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]},"b":{"dtype":"F32","shape":[0],"data_offsets":[8,8]}})",
       "overlaps tensor 'a'"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[2],"data_offsets":[8,16]}})",
       "belong to no tensor"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", "8 bytes follow the last tensor"},
      {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}}\0\0", "not valid JSON"},
  };
  for (const HeaderCase& c : cases) {
    SCOPED_TRACE(c.header);
    std::string header = c.header;
    if (std::string_view(c.message) == "not valid JSON") header.append(2, '\0');
    EXPECT_THAT(parse_message(test::safetensors(header, std::string(16, '\0'))), HasSubstr(c.message));
  }
}

TEST(Safetensors, DeepNestingIsRefusedAtOnce) {
  for (const std::string open : {"[", "{\"a\":", "{\"shape\":"}) {
    std::string header = "{\"a\":";
    for (int i = 0; i < 1000000; ++i) header += open;
    EXPECT_NE(parse_message(test::safetensors(header, "")), "");
  }
}

TEST(Safetensors, HeaderLengthIsBounded) {
  std::string file = test::safetensors(two_tensors());
  for (const uint64_t length : {uint64_t{100'000'001}, uint64_t{1} << 40, UINT64_MAX, UINT64_MAX - 7}) {
    for (int i = 0; i < 8; ++i) file[static_cast<size_t>(i)] = static_cast<char>(length >> (8 * i));
    EXPECT_THAT(parse_message(file), HasSubstr("header length at byte 0 is " + std::to_string(length)));
  }
  EXPECT_THAT(parse_message("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n"),
              AllOf(HasSubstr("Git LFS pointer"), HasSubstr("git lfs pull")));
}

TEST(Safetensors, ControlBytesInNamesDoNotReachMessages) {
  const std::string message = parse_message(
      test::safetensors(R"({"a\n\u001b[2J":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}})", "12345678"));
  EXPECT_THAT(message, HasSubstr("'a??[2J'"));
  const std::string long_name(5000, 'n');
  EXPECT_LT(parse_message(test::safetensors("{\"" + long_name + "\":1}", "")).size(), 400u);
}

// ---- files

class CheckpointTest : public ::testing::Test {
 protected:
  void write(const std::string& name, const std::vector<RawTensor>& tensors) {
    test::write_file(dir / name, test::safetensors(tensors));
  }
  void write_index(const json& weight_map) {
    test::write_file(dir / "model.safetensors.index.json",
                     json{{"metadata", {{"total_size", 1}}}, {"weight_map", weight_map}}.dump());
  }
  void expect_open_error(ErrorCode code, const ::testing::Matcher<std::string>& message) {
    expect_error(code, message, [&] { Checkpoint::open(dir.path()); });
  }
  TempDir dir;
};

TEST_F(CheckpointTest, GivesTensorsByNameAndShape) {
  write("model.safetensors", two_tensors());
  const auto checkpoint = Checkpoint::open(dir.path());
  EXPECT_THAT(checkpoint->names(), ElementsAre("a", "b"));
  EXPECT_TRUE(checkpoint->has("a"));
  EXPECT_FALSE(checkpoint->has("c"));
  EXPECT_THAT(checkpoint->shape("a"), ElementsAre(2, 3));
  EXPECT_EQ(checkpoint->dtype("b"), backend::Dtype::bf16);
  EXPECT_EQ(checkpoint->type_name("b"), "BF16");
  EXPECT_EQ(checkpoint->file("b"), (dir / "model.safetensors").string());
  const backend::TensorSource a = checkpoint->get("a", {2, 3});
  EXPECT_EQ(a.name, "a");
  EXPECT_EQ(a.dtype, backend::Dtype::f32);
  EXPECT_THAT(a.shape, ElementsAre(2, 3));
  EXPECT_THAT(to_floats(a), ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_THAT(to_floats(checkpoint->get("b", {2})), ElementsAre(1, 2));
  expect_error(ErrorCode::model_invalid,
               AllOf(HasSubstr("'a'"), HasSubstr("[2, 3], expected [3, 2]"), HasSubstr("byte")), [&] {
                 checkpoint->get("a", {3, 2});
               });
  expect_error(ErrorCode::model_invalid, HasSubstr("'c' is missing"), [&] { checkpoint->get("c", {1}); });
  expect_error(ErrorCode::model_invalid, HasSubstr("'c' is missing"), [&] { checkpoint->shape("c"); });
}

TEST_F(CheckpointTest, OtherTypesAreToleratedUntilAskedFor) {
  write(
      "model.safetensors",
      {test::tensor<int64_t>("i64", "I64", {1}, {7}), test::tensor<int32_t>("i32", "I32", {1}, {7}),
       test::tensor<uint8_t>("odd", "Q9", {5}, {1, 2, 3, 4, 5}), test::tensor<float>("x", "F32", {1}, {1})});
  const auto checkpoint = Checkpoint::open(dir.path());
  EXPECT_EQ(checkpoint->dtype("i32"), backend::Dtype::i32);
  EXPECT_THROW(checkpoint->dtype("i64"), Error);
  for (const char* name : {"i64", "i32"}) {
    expect_error(ErrorCode::model_invalid, AllOf(HasSubstr(name), HasSubstr("expected BF16, F32 or F16")),
                 [&] { checkpoint->get(name, {1}); });
  }
  expect_error(ErrorCode::model_invalid, HasSubstr("'Q9'"), [&] { checkpoint->get("odd", {5}); });
  EXPECT_THAT(to_floats(checkpoint->get("x", {1})), ElementsAre(1));
}

TEST_F(CheckpointTest, MisalignedDataIsGivenAligned) {
  std::string header = R"({"pad":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                       R"("x":{"dtype":"F32","shape":[2],"data_offsets":[1,9]}})";
  header.append((8 - header.size() % 8) % 8, ' ');
  std::string data = "p";
  const float values[] = {1.5f, -2.0f};
  data.append(reinterpret_cast<const char*>(values), 8);
  test::write_file(dir / "model.safetensors", test::safetensors(header, data));
  const auto source = Checkpoint::open(dir.path())->get("x", {2});
  const auto checkpoint = Checkpoint::open(dir.path());
  const auto x = checkpoint->get("x", {2});
  EXPECT_EQ(reinterpret_cast<uintptr_t>(x.data.data()) % alignof(float), 0u);
  EXPECT_THAT(to_floats(x), ElementsAre(1.5f, -2.0f));
  EXPECT_EQ(checkpoint->get("x", {2}).data.data(), x.data.data()) << "copied once";
}

TEST_F(CheckpointTest, MissingAndOddFilesAreNamed) {
  expect_open_error(ErrorCode::model_not_found, HasSubstr("neither model.safetensors nor"));
  fs::create_symlink("nowhere", dir / "model.safetensors");
  expect_open_error(ErrorCode::model_not_found,
                    HasSubstr("model.safetensors is a link to something that is missing"));
  fs::remove(dir / "model.safetensors");
  fs::create_directory(dir / "model.safetensors");
  expect_open_error(ErrorCode::model_invalid, HasSubstr("model.safetensors is a folder, not a plain file"));
  fs::remove(dir / "model.safetensors");
  fs::create_symlink("model.safetensors", dir / "model.safetensors");
  expect_open_error(ErrorCode::model_invalid, HasSubstr("its links lead in a circle"));
  fs::remove(dir / "model.safetensors");
  test::write_file(dir / "model.safetensors", "");
  expect_open_error(ErrorCode::model_invalid, HasSubstr("has 0 bytes"));
  fs::remove(dir / "model.safetensors");
  fs::create_directory(dir / "model.safetensors.index.json");
  expect_open_error(ErrorCode::model_invalid, HasSubstr("index.json is a folder, not a plain file"));
}

TEST_F(CheckpointTest, LinkedFilesAreFollowed) {
  fs::create_directory(dir / "blobs");
  write("blobs/0123", two_tensors());
  fs::create_directory(dir / "snapshot");
  fs::create_symlink("../blobs/0123", dir / "snapshot/model.safetensors");
  EXPECT_EQ(Checkpoint::open(dir / "snapshot")->names().size(), 2u);
}

TEST_F(CheckpointTest, ReadsShards) {
  const auto tensors = two_tensors();
  write("model-00001-of-00002.safetensors", {tensors[0]});
  write("model-00002-of-00002.safetensors", {tensors[1]});
  write_index({{"a", "model-00001-of-00002.safetensors"}, {"b", "model-00002-of-00002.safetensors"}});
  const auto checkpoint = Checkpoint::open(dir.path());
  EXPECT_THAT(checkpoint->names(), ElementsAre("a", "b"));
  EXPECT_THAT(checkpoint->file("b"), HasSubstr("00002-of"));
  EXPECT_THAT(to_floats(checkpoint->get("a", {2, 3})), ElementsAre(0, 1, 2, 3, 4, 5));
}

TEST_F(CheckpointTest, ShardsMustBePlainNames) {
  write("outside.safetensors", two_tensors());
  fs::create_directory(dir / "model");
  for (const std::string shard : {"../outside.safetensors", "/etc/passwd", "sub/x.safetensors", "..", "",
                                  "..\\x.safetensors", "x.bin", ".safetensors", "C:x.safetensors"}) {
    test::write_file(dir / "model/model.safetensors.index.json", json{{"weight_map", {{"a", shard}}}}.dump());
    expect_error(ErrorCode::model_invalid,
                 AllOf(HasSubstr("index.json"), HasSubstr("expected the plain name")),
                 [&] { Checkpoint::open(dir / "model"); });
  }
  test::write_file(dir / "model/model.safetensors.index.json",
                   json{{"weight_map", {{"a", std::string("x\0y.safetensors", 15)}}}}.dump());
  EXPECT_THROW(Checkpoint::open(dir / "model"), Error);
}

TEST_F(CheckpointTest, IndexAndShardsMustAgree) {
  const auto tensors = two_tensors();
  write("s1.safetensors", {tensors[0]});
  write("s2.safetensors", {tensors[1]});
  write_index({{"a", "s1.safetensors"}, {"b", "s3.safetensors"}});
  expect_open_error(ErrorCode::model_not_found, HasSubstr("s3.safetensors is missing"));
  write_index({{"a", "s1.safetensors"}, {"b", "s2.safetensors"}, {"c", "s2.safetensors"}});
  expect_open_error(ErrorCode::model_invalid, AllOf(HasSubstr("s2.safetensors: tensor 'c' is missing")));
  write("s2.safetensors", tensors);
  write_index({{"a", "s1.safetensors"}, {"b", "s2.safetensors"}});
  expect_open_error(ErrorCode::model_invalid,
                    AllOf(HasSubstr("tensor 'a' is in"), HasSubstr("s1"), HasSubstr("s2")));
  write("s2.safetensors", {tensors[1], test::tensor<float>("z", "F32", {1}, {1})});
  expect_open_error(ErrorCode::model_invalid,
                    HasSubstr("tensor 'z' is here, although the index does not list it"));
  for (const char* index :
       {"{}", R"({"weight_map": []})", R"({"weight_map": {}})", R"({"weight_map": {"a": 1}})",
        R"({"weight_map": {"a": "s1.safetensors", "a": "s2.safetensors"}})", "{"}) {
    test::write_file(dir / "model.safetensors.index.json", index);
    expect_open_error(ErrorCode::model_invalid, HasSubstr("index.json"));
  }
}

// ---- numbers

std::vector<float> floats_of(backend::Dtype type, const std::vector<uint16_t>& bits) {
  return to_floats({.name = "t",
                    .dtype = type,
                    .shape = {static_cast<int64_t>(bits.size())},
                    .data = std::as_bytes(std::span(bits))});
}

TEST(ToFloats, HalfIsExactForEveryBitPattern) {
  std::vector<uint16_t> bits(65536);
  std::iota(bits.begin(), bits.end(), uint16_t{0});
  const auto floats = floats_of(backend::Dtype::f16, bits);
  for (uint32_t i = 0; i < 65536; ++i) {
    const int exponent = (i >> 10) & 31;
    const double fraction = i & 1023;
    const double sign = (i & 0x8000) != 0 ? -1.0 : 1.0;
    if (exponent == 31 && fraction != 0) {
      ASSERT_TRUE(std::isnan(floats[i])) << i;
      continue;
    }
    const double expected = exponent == 31  ? std::numeric_limits<double>::infinity()
                            : exponent == 0 ? std::ldexp(fraction, -24)
                                            : std::ldexp(1024 + fraction, exponent - 25);
    ASSERT_EQ(floats[i], sign * expected) << i;
    ASSERT_EQ(std::signbit(floats[i]), sign < 0) << i;
  }
}

TEST(ToFloats, Bfloat16IsTheUpperHalf) {
  std::vector<uint16_t> bits(65536);
  std::iota(bits.begin(), bits.end(), uint16_t{0});
  const auto floats = floats_of(backend::Dtype::bf16, bits);
  for (uint32_t i = 0; i < 65536; ++i) {
    if (std::isnan(floats[i])) {
      ASSERT_TRUE((i & 0x7f80) == 0x7f80 && (i & 0x7f) != 0) << i;
    } else {
      ASSERT_EQ(std::bit_cast<uint32_t>(floats[i]), i << 16) << i;
    }
  }
}

TEST(ToFloats, ReadsUnalignedBytesAndRefusesIntegers) {
  std::string bytes = "?";
  const float value = 0.1f;
  bytes.append(reinterpret_cast<const char*>(&value), 4);
  const auto data = std::as_bytes(std::span(bytes)).subspan(1);
  EXPECT_THAT(to_floats({.name = "t", .dtype = backend::Dtype::f32, .shape = {1}, .data = data}),
              ElementsAre(0.1f));
  EXPECT_THROW(to_floats({.name = "t", .dtype = backend::Dtype::i32, .shape = {1}, .data = data}), Error);
}

// ---- expected tensors

int64_t parameters(const std::vector<ExpectedTensor>& tensors) {
  int64_t total = 0;
  std::set<std::string> names;
  for (const ExpectedTensor& tensor : tensors) {
    EXPECT_TRUE(names.insert(tensor.name).second) << tensor.name;
    total += std::accumulate(tensor.shape.begin(), tensor.shape.end(), int64_t{1}, std::multiplies<>());
  }
  return total;
}

/// The published configuration of any type and size, derived from the 0.6B custom_voice one.
ModelConfig published_config(ModelType type, bool large) {
  TempDir dir;
  test::copy_model_without_weights("tiny-cv", dir.path());
  const fs::path published = fs::path(SKALD_SOURCE_DIR) / "tests/model/published";
  fs::copy_file(published / "config.json", dir / "config.json", fs::copy_options::overwrite_existing);
  fs::copy_file(published / "speech_tokenizer_config.json", dir / "speech_tokenizer/config.json",
                fs::copy_options::overwrite_existing);
  test::edit_json(dir / "config.json", [&](json& document) {
    document["tts_model_type"] = model_type_name(type);
    document["tts_model_size"] = large ? "1b7" : "0b6";
    document["talker_config"]["hidden_size"] = large ? 2048 : 1024;
    document["talker_config"]["intermediate_size"] = large ? 6144 : 3072;
    if (type == ModelType::base) document["speaker_encoder_config"] = {{"enc_dim", large ? 2048 : 1024}};
  });
  return load_config(dir.path());
}

TEST(ExpectedTensors, CountsOfThePublishedModels) {
  struct Published {
    ModelType type;
    bool large;
    size_t tensors;
    int64_t parameters;
  };
  for (const auto& [type, large, tensors, count] :
       {Published{ModelType::base, false, 478, 914'643'008},
        Published{ModelType::custom_voice, false, 402, 905'788'672},
        Published{ModelType::base, true, 480, 1'928'677'440},
        Published{ModelType::custom_voice, true, 404, 1'916'676'352},
        Published{ModelType::voice_design, true, 404, 1'916'676'352}}) {
    const auto expected = expected_tensors(published_config(type, large));
    EXPECT_EQ(expected.size(), tensors) << model_type_name(type) << large;
    EXPECT_EQ(parameters(expected), count) << model_type_name(type) << large;
  }
  const auto codec = expected_codec_tensors(published_config(ModelType::base, false).codec);
  EXPECT_EQ(codec.size(), 496u);
  EXPECT_EQ(parameters(codec), 170'557'441);
  EXPECT_EQ(
      std::count_if(codec.begin(), codec.end(), [](const auto& t) { return t.name.starts_with("decoder."); }),
      271);
}

TEST(ExpectedTensors, ShapesOfThePublishedModels) {
  std::map<std::string, std::vector<int64_t>> shapes;
  const ModelConfig config = published_config(ModelType::base, true);
  for (const auto& tensor : expected_tensors(config)) shapes[tensor.name] = tensor.shape;
  for (const auto& tensor : expected_codec_tensors(config.codec)) shapes[tensor.name] = tensor.shape;
  const std::map<std::string, std::vector<int64_t>> some = {
      {"talker.model.text_embedding.weight", {151936, 2048}},
      {"talker.text_projection.linear_fc2.weight", {2048, 2048}},
      {"talker.model.layers.27.self_attn.k_proj.weight", {1024, 2048}},
      {"talker.model.layers.0.mlp.down_proj.weight", {2048, 6144}},
      {"talker.code_predictor.model.codec_embedding.14.weight", {2048, 2048}},
      {"talker.code_predictor.lm_head.0.weight", {2048, 1024}},
      {"talker.code_predictor.small_to_mtp_projection.weight", {1024, 2048}},
      {"talker.code_predictor.small_to_mtp_projection.bias", {1024}},
      {"speaker_encoder.blocks.0.conv.weight", {512, 128, 5}},
      {"speaker_encoder.blocks.3.res2net_block.blocks.6.conv.weight", {64, 64, 3}},
      {"speaker_encoder.blocks.1.se_block.conv2.weight", {512, 128, 1}},
      {"speaker_encoder.asp.tdnn.conv.weight", {128, 4608, 1}},
      {"speaker_encoder.fc.weight", {2048, 3072, 1}},
      {"decoder.quantizer.rvq_rest.vq.layers.14._codebook.embedding_sum", {2048, 256}},
      {"decoder.pre_conv.conv.weight", {1024, 512, 3}},
      {"decoder.upsample.1.0.conv.weight", {1024, 1024, 2}},
      {"decoder.upsample.0.1.pwconv1.bias", {4096}},
      {"decoder.decoder.1.block.1.conv.weight", {1536, 768, 16}},
      {"decoder.decoder.1.block.1.conv.bias", {768}},
      {"decoder.decoder.4.block.1.conv.weight", {192, 96, 6}},
      {"decoder.decoder.4.block.4.conv1.conv.weight", {96, 96, 7}},
      {"decoder.decoder.5.alpha", {96}},
      {"decoder.decoder.6.conv.weight", {1, 96, 7}},
      {"encoder.encoder.layers.3.conv.weight", {128, 64, 8}},
      {"encoder.encoder.layers.10.block.1.conv.weight", {256, 512, 3}},
      {"encoder.encoder.layers.12.conv.weight", {1024, 512, 16}},
      {"encoder.encoder.layers.14.conv.weight", {512, 1024, 3}},
      {"encoder.encoder_transformer.layers.7.mlp.fc1.weight", {2048, 512}},
      {"encoder.downsample.conv.weight", {512, 512, 4}},
      {"encoder.quantizer.acoustic_residual_vector_quantizer.layers.30.codebook.embed_sum", {2048, 256}},
      {"encoder.quantizer.semantic_residual_vector_quantizer.input_proj.weight", {256, 512, 1}},
  };
  for (const auto& [name, shape] : some) {
    ASSERT_TRUE(shapes.contains(name)) << name;
    EXPECT_EQ(shapes.at(name), shape) << name;
  }
  EXPECT_FALSE(shapes.contains("encoder.downsample.conv.bias"));
}

TEST(ExpectedTensors, TinyModelsHoldExactlyTheirTensors) {
  for (const char* name : {"tiny-cv", "tiny-cv-1b7", "tiny-base", "tiny-base-1b7", "tiny-vd"}) {
    SCOPED_TRACE(name);
    const fs::path dir = fs::path(SKALD_FIXTURES) / "models" / name;
    const ModelConfig config = load_config(dir);
    Faults faults;
    compare_tensors(*Checkpoint::open(dir), config, faults);
    compare_codec_tensors(*Checkpoint::open(dir / "speech_tokenizer"), config.codec, faults);
    for (const Fault& fault : faults) ADD_FAILURE() << fault.what;
  }
}

/// Runs `check` on the checkpoint of `tensors` (zeros on disk) and returns the error's sentence, "" without
/// one.
template <class Check>
std::string message_of(const fs::path& dir, const std::vector<RawTensor>& tensors, Check&& check) {
  test::write_sparse(dir / "model.safetensors", tensors);
  try {
    check(*Checkpoint::open(dir));
    return "";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::model_invalid);
    return error.what();
  }
}

/// Each tensor removed, renamed, transposed and of another type, one at a time: always an error with its
/// name.
template <class Check>
void spoil_each(const fs::path& source, Check&& check) {
  TempDir dir;
  std::vector<RawTensor> tensors = test::read_tensors(source / "model.safetensors");
  for (RawTensor& tensor : tensors) tensor.bytes.clear();
  ASSERT_EQ(message_of(dir.path(), tensors, check), "");
  for (size_t i = 0; i < tensors.size(); ++i) {
    const RawTensor original = tensors[i];
    const std::string named = "'" + original.name + "'";
    SCOPED_TRACE(named);
    std::vector<RawTensor> removed = tensors;
    removed.erase(removed.begin() + static_cast<std::ptrdiff_t>(i));
    EXPECT_THAT(message_of(dir.path(), removed, check), AllOf(HasSubstr(named), HasSubstr("missing")));
    tensors[i].name = "model." + original.name;
    EXPECT_THAT(message_of(dir.path(), tensors, check), AllOf(HasSubstr(named), HasSubstr("missing")));
    tensors[i] = original;
    std::reverse(tensors[i].shape.begin(), tensors[i].shape.end());
    if (tensors[i].shape != original.shape) {
      EXPECT_THAT(message_of(dir.path(), tensors, check), AllOf(HasSubstr(named), HasSubstr("transposed")));
    }
    tensors[i] = original;
    tensors[i].type = original.type == "BF16" ? "I16" : "I32";
    EXPECT_THAT(message_of(dir.path(), tensors, check),
                AllOf(HasSubstr(named), HasSubstr("has the type '" + tensors[i].type + "'")));
    tensors[i] = original;
  }
}

TEST(RequireTensors, B091_EachSpoiltTensorOfTheModelIsNamed) {
  const fs::path source = fs::path(SKALD_FIXTURES) / "models/tiny-cv-1b7";
  const ModelConfig config = load_config(source);
  spoil_each(source, [&](const Checkpoint& checkpoint) { require_tensors(checkpoint, config); });
}

TEST(RequireTensors, B091_EachSpoiltTensorOfTheCodecIsNamed) {
  const fs::path source = fs::path(SKALD_FIXTURES) / "models/tiny-cv/speech_tokenizer";
  const CodecConfig config = load_codec_config(source);
  spoil_each(source, [&](const Checkpoint& checkpoint) { require_codec_tensors(checkpoint, config); });
}

TEST(RequireTensors, B091_AllMissingTensorsAreCounted) {
  const fs::path source = fs::path(SKALD_FIXTURES) / "models/tiny-cv";
  TempDir dir;
  std::vector<RawTensor> tensors = test::read_tensors(source / "model.safetensors");
  tensors.resize(tensors.size() - 5);
  const ModelConfig config = load_config(source);
  EXPECT_THAT(message_of(dir.path(), tensors, [&](const Checkpoint& c) { require_tensors(c, config); }),
              AllOf(HasSubstr("is missing"), HasSubstr("and 4 more faults")));
}

TEST(RequireTensors, B092_TheProjectionIsNeededExactlyWhenWidthsDiffer) {
  const fs::path models = fs::path(SKALD_FIXTURES) / "models";
  const ModelConfig with = load_config(models / "tiny-cv-1b7"), without = load_config(models / "tiny-cv");
  ASSERT_TRUE(with.has_input_projection());
  ASSERT_FALSE(without.has_input_projection());
  EXPECT_NO_THROW(require_tensors(*Checkpoint::open(models / "tiny-cv-1b7"), with));
  EXPECT_NO_THROW(require_tensors(*Checkpoint::open(models / "tiny-cv"), without));
  TempDir dir;
  std::vector<RawTensor> tensors = test::read_tensors(models / "tiny-cv-1b7/model.safetensors");
  std::erase_if(tensors, [](const RawTensor& t) {
    return t.name.find("small_to_mtp_projection") != std::string::npos;
  });
  EXPECT_THAT(message_of(dir.path(), tensors, [&](const Checkpoint& c) { require_tensors(c, with); }),
              AllOf(HasSubstr("small_to_mtp_projection.weight' ["), HasSubstr("is missing")));
}

}  // namespace
}  // namespace skald::model
