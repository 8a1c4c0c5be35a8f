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

namespace modules {
inline constexpr std::string_view kProduct[] = {
    "product_f32_1",     "product_f32_2",  "product_f32_4",  "product_bf16_1",   "product_bf16_2",
    "product_bf16_4",    "product_int8_1", "product_int8_2", "product_int8_4",   "pair_f32_1",
    "pair_f32_2",        "pair_f32_4",     "pair_bf16_1",    "pair_bf16_2",      "pair_bf16_4",
    "pair_int8_1",       "pair_int8_2",    "pair_int8_4",    "product_f32_many", "product_bf16_many",
    "product_int8_many", "normalise"};
inline constexpr std::string_view kAttention[] = {"rope_angles",    "place_heads",     "attention_64_1",
                                                  "attention_64_2", "attention_128_1", "attention_128_2",
                                                  "attention_256_1"};
inline constexpr std::string_view kRows[] = {"gather_sum", "store_rows", "copy_rows", "advance",
                                             "publish_frame"};
inline constexpr std::string_view kSample[] = {"sample"};
inline constexpr std::string_view kAudio[] = {"stage", "depthwise"};
}  // namespace modules

inline constexpr KernelModule kKernelModules[] = {
    {"product", "backend/gpu/kernels/product.cuh", modules::kProduct},
    {"attention", "backend/gpu/kernels/attention.cuh", modules::kAttention},
    {"rows", "backend/gpu/kernels/rows.cuh", modules::kRows},
    {"sample", "backend/gpu/kernels/sample.cuh", modules::kSample},
    {"audio", "backend/gpu/kernels/audio.cuh", modules::kAudio},
};

/// Every file that a module may include, by its path from src/: what a run-time compiler is given as headers.
inline constexpr std::string_view kKernelHeaders[] = {
    "backend/gpu/kernels/args.h", "backend/gpu/kernels/prelude.cuh", "backend/gpu/kernels/functions.cuh",
    "backend/gpu/kernels/common.cuh"};

/// Options that results depend on: no contraction, no flushing of denormals, exact division and square root.
inline constexpr std::string_view kNvrtcOptions[] = {"--std=c++17", "--fmad=false"};
inline constexpr std::string_view kClangOptions[] = {"-std=c++17", "-O3", "-ffp-contract=off"};

}  // namespace skald::backend::gpu
