"""Reference outputs of a full-size snapshot: prefill and a few frames of given codes through the official package.

    python full_size.py SNAPSHOT OUT [--frames 5] [--text TEXT] [--seed N]

OUT receives `case.json` and the arrays of an ordinary case (README.md), untruncated, with `wave` in full. The codes are
random and forced, so that a comparison follows the same path whatever the margins are. float32: the 1.7B needs 10 GB.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np

from cases import GREEDY, Case
from export import arrays, call, describe, write
from oracle import Recorder, load


def make_case(wrapper, text: str, frames: int) -> Case:
    """The plainest call of the snapshot's type, with a language."""
    kind = wrapper.model.tts_model_type
    case = Case(f"full-size-{wrapper.model.tts_model_size}-{kind}", "", kind, text, language="english",
                max_new_tokens=frames + 1, sampling=dict(GREEDY), keep_hidden=frames + 1, keep_logits=frames + 1,
                keep_predictor=frames)
    if kind == "custom_voice":
        return replace(case, speaker=min(wrapper.model.config.talker_config.spk_id))
    if kind == "voice_design":
        return replace(case, instruct="A calm and friendly voice.")
    return replace(case, mode="voice_clone", layout="stream")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("snapshot", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--frames", type=int, default=5)
    parser.add_argument("--text", default="Hello, world! This is a full-size test.")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    wrapper = load(args.snapshot)
    case = make_case(wrapper, args.text, args.frames)
    limit = wrapper.model.config.talker_config.code_predictor_config.vocab_size
    forced = np.random.default_rng(args.seed).integers(0, limit, (args.frames, 16)).astype(np.int16)
    with Recorder(wrapper, forced=forced) as run:
        run.wave, given = call(wrapper, case)
    if not np.array_equal(run.codes, forced):
        raise SystemExit("the package did not follow the forced codes")
    info = {**describe(case, run, wrapper.model.config.talker_config.codec_eos_token_id), "forced": True}
    info.pop("margin")  # of picks that were not free
    info["margin_raw"] = float(min(np.ptp(np.partition(x, -2)[-2:]) for x in (*run.logits, *run.predictor_logits)))
    write(args.out, info, {**arrays(case, run, given, activations=True), "wave": run.wave})
    print(f"{args.out}: {len(run.codes)} frames, {len(run.prompt_rows)} prompt rows, smallest margin of raw logits "
          f"{info['margin_raw']:.2e}, wave rms {np.sqrt(np.mean(np.square(run.wave))):.3f}, peak {np.abs(run.wave).max():.3f}")


if __name__ == "__main__":
    main()
