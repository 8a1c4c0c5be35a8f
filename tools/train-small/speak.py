"""Teacher speech for a phoneme list: several processes on one GPU, finished shards appear one by one, resumable.

A shard DIR/<list>.<k>.npz holds whole utterances one behind the other:
  names, voice (index into VOICES), samples, audio (int16, 24 kHz, silence trimmed, all joined),
  tokens, token_ids, durations (units of 600 samples; both joined), lead (samples cut at the front; negative: added).
Line i of the list is always spoken by voice i % 2, and shard k always holds the same lines, so a run that stops loses
at most the shards in work.

usage: speak.py --model kokoro-f32.onnx --vocab vocab.json --voices DIR --phonemes train.tsv --out DIR
                [--shards 0:400] [--procs 12] [--gpu 0] [--seconds 300] [--smoke]
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import time
from pathlib import Path

import numpy as np

VOICES = ("af_heart", "am_michael")  # female, male
DURATIONS = "/encoder/Clip_output_0"  # [1, tokens], units of 600 samples
RATE, UNIT, SHARD = 24000, 600, 256


def silence(audio: np.ndarray, keep: float = 0.08, floor_db: float = -45.0) -> tuple[int, int]:
    """Start and end of the utterance in samples; may lie outside the audio by up to `keep` seconds."""
    hop = 120
    energy = np.sqrt((audio[: len(audio) // hop * hop].reshape(-1, hop) ** 2).mean(1) + 1e-12)
    loud = np.nonzero(energy > np.percentile(energy, 95) * 10 ** (floor_db / 20))[0]
    margin = int(keep * RATE)
    return loud[0] * hop - margin, (loud[-1] + 1) * hop + margin


def trim(audio: np.ndarray) -> tuple[np.ndarray, int]:
    """-> the utterance with 80 ms of silence at both ends and soft edges, and the samples cut at the front."""
    start, end = silence(audio)
    padded = np.pad(audio, (max(0, -start), max(0, end - len(audio))))
    cut = padded[max(0, start) :][: end - start].copy()
    edge = RATE // 100
    cut[:edge] *= np.linspace(0, 1, edge)
    cut[-edge:] *= np.linspace(1, 0, edge)
    return cut * min(1.0, 0.98 / np.abs(cut).max()), start


def speak_shard(teacher, styles, lines: list[tuple[int, str, list[int]]], path: Path) -> float:
    """Speaks the lines and writes the shard; returns the seconds of speech."""
    import torch

    rows, audio, ids, durations = [], [], [], []
    for index, name, tokens in lines:
        voice = index % len(VOICES)
        style = torch.from_numpy(styles[voice][len(tokens)][None].copy())
        wave, extra = teacher(torch.tensor([[0, *tokens, 0]]), style, torch.ones(1), want={DURATIONS})
        wave = wave.float().cpu().numpy()
        if not np.isfinite(wave).all() or np.abs(wave).max() < 1e-3:
            continue
        cut, lead = trim(wave)
        if not 0.3 < len(cut) / RATE < 12:
            continue
        rows.append((name, voice, len(cut), len(tokens) + 2, lead))
        audio.append((cut * 32767).astype(np.int16))
        ids += [0, *tokens, 0]
        durations += [int(d) for d in extra[DURATIONS].reshape(-1).tolist()]
    names, voice, samples, tokens, lead = zip(*rows)
    part = path.with_suffix(".part")
    with part.open("wb") as f:
        np.savez(
            f, names=np.array(names), voice=np.array(voice, np.uint8), samples=np.array(samples, np.int32),
            tokens=np.array(tokens, np.int16), lead=np.array(lead, np.int32), audio=np.concatenate(audio),
            token_ids=np.array(ids, np.uint8), durations=np.array(durations, np.uint8),
        )
    os.replace(part, path)
    return sum(samples) / RATE


def worker(k: int, args: argparse.Namespace, todo: list[int], lines: list[tuple[int, str, list[int]]], said) -> None:
    import torch

    torch.set_num_threads(1)
    torch.backends.cuda.matmul.allow_tf32 = True
    from teacher import Teacher

    teacher = Teacher(str(args.model), "cpu" if args.smoke else f"cuda:{args.gpu}")
    styles = [np.fromfile(args.voices / f"{v}.bin", "<f4").reshape(510, 256) for v in VOICES]
    for shard in todo[k :: args.procs]:
        if time.time() > args.until:
            break
        path = args.out / f"{args.phonemes.stem}.{shard:05d}.npz"
        seconds = speak_shard(teacher, styles, lines[shard * SHARD : (shard + 1) * SHARD][: 4 if args.smoke else None], path)
        with said.get_lock():
            said.value += seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("model", "vocab", "voices", "phonemes", "out"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--shards", default="0:1000000", help="first:end")
    parser.add_argument("--procs", type=int, default=12)
    parser.add_argument("--gpu", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--smoke", action="store_true", help="four lines a shard, on the CPU")
    args = parser.parse_args()
    start = time.time()
    args.until = start + args.seconds
    args.out.mkdir(parents=True, exist_ok=True)

    vocab = json.loads(args.vocab.read_text())["vocab"]
    rows = (line.rstrip("\n").split("\t") for line in args.phonemes.open())
    lines = [(i, name, [vocab[c] for c in phonemes]) for i, (name, phonemes) in enumerate(rows)]
    first, end = (int(x) for x in args.shards.split(":"))
    shards = range(first, min(end, -(-len(lines) // SHARD)))
    todo = [s for s in shards if not (args.out / f"{args.phonemes.stem}.{s:05d}.npz").exists()]

    context = multiprocessing.get_context("spawn")
    said = context.Value("d", 0.0)
    workers = [context.Process(target=worker, args=(k, args, todo, lines, said)) for k in range(args.procs)]
    for process in workers:
        process.start()
    while any(process.is_alive() for process in workers):
        time.sleep(1 if args.smoke else 10)
        spent = time.time() - start
        print(f"{args.phonemes.stem}: {said.value / 3600:.2f} h of speech after {spent:.0f} s, {said.value / spent:.0f} times real time", flush=True)
    if any(process.exitcode for process in workers):
        raise SystemExit("a worker failed; run again for the shards that are missing")


if __name__ == "__main__":
    main()
