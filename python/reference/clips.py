"""Reference clips made from integers alone, so that every language makes the same samples: nothing is stored.

A clip is a voice-like noise: syllables of a gliding pitch with eight harmonics whose strengths wander, a little noise
under them, pauses between them. tests/clip.h is the same in C++; `crc` of a case pins both.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import numpy as np

RATE = 24000
HARMONICS = 8
MASK = np.uint64(0xFFFFFFFF)


@dataclass(frozen=True)
class Clip:
    """`samples` at 24 kHz; clips of different seeds share nothing."""

    samples: int
    seed: int


def hashed(values: np.ndarray) -> np.ndarray:
    """32 bits of noise per index: a finaliser of Murmur hash."""
    x = values.astype(np.uint64) & MASK
    x = ((x ^ (x >> np.uint64(16))) * np.uint64(0x85EBCA6B)) & MASK
    x = ((x ^ (x >> np.uint64(13))) * np.uint64(0xC2B2AE35)) & MASK
    return x ^ (x >> np.uint64(16))


def triangle(phase: np.ndarray, bits: int) -> np.ndarray:
    """0 .. 2^(bits-1) - 1 and back over a period of 2^32."""
    top = (phase & MASK) >> np.uint64(32 - bits)
    half = np.uint64(1 << (bits - 1))
    return np.where(top < half, top, np.uint64((1 << bits) - 1) - top).astype(np.int64)


def parabola(phase: np.ndarray) -> np.ndarray:
    """A sine of parabolas, -16384 .. 16384 over a period of 2^32."""
    x = ((phase & MASK) >> np.uint64(17)).astype(np.int64) - 16384  # -16384 .. 16383
    return (x * (16384 - np.abs(x))) >> 12


def integers(clip: Clip) -> np.ndarray:
    """The clip as 16-bit samples."""
    n = np.arange(clip.samples, dtype=np.uint64)
    key = np.uint64(clip.seed * 0x9E3779B9 & 0xFFFFFFFF)
    traits = [int(x) for x in hashed(np.arange(4, dtype=np.uint64) + key)]  # what tells one speaker from another
    # Pitch: a base of 80 to 330 Hz, up to half an octave of glide over 1.3 s; the phase is the sum of its steps.
    base = 14316558 + traits[0] % (1 << 14) * 2730
    glide = triangle(n * np.uint64(138547) + key, 16).astype(np.uint64)  # 0 .. 32767
    step = np.uint64(base) + (glide * np.uint64(base >> 1) >> np.uint64(15))
    phase = np.concatenate([[np.uint64(0)], np.cumsum(step, dtype=np.uint64)[:-1]]) & MASK
    total = np.zeros(clip.samples, np.int64)
    for h in range(1, HARMONICS + 1):
        # Each strength wanders at a rate of its own; bit h of a trait makes a harmonic strong.
        wander = triangle(n * np.uint64(29000 * (h + 2)) + key * np.uint64(h), 12)  # 0 .. 2047
        total += parabola(phase * np.uint64(h)) * (wander + 292) * (3 if traits[1] >> h & 1 else 1) // h
    # Syllables of 0.27 s with a pause, every one of its own loudness.
    swell = np.maximum(triangle(n * np.uint64(662804), 12) - 300, 0)  # 0 .. 1747
    syllable = (n * np.uint64(662804)) >> np.uint64(32)
    loud = 96 + (hashed(syllable + key) & np.uint64(127)).astype(np.int64)
    voiced = (total >> 12) * swell * loud >> 18
    breath = 64 + traits[2] % 512
    noise = ((hashed(n + key * np.uint64(3)) & np.uint64(255)).astype(np.int64) - 128) * breath >> 7
    return np.clip(voiced + noise, -32768, 32767).astype(np.int16)


def samples(clip: Clip) -> np.ndarray:
    """The clip as the official package takes it: float32 in [-1, 1)."""
    return integers(clip).astype(np.float32) / np.float32(32768)


def crc(clip: Clip) -> int:
    return zlib.crc32(integers(clip).astype("<i2").tobytes())
