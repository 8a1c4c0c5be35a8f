"""Teacher speech to codes, with what the language model's training and the gates need beside them.

One output per group of shards, OUT/<list>.<first shard>.npz: names, voice, frames [utterances]; codes [all frames, 16];
words (index of the word spoken in the middle of the frame, 255: none), phones [all frames, 2] (class in the middle of
either half, see corpus.classes); word_count [utterances].

usage: codec_encode.py --codec codec.pt --speech DIR --vocab vocab.json --out DIR [--group 64] [--part 0/1] [--device cuda]
With --follow it goes on while the teacher speaks: a group is encoded once it is complete; what is left is encoded when a file
`done` appears beside the speech.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from pathlib import Path

import numpy as np
import torch

from codec import FRAME, Encoder, Quantiser
from corpus import Shard, classes, labels
from speak import UNIT

NONE = 255


def word_places(tokens: np.ndarray, durations: np.ndarray, lead: int, frames: int, space: int, sounds: np.ndarray) -> tuple[np.ndarray, int]:
    """Word index of every frame (by its middle), and the number of words."""
    index, word, gap, seen = np.full(len(tokens), NONE), 0, False, False
    for i, token in enumerate(tokens):
        if sounds[token]:
            word += gap
            index[i], gap, seen = word, False, True
        elif token == space:
            gap = seen
    middle = (np.arange(frames) * FRAME + FRAME // 2 + lead) // UNIT
    where = np.searchsorted(np.cumsum(durations.astype(np.int64)), middle, side="right")
    inside = (middle >= 0) & (where < len(tokens))
    return np.where(inside, index[np.minimum(where, len(tokens) - 1)], NONE).astype(np.uint8), word + 1


def load(path: Path, device: str) -> tuple[Encoder, Quantiser]:
    k = torch.load(path, map_location=device, weights_only=True)
    encoder, quantiser = Encoder(k["sizes"]).to(device).eval(), Quantiser(k["sizes"]).to(device).eval()
    encoder.load_state_dict(k["encoder"])
    quantiser.load_state_dict(k["quantiser"])
    return encoder, quantiser


@torch.inference_mode()
def encode(encoder: Encoder, quantiser: Quantiser, audio: list[np.ndarray], device: str, budget: int = 4_000_000) -> list[np.ndarray]:
    """int16 utterances -> codes [ceil(samples / 1920), 16]; batches of similar length, zero padded on the right.

    The last frame may differ from the official encoder's, which pads the activations and not the waveform (spec 9.2).
    """
    order, out, i = np.argsort([len(a) for a in audio])[::-1], [np.zeros(0)] * len(audio), 0
    while i < len(order):
        frames = -(-len(audio[order[i]]) // FRAME)
        rows = order[i : i + max(1, budget // (frames * FRAME))]
        x = np.zeros((len(rows), frames * FRAME), np.int16)
        for r, j in enumerate(rows):
            x[r, : len(audio[j])] = audio[j]
        codes = quantiser(*encoder(torch.from_numpy(x).to(device).float() / 32768))[0].to(torch.uint8).cpu().numpy()
        for r, j in enumerate(rows):
            out[j] = codes[r, : -(-len(audio[j]) // FRAME)]
        i += len(rows)
    return out


def convert(shards: list[Path], encoder: Encoder, quantiser: Quantiser, vocab: dict[str, int], device: str) -> dict[str, np.ndarray]:
    table, _ = classes(vocab)
    found: dict[str, list] = {k: [] for k in ("names", "voice", "frames", "codes", "words", "phones", "word_count")}
    for path in shards:
        shard = Shard(path)
        codes = encode(encoder, quantiser, shard.audio, device)
        for i, c in enumerate(codes):
            lead, frames = int(shard.lead[i]), len(c)
            words, count = word_places(shard.tokens[i], shard.durations[i], lead, frames, vocab[" "], table != 0)
            marks = labels(shard.tokens[i], shard.durations[i], lead, frames * FRAME, table).reshape(frames, 8)
            for key, value in (("codes", c), ("words", words), ("phones", marks[:, [2, 6]])):
                found[key].append(value)
            found["frames"].append(frames)
            found["word_count"].append(count)
        found["names"] += shard.names.tolist()
        found["voice"] += shard.voice.tolist()
    joined = {k: np.concatenate(found[k]) for k in ("codes", "words", "phones")}
    joined |= {k: np.array(found[k], np.uint8) for k in ("voice", "word_count")}
    return joined | dict(names=np.array(found["names"]), frames=np.array(found["frames"], np.int16))


def groups_of(speech: Path, size: int) -> dict[str, list[Path]]:
    """Name of the output -> the shards that belong to it and exist."""
    groups: dict[str, list[Path]] = {}
    for path in sorted(speech.glob("*.npz")):
        stem, shard = path.name.split(".")[:2]
        groups.setdefault(f"{stem}.{int(shard) // size * size:05d}", []).append(path)
    return groups


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("codec", "speech", "vocab", "out"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--group", type=int, default=64, help="shards to a file")
    parser.add_argument("--follow", action="store_true")
    parser.add_argument("--part", default="0/1", help="k/n: every n-th group, from the k-th")
    parser.add_argument("--device", default="cuda")
    args = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False  # codes as a CPU would make them
    args.out.mkdir(parents=True, exist_ok=True)
    vocab = json.loads(args.vocab.read_text())["vocab"]
    encoder, quantiser = load(args.codec, args.device)
    k, n = (int(x) for x in args.part.split("/"))
    start, frames, last = time.time(), 0, False
    while True:
        last = not args.follow or (args.speech / "done").exists()  # before the listing: nothing is missed
        for name, shards in list(groups_of(args.speech, args.group).items())[k::n]:
            if (args.out / f"{name}.npz").exists() or (len(shards) < args.group and not last):
                continue
            made = convert(shards, encoder, quantiser, vocab, args.device)
            part = args.out / f"{name}.part"
            with part.open("wb") as f:
                np.savez_compressed(f, **made)
            os.replace(part, args.out / f"{name}.npz")
            frames += len(made["codes"])
            print(f"{name}: {frames / 45000:.2f} h after {time.time() - start:.0f} s", flush=True)
        if last:
            return
        time.sleep(3)


if __name__ == "__main__":
    main()
