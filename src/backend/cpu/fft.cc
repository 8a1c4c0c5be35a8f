// A Fourier transform in double precision: radix 2, in place.
#include "backend/cpu/fft.h"

#include <cmath>
#include <utility>

namespace skald::backend::cpu {

Fft::Fft(int size) : reversed_(static_cast<size_t>(size)), rotation_(static_cast<size_t>(size) / 2) {
  constexpr double kPi = 3.141592653589793;
  for (size_t i = 1; i < reversed_.size(); ++i)
    reversed_[i] = reversed_[i / 2] / 2 + (i % 2 != 0 ? static_cast<uint32_t>(size) / 2 : 0);
  for (size_t k = 0; k < rotation_.size(); ++k)
    rotation_[k] = std::polar(1.0, -2 * kPi * static_cast<double>(k) / size);
}

void Fft::transform(std::span<std::complex<double>> z) const {
  const size_t n = z.size();
  for (size_t i = 0; i < n; ++i)
    if (i < reversed_[i]) std::swap(z[i], z[reversed_[i]]);
  for (size_t half = 1; half < n; half *= 2) {
    const size_t step = rotation_.size() / half;
    for (size_t block = 0; block < n; block += 2 * half)
      for (size_t k = 0; k < half; ++k) {
        // Written out: the operator of std::complex checks for infinities.
        const std::complex<double> w = rotation_[k * step], b = z[block + half + k], a = z[block + k];
        const std::complex<double> turned(w.real() * b.real() - w.imag() * b.imag(),
                                          w.real() * b.imag() + w.imag() * b.real());
        z[block + k] = a + turned;
        z[block + half + k] = a - turned;
      }
  }
}

}  // namespace skald::backend::cpu
