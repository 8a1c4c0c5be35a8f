// The .npy reader on good and hostile bytes, and the writer's round trip.
#include "audio/npy.h"

#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "skald/error.h"

namespace skald::audio {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string file(const std::string& dictionary, const std::string& data, char major = 1) {
  std::string bytes = "\x93NUMPY";
  bytes +=
      {major, '\0', static_cast<char>(dictionary.size() & 0xFF), static_cast<char>(dictionary.size() >> 8)};
  if (major > 1) bytes += std::string(2, '\0');
  return bytes + dictionary + data;
}
template <class T>
std::string raw(std::initializer_list<T> values) {
  return {reinterpret_cast<const char*>(values.begin()), values.size() * sizeof(T)};
}
std::string refusal(const std::string& bytes) {
  try {
    parse_npy(bytes, "x.npy");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_THAT(error.what(), HasSubstr("x.npy"));
    return error.what();
  }
  return "accepted";
}

TEST(Npy, ReadsEveryIntegerType) {
  const auto ints = [](const char* type, const std::string& data) {
    const std::string dictionary =
        std::string("{'descr': '") + type + "', 'fortran_order': False, 'shape': (2,), }\n";
    return parse_npy(file(dictionary, data), "x").ints();
  };
  EXPECT_THAT(ints("|i1", raw<int8_t>({-1, 2})), ElementsAre(-1, 2));
  EXPECT_THAT(ints("<i2", raw<int16_t>({-300, 2})), ElementsAre(-300, 2));
  EXPECT_THAT(ints("<i4", raw<int32_t>({-70000, 2})), ElementsAre(-70000, 2));
  EXPECT_THAT(ints("<i8", raw<int64_t>({-70000, 2})), ElementsAre(-70000, 2));
  EXPECT_THAT(ints("|u1", raw<uint8_t>({255, 2})), ElementsAre(255, 2));
  EXPECT_THAT(ints("<u2", raw<uint16_t>({65535, 2})), ElementsAre(65535, 2));
  EXPECT_THAT(ints("<u4", raw<uint32_t>({70000, 2})), ElementsAre(70000, 2));
  EXPECT_THAT(ints("<u8", raw<uint64_t>({70000, 2})), ElementsAre(70000, 2));
  EXPECT_THROW(ints("<i8", raw<int64_t>({int64_t{1} << 40, 2})), Error);
  EXPECT_THROW(ints("<u4", raw<uint32_t>({0xFFFFFFFFu, 2})), Error);
  EXPECT_THROW(ints("<f4", raw<float>({1, 2})), Error);
}

TEST(Npy, ReadsFloatsAndShapes) {
  const auto f4 = parse_npy(
      file("{\"shape\": (2, 1), \"fortran_order\": False, \"descr\": \"<f4\"}", raw<float>({1.5f, -2})), "x");
  EXPECT_THAT(f4.shape, ElementsAre(2, 1));
  EXPECT_THAT(f4.floats(), ElementsAre(1.5f, -2));
  const auto f8 =
      parse_npy(file("{'descr': '<f8', 'fortran_order': True, 'shape': (1,)}", raw<double>({0.25}), 2), "x");
  EXPECT_THAT(f8.floats(), ElementsAre(0.25f));
  EXPECT_THROW(f8.ints(), Error);
  EXPECT_EQ(
      parse_npy(file("{'descr': '<f4', 'fortran_order': False, 'shape': ()}", raw<float>({7})), "x").size(),
      1u);
  EXPECT_EQ(parse_npy(file("{'descr': '<f4', 'fortran_order': False, 'shape': (0, 16)}", "", 3), "x").size(),
            0u);
}

TEST(Npy, RefusesWhatItWouldHaveToGuess) {
  const std::string tail = "', 'fortran_order': False, 'shape': (2,)}";
  EXPECT_THAT(refusal(""), HasSubstr("NUMPY"));
  EXPECT_THAT(refusal("PK\x03\x04 a zip archive"), HasSubstr("NUMPY"));
  EXPECT_THAT(refusal("\x93NUMPY\x01"), HasSubstr("ends inside"));
  EXPECT_THAT(refusal(file("{'descr': '<f4" + tail, "12345678", 4)), HasSubstr("version 4.0"));
  EXPECT_THAT(refusal(file("{'descr': '>f4" + tail, "12345678")), HasSubstr("big-endian"));
  EXPECT_THAT(refusal(file("{'descr': '<c8" + tail, "12345678")), HasSubstr("element type"));
  EXPECT_THAT(refusal(file("{'descr': '|O" + tail, "12345678")), HasSubstr("element type"));
  EXPECT_THAT(refusal(file("{'descr': '|i2" + tail, "1234")), HasSubstr("element type"));
  EXPECT_THAT(refusal(file("{'descr': '<f4" + tail, "1234567")), HasSubstr("needs 8 bytes, the file has 7"));
  EXPECT_THAT(refusal(file("{'descr': '<f4" + tail, "123456789")), HasSubstr("has 9"));
  EXPECT_THAT(refusal(file("{'descr': '<f4', 'fortran_order': True, 'shape': (2,2)}", "")),
              HasSubstr("Fortran"));
  EXPECT_THAT(refusal(file("{'descr': '<f4', 'fortran_order': False}", "")), HasSubstr("missing"));
  EXPECT_THAT(refusal(file("{'descr': '<f4', 'descr': '<f4" + tail, "12345678")), HasSubstr("twice"));
  EXPECT_THAT(refusal(file("{'descr': '<f4', 'x': 1}", "")), HasSubstr("unknown key"));
  EXPECT_THAT(refusal(file("{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}", "")),
              HasSubstr("not a number"));
  EXPECT_THAT(refusal(file("{'descr': '<f4', 'fortran_order': 0, 'shape': (1,)}", "")),
              HasSubstr("True or False"));
  EXPECT_THAT(refusal(file("{'descr': '<f4" + tail + " import os", "12345678")), HasSubstr("follows"));
  const std::string huge = "4294967296, 4294967296, 4294967296";
  EXPECT_THAT(refusal(file("{'descr': '<f4', 'fortran_order': False, 'shape': (" + huge + ")}", "")),
              HasSubstr("memory"));
  std::string many = "(";
  for (int i = 0; i < 40; ++i) many += "1,";
  EXPECT_THAT(refusal(file("{'descr': '<f4', 'fortran_order': False, 'shape': " + many + ")}", "1234")),
              HasSubstr("dimensions"));
}

TEST(Npy, EveryCutOfAGoodFileIsRefused) {
  const std::string good =
      file("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }\n", raw<float>({1, 2}));
  EXPECT_EQ(refusal(good), "accepted");
  for (size_t size = 0; size < good.size(); ++size)
    EXPECT_NE(refusal(good.substr(0, size)), "accepted") << size;
}

class NpyFile : public testing::Test {
 protected:
  void SetUp() override {
    dir_ = std::filesystem::temp_directory_path() / ("skald-npy-" + std::to_string(::getpid()));
    std::filesystem::create_directories(dir_);
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }
  std::filesystem::path dir_;
};

TEST_F(NpyFile, RowsAreCountedAtTheEnd) {
  const std::vector<float> row{1, 2, 3, 4, 5, 6};
  {
    NpyWriter writer(dir_ / "a.npy", NpyType::f4, {2, 3});
    writer.append(row);
    writer.append(row);
    EXPECT_THROW(writer.append(std::span<const float>(row).first(5)), Error);
  }
  const auto array = read_npy(dir_ / "a.npy");
  EXPECT_THAT(array.shape, ElementsAre(2, 2, 3));
  EXPECT_EQ(array.floats()[11], 6);
  EXPECT_EQ(std::filesystem::file_size(dir_ / "a.npy"),
            128 + 12 * 4);  // 128: rows begin on a 64-byte line, as NumPy writes
}

TEST_F(NpyFile, IntegersAndScalars) {
  NpyWriter narrow(dir_ / "i2.npy", NpyType::i2, {2}), wide(dir_ / "i4.npy", NpyType::i4, {});
  narrow.append(std::vector<int32_t>{3071, -1});
  EXPECT_THROW(narrow.append(std::vector<int32_t>{40000, 0}), Error);
  wide.append(std::vector<int32_t>{151643, 7, 9});
  narrow.close();
  wide.close();
  EXPECT_THAT(read_npy(dir_ / "i2.npy").ints(), ElementsAre(3071, -1));
  EXPECT_THAT(read_npy(dir_ / "i4.npy").shape, ElementsAre(3));
  EXPECT_THAT(read_npy(dir_ / "i4.npy").ints(), ElementsAre(151643, 7, 9));
}

TEST_F(NpyFile, AnEmptyArrayKeepsItsRowShape) {
  NpyWriter(dir_ / "e.npy", NpyType::f4, {15, 2048}).close();
  EXPECT_THAT(read_npy(dir_ / "e.npy").shape, ElementsAre(0, 15, 2048));
}

TEST_F(NpyFile, UnreadableFilesAreNamed) {
  for (const auto& path : {dir_ / "missing.npy", dir_}) {
    try {
      read_npy(path);
      ADD_FAILURE() << path;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::io);
      EXPECT_THAT(error.what(), HasSubstr(path.string()));
    }
  }
  EXPECT_THROW(NpyWriter(dir_ / "no" / "folder.npy", NpyType::f4, {}), Error);
  EXPECT_THROW(read_npy("/dev/zero"), Error) << "and the memory is not filled first";
}

}  // namespace
}  // namespace skald::audio
