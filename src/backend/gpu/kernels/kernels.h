// Which source file holds which kernels: the list that compilers, loaders and tests share.
#pragma once

#include <span>
#include <string_view>

namespace skald::backend::gpu {

/// A file that is compiled on its own. Its includes name the others by their path from src/.
struct KernelModule {
  std::string_view name;
  std::string_view file;  ///< path from src/
  std::span<const std::string_view> kernels;
};

/// Every kernel, by the module that holds it: X(name) for each.
// The formatter would indent each line further than the one before.
// clang-format off
#define SKALD_FEW_KERNELS(X, type) \
  X(product_##type##_1) X(product_##type##_1_8) X(product_##type##_1_12) X(product_##type##_2) \
  X(product_##type##_4) X(pair_##type##_1) X(pair_##type##_1_8) X(pair_##type##_2) X(pair_##type##_4)
#define SKALD_PRODUCT_KERNELS(X) \
  SKALD_FEW_KERNELS(X, f32) SKALD_FEW_KERNELS(X, bf16) SKALD_FEW_KERNELS(X, int8)
#define SKALD_MANY_KERNELS(X) X(product_f32_many) X(product_bf16_many) X(product_int8_many) X(normalise)
#define SKALD_ATTENTION_KERNELS(X) \
  X(rope_angles) X(place_heads) X(attention_64_1) X(attention_64_2) X(attention_128_1) \
  X(attention_128_2) X(attention_256_1) X(attention_any_256_1) X(attention_placed_64_1) X(attention_placed_64_2) \
  X(attention_placed_128_1) X(attention_placed_128_2) X(attention_placed_256_1)
// clang-format on
#define SKALD_ROWS_KERNELS(X) X(gather_sum) X(store_rows) X(copy_rows) X(advance) X(publish_frame)
#define SKALD_SAMPLE_KERNELS(X) X(sample) X(sample_feed)
#define SKALD_AUDIO_KERNELS(X) X(depthwise)
#define SKALD_CONV_KERNELS(X) X(stage) X(conv_8) X(conv_16) X(conv_32)
#define SKALD_MATRIX_KERNELS(X) X(split_rows) X(product_matrix_1) X(product_matrix_2) X(product_matrix_4)
#define SKALD_ENCODE_KERNELS(X) X(stage_padded) X(log_mel) X(statistics) X(scale_rows) X(nearest_code)

namespace modules {
#define SKALD_NAME(name) #name,
inline constexpr std::string_view kProduct[] = {SKALD_PRODUCT_KERNELS(SKALD_NAME)};
inline constexpr std::string_view kMany[] = {SKALD_MANY_KERNELS(SKALD_NAME)};
inline constexpr std::string_view kAttention[] = {SKALD_ATTENTION_KERNELS(SKALD_NAME)};
inline constexpr std::string_view kRows[] = {SKALD_ROWS_KERNELS(SKALD_NAME)};
inline constexpr std::string_view kSample[] = {SKALD_SAMPLE_KERNELS(SKALD_NAME)};
inline constexpr std::string_view kAudio[] = {SKALD_AUDIO_KERNELS(SKALD_NAME)};
inline constexpr std::string_view kConv[] = {SKALD_CONV_KERNELS(SKALD_NAME)};
inline constexpr std::string_view kMatrix[] = {SKALD_MATRIX_KERNELS(SKALD_NAME)};
inline constexpr std::string_view kEncode[] = {SKALD_ENCODE_KERNELS(SKALD_NAME)};
#undef SKALD_NAME
}  // namespace modules

inline constexpr KernelModule kKernelModules[] = {
    {"product", "backend/gpu/kernels/product.cuh", modules::kProduct},
    {"product_many", "backend/gpu/kernels/product_many.cuh", modules::kMany},
    {"attention", "backend/gpu/kernels/attention.cuh", modules::kAttention},
    {"rows", "backend/gpu/kernels/rows.cuh", modules::kRows},
    {"sample", "backend/gpu/kernels/sample.cuh", modules::kSample},
    {"audio", "backend/gpu/kernels/audio.cuh", modules::kAudio},
    {"conv", "backend/gpu/kernels/conv.cuh", modules::kConv},
    {"encode", "backend/gpu/kernels/encode.cuh", modules::kEncode},
    {"matrix", "backend/gpu/kernels/matrix.cuh", modules::kMatrix},
};

/// Every file that a module may include, by its path from src/: what a run-time compiler is given as headers.
inline constexpr std::string_view kKernelHeaders[] = {
    "backend/gpu/kernels/args.h", "backend/gpu/kernels/prelude.cuh", "backend/gpu/kernels/functions.cuh",
    "backend/gpu/kernels/common.cuh", "backend/gpu/kernels/panel.cuh"};

/// Options that results depend on: no contraction, no flushing of denormals, exact division and square root.
inline constexpr std::string_view kNvrtcOptions[] = {"--std=c++17", "--fmad=false"};
inline constexpr std::string_view kClangOptions[] = {"-std=c++17", "-O3", "-ffp-contract=off"};

}  // namespace skald::backend::gpu
