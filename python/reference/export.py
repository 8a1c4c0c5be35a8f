"""Writes tests/fixtures/cases: what the official package computes for every case of cases.py.

    python export.py [--models DIR] [--out DIR] [CASE ...]

Without names every case is written, and folders of cases that no longer exist are removed. See README.md for the files.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
from pathlib import Path

import numpy as np

import clips
from cases import CASES, CODEC_CASES, ENCODE_CASES, WITH_ACTIVATIONS, Case, CodecCase, EncodeCase
from encode import export_encode_case
from oracle import Recorder, Run, VoiceClonePromptItem, decode_chunked, decode_whole, load, margin
from tiny import CODES

FIXTURES = Path(__file__).resolve().parents[2] / "tests" / "fixtures"
FRAME = 1920
EDGE = 240  # samples kept from each end of a waveform
MIN_MARGIN = 1e-3
MIN_DRAW_MARGIN = 1e-4  # relative: a draw compares quotients p / e
MAX_FLOAT32_ERROR = 4e-6  # of a drawn probability; two float32 runs then agree to 1e-5


def reference_codes(case: Case) -> np.ndarray:
    return np.random.default_rng([case.ref_seed, 1]).integers(0, CODES, (case.ref_frames, 16)).astype(np.int16)


def x_vector(case: Case, width: int) -> np.ndarray:
    return (np.random.default_rng([case.ref_seed, 2]).standard_normal(width) * 0.5).astype(np.float32)


def call(wrapper, case: Case) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Makes the public call of the case's mode. Returns the waveform and the given inputs to store."""
    import torch

    common = dict(text=case.text, language=case.language, non_streaming_mode=case.layout == "whole",
                  max_new_tokens=case.max_new_tokens, **case.sampling)
    if case.mode == "custom_voice":
        return wrapper.generate_custom_voice(speaker=case.speaker, instruct=case.instruct, **common)[0][0], {}
    if case.mode == "voice_design":
        return wrapper.generate_voice_design(instruct=case.instruct, **common)[0][0], {}
    if case.clip:
        return call_with_clip(wrapper, case, common)
    vector = x_vector(case, wrapper.model.config.talker_config.hidden_size)
    given = {"xvector": vector}
    codes = None
    if case.ref_frames:
        given["ref_codes"] = reference_codes(case)
        codes = torch.from_numpy(given["ref_codes"].astype(np.int64))
    item = VoiceClonePromptItem(ref_code=codes, ref_spk_embedding=torch.from_numpy(vector),
                                x_vector_only_mode=codes is None, icl_mode=codes is not None, ref_text=case.ref_text)
    return wrapper.generate_voice_clone(voice_clone_prompt=[item], **common)[0][0], given


def call_with_clip(wrapper, case: Case, common: dict) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """The same from audio: what the package makes of the clip is stored as the given inputs."""
    (item,) = wrapper.create_voice_clone_prompt((clips.samples(case.clip), clips.RATE), case.ref_text,
                                                x_vector_only_mode=not case.ref_frames)
    given = {"xvector": item.ref_spk_embedding.numpy()}
    if item.ref_code is not None:
        given["ref_codes"] = item.ref_code.numpy().astype(np.int16)
    return wrapper.generate_voice_clone(voice_clone_prompt=[item], **common)[0][0], given


def draw_margin(draws) -> float:
    """The smallest relative distance between the two largest quotients p / e of any draw."""
    smallest = np.inf
    for probabilities, noise in draws:
        second, first = np.partition(probabilities / noise, -2)[-2:]
        smallest = min(smallest, (first - second) / first)
    return float(smallest)


def margins(case: Case, run: Run) -> dict[str, float]:
    """Smallest distance between the pick and the runner-up; relative quotients where the pick was a draw."""
    talker = draw_margin(run.talker_draws) if case.samples_talker else min(map(margin, run.scores))
    predictor = draw_margin(run.predictor_draws) if case.samples_predictor else min(map(margin, run.predictor_logits))
    return {"talker": talker, "predictor": predictor}


def float32_error(wrapper, case: Case, run: Run) -> float:
    """How far float32 alone moves the drawn probabilities: the distance to the same run of the model in float64."""
    wrapper.model.double()
    try:
        exact = record(wrapper, case)[0]
    finally:
        wrapper.model.float()
    if not np.array_equal(exact.codes, run.codes):
        return np.inf
    pairs = zip(run.talker_draws + run.predictor_draws, exact.talker_draws + exact.predictor_draws)
    return max(float(np.abs(a[0] - b[0]).max()) for a, b in pairs)


def problems(case: Case, run: Run, info: dict) -> list[str]:
    """What would make a case worthless or fragile as a test."""
    found = []
    if info["stop"] != case.stop:
        found.append(f"ended by {info['stop']}, wanted {case.stop}")
    for side, value in info["margin"].items():
        limit = MIN_DRAW_MARGIN if getattr(case, f"samples_{side}") else MIN_MARGIN
        if value < limit:
            found.append(f"{side} margin {value:.2e} below {limit}")
    if info.get("float32_error", 0.0) > MAX_FLOAT32_ERROR:
        found.append(f"float32 moves a probability by {info['float32_error']:.1e}: no test to 1e-5 is possible")
    if info["frames"] >= 20 and info["distinct_code0"] < 10:
        found.append(f"only {info['distinct_code0']} distinct code0")
    if not len(run.hidden) == len(run.code0) == info["frames"] + 1:
        found.append("number of samples is not frames + 1")
    return found


def describe(case: Case, run: Run, eos: int) -> dict:
    frames = len(run.codes)
    clip = {"clip": {"samples": case.clip.samples, "seed": case.clip.seed, "crc": clips.crc(case.clip)}} if case.clip else {}
    return {
        **clip,
        "name": case.name, "model": case.model, "mode": case.mode, "layout": case.layout, "text": case.text,
        "language": case.language, "speaker": case.speaker, "instruct": case.instruct, "ref_text": case.ref_text,
        "max_new_tokens": case.max_new_tokens, "sampling": case.sampling, "frames": frames,
        "stop": "eos" if run.code0[-1] == eos else "length", "samples": len(run.wave),
        "prompt_rows": len(run.prompt_rows), "trailing_rows": len(run.trailing),
        "distinct_code0": len(set(run.codes[:, 0].tolist())), "margin": margins(case, run),
    }


def arrays(case: Case, run: Run, given: dict[str, np.ndarray], activations: bool) -> dict[str, np.ndarray]:
    """The arrays of a case. Long ones keep their first rows only: the codes pin the rest."""
    frames = len(run.codes)
    kept = {
        "ids": run.ids, "instruct_ids": run.instruct_ids, "ref_ids": run.ref_ids, "prompt_rows": run.prompt_rows,
        "codes": run.codes, **given,
    }
    if activations or case.mode == "voice_clone":  # a clone's waveform is cut at its head
        kept["wave_head"], kept["wave_tail"] = run.wave[:EDGE], run.wave[-EDGE:]
    if activations:
        kept["hidden"] = np.stack(run.hidden)[: case.keep_hidden]
        kept["logits"] = np.stack(run.logits)[: case.keep_logits]
        kept["predictor_logits"] = np.stack(run.predictor_logits).reshape(frames, 15, -1)[: case.keep_predictor]
    if case.samples_talker:
        kept["probs"], kept["noise"] = (np.stack(x) for x in zip(*run.talker_draws))
    if case.samples_predictor:
        both = (np.stack(x).reshape(frames, 15, -1) for x in zip(*run.predictor_draws))
        kept["predictor_probs"], kept["predictor_noise"] = both
    return {name: value for name, value in kept.items() if value is not None}


def describe_json(info: dict) -> str:
    """One member a line; lists of numbers stay on their line."""
    text = json.dumps(info, indent=1, ensure_ascii=False)
    return re.sub(r"\[\s+(-?\d[-\d.e,\s]*?)\s+\]", lambda m: "[" + " ".join(m[1].split()) + "]", text) + "\n"


def write(folder: Path, info: dict, files: dict[str, np.ndarray]) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    lists = {name: files.pop(name).tolist() for name in sorted(files) if name.endswith("ids")}
    info = {**info, **lists, "files": {name: list(value.shape) for name, value in sorted(files.items())}}
    (folder / "case.json").write_text(describe_json(info), encoding="utf-8")
    for name, value in files.items():
        np.save(folder / f"{name}.npy", np.ascontiguousarray(value))


def record(wrapper, case: Case) -> tuple[Run, dict, dict[str, np.ndarray]]:
    with Recorder(wrapper, case.noise_seed) as run:
        run.wave, given = call(wrapper, case)
    return run, describe(case, run, wrapper.model.config.talker_config.codec_eos_token_id), given


def export_case(wrapper, case: Case, out: Path) -> list[str]:
    run, info, given = record(wrapper, case)
    if case.samples_talker or case.samples_predictor:
        info["float32_error"] = float32_error(wrapper, case, run)
    write(out / case.name, info, arrays(case, run, given, case.name in WITH_ACTIVATIONS))
    print(f"{case.name}: {info['frames']} frames, {info['stop']}, {info['distinct_code0']} distinct, margins "
          f"{info['margin']['talker']:.1e} {info['margin']['predictor']:.1e}", flush=True)
    return problems(case, run, info)


def codec_codes(case: CodecCase) -> np.ndarray:
    return np.random.default_rng([case.seed, case.frames]).integers(0, CODES, (case.frames, 16)).astype(np.int16)


def windows(wave: np.ndarray, starts: tuple[int, ...], frames: int) -> np.ndarray:
    return np.stack([wave[s * FRAME : (s + frames) * FRAME] for s in starts])


def frame_statistics(wave: np.ndarray) -> np.ndarray:
    """Mean and RMS of every frame: [frames, 2]."""
    f = wave.reshape(-1, FRAME).astype(np.float64)
    return np.stack([f.mean(1), np.sqrt((f * f).mean(1))], axis=1).astype(np.float32)


def export_codec_case(wrapper, case: CodecCase, out: Path) -> list[str]:
    codes = codec_codes(case)
    waves = {"official": decode_chunked(wrapper, codes), "whole": decode_whole(wrapper, codes)}
    info = {"name": case.name, "model": case.model, "mode": "codec", "frames": case.frames,
            "samples": case.frames * FRAME, "window_frames": case.window, "window_starts": list(case.starts),
            "stride": case.stride, "rms": float(np.sqrt(np.mean(np.square(waves["whole"], dtype=np.float64)))),
            "peak": float(np.abs(waves["whole"]).max()),
            "largest_difference": float(np.abs(waves["official"] - waves["whole"]).max())}
    files = {"codes": codes}
    if np.array_equal(waves["official"], waves["whole"]):  # one chunk: nothing to tell apart
        del waves["whole"]
    for kind, wave in waves.items():
        files[f"{kind}_windows"] = windows(wave, case.starts, case.window)
        files[f"{kind}_strided"] = wave[:: case.stride]
        files[f"{kind}_statistics"] = frame_statistics(wave)
    write(out / case.name, info, files)
    print(f"{case.name}: rms {info['rms']:.3f}, peak {info['peak']:.3f}, chunked - whole {info['largest_difference']:.1e}",
          flush=True)
    found = [] if 0.05 <= info["rms"] <= 0.3 else [f"rms {info['rms']:.3f} outside 0.05-0.3"]
    return found + (["samples are clamped"] if info["peak"] >= 1 else [])


def export(models: Path, out: Path, names: set[str] | None = None) -> int:
    """Writes the cases (all, or those named) and returns the number of them that are not fit to be tests."""
    chosen = [c for c in (*CASES, *CODEC_CASES, *ENCODE_CASES) if not names or c.name in names]
    bad = 0
    for model in dict.fromkeys(c.model for c in chosen):
        wrapper = load(models / model)
        for case in (c for c in chosen if c.model == model):
            if isinstance(case, EncodeCase):
                found = export_encode_case(wrapper, case, out, write)
            else:
                found = (export_codec_case if isinstance(case, CodecCase) else export_case)(wrapper, case, out)
            bad += bool(found)
            for problem in found:
                print(f"  {case.name}: {problem}", file=sys.stderr, flush=True)
    return bad


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="cases; default all")
    parser.add_argument("--models", type=Path, default=FIXTURES / "models")
    parser.add_argument("--out", type=Path, default=FIXTURES / "cases")
    args = parser.parse_args()
    known = {c.name for c in (*CASES, *CODEC_CASES, *ENCODE_CASES)}
    if unknown := set(args.names) - known:
        parser.error(f"unknown case {sorted(unknown)}")
    if not args.names and args.out.is_dir():
        for folder in args.out.iterdir():
            if folder.name not in known:
                shutil.rmtree(folder)
    if bad := export(args.models, args.out, set(args.names)):
        sys.exit(f"{bad} cases are not fit to be tests")


if __name__ == "__main__":
    main()
