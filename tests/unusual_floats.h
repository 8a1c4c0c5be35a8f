// A floating point environment in which little computes what it should.
#pragma once

#include <cfenv>
#include <cstdint>

namespace skald::test {

/// Whether denormal numbers of the calling thread are numbers.
inline bool denormals_count() {
  volatile float small = 0x1p-126f;
  const volatile float smaller = small * 0.25f;  // 0 where results are flushed
  small = smaller * 4;                           // 0 where operands are
  return small != 0;
}

/// The calling thread rounds upwards and has no denormal numbers, as after loading a library that was built
/// with -ffast-math.
class UnusualFloats {
 public:
  UnusualFloats() {
    std::fegetenv(&before_);
    std::fesetround(FE_UPWARD);
#if defined(__x86_64__)
    __builtin_ia32_ldmxcsr(__builtin_ia32_stmxcsr() | 0x8040u);  // flush to zero, denormals are zero
#elif defined(__aarch64__)
    uint64_t control;
    asm volatile("mrs %0, fpcr" : "=r"(control));
    asm volatile("msr fpcr, %0" ::"r"(control | uint64_t{1} << 24));
#endif
  }
  ~UnusualFloats() { std::fesetenv(&before_); }
  UnusualFloats(const UnusualFloats&) = delete;
  UnusualFloats& operator=(const UnusualFloats&) = delete;

  /// Whether the calling thread still is as the constructor made it.
  static bool in_force() { return std::fegetround() == FE_UPWARD && !denormals_count(); }

 private:
  std::fenv_t before_;
};

/// Whether the calling thread has the default environment.
inline bool default_floats() { return std::fegetround() == FE_TONEAREST && denormals_count(); }

}  // namespace skald::test
