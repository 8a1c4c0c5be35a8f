// Exit statuses: the one table. docs/errors.md shows it and a test keeps the two in step.
#pragma once

#include "skald/error.h"

namespace skald::cli {

inline constexpr int kOk = 0;
inline constexpr int kFailure = 1;
inline constexpr int kUsage = 2;
inline constexpr int kModel = 3;
inline constexpr int kDevice = 4;
inline constexpr int kRunaway = 5;
inline constexpr int kInterrupted = 130;  ///< SIGINT; other signals give 128 + their number
inline constexpr int kClosedPipe = 141;   ///< the reader of the output has gone: 128 + SIGPIPE

int exit_status(ErrorCode code) noexcept;

}  // namespace skald::cli
