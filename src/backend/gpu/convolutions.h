// Launches of convolutions, shared by the codec's and the encoders'.
#pragma once

#include "backend/gpu/binder.h"

namespace skald::backend::gpu {

/// Floats of rows staged in units: [units][rows][kUnitInputs].
inline int64_t staged_floats(int64_t rows, int channels) {
  return rows * ((channels + kUnitInputs - 1) / kUnitInputs * kUnitInputs);
}

/// Blocks behind the tiles renew `state` from the staged rows, `channels` wide. `args.around` is set.
void carry_state(const Binder& b, const Buffer& state, int channels, ConvArgs& args);

/// Tiles over `staged` rows of all lanes, `channels` wide. Fills in units, parts and tiles; `args` holds
/// everything else.
Launch conv_launch(const Binder& b, ConvArgs args, int64_t staged, int channels);

}  // namespace skald::backend::gpu
