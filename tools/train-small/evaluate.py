"""Measures the small voice from outside: every test sentence through the skald binary, judged by Whisper base.

Word error rate (beam 5) beside the teacher's on the same sentences, share of utterances that end by the stop token, frames per
code point, speaker similarity within and between the voices, level, clipping and silence. Sentence i is spoken by voice i % 2
with seed SEED + i and the sampling that the snapshot states; `--say` gives further options to skald.

usage: evaluate.py --skald BIN --model DIR --work DIR [--whisper DIR] [--resemblyzer WHEEL] [--teacher teacher.json]
                   [--stride 1] [--beam 5] [--say "--temperature 0.7"] [--out summary.json]
Resumable: WAV files and transcripts that are in WORK are kept.
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
from pathlib import Path

import numpy as np

from recognise import Recogniser, normal
from speaker import SpeakerEncoder, read_wav

VOICES = ("af_heart", "am_michael")
SEED = 1000
BLOCK = 480  # samples, 20 ms


def speak(args: argparse.Namespace, text: str, voice: str, seed: int, path: Path) -> dict:
    """Runs skald unless the file is there; -> its report."""
    report = path.with_suffix(".json")
    if not report.exists():
        command = [args.skald, "say", "-m", args.model, "--voice", voice, "--seed", str(seed), "--json", "--keep-runaway", "-q", "-o", path, *shlex.split(args.say), text]
        run = subprocess.run([str(c) for c in command], capture_output=True, text=True)
        if run.returncode not in (0, 5):  # 5: a runaway, which is a result
            raise SystemExit(f"skald ended with {run.returncode}: {run.stderr.strip()}")
        report.write_text(run.stdout)
    return json.loads(report.read_text())


def sound(samples: np.ndarray, rate: int) -> dict:
    """Level of the whole utterance, peak, clipped samples, share of silence (20 ms below -50 dB), longest pause."""
    x = samples / 32768
    blocks = np.sqrt((x[: len(x) // BLOCK * BLOCK].reshape(-1, BLOCK) ** 2).mean(1) + 1e-12)
    quiet = blocks < 10 ** (-50 / 20)
    longest = run = 0
    for q in quiet:
        run = run + 1 if q else 0
        longest = max(longest, run)
    return dict(
        level_db=float(20 * np.log10(np.sqrt((x**2).mean()) + 1e-9)), peak=float(np.abs(x).max()), clipped=int((np.abs(samples.astype(int)) >= 32767).sum()),
        silence=float(quiet.mean()), longest_pause_s=longest * BLOCK / rate,
    )


def error_rate(rows: list[dict], key: str = "heard") -> float:
    import jiwer

    return jiwer.wer([normal(r["text"]) for r in rows], [normal(r[key]) for r in rows])


def similarity(rows: list[dict], vectors: np.ndarray) -> dict:
    """Each utterance against the mean of its own voice (itself left out) and of the other one."""
    voice = np.array([VOICES.index(r["voice"]) for r in rows])
    sums = np.stack([vectors[voice == v].sum(0) for v in (0, 1)])

    def unit(x: np.ndarray) -> np.ndarray:
        return x / np.linalg.norm(x)

    own = np.array([e @ unit(sums[v] - e) for e, v in zip(vectors, voice)])
    other = np.array([e @ unit(sums[1 - v]) for e, v in zip(vectors, voice)])
    return dict(within=float(own.mean()), between=float(other.mean()), nearest_right=int((own > other).sum()), of=len(rows))


def summarise(rows: list[dict], vectors: np.ndarray | None) -> dict:
    def part(name: str, chosen: list[dict]) -> dict:
        out = {"sentences": len(chosen), "wer": error_rate(chosen)}
        if all("teacher" in r for r in chosen):
            out["teacher_wer"] = error_rate(chosen, "teacher")
        return {name: {k: round(v, 4) for k, v in out.items()}}

    found: dict = {}
    for name, chosen in (("all", rows), *((v, [r for r in rows if r["voice"] == v]) for v in VOICES)):
        found |= part(name, chosen)
    for kind in dict.fromkeys(r["kind"] for r in rows):
        found |= part(kind, [r for r in rows if r["kind"] == kind])

    def spread(key: str) -> list[float]:
        return [round(float(f), 4) for f in np.percentile([r[key] for r in rows], (0, 50, 100))]

    summary = dict(word_error_rate=found, ended_by_stop=sum(r["stop"] == "eos" for r in rows), of=len(rows))
    summary["smallest_median_largest"] = {k: spread(k) for k in ("frames_per_code_point", "level_db", "peak", "silence", "longest_pause_s")}
    summary["utterances_with_clipped_samples"] = sum(r["clipped"] > 0 for r in rows)
    summary["silent_utterances"] = sum(r["level_db"] < -50 for r in rows)
    if vectors is not None:
        summary["speaker_similarity"] = {k: round(v, 3) for k, v in similarity(rows, vectors).items()}
    return summary


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("skald", "model", "work"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--texts", type=Path, default=Path(__file__).parent / "test.tsv")
    parser.add_argument("--whisper", type=Path, default=Path("whisper-base"), help="folder for the unpacked recogniser")
    parser.add_argument("--resemblyzer", type=Path, help="wheel of Resemblyzer 0.1.4")
    parser.add_argument("--teacher", type=Path, help="transcripts of the teacher's speech (recognise.py)")
    parser.add_argument("--stride", type=int, default=1, help="every n-th pair of sentences")
    parser.add_argument("--beam", type=int, default=5)
    parser.add_argument("--say", default="", help="further options of `skald say`")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    lines = [line.split("\t") for line in args.texts.read_text().splitlines()]
    teacher = json.loads(args.teacher.read_text()) if args.teacher else {}
    recogniser, encoder = Recogniser(args.whisper), SpeakerEncoder(args.resemblyzer) if args.resemblyzer else None
    rows, vectors = [], []
    for i in (i for i in range(len(lines)) if i // 2 % args.stride == 0):
        name, kind, text = lines[i]
        voice, path = VOICES[i % 2], args.work / f"{name}.wav"
        report = speak(args, text, voice, SEED + i, path)
        samples, rate = read_wav(path)
        heard = path.with_suffix(f".beam{args.beam}.txt")
        if not heard.exists():
            heard.write_text(recogniser(samples / np.float32(32768), args.beam))
        row = dict(name=name, kind=kind, voice=voice, text=text, heard=heard.read_text(), frames=report["frames"], stop=report["stop"])
        row |= sound(samples, rate) | dict(frames_per_code_point=report["frames"] / len(text))
        if name in teacher:
            row["teacher"] = teacher[name]["heard"]
        rows.append(row)
        if encoder:
            vectors.append(encoder(samples / 32768, rate))
    summary = summarise(rows, np.stack(vectors) if encoder else None)
    (args.work / "rows.json").write_text(json.dumps(rows, indent=1, default=float))
    text = json.dumps(summary, indent=1)
    if args.out:
        args.out.write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
