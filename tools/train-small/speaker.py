"""Speaker embedding of Resemblyzer 0.1.4 (Apache-2.0) with numpy alone; the weights are read from its wheel.

Three LSTM layers over 40 mel bands of 16 kHz audio in windows of 1.6 s; the mean over the windows has length 1. Silence is
left out by energy, where the package asks webrtcvad.

usage: speaker.py WHEEL FILE.wav...        prints the cosine between the first file and every other one
"""

from __future__ import annotations

import collections
import io
import pickle
import sys
import wave
import zipfile
from pathlib import Path

import numpy as np
from scipy.signal import resample_poly

RATE, WINDOW, HOP, BANDS = 16000, 400, 160, 40
PART, STEP = 160, 77  # frames of a window, and between two of them


def read_weights(wheel: Path) -> dict[str, np.ndarray]:
    """Tensors of pretrained.pt, a file of PyTorch's format before zip archives."""
    file = io.BytesIO(zipfile.ZipFile(wheel).read("resemblyzer/pretrained.pt"))

    class Reader(pickle.Unpickler):
        def find_class(self, module: str, name: str):
            if name.startswith("_rebuild_tensor"):
                return lambda storage, offset, size, stride, *rest: (storage, offset, size)
            if name == "OrderedDict":
                return collections.OrderedDict
            return lambda *a, **k: None

        def persistent_load(self, key: tuple) -> str:
            return key[2]

    *_, content, keys = [Reader(file).load() for _ in range(5)]  # magic, version, system, content, storages
    storages = {}
    for key in keys:
        count = int(np.frombuffer(file.read(8), "<i8")[0])
        storages[key] = np.frombuffer(file.read(4 * count), "<f4")
    tensors = {n: t for n, t in content["model_state"].items() if isinstance(t, tuple)}
    return {n: storages[s][at : at + int(np.prod(size))].reshape(size) for n, (s, at, size) in tensors.items()}


def slaney_bank() -> np.ndarray:
    """Mel filters [40, 201] as librosa makes them by default."""

    def hertz(mel: np.ndarray) -> np.ndarray:
        return np.where(mel < 15, mel * 200 / 3, 1000 * np.exp((mel - 15) * np.log(6.4) / 27))

    top = 15 + np.log(RATE / 2 / 1000) / (np.log(6.4) / 27)
    edges, bins = hertz(np.linspace(0, top, BANDS + 2)), np.linspace(0, RATE / 2, WINDOW // 2 + 1)
    slopes, width = edges[:, None] - bins, np.diff(edges)
    filters = np.maximum(0, np.minimum(-slopes[:-2] / width[:-1, None], slopes[2:] / width[1:, None]))
    return filters * (2 / (edges[2:] - edges[:-2]))[:, None]


class SpeakerEncoder:
    def __init__(self, wheel: Path) -> None:
        self.weights, self.bank = read_weights(wheel), slaney_bank()
        self.hann = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(WINDOW) / WINDOW)

    def mel(self, audio: np.ndarray) -> np.ndarray:
        frames = np.lib.stride_tricks.sliding_window_view(np.pad(audio, WINDOW // 2), WINDOW)[::HOP][: 1 + len(audio) // HOP]
        return (np.abs(np.fft.rfft(frames * self.hann, axis=1)) ** 2 @ self.bank.T).astype(np.float32)

    def lstm(self, x: np.ndarray) -> np.ndarray:
        """[windows, time, 40] -> unit vectors [windows, 256]."""
        w = self.weights

        def gate(v: np.ndarray) -> np.ndarray:
            return 1 / (1 + np.exp(-v))

        for layer in range(3):
            inputs = x @ w[f"lstm.weight_ih_l{layer}"].T + w[f"lstm.bias_ih_l{layer}"] + w[f"lstm.bias_hh_l{layer}"]
            h = c = np.zeros((len(x), 256), np.float32)
            out = []
            for t in range(x.shape[1]):
                i, f, g, o = np.split(inputs[:, t] + h @ w[f"lstm.weight_hh_l{layer}"].T, 4, 1)
                c = gate(f) * c + gate(i) * np.tanh(g)
                h = gate(o) * np.tanh(c)
                out.append(h)
            x = np.stack(out, 1)
        e = np.maximum(0, h @ w["linear.weight"].T + w["linear.bias"])
        return e / np.linalg.norm(e, axis=1, keepdims=True)

    def __call__(self, audio: np.ndarray, rate: int) -> np.ndarray:
        """Float audio -> unit vector [256]."""
        common = np.gcd(RATE, rate)
        audio = resample_poly(audio, RATE // common, rate // common).astype(np.float32)
        block = 480
        loud = np.sqrt(np.mean(audio[: len(audio) // block * block].reshape(-1, block) ** 2, 1)) > 0.003
        near = np.convolve(loud, np.ones(9), "same") > 0
        if near.any():
            audio = audio[: len(near) * block][np.repeat(near, block)]
        missing = -30 - 10 * np.log10(np.mean(audio**2) + 1e-12)
        mel = self.mel(audio * 10 ** (max(0.0, missing) / 20))
        mel = np.pad(mel, ((0, max(0, PART - len(mel))), (0, 0)))
        e = self.lstm(np.stack([mel[s : s + PART] for s in range(0, len(mel) - PART + 1, STEP)])).mean(0)
        return e / np.linalg.norm(e)


def read_wav(path: Path) -> tuple[np.ndarray, int]:
    """16-bit mono file -> samples as integers, rate."""
    with wave.open(str(path)) as f:
        return np.frombuffer(f.readframes(f.getnframes()), "<i2"), f.getframerate()


def main() -> None:
    encoder = SpeakerEncoder(Path(sys.argv[1]))
    found = []
    for name in sys.argv[2:]:
        samples, rate = read_wav(Path(name))
        found.append(encoder(samples / 32768, rate))
        print(f"{found[0] @ found[-1]:.3f}  {name}")


if __name__ == "__main__":
    main()
