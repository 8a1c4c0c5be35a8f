"""The codec's audio for teacher speech or for codes, as a shard that recognise.py reads.

usage: codec_decode.py --codec codec.pt --speech DATA/speech/test.00000.npz --out recon.npz [--levels 16] [--raw]
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch

import codec_encode
from codec import FRAME, Decoder, Quantiser


def load_decoder(path: Path, device: str, raw: bool = False) -> Decoder:
    """The averaged weights, unless `raw` or there are none yet."""
    k = torch.load(path, map_location=device, weights_only=True)
    decoder = Decoder(k["sizes"]).to(device).eval()
    weights = k["smooth"] if k.get("smoothing") and not raw else k["decoder"]
    decoder.load_state_dict({n: w.float() for n, w in weights.items()})
    return decoder


@torch.inference_mode()
def decode(decoder: Decoder, quantiser: Quantiser, codes: list[np.ndarray], device: str, levels: int = 16, batch: int = 16) -> list[np.ndarray]:
    """Codes [frames, 16] of each utterance -> int16 audio. Right padding changes nothing: the decoder is causal."""
    out: list[np.ndarray] = [np.zeros(0, np.int16)] * len(codes)
    order = np.argsort([len(c) for c in codes])
    for start in range(0, len(order), batch):
        rows = order[start : start + batch]
        x = np.zeros((len(rows), max(1, max(len(codes[j]) for j in rows)), 16), np.int64)
        for r, j in enumerate(rows):
            x[r, : len(codes[j])] = codes[j]
        wave = decoder(*quantiser.lookup(torch.from_numpy(x).to(device), levels)).clamp(-1, 1)
        for r, j in enumerate(rows):
            out[j] = (wave[r, : len(codes[j]) * FRAME].cpu().numpy() * 32767).astype(np.int16)
    return out


def write(path: Path, names: list[str], voice: list[int], audio: list[np.ndarray]) -> None:
    np.savez_compressed(
        path, names=np.array(names), voice=np.array(voice, np.uint8), samples=np.array([len(a) for a in audio], np.int32),
        audio=np.concatenate(audio),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("codec", "speech", "out"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--levels", type=int, default=16)
    parser.add_argument("--raw", action="store_true", help="last weights, not their running average")
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args()
    z = np.load(args.speech)
    audio = np.split(z["audio"], np.cumsum(z["samples"].astype(np.int64))[:-1])
    encoder, quantiser = codec_encode.load(args.codec, args.device)
    codes = codec_encode.encode(encoder, quantiser, audio, args.device, budget=400_000)
    made = decode(load_decoder(args.codec, args.device, args.raw), quantiser, codes, args.device, args.levels)
    write(args.out, z["names"].tolist(), z["voice"].tolist(), [m[: len(a)] for m, a in zip(made, audio)])


if __name__ == "__main__":
    main()
