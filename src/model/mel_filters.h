// The mel filter bank of the speaker encoder's front end. Specification 7.2.
#pragma once

#include <cstdint>
#include <vector>

namespace skald::model {

/// `bands` triangles from 0 to half the sample rate, Slaney's scale and area normalisation, over the fft / 2
/// + 1 bins of a spectrum: [bands * bins].
std::vector<float> mel_filters(int32_t bands, int32_t fft, int32_t sample_rate);

}  // namespace skald::model
