// Names of the stop reasons. They stand here because answers are written without an engine.
#include "skald/skald.h"

namespace skald {

std::string_view stop_reason_name(StopReason reason) noexcept {
  switch (reason) {
    case StopReason::none: return "none";
    case StopReason::eos: return "eos";
    case StopReason::length: return "length";
    case StopReason::runaway: return "runaway";
    case StopReason::cancelled: return "cancelled";
    case StopReason::error: return "error";
  }
  return "none";
}

}  // namespace skald
