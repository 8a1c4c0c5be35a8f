"""Files below a size limit for the way back: checkpoints with fewer bytes, anything large in pieces.

usage: pack_state.py codec|lm|pieces SOURCE OUT_DIR [--limit 15000000]
codec, lm: weights only (encoder and code books float32, decoders and language model float16); pieces: the file as it is,
to be joined again with `cat NAME.0 NAME.1 ... > NAME`.
"""

from __future__ import annotations

import argparse
import io
from pathlib import Path

import torch


def half(state: dict) -> dict:
    return {k: v.half() if v.is_floating_point() else v for k, v in state.items()}


def weights(kind: str, path: Path) -> bytes:
    k = torch.load(path, map_location="cpu", weights_only=True)
    keep = {n: k[n] for n in ("sizes", "step", "elapsed")}
    if kind == "codec":
        keep |= {n: k[n] for n in ("classes", "encoder", "quantiser", "phonemes", "smoothing")}
        keep |= {n: half(k[n]) for n in ("decoder", "smooth", "judge")}
    else:
        keep |= dict(best=k["best"], talker=half(k["talker"]))
    out = io.BytesIO()
    torch.save(keep, out)
    return out.getvalue()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kind", choices=("codec", "lm", "pieces"))
    parser.add_argument("source", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--limit", type=int, default=15_000_000)
    args = parser.parse_args()
    data = args.source.read_bytes() if args.kind == "pieces" else weights(args.kind, args.source)
    args.out.mkdir(parents=True, exist_ok=True)
    name = args.out / args.source.name
    for k, start in enumerate(range(0, len(data), args.limit)):
        name.with_name(f"{name.name}.{k}").write_bytes(data[start : start + args.limit])


if __name__ == "__main__":
    main()
