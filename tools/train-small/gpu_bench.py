"""Step times and checks on the GPU, on a few seconds of real speech: run this before a long training.

usage: gpu_bench.py --speech DIR --vocab vocab.json --tok DIR --texts FILE
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

import numpy as np
import torch
from torch.profiler import ProfilerActivity, profile

import snake
from corpus import Corpus


def timed(f, count: int) -> float:
    """Milliseconds a call."""
    torch.cuda.synchronize()
    start = time.time()
    for _ in range(count):
        f()
    torch.cuda.synchronize()
    return (time.time() - start) / count * 1e3


def codec(args: argparse.Namespace, batch: int, frames: int, long_frames: int, show: bool) -> None:
    import codec_train

    options = argparse.Namespace(
        device="cuda", decoder_only=False, judge_channels=32, semantic_share=0.1, decorrelate=0.0, gan_from=0.0, rate=6e-4, batch=batch, frames=frames
    )
    corpus = Corpus(0.2, args.vocab, "cuda")
    corpus.refresh(sorted(args.speech.glob("*.npz")))
    trainer = codec_train.Trainer(options, corpus)
    trainer.set_rates(0.1)
    if show:
        for gan in (False, True):
            for _ in range(2):
                trainer.one_step(batch, frames, True, gan)
            with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as p:
                trainer.one_step(batch, frames, True, gan)
                torch.cuda.synchronize()
            print("profile of one step, discriminator:", gan)
            print(p.key_averages().table(sort_by="cuda_time_total", row_limit=22, max_name_column_width=70))
    for shape, gan in (((batch, frames), False), ((batch, frames), True), ((max(2, batch * frames // long_frames), long_frames), False)):
        start = time.time()
        trainer.advance(*shape, True, gan)
        ready = time.time() - start
        ms = timed(lambda: trainer.advance(*shape, True, gan), 30)
        print(f"codec {shape}, discriminator {gan}: {ms:.1f} ms a step, captured in {ready:.1f} s; metrics {[round(x, 2) for x in trainer.metrics.tolist()]}", flush=True)


def fake_codes(args: argparse.Namespace, out: Path) -> None:
    rng, lines = np.random.default_rng(0), [line.split("\t") for line in args.texts.read_text().splitlines()]
    frames = np.array([min(150, max(6, int(len(s) * 0.75))) for _, _, s in lines], np.int16)
    total = int(frames.sum())
    out.mkdir(parents=True, exist_ok=True)
    np.savez(
        out / "valid.00000.npz", names=np.array([n for n, _, _ in lines]), frames=frames, voice=(np.arange(len(lines)) % 2).astype(np.uint8),
        codes=rng.integers(0, 256, (total, 16)).astype(np.uint8), words=np.concatenate([np.arange(n) * len(s.split()) // n for n, (_, _, s) in zip(frames, lines)]).astype(np.uint8),
        phones=np.zeros((total, 2), np.uint8), word_count=np.array([len(s.split()) for _, _, s in lines], np.uint8),
    )


def lm(args: argparse.Namespace, tokens: int, frames: int, show: bool) -> None:
    import lm_train
    from lm_data import Utterances

    folder = Path(tempfile.mkdtemp())
    fake_codes(args, folder)
    options = argparse.Namespace(
        device="cuda", rate=1e-3, weight_decay=0.1, tokens=tokens, frames=frames, dropout=0.1, seed=0, acoustic=2.0, z=0.01, average=0.9995, smoke=True
    )
    data = Utterances(args.texts, args.tok, "cuda", 2, 0.1, 2.0)
    data.add([folder / "valid.00000.npz"])
    trainer = lm_train.Trainer(options, data, data)
    trainer.rate.fill_(1e-3)
    trainer.guide.fill_(0.3)
    for length in sorted(data.buckets):
        start = time.time()
        trainer.rows[length] = torch.from_numpy(np.resize(data.buckets[length], trainer.size(length))).to("cuda")
        if show and length == 64:
            for _ in range(2):
                trainer.one_step(length)
            with profile(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as p:
                trainer.one_step(length)
                torch.cuda.synchronize()
            print(p.key_averages().table(sort_by="cuda_time_total", row_limit=16, max_name_column_width=70))
        trainer.capture(length)
        ready = time.time() - start
        ms = timed(trainer.graphs[length].replay, 30)
        print(f"lm {trainer.size(length)} x {length}: {ms:.1f} ms a step, captured in {ready:.1f} s; metrics {[round(x, 2) for x in trainer.metrics.tolist()]}", flush=True)
    print("validation", trainer.validate(), flush=True)


SMALL = """
import time, torch
x = torch.randn(1, 256, 400, device="cuda"); w = torch.randn(256, 256, 3, device="cuda") * 0.03
for _ in range(50): y = torch.nn.functional.conv1d(x, w, padding=1)
torch.cuda.synchronize(); time.sleep(3); t = time.time(); n = 0
while time.time() - t < 4:
    for _ in range(100): y = torch.nn.functional.conv1d(x, w, padding=1).relu()
    torch.cuda.synchronize(); n += 100
print(n / (time.time() - t))
"""


def sharing() -> None:
    """Small kernels from 12 processes at once, without and with the multi-process service."""
    folder = tempfile.mkdtemp()
    service = {"CUDA_MPS_PIPE_DIRECTORY": folder, "CUDA_MPS_LOG_DIRECTORY": folder}
    for name, extra in (("time slices", {}), ("multi-process service", service)):
        if extra:
            tool = shutil.which("nvidia-cuda-mps-control") or shutil.which("nvidia-cuda-mps-control", path="/usr/local/nvidia/bin")
            print("control program:", tool)
            if not tool:
                return
            subprocess.run([tool, "-d"], env=os.environ | extra, timeout=20, check=True)
        runs = [subprocess.Popen([sys.executable, "-c", SMALL], env=os.environ | extra, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(12)]
        rates = [float(r.communicate(timeout=60)[0] or 0) for r in runs]
        print(f"{name}: {sum(rates):.0f} small kernel pairs a second in all", flush=True)
        if extra:
            subprocess.run([tool], input="quit\n", env=os.environ | extra, text=True, timeout=20)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("speech", "vocab", "tok", "texts"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    args = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    torch.backends.cudnn.benchmark = True
    for name, part in (
        ("snake", lambda: print(f"snake: relative difference {snake.check('cuda'):.1e}")),
        ("lm", lambda: lm(args, 16384, 4096, True)),
        ("codec", lambda: codec(args, 32, 16, 96, True)),
        ("codec, larger", lambda: codec(args, 64, 16, 96, False)),
        ("sharing", sharing),
    ):
        start = time.time()
        try:
            part()
        except Exception:
            traceback.print_exc()
        torch.cuda.empty_cache()
        print(f"-- {name}: {time.time() - start:.0f} s", flush=True)


if __name__ == "__main__":
    main()
