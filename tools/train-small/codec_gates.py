"""Gates of the codec from encoded speech: perplexity of every level, level 1 given level 0, phonemes from level 0 alone.

usage: codec_gates.py --codes DATA/codes [--list train]
Conditional figures come from counts on two thirds of the frames and are measured on the last third.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

CODES = 256


def perplexity(codes: np.ndarray) -> float:
    share = np.bincount(codes, minlength=CODES) / len(codes)
    return float(np.exp(-np.sum(share[share > 0] * np.log(share[share > 0]))))


def conditional(given: np.ndarray, wanted: np.ndarray, count: int, strength: float = 20.0) -> float:
    """Cross entropy in nats of `wanted` given `given`: counts smoothed towards the frequency of `wanted`."""
    cut = len(given) * 2 // 3
    table = np.bincount(given[:cut].astype(np.int64) * count + wanted[:cut], minlength=CODES * count).reshape(CODES, count).astype(float)
    prior = (table.sum(0) + 0.5) / (table.sum() + 0.5 * count)
    p = (table + strength * prior) / (table.sum(1, keepdims=True) + strength)
    return float(-np.log(p[given[cut:], wanted[cut:]]).mean())


def accuracy(codes: np.ndarray, phones: np.ndarray) -> float:
    """Share of the frames whose phoneme is the commonest one of their code."""
    cut, count = len(codes) * 2 // 3, int(phones.max()) + 1
    table = np.bincount(codes[:cut].astype(np.int64) * count + phones[:cut], minlength=CODES * count).reshape(CODES, count)
    return float((table.argmax(1)[codes[cut:]] == phones[cut:]).mean())


def measure(codes: np.ndarray, phones: np.ndarray) -> dict:
    spoken = phones[:, 0] > 0
    return {
        "frames": len(codes),
        "perplexity": [round(perplexity(codes[:, level])) for level in range(codes.shape[1])],
        "level_given_level0": [round(conditional(codes[:, 0], codes[:, level], CODES), 2) for level in range(1, codes.shape[1])],
        "level_given_level_before": [round(conditional(codes[:, level - 1], codes[:, level], CODES), 2) for level in range(1, codes.shape[1])],
        "phoneme_accuracy_level0": [round(accuracy(codes[:, 0], phones[:, h]), 3) for h in (0, 1)],
        "phoneme_accuracy_level1": [round(accuracy(codes[:, 1], phones[:, h]), 3) for h in (0, 1)],
        "phoneme_accuracy_level0_spoken": round(accuracy(codes[spoken, 0], phones[spoken, 0]), 3),
        "commonest_phoneme": [round(float(np.bincount(phones[:, h]).max() / len(phones)), 3) for h in (0, 1)],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--codes", type=Path, required=True)
    parser.add_argument("--list", default="train")
    args = parser.parse_args()
    files = [np.load(f) for f in sorted(args.codes.glob(f"{args.list}.*.npz"))]
    found = measure(np.concatenate([z["codes"] for z in files]), np.concatenate([z["phones"] for z in files]))
    print(json.dumps(found))
    print("pass" if min(found["perplexity"]) > 100 and found["level_given_level0"][0] > 4 else "FAIL")


if __name__ == "__main__":
    main()
