// All kernels of src/backend/gpu/kernels as one module of the host stand-in.
#include "simt.h"
// Before the kernels: they are compiled as they are.
#include "backend/gpu/kernels/attention.cuh"
#include "backend/gpu/kernels/audio.cuh"
#include "backend/gpu/kernels/conv.cuh"
#include "backend/gpu/kernels/encode.cuh"
#include "backend/gpu/kernels/kernels.h"
#include "backend/gpu/kernels/matrix.cuh"
#include "backend/gpu/kernels/product.cuh"
#include "backend/gpu/kernels/product_many.cuh"
#include "backend/gpu/kernels/rows.cuh"
#include "backend/gpu/kernels/sample.cuh"

#define ENTRY(name) SIMT_KERNEL(name),
extern "C" __attribute__((visibility("default"))) const simt_kernel simt_kernels[] = {
    SKALD_PRODUCT_KERNELS(ENTRY) SKALD_MANY_KERNELS(ENTRY) SKALD_ATTENTION_KERNELS(ENTRY)
        SKALD_ROWS_KERNELS(ENTRY) SKALD_SAMPLE_KERNELS(ENTRY) SKALD_AUDIO_KERNELS(ENTRY)
            SKALD_CONV_KERNELS(ENTRY) SKALD_ENCODE_KERNELS(ENTRY)
                SKALD_MATRIX_KERNELS(ENTRY){nullptr, 0, nullptr}};
