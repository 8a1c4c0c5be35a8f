"""Writes tests/fixtures/small_voice/parity.json: greedy codes and ends of the official package on models/small-en.

    python small_voice.py [--model DIR] [--out FILE] [--check]

20 sentences, both voices, both text layouts, with and without the language named. Sentences whose smallest distance between
a pick and its runner-up is below MARGIN are passed over: float32 of two programs may differ there. --check writes nothing and
ends with status 1 when codes or ends differ from the file.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from oracle import Recorder, load, margin

ROOT = Path(__file__).resolve().parents[2]
MARGIN, WANTED = 1e-4, 20
SENTENCES = """Good evening. I am the voice assistant running on this workstation.
The parcel is on the kitchen table.
Where did you put the blue umbrella?
Seven ships sailed before the storm.
Please close the window, it is getting cold.
My sister plays the violin every evening.
How many apples are left in the basket?
The lecture begins at 9:15 in room 42.
She whispered something and left.
A small dog slept beside the fire.
Turn left after the old stone bridge.
I cannot remember the name of that song.
The committee will meet again in October.
Bring a pencil and some paper.
Nobody answered when the telephone rang.
Thank you for waiting so patiently.
He painted the fence green last summer.
Is there any coffee left for me?
Clouds gathered over the distant hills.
The museum is closed on Mondays.
Copper wires carry the current.
We walked along the river until dark.
Every child received a red balloon.
The answer is 144.
Nothing is as simple as it looks.
They found an old map in the attic.
Could you repeat the last sentence?
The bread was fresh and still warm.
Snow fell quietly all through the night.
Yes.
The captain ordered his men to row faster.
Good morning, Anna.""".splitlines()


def calls() -> list[dict]:
    """One call for each sentence; voice, layout and language take every combination."""
    return [
        dict(text=text, voice=("af_heart", "am_michael")[i % 2], layout=("whole", "stream")[i // 2 % 2], language=("auto", "english")[i // 4 % 2])
        for i, text in enumerate(SENTENCES)
    ]


def run(wrapper, call: dict) -> tuple[dict, float]:
    with Recorder(wrapper) as r:
        wrapper.generate_custom_voice(
            text=call["text"], speaker=call["voice"], language=call["language"], non_streaming_mode=call["layout"] == "whole",
            do_sample=False, subtalker_dosample=False, max_new_tokens=400,
        )
    stop = "eos" if r.code0[-1] == wrapper.model.config.talker_config.codec_eos_token_id else "length"
    smallest = min(min(map(margin, r.scores)), min(map(margin, r.predictor_logits)))
    return call | dict(stop=stop, frames=len(r.codes), codes=r.codes.reshape(-1).tolist()), float(smallest)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, default=ROOT / "models" / "small-en")
    parser.add_argument("--out", type=Path, default=ROOT / "tests" / "fixtures" / "small_voice" / "parity.json")
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    wrapper, kept = load(args.model), []
    if args.check:
        stored = json.loads(args.out.read_text())
        different = [c["text"] for c in stored if run(wrapper, {k: c[k] for k in ("text", "voice", "layout", "language")})[0] != c]
        sys.exit(f"different: {different}" if different else 0)
    for call in calls():
        found, smallest = run(wrapper, call)
        good = smallest >= MARGIN and found["stop"] == "eos"
        print(f"{'' if good else 'passed over: '}{found['text']} {found['frames']} frames, {found['stop']}, margin {smallest:.1e}", flush=True)
        if good and len(kept) < WANTED:
            kept.append(found)
    if len(kept) < WANTED:
        sys.exit(f"only {len(kept)} sentences are fit to be tests")
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text("[\n" + ",\n".join(json.dumps(c, separators=(",", ":"), ensure_ascii=False) for c in kept) + "\n]\n")


if __name__ == "__main__":
    main()
