// A Fourier transform in double precision, for the one log-mel of a reference clip.
#pragma once

#include <complex>
#include <cstdint>
#include <span>
#include <vector>

namespace skald::backend::cpu {

/// Spectra of real frames of one size, a power of two of at least 2. Immutable: any thread.
class Fft {
 public:
  explicit Fft(int size);
  int size() const { return static_cast<int>(reversed_.size()); }

  /// In place: z[k] = sum over n of z[n] exp(-2 pi i k n / size).
  void transform(std::span<std::complex<double>> z) const;
  /// Given the transform of a + i b of two real frames: bin k of a and of b, for k up to size / 2.
  std::complex<double> first(std::span<const std::complex<double>> z, int k) const {
    return 0.5 * (z[at(k)] + std::conj(z[at(-k)]));
  }
  std::complex<double> second(std::span<const std::complex<double>> z, int k) const {
    return std::complex<double>(0, -0.5) * (z[at(k)] - std::conj(z[at(-k)]));
  }

 private:
  size_t at(int k) const { return static_cast<size_t>(k) & (reversed_.size() - 1); }

  std::vector<uint32_t> reversed_;              ///< bit-reversed index
  std::vector<std::complex<double>> rotation_;  ///< exp(-2 pi i k / size), k below size / 2
};

}  // namespace skald::backend::cpu
