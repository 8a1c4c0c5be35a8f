"""A reference clip at full size: what the official package makes of ten seconds, and how a stored voice compares.

    python full_size_clip.py SNAPSHOT OUT [--seconds 10] [--seed 1]
    python full_size_clip.py --compare VOICE.safetensors OUT

SNAPSHOT is a Base model. OUT receives `clip.wav`, `xvector.npy`, `codes.npy` and `gaps.npy`: how much nearer the chosen
codeword was than the next one. The weights of a full-size snapshot are random, so two codewords may be equally near; a frame
counts as equal up to its first group whose gap is below what float32 decides.
"""

from __future__ import annotations

import argparse
import json
import struct
import wave
from pathlib import Path

import numpy as np

import clips
from encode import Hooks
from oracle import load

UNDECIDED = 1e-4
LEAST_COSINE = 0.99999


class Gaps(Hooks):
    """Keeps the gap of every code, not only the least of each codebook."""

    def _watch(self, codebook) -> None:
        import torch

        original = codebook.quantize

        def quantize(vectors):
            nearest = torch.cdist(vectors.double(), codebook.embed.double()).topk(2, largest=False).values
            self.gaps.append((nearest[:, 1] - nearest[:, 0]).numpy())
            return original(vectors)

        codebook.quantize = quantize
        self._undo.append(lambda: delattr(codebook, "quantize"))


def make(snapshot: Path, out: Path, seconds: float, seed: int) -> None:
    clip = clips.Clip(samples=int(seconds * clips.RATE), seed=seed)
    out.mkdir(parents=True, exist_ok=True)
    with wave.open(str(out / "clip.wav"), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(clips.RATE)
        file.writeframes(clips.integers(clip).astype("<i2").tobytes())
    wrapper = load(snapshot)
    audio = clips.samples(clip)
    with Gaps(wrapper) as seen:
        vector = wrapper.model.extract_speaker_embedding(audio, clips.RATE).float().numpy()
        codes = wrapper.model.speech_tokenizer.encode([audio], sr=clips.RATE).audio_codes[0].numpy()
    np.save(out / "xvector.npy", vector)
    np.save(out / "codes.npy", codes.astype(np.int16))
    np.save(out / "gaps.npy", np.stack(seen.gaps, axis=1))
    print(f"{out}: {len(codes)} frames, x-vector of {vector.size}, least gap {np.min(seen.gaps):.1e}")


def read_voice(path: Path) -> dict[str, np.ndarray]:
    data = path.read_bytes()
    size = struct.unpack_from("<Q", data)[0]
    header = json.loads(data[8 : 8 + size])
    types = {"F32": "<f4", "I32": "<i4"}
    return {name: np.frombuffer(data[8 + size + e["data_offsets"][0] : 8 + size + e["data_offsets"][1]],
                                types[e["dtype"]]).reshape(e["shape"])
            for name, e in header.items() if name != "__metadata__"}


def compare(path: Path, out: Path) -> bool:
    voice, vector = read_voice(path), np.load(out / "xvector.npy").astype(np.float64)
    mine = voice["xvector"].astype(np.float64)
    cosine = float(mine @ vector / np.sqrt(mine @ mine * (vector @ vector)))
    codes, gaps = np.load(out / "codes.npy"), np.load(out / "gaps.npy")
    same_shape = voice["codes"].shape == codes.shape
    decided = gaps >= UNDECIDED
    decided[:, 1:] = np.logical_and.accumulate(decided[:, 1:], axis=1)  # the acoustic groups, each on the one before
    wrong = int(np.sum((voice["codes"] != codes) & decided)) if same_shape else codes.size
    different = int(np.sum(voice["codes"] != codes)) if same_shape else codes.size
    print(f"x-vector: cosine {cosine:.9f}; codes: {different} of {codes.size} differ, {wrong} of them decided, "
          f"{int(np.sum(~decided))} undecided")
    return cosine >= LEAST_COSINE and wrong == 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("snapshot", type=Path, nargs="?")
    parser.add_argument("out", type=Path)
    parser.add_argument("--compare", type=Path)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    if args.compare:
        raise SystemExit(0 if compare(args.compare, args.out) else 1)
    if args.snapshot is None:
        parser.error("a snapshot is needed")
    make(args.snapshot, args.out, args.seconds, args.seed)


if __name__ == "__main__":
    main()
