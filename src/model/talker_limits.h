// Sizes of the talker's shape classes.
#pragma once

#include <cstdint>

namespace skald::model {

inline constexpr int32_t kPromptRows =
    32;  ///< rows of one prefill program; enough to reuse every weight panel
inline constexpr int32_t kPrefixRows = 512;  ///< longest prompt prefix kept; a 20 s clone needs about 400
inline constexpr int32_t kMaxLanes = 8;      ///< widest frame program
inline constexpr int32_t kRingFrames = 64;   ///< published frames that stay readable

}  // namespace skald::model
