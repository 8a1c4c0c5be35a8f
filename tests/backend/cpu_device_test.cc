// What only the CPU device promises: options, memory that is committed when touched, sizes of packed weights.
#include "backend/cpu/cpu.h"
#include "rig.h"
#include "skald/error.h"

namespace skald::backend::test {
namespace {

TEST(Packing, ExactTensorsAndConvolutionsAreNotRounded) {
  Rig rig("", 2, 3, "int8");
  const std::vector<float> values = rig.normal(40 * 30);
  const auto bytes_of = [&](WeightRole role, std::vector<int64_t> shape, bool exact) {
    const size_t before = rig.device().weight_bytes();
    rig.device().load(
        role,
        {.name = "w", .shape = std::move(shape), .data = std::as_bytes(std::span(values)), .exact = exact});
    return rig.device().weight_bytes() - before;
  };
  EXPECT_EQ(bytes_of(WeightRole::matrix, {40, 30}, true), size_t{48 * 30 * 4});
  EXPECT_EQ(bytes_of(WeightRole::convolution, {40, 6, 5}, false), size_t{48 * 30 * 4});
  EXPECT_EQ(bytes_of(WeightRole::matrix, {40, 30}, false),
            size_t{3 * (64 + 512)});  // 30 * 16 rounded up to lines
}

TEST(Packing, NamesAndSizes) {
  EXPECT_EQ(cpu_matrix_bytes("f32", true), 4);
  EXPECT_EQ(cpu_matrix_bytes("bf16", false), 2);
  EXPECT_EQ(cpu_matrix_bytes("int8", true), 1.0625);
  EXPECT_EQ(cpu_matrix_bytes("auto", true), 2);
  EXPECT_EQ(cpu_matrix_bytes("auto", false), 4);
  for (const char* name : {"", "int4", "F32", "f32 "}) try {
      make_cpu_backend({.weights = name});
      FAIL() << name;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::invalid_argument);
      EXPECT_NE(std::string(e.what()).find("auto, f32, bf16, int8"), std::string::npos) << e.what();
    }
}

TEST(Memory, TablesStayInTheFile) {
  Rig rig;
  const size_t before = rig.device().weight_bytes();
  rig.load(WeightRole::table, {11, 21});
  EXPECT_EQ(rig.device().weight_bytes(), before) << "a table was copied";
}

TEST(Memory, MemoryIsZeroLazyAndChecked) {
  Rig rig;
  // 64 GB are reserved, not committed.
  const Buffer big = rig.device().allocate("cache", Dtype::f32, 1 << 20, 1 << 14);
  EXPECT_EQ(rig.read(big.row_range((1 << 20) - 1, 1).columns(5, 2)), (std::vector<float>{0, 0}));
  EXPECT_GE(rig.device().buffer_bytes(), size_t{64} << 30);
  for (const auto& [rows, width] :
       {std::pair<int64_t, int32_t>{int64_t{1} << 31, 4}, {INT32_MAX, INT32_MAX}, {-1, 4}})
    try {
      rig.device().allocate("huge", Dtype::f32, rows, width);
      FAIL() << "accepted " << rows << " x " << width;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::out_of_memory);
      EXPECT_NE(std::string(e.what()).find("huge"), std::string::npos) << e.what();
    }
}

TEST(Options, OptionsAreChecked) {
  try {
    make_cpu_backend({.target = "AVX9"});
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::invalid_argument);
    for (const std::string& target : cpu_targets())
      EXPECT_NE(std::string(e.what()).find(target), std::string::npos) << e.what();
  }
  EXPECT_THROW(make_cpu_backend({.threads = -1}), Error);
  EXPECT_EQ(cpu_targets().back(), "scalar");
}

}  // namespace
}  // namespace skald::backend::test
