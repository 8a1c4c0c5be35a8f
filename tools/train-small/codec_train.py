"""Training of the codec on one GPU: resumable, every step one replay of a captured CUDA graph.

Phases by share of the time: plain autoencoder (first 300 steps), quantised, from --gan-from on with the discriminator.
Level 0 gets a phonetic target: a linear classifier on the quantised semantic vector names the phonemes of both halves of
the frame (soft labels from the teacher's durations), and the reconstruction reaches the semantic latent only weakly.

usage: codec_train.py --speech DIR --vocab vocab.json --out DIR --seconds 800 [--resume codec.pt] [--decoder-only]
       codec_train.py --smoke ...    a few eager steps of a tiny batch on the CPU
Writes OUT/codec.pt (everything, for --resume), OUT/codec.log.jsonl; a file OUT/stop ends the run at once.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import time
from pathlib import Path
from typing import Callable

import numpy as np
import torch
import torch.nn as nn

from codec import SIZES, Decoder, Encoder, Quantiser, initialise
from codec_loss import Judge, MelLoss, generator_loss, judge_loss, soft_cross_entropy
from corpus import FRAME, Corpus

WARM_STEPS = 300
WEIGHTS = dict(mel=15.0, wave=10.0, commit=0.25, size=1e-3, phoneme=2.0, adversarial=1.5, features=6.0)
METRICS = ("mel", "wave", "commit", "phoneme", "phoneme_latent", "adversarial", "features", "judge", "norm", "dependence", "perplexity0", "perplexity1", "perplexity15")


class Trainer:
    def __init__(self, args: argparse.Namespace, corpus: Corpus) -> None:
        self.args, self.corpus, self.device = args, corpus, args.device
        self.encoder, self.decoder, self.quantiser = Encoder().to(self.device), Decoder().to(self.device), Quantiser().to(self.device)
        self.phonemes = nn.Linear(SIZES["width"], 2 * corpus.classes).to(self.device)
        self.mel, self.judge = MelLoss().to(self.device), Judge(args.judge_channels).to(self.device)
        initialise(self.encoder, self.decoder)
        self.smooth = [p.detach().clone() for p in self.decoder.parameters()]
        trained = [] if args.decoder_only else [*self.encoder.parameters(), *self.phonemes.parameters()]
        self.trained = trained + list(self.decoder.parameters())
        if args.decoder_only:
            self.encoder.requires_grad_(False)
        graph = self.device.startswith("cuda")
        self.rate, self.judge_rate, self.ramp = (torch.zeros((), device=self.device) for _ in range(3))
        options = dict(betas=(0.8, 0.99), fused=graph, capturable=graph)
        self.optimiser = torch.optim.AdamW(self.trained, self.rate if graph else 1e-3, weight_decay=1e-3, **options)
        self.judge_optimiser = torch.optim.AdamW(self.judge.parameters(), self.judge_rate if graph else 1e-3, **options)
        if graph:  # one tensor that the host changes between replays
            self.optimiser.param_groups[0]["lr"], self.judge_optimiser.param_groups[0]["lr"] = self.rate, self.judge_rate
        self.metrics = torch.zeros(len(METRICS), device=self.device)
        self.step, self.first_step, self.elapsed, self.smoothing = 0, 0, 0.0, False
        self.graphs: dict[tuple, torch.cuda.CUDAGraph] = {}
        self.pool = torch.cuda.graph_pool_handle() if graph else None

    # -- one step ---------------------------------------------------------------------------------------------------

    def quantise(self, s: torch.Tensor, c: torch.Tensor, valid: torch.Tensor, clear: int) -> tuple[torch.Tensor, ...]:
        """-> semantic and acoustic inputs of the decoder, the straight-through semantic vector, commitment loss, codes."""
        codes, first, vectors, inputs = self.quantiser(s, c)
        if not self.args.decoder_only:
            self.quantiser.update(inputs, codes, valid)
        batch, levels = s.shape[0], self.quantiser.levels - 1
        kept = torch.randint(0, levels, (batch,), device=s.device)
        kept[:clear] = levels  # the first rows keep every level, the others a random number
        use = (torch.arange(levels, device=s.device)[:, None] < kept).float()[:, :, None, None]
        acoustic = (vectors * use).sum(0).transpose(1, 2)
        running, mask = vectors.cumsum(0).transpose(2, 3), valid[:, None]
        commit = ((s - first).pow(2) * mask).mean()
        commit = commit + sum(((c - running[i]).pow(2) * mask).mean() for i in (0, 3, 7, levels - 1)) / 4
        through = s + (first - s).detach()
        semantic = first + self.args.semantic_share * (s - s.detach())
        latent = c * (kept > 0)[:, None, None]
        return semantic, latent + (acoustic - latent).detach(), through, commit, codes

    @staticmethod
    def dependence(semantic: torch.Tensor, acoustic: torch.Tensor, valid: torch.Tensor) -> torch.Tensor:
        """Squared correlations of an acoustic latent's channel with those of the quantised semantic vector, summed; mean over channels.

        Where it is small, level 1 cannot repeat what level 0 says (gate: level 1 given level 0).
        """
        weight = (valid / valid.sum().clamp(min=1)).flatten()[:, None]

        def standard(x: torch.Tensor) -> torch.Tensor:
            x = x.transpose(1, 2).flatten(0, 1).float()
            x = x - (x * weight).sum(0)
            return x * ((x.pow(2) * weight).sum(0) + 1e-4).rsqrt()

        return (standard(semantic.detach()).T @ (standard(acoustic) * weight)).pow(2).sum(0).mean()

    def phoneme_loss(self, vector: torch.Tensor, marks: torch.Tensor, valid: torch.Tensor) -> torch.Tensor:
        count = self.corpus.classes
        logits = self.phonemes(vector.transpose(1, 2))
        shares = torch.zeros(*marks.shape[:2], 2, count, device=marks.device)
        halves = marks.view(*marks.shape[:2], 2, -1)
        shares.scatter_add_(3, halves, torch.full(halves.shape, 1 / halves.shape[-1], device=marks.device))
        return sum(soft_cross_entropy(logits[..., h * count : (h + 1) * count], shares[:, :, h], valid) for h in (0, 1)) / 2

    def perplexity(self, codes: torch.Tensor, valid: torch.Tensor, level: int) -> torch.Tensor:
        count = torch.zeros(self.quantiser.codes, device=codes.device).index_add_(0, codes[..., level].reshape(-1), valid.reshape(-1))
        share = count / count.sum().clamp(min=1)
        return torch.exp(-(share * (share + 1e-9).log()).sum())

    def losses(self, batch: int, frames: int, quantised: bool) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, dict[str, torch.Tensor]]:
        """-> real and made audio, loss without the discriminator, metrics."""
        if self.args.predicted:
            return self.coded_losses(batch, frames)
        real, heard, marks = self.corpus.crops(batch, frames)
        s, c = self.encoder(real)
        valid, found = heard[:, ::FRAME], {}
        phoneme_latent = self.phoneme_loss(s, marks, valid)
        if quantised:
            semantic, acoustic, through, commit, codes = self.quantise(s, c, valid, batch - batch // 4)
            phoneme = self.phoneme_loss(through, marks, valid)
            if self.args.decorrelate:
                found["dependence"] = self.dependence(through, c, valid)
            found |= {f"perplexity{i}": self.perplexity(codes, valid, i) for i in (0, 1, 15)}
        else:
            semantic, acoustic, commit, phoneme = s, c, torch.zeros((), device=s.device), phoneme_latent
        made = self.decoder(semantic, acoustic)
        mel, wave = self.mel(made, real, heard), ((made - real).abs() * heard).mean()
        size = s.pow(2).mean() + c.pow(2).mean()
        w = WEIGHTS
        loss = w["mel"] * mel + w["wave"] * wave + w["commit"] * commit + w["size"] * size + w["phoneme"] * (phoneme + phoneme_latent)
        loss = loss + self.args.decorrelate * found.get("dependence", 0.0)
        found |= dict(mel=mel, wave=wave, commit=commit, phoneme=phoneme, phoneme_latent=phoneme_latent)
        return real, made, loss, found

    def coded_losses(self, batch: int, frames: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, dict[str, torch.Tensor]]:
        """The decoder alone, on codes: a quarter of the rows true ones, the others predicted from some level on."""
        real, heard, (true, predicted) = self.corpus.coded_crops(batch, frames)
        kept = torch.randint(1, 6, (batch, 1, 1), device=real.device).where(torch.rand(batch, 1, 1, device=real.device) < 0.2, 1)
        kept[: batch // 4] = self.quantiser.levels
        codes = torch.where(torch.arange(self.quantiser.levels, device=real.device) < kept, true, predicted)
        made = self.decoder(*self.quantiser.lookup(codes)) * heard
        mel, wave = self.mel(made, real, heard), ((made - real).abs() * heard).mean()
        return real, made, WEIGHTS["mel"] * mel + self.args.wave * wave, dict(mel=mel, wave=wave)

    def against_judge(self, real: torch.Tensor, made: torch.Tensor, found: dict[str, torch.Tensor]) -> torch.Tensor:
        """One step of the discriminator on random seconds of the clear rows; -> loss for the codec."""
        rows, length = max(1, real.shape[0] * 3 // 8), min(24000, real.shape[1])
        at = torch.randint(0, real.shape[1] - length + 1, (rows, 1), device=real.device) + torch.arange(length, device=real.device)
        real, made = real[:rows].gather(1, at), made[:rows].gather(1, at)
        for p in self.judge.parameters():
            p.grad = None
        judged = judge_loss(self.judge(real), self.judge(made.detach()))
        judged.backward()
        nn.utils.clip_grad_norm_(self.judge.parameters(), 5.0, foreach=True)
        self.judge_optimiser.step()
        with torch.no_grad():
            judged_real = self.judge(real)
        adversarial, features = generator_loss(judged_real, self.judge(made))
        found |= dict(adversarial=adversarial, features=features, judge=judged)
        return self.ramp * (WEIGHTS["adversarial"] * adversarial + WEIGHTS["features"] * features)

    def one_step(self, batch: int, frames: int, quantised: bool, gan: bool) -> None:
        real, made, loss, found = self.losses(batch, frames, quantised)
        if gan:
            loss = loss + self.against_judge(real, made, found)
        for p in self.trained:
            p.grad = None
        loss.backward(inputs=self.trained)
        found["norm"] = nn.utils.clip_grad_norm_(self.trained, 10.0, foreach=True)
        self.optimiser.step()
        if gan:
            torch._foreach_lerp_(self.smooth, [p.detach() for p in self.decoder.parameters()], 0.002)
        with torch.no_grad():
            for i, name in enumerate(METRICS):
                if name in found:
                    self.metrics[i].copy_(found[name].detach())

    def advance(self, batch: int, frames: int, quantised: bool, gan: bool) -> None:
        """One step: eager on the CPU, on a GPU a replay of the graph captured at first use."""
        key = (batch, frames, quantised, gan)
        if self.pool is None:
            self.one_step(*key)
        elif key not in self.graphs:
            self.capture(key)
        else:
            self.graphs[key].replay()
        self.step += 1

    def capture(self, key: tuple) -> None:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):  # real steps; cuDNN chooses its algorithms here
            for _ in range(3):
                self.one_step(*key)
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self.pool):
            self.one_step(*key)
        self.graphs[key] = graph

    # -- the run ----------------------------------------------------------------------------------------------------

    def plan(self, share: float) -> tuple[int, int, bool, bool]:
        """Shape and phase of the next step; share: part of the time that is over."""
        a = self.args
        quantised = self.step >= WARM_STEPS
        gan = quantised and share >= a.gan_from
        if self.step % 8 == 7 and self.args.batch > 2:
            return max(2, a.batch * a.frames // a.long_frames), a.long_frames, quantised, False
        return a.batch, a.frames, quantised, gan

    def set_rates(self, share: float) -> None:
        decay = 1.0 if share < 0.4 else 0.5 * (1 + math.cos(math.pi * (share - 0.4) / 0.6)) + 0.01
        rate = self.args.rate * min(1.0, (self.step - self.first_step + 1) / 300) * decay
        self.rate.fill_(rate)
        self.judge_rate.fill_(0.5 * rate)
        self.ramp.fill_(min(1.0, max(0.0, (share - self.args.gan_from) * 20)))

    def start_books(self) -> None:
        with torch.no_grad():
            real, heard, _ = self.corpus.crops(8 * self.args.batch, self.args.frames)
            self.quantiser.start(*self.encoder(real), heard[:, ::FRAME] > 0)

    def state(self) -> dict:
        names = [n for n, _ in self.decoder.named_parameters()]
        return dict(
            sizes=SIZES, step=self.step, elapsed=self.elapsed, classes=self.corpus.classes,
            encoder=self.encoder.state_dict(), decoder=self.decoder.state_dict(), quantiser=self.quantiser.state_dict(),
            smooth=dict(zip(names, self.smooth)), smoothing=self.smoothing, phonemes=self.phonemes.state_dict(),
            judge=self.judge.state_dict(), optimiser=self.optimiser.state_dict(), judge_optimiser=self.judge_optimiser.state_dict(),
        )

    def load(self, path: Path) -> None:
        k = torch.load(path, map_location=self.device, weights_only=True)
        for name in ("encoder", "decoder", "quantiser", "phonemes", "judge"):
            if name in k:
                getattr(self, name).load_state_dict(k[name])
        smooth = k.get("smooth", k["decoder"])
        for p, (name, _) in zip(self.smooth, self.decoder.named_parameters()):
            p.copy_(smooth[name])
        for name, rate in (("optimiser", self.rate), ("judge_optimiser", self.judge_rate)):
            if name in k and not (name == "optimiser" and self.args.decoder_only):  # other parameters: fresh averages
                optimiser = getattr(self, name)
                optimiser.load_state_dict(k[name])
                if self.pool is not None:
                    optimiser.param_groups[0]["lr"] = rate
        self.step = self.first_step = k["step"]
        self.elapsed, self.smoothing = k["elapsed"], k["smoothing"]

    def save(self) -> None:
        part = self.args.out / "codec.pt.part"
        torch.save(self.state(), part)
        os.replace(part, self.args.out / "codec.pt")

    def report(self, log, seconds: float, per_step: float) -> bool:
        values = dict(zip(METRICS, self.metrics.tolist()))
        line = dict(step=self.step, seconds=round(seconds, 1), ms=round(per_step * 1e3, 2), hours=round(self.corpus.hours, 2), rate=self.rate.item())
        line |= {k: float(f"{v:.4g}") for k, v in values.items()}
        log.write(json.dumps(line) + "\n")
        log.flush()
        if self.step % 500 < 50:
            print(line, flush=True)
        return all(math.isfinite(values[k]) for k in ("mel", "commit", "phoneme", "norm"))

    def run(self, files: Callable[[], list[Path]]) -> None:
        a = self.args
        if a.until:
            a.seconds = a.until - time.time()
        begin, saved, fed = time.time(), time.time(), time.time()
        mark, mark_step, before = time.time(), self.step, self.elapsed
        with (a.out / "codec.log.jsonl").open("a") as log:
            while True:
                now = time.time()
                self.elapsed = before + now - begin
                share = self.elapsed / a.total if a.total else (now - begin) / a.seconds
                if now - begin >= a.seconds or self.step >= a.steps or (a.out / "stop").exists():
                    break
                if self.step == WARM_STEPS:
                    self.start_books()
                plan = self.plan(share)
                if plan[3] and not self.smoothing:
                    for p, q in zip(self.smooth, self.decoder.parameters()):
                        p.copy_(q.detach())
                    self.smoothing = True
                self.set_rates(share)
                self.advance(*plan)
                if self.step % 50 == 0:
                    if self.pool is not None:
                        torch.cuda.synchronize()
                    now = time.time()
                    ok = self.report(log, self.elapsed, (now - mark) / (self.step - mark_step))
                    mark, mark_step = now, self.step
                    if not ok:
                        print("not finite: the last saved state stays", flush=True)
                        return
                    if now - fed > 10:
                        self.corpus.refresh(files())
                        fed = now
                    if now - saved > a.save_every:
                        self.save()
                        saved = now
        self.save()
        print(f"{self.step} steps, {self.elapsed:.0f} s in all", flush=True)


def spoken(folder: Path) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Name -> true and predicted codes, of the files of lm_predict.py."""
    found = {}
    for path in sorted(folder.glob("*.npz")):
        z = np.load(path)
        ends = np.cumsum(z["frames"].astype(np.int64))[:-1]
        pairs = zip(np.split(z["codes"][: z["frames"].sum()], ends), np.split(z["predicted"][: z["frames"].sum()], ends))
        found |= dict(zip(z["names"].tolist(), pairs))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("speech", "vocab", "out"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--resume", type=Path)
    parser.add_argument("--decoder-only", action="store_true", help="encoder and code books stay: codes remain valid")
    parser.add_argument("--predicted", type=Path, help="with --decoder-only: folder of lm_predict.py; learn to speak what the language model chooses")
    parser.add_argument("--wave", type=float, default=1.0, help="weight of the waveform's distance with --predicted: its phase cannot be predicted")
    parser.add_argument("--seconds", type=float, default=500)
    parser.add_argument("--total", type=float, default=0, help="seconds of the whole plan, over all runs (default: this run)")
    parser.add_argument("--until", type=float, default=0, help="end at this time of the clock (seconds since 1970) instead")
    parser.add_argument("--steps", type=int, default=10**9)
    parser.add_argument("--gan-from", type=float, default=0.35)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--frames", type=int, default=16)
    parser.add_argument("--long-frames", type=int, default=96)
    parser.add_argument("--rate", type=float, default=6e-4)
    parser.add_argument("--semantic-share", type=float, default=0.1, help="part of the reconstruction gradient that level 0 sees")
    parser.add_argument("--decorrelate", type=float, default=0.0, help="weight of the correlation between acoustic latent and level 0 (not yet tried)")
    parser.add_argument("--hours", type=float, default=12, help="speech kept in memory")
    parser.add_argument("--wait-hours", type=float, default=0.7, help="speech to wait for before the first step")
    parser.add_argument("--save-every", type=float, default=60)
    parser.add_argument("--judge-channels", type=int, default=32)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--smoke", action="store_true")
    args = parser.parse_args()
    if args.smoke:
        args.device, args.batch, args.frames, args.long_frames, args.hours, args.wait_hours, args.steps = "cpu", 4, 6, 8, 0.05, 0, 16
        args.judge_channels = 2
        global WARM_STEPS
        WARM_STEPS = 4
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    torch.backends.cudnn.benchmark = True
    args.out.mkdir(parents=True, exist_ok=True)

    def files() -> list[Path]:
        return sorted(args.speech.glob("train.*.npz")) or sorted(args.speech.glob("*.npz"))

    corpus = Corpus(args.hours, args.vocab, args.device, spoken(args.predicted) if args.predicted else None)
    while True:
        corpus.refresh(files(), limit=1000)
        if corpus.hours >= args.wait_hours:
            break
        time.sleep(2)
    print(f"{corpus.count} utterances, {corpus.hours:.2f} h, {corpus.classes} phoneme classes", flush=True)
    trainer = Trainer(args, corpus)
    if args.resume:
        trainer.load(args.resume)
    trainer.run(files)


if __name__ == "__main__":
    main()
