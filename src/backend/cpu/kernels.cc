// Compiles the kernels once per instruction set and picks a table at run time. The only multi-target file.
#include "backend/cpu/kernels.h"

#include <utility>

// Variants that differ only in instructions we do not use, and scalable vectors (the kernels keep arrays of
// vectors). Bits 4 and 6 are AVX3_SPR and AVX3_ZEN4 of later releases.
#define HWY_DISABLED_TARGETS                                                                             \
  (HWY_SSSE3 | HWY_AVX3_DL | (1LL << 4) | (1LL << 6) | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | \
   HWY_RVV)
#define HWY_COMPILE_ALL_ATTAINABLE
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/kernels.cc"
#include <hwy/foreach_target.h>  // IWYU pragma: keep
#include <hwy/highway.h>

#include "backend/cpu/kernels/attention-inl.h"
#include "backend/cpu/kernels/pairs-inl.h"
#include "backend/cpu/kernels/product-inl.h"
#include "backend/cpu/kernels/rows-inl.h"
#include "backend/cpu/kernels/yardstick-inl.h"

#ifndef SKALD_BACKEND_CPU_KERNELS_ONCE
#define SKALD_BACKEND_CPU_KERNELS_ONCE
namespace skald::backend::cpu {
/// Specialised below, once for every target in HWY_TARGETS.
template <int64_t kTarget>
const Kernels& table_of();
/// AVX3 with AVX512_VNNI, where this build has AVX3.
const Kernels& vnni_table();
}  // namespace skald::backend::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace skald::backend::cpu::HWY_NAMESPACE {
namespace {

constexpr Kernels kTable = {.target = HWY_TARGET,
                            .product = product,
                            .pair_product = pair_product,
                            .quantise = quantise,
                            .finish = finish,
                            .gate = gate,
                            .rms_norm = rms_norm,
                            .layer_norm = layer_norm,
                            .rotate = rotate,
                            .attend = attend,
                            .snake = snake,
                            .depthwise = depthwise,
                            .elu = elu_row,
                            .scale_add = scale_add,
                            .add = add,
                            .read_stream = read_stream,
                            .multiply_add = multiply_add};

#if HWY_TARGET == HWY_AVX3
constexpr Kernels with_vnni() {
  Kernels kernels = kTable;
  kernels.vnni = true, kernels.pair_product = pair_product_vnni;
  return kernels;
}
constexpr Kernels kVnniTable = with_vnni();
#endif

}  // namespace
const Kernels& table() { return kTable; }
#if HWY_TARGET == HWY_AVX3
const Kernels& vnni_table() { return kVnniTable; }
#endif
}  // namespace skald::backend::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

namespace skald::backend::cpu {
template <>
const Kernels& table_of<HWY_TARGET>() {
  return HWY_NAMESPACE::table();
}
#if HWY_TARGET == HWY_AVX3
const Kernels& vnni_table() { return HWY_NAMESPACE::vnni_table(); }
#endif
}  // namespace skald::backend::cpu

#if HWY_ONCE
namespace skald::backend::cpu {
namespace {

constexpr int kTargetBits = 63;  // the last one is scalar code

template <int kBit>
void collect(int64_t usable, std::vector<const Kernels*>& tables) {
  if constexpr (((HWY_TARGETS) >> kBit) & 1) {
    if ((usable >> kBit) & 1) tables.push_back(&table_of<(int64_t{1} << kBit)>());
  }
}

template <int... kBits>
std::vector<const Kernels*> collect_all(int64_t usable, std::integer_sequence<int, kBits...>) {
  std::vector<const Kernels*> tables;
  (collect<kBits>(usable, tables), ...);  // Highway numbers better targets lower
  return tables;
}

}  // namespace

std::vector<const Kernels*> usable_kernels() {
  const int64_t usable = hwy::SupportedTargets() | HWY_SCALAR | HWY_EMU128;
  std::vector<const Kernels*> tables = collect_all(usable, std::make_integer_sequence<int, kTargetBits>());
#if HWY_TARGETS & HWY_AVX3
  if ((usable & HWY_AVX3) && vnni_pair_tiles()) tables.insert(tables.begin(), &vnni_table());
#endif
  return tables;
}

std::string target_name(const Kernels& kernels) {
  if (kernels.target == HWY_SCALAR || kernels.target == HWY_EMU128) return "scalar";
  return hwy::TargetName(kernels.target) + std::string(kernels.vnni ? "_VNNI" : "");
}

const Kernels* find_kernels(const std::string& target) {
  for (const Kernels* kernels : usable_kernels())
    if (target.empty() || target_name(*kernels) == target) return kernels;
  return nullptr;
}

}  // namespace skald::backend::cpu
#endif  // HWY_ONCE
