"""A WAV file's spectrogram as a PNG picture, without a plotting library.

usage: spectrogram.py IN.wav OUT.png       10 ms and 46.9 Hz a pixel before enlargement, 0 to 8 kHz, 70 dB from black to white
"""

from __future__ import annotations

import struct
import sys
import zlib
from pathlib import Path

import numpy as np

from speaker import read_wav

COLOURS = np.array([(0, 0, 4), (60, 15, 110), (150, 45, 110), (220, 80, 55), (250, 170, 40), (252, 255, 190)], float)


def picture(samples: np.ndarray, rate: int) -> np.ndarray:
    """-> [height, width, 3], low frequencies at the bottom."""
    size, hop, top = 1024, rate // 100, 8000
    x = np.pad(samples / 32768, size // 2)
    frames = np.lib.stride_tricks.sliding_window_view(x, size)[::hop]
    power = np.abs(np.fft.rfft(frames * np.hanning(size), axis=1)) ** 2
    level = 10 * np.log10(power[:, : int(top / rate * size)].T[::-1] + 1e-9)
    place = np.clip((level - level.max()) / 70 + 1, 0, 1) * (len(COLOURS) - 1)
    low = np.minimum(place.astype(int), len(COLOURS) - 2)
    share = (place - low)[..., None]
    image = (COLOURS[low] * (1 - share) + COLOURS[low + 1] * share).astype(np.uint8)
    return image.repeat(2, 1)


def write_png(path: Path, image: np.ndarray) -> None:
    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    height, width, _ = image.shape
    rows = np.concatenate([np.zeros((height, 1), np.uint8), image.reshape(height, -1)], 1)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows.tobytes(), 9)) + chunk(b"IEND", b""))


if __name__ == "__main__":
    write_png(Path(sys.argv[2]), picture(*read_wav(Path(sys.argv[1]))))
