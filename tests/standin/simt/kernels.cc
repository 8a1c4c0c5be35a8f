// All kernels of src/backend/gpu/kernels as one module of the host stand-in.
#include "simt.h"
// Before the kernels: they are compiled as they are.
#include "backend/gpu/kernels/attention.cuh"
#include "backend/gpu/kernels/audio.cuh"
#include "backend/gpu/kernels/product.cuh"
#include "backend/gpu/kernels/rows.cuh"
#include "backend/gpu/kernels/sample.cuh"

extern "C" __attribute__((visibility("default")))
const simt_kernel simt_kernels[] = {SIMT_KERNEL(product_f32_1),
                                    SIMT_KERNEL(product_f32_2),
                                    SIMT_KERNEL(product_f32_4),
                                    SIMT_KERNEL(product_bf16_1),
                                    SIMT_KERNEL(product_bf16_2),
                                    SIMT_KERNEL(product_bf16_4),
                                    SIMT_KERNEL(product_int8_1),
                                    SIMT_KERNEL(product_int8_2),
                                    SIMT_KERNEL(product_int8_4),
                                    SIMT_KERNEL(pair_f32_1),
                                    SIMT_KERNEL(pair_f32_2),
                                    SIMT_KERNEL(pair_f32_4),
                                    SIMT_KERNEL(pair_bf16_1),
                                    SIMT_KERNEL(pair_bf16_2),
                                    SIMT_KERNEL(pair_bf16_4),
                                    SIMT_KERNEL(pair_int8_1),
                                    SIMT_KERNEL(pair_int8_2),
                                    SIMT_KERNEL(pair_int8_4),
                                    SIMT_KERNEL(product_f32_many),
                                    SIMT_KERNEL(product_bf16_many),
                                    SIMT_KERNEL(product_int8_many),
                                    SIMT_KERNEL(normalise),
                                    SIMT_KERNEL(rope_angles),
                                    SIMT_KERNEL(place_heads),
                                    SIMT_KERNEL(attention_64_1),
                                    SIMT_KERNEL(attention_64_2),
                                    SIMT_KERNEL(attention_128_1),
                                    SIMT_KERNEL(attention_128_2),
                                    SIMT_KERNEL(attention_256_1),
                                    SIMT_KERNEL(gather_sum),
                                    SIMT_KERNEL(store_rows),
                                    SIMT_KERNEL(copy_rows),
                                    SIMT_KERNEL(advance),
                                    SIMT_KERNEL(publish_frame),
                                    SIMT_KERNEL(sample),
                                    SIMT_KERNEL(stage),
                                    SIMT_KERNEL(depthwise),
                                    {nullptr, 0, nullptr}};
