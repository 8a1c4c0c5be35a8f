"""Writes tests/fixtures/voices: voice prompts as the official package and its demo save them, and one that must not be run.

    python voices.py [OUT]

The vector is arange(32) / 16 - 1, the codes are (7 * arange(48)) % 64 in 3 frames: exact in every type.
"""

from __future__ import annotations

import os
import sys
from dataclasses import asdict
from pathlib import Path

import torch

from oracle import VoiceClonePromptItem

FIXTURES = Path(__file__).resolve().parents[2] / "tests" / "fixtures"
VECTOR = torch.arange(32) / 16 - 1
CODES = (7 * torch.arange(48) % 64).reshape(3, 16)


class Evil:
    """Runs a command where a pickle is loaded carelessly."""

    def __reduce__(self):
        return os.system, ("touch skald-pickle-was-executed",)


def item(vector=VECTOR, codes=CODES, text="The words."):
    return VoiceClonePromptItem(ref_code=codes, ref_spk_embedding=vector, x_vector_only_mode=codes is None,
                                icl_mode=codes is not None, ref_text=text)


def write(out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    save = lambda value, name: torch.save(value, out / f"{name}.pt")  # noqa: E731
    save({"items": [asdict(item()), asdict(item(codes=None, text=None))]}, "demo")
    save([item()], "objects")
    save({"items": [asdict(item(VECTOR.bfloat16(), CODES.int()))]}, "bfloat16")
    wide = torch.stack([VECTOR.half(), VECTOR.half() + 1], dim=1)
    save({"ref_spk_embedding": wide[:, 0], "ref_code": CODES[None], "ref_text": "The words."}, "strided")
    save(VECTOR.double()[None], "vector")
    save({"items": [{**asdict(item()), "ref_text": Evil()}]}, "evil")


if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else FIXTURES / "voices")
