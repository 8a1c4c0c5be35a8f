// The floating point environment of a thread while results that must not depend on it are computed.
#pragma once

#include <cfenv>

namespace skald {

/// Gives the calling thread the default environment (nearest rounding, denormal numbers, no traps) and takes
/// it back to its own at the end, flags included. A library built with -ffast-math makes the loader switch
/// denormal numbers off for the thread that loads it, and for all threads which that one starts.
///
/// Whatever computes for a caller stands behind one: opening an engine, each call that does the work of a
/// request, and each thread of our own.
class DefaultFloats {
 public:
  DefaultFloats() noexcept {
    std::fegetenv(&callers_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~DefaultFloats() { std::fesetenv(&callers_); }
  DefaultFloats(const DefaultFloats&) = delete;
  DefaultFloats& operator=(const DefaultFloats&) = delete;

 private:
  std::fenv_t callers_;
};

}  // namespace skald
