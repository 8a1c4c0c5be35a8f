"""Writes tests/fixtures/audio: a clip in every common format, and clips resampled as the official package does it.

    python audio.py [OUT]

`resample-RATE.npy`: `clips.samples(Clip(LENGTH, RATE))`, taken as sampled at RATE, through librosa (soxr_hq) to 24 kHz.
`clip.*`: 1.5 s of voice-like noise with a pause at its end. Its compressed forms depend on the encoders' versions, so they are
not compared by check.py.
"""

from __future__ import annotations

import sys
from pathlib import Path

import librosa
import numpy as np
import soundfile

import clips

FIXTURES = Path(__file__).resolve().parents[2] / "tests" / "fixtures"
RATES = (8000, 11025, 16000, 22050, 32000, 44100, 48000, 96000)
LENGTH = 4001
FORMATS = {"flac": ("FLAC", "PCM_16"), "ogg": ("OGG", "VORBIS"), "opus": ("OGG", "OPUS"), "mp3": ("MP3", "MPEG_LAYER_III")}


def write_resampled(out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    for rate in RATES:
        audio = clips.samples(clips.Clip(LENGTH, rate))
        np.save(out / f"resample-{rate}.npy", librosa.resample(y=audio, orig_sr=rate, target_sr=clips.RATE))


def write_formats(out: Path) -> None:
    audio = clips.samples(clips.Clip(36000, 2))
    audio[30000:] *= np.linspace(1, 0, 6000, dtype=np.float32) ** 4
    for suffix, (container, coding) in FORMATS.items():
        soundfile.write(out / f"clip.{suffix}", audio, clips.RATE, format=container, subtype=coding)


if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else FIXTURES / "audio"
    write_resampled(folder)
    write_formats(folder)
