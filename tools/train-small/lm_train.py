"""Training of the language model on one GPU: resumable, every step one replay of a CUDA graph (one graph per length).

Against learning by heart: history noise, BPE dropout, both text layouts, dropout. For reading: two heads of one layer are
shown the known alignment (word level, from the teacher's durations) in the first third. The gate printed with every
validation: loss of code 0 with the right text, and with another sentence's text.

usage: lm_train.py --codes DIR --texts train.tsv --valid-codes FILE --valid-texts valid.tsv --tok DIR --out DIR
                   --seconds 400 [--share 0.5] [--resume lm.pt] [--smoke]
Writes OUT/lm.pt (everything), OUT/best.pt (weights of the best validation), OUT/lm.log.jsonl; OUT/stop ends the run.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

from lm import GUIDED_HEADS, GUIDED_LAYER, SIZES, Talker
from lm_data import NONE, Batch, Utterances

METRICS = ("code0", "stop", "acoustic", "guide", "norm")


def multi_hot(b: Batch, talker: Talker, rows: int, controls: int, dtype: torch.dtype) -> torch.Tensor:
    """[batch, length, rows]: which rows of Talker.input_table an input sums; the last row of that table is zero."""
    c, last = talker.c, rows - 1
    base = c["text_vocab"] + controls
    hot = torch.zeros(*b.text.shape, rows, dtype=dtype, device=b.text.device)
    control = torch.where(b.control < controls, c["text_vocab"] + b.control, last)
    offset = base + torch.arange(c["levels"], device=b.text.device) * c["codes"]
    codes = torch.where(b.heard[..., None], b.heard_codes + offset, last)
    index = torch.cat([b.text[..., None], control[..., None], codes], -1)
    return hot.scatter_(-1, index, torch.ones((), dtype=dtype, device=hot.device).expand(index.shape))


def guide_loss(talker: Talker, b: Batch) -> torch.Tensor:
    """Minus the log of the attention that the guided heads give to the tokens of the word being spoken."""
    q, k = talker.model.layers[GUIDED_LAYER].self_attn.kept
    q, k = q[:, :GUIDED_HEADS].float(), k[:, :1].float()
    length = q.shape[2]
    scores = ((q @ k.transpose(-1, -2)) * q.shape[-1] ** -0.5).float()  # autocast makes the product bfloat16
    causal = torch.ones(length, length, dtype=torch.bool, device=q.device).tril()
    match = (b.row_word[:, :, None] == b.column_word[:, None]) & causal
    low = torch.finfo(torch.float32).min
    all_of = scores.masked_fill(~causal, low).logsumexp(-1)
    there = match.any(-1)[:, None]
    right = scores.masked_fill(~match[:, None], -1e4).logsumexp(-1)
    loss = torch.where(there, all_of - right, 0.0).sum() / (there.sum() * GUIDED_HEADS).clamp(min=1)
    return loss


def forward(talker: Talker, data: Utterances, b: Batch, dropout: float, frames: int, guided: bool) -> dict[str, torch.Tensor]:
    """Losses: code0 and stop (means), acoustic (mean over `frames` random frames and 15 levels), guide."""
    ids, device = data.ids, b.text.device
    table = talker.input_table(ids)
    hot = multi_hot(b, talker, len(table), len(ids.controls), table.dtype)
    x = F.dropout((hot @ table).float(), dropout, dropout > 0)
    h = talker.body(x, dropout)
    wanted = b.has_target | b.stop
    codes = data.codes[b.target].long()  # [batch, length, 16]
    goal = torch.where(b.stop, talker.c["codes"], codes[..., 0])
    each = F.cross_entropy(talker.first_logits(h, ids).float().flatten(0, 1), goal.flatten(), reduction="none").view_as(goal)
    code0 = (each * b.has_target).sum() / b.has_target.sum().clamp(min=1)
    stop = (each * b.stop).sum() / b.stop.sum().clamp(min=1)
    found = dict(code0=code0, stop=stop, first=(each * wanted).sum() / wanted.sum().clamp(min=1))

    flat = b.has_target.flatten()
    frames = min(frames, len(flat))
    chosen = (torch.rand(len(flat), device=device) + 2 * flat).topk(frames).indices
    weight = flat[chosen].float()
    codes = codes.flatten(0, 1)[chosen]
    tables = talker.code_tables()
    hot = (codes[:, :-1].T[..., None] == torch.arange(talker.c["codes"], device=device)).to(table.dtype)  # [15, frames, 256]
    history = torch.bmm(hot, tables[:-1].to(table.dtype)).transpose(0, 1)
    inputs = torch.cat([h.flatten(0, 1)[chosen][:, None], history.float()], 1)
    y = talker.predict(F.dropout(inputs, dropout, dropout > 0), dropout)[:, 1:]
    logits = torch.einsum("nth,tkh->ntk", y, talker.heads())
    acoustic = F.cross_entropy(logits.float().flatten(0, 1), codes[:, 1:].flatten(), reduction="none").view(frames, -1)
    found["acoustic"] = (acoustic.mean(1) * weight).sum() / weight.sum().clamp(min=1)
    found["levels"] = (acoustic * weight[:, None]).sum(0) / weight.sum().clamp(min=1)
    if guided:
        found["guide"] = guide_loss(talker, b)
    return found


class Trainer:
    def __init__(self, args: argparse.Namespace, data: Utterances, valid: Utterances) -> None:
        self.args, self.data, self.valid, self.device = args, data, valid, args.device
        self.graphed = self.device.startswith("cuda")
        self.sizes = dict(SIZES, text_vocab=-(-(data.ids.end_of_text + 6) // 16) * 16)
        self.talker = Talker(self.sizes).to(self.device)
        self.rate, self.guide = (torch.zeros((), device=self.device) for _ in range(2))
        named = list(self.talker.named_parameters())
        decayed = [p for n, p in named if p.dim() > 1 and "embedding" not in n]
        plain = [p for n, p in named if p.dim() < 2 or "embedding" in n]
        self.parameters = decayed + plain
        groups = [dict(params=decayed, weight_decay=args.weight_decay), dict(params=plain, weight_decay=0.0)]
        self.optimiser = torch.optim.AdamW(
            groups, self.rate if self.graphed else args.rate, betas=(0.9, 0.98), fused=self.graphed, capturable=self.graphed
        )
        if self.graphed:
            for group in self.optimiser.param_groups:
                group["lr"] = self.rate
        self.metrics = torch.zeros(len(METRICS), device=self.device)
        self.graphs: dict[int, torch.cuda.CUDAGraph] = {}
        self.rows = {length: torch.zeros(self.size(length), dtype=torch.long, device=self.device) for length in data.buckets}
        self.pool = torch.cuda.graph_pool_handle() if self.graphed else None
        self.step, self.first_step, self.elapsed, self.best = 0, 0, 0.0, float("inf")
        self.rng = random.Random(args.seed)
        self.order: list[tuple[int, np.ndarray]] = []

    def size(self, length: int) -> int:
        return max(2, self.args.tokens // length)

    def autocast(self):
        return torch.autocast(self.device.split(":")[0], torch.bfloat16, enabled=self.graphed, cache_enabled=False)

    def one_step(self, length: int) -> None:
        a, rows = self.args, self.rows[length]

        def chance(share: float) -> torch.Tensor:
            return torch.rand(len(rows), device=self.device) < share

        variant = torch.randint(0, self.data.variants, (len(rows),), device=self.device)
        variant = torch.where(chance(0.3), 0, variant)
        b = self.data.build(rows, rows, length, chance(0.7), chance(0.7), variant, a.noise)
        for p in self.parameters:
            p.grad = None
        with self.autocast():
            found = forward(self.talker, self.data, b, a.dropout, a.frames, True)
        (found["first"] + found["acoustic"] + self.guide * found["guide"]).backward()
        found["norm"] = nn.utils.clip_grad_norm_(self.parameters, 1.0, foreach=True)
        self.optimiser.step()
        with torch.no_grad():
            for i, name in enumerate(METRICS):
                self.metrics[i].lerp_(found[name].detach(), 0.02)

    def capture(self, length: int) -> None:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self.one_step(length)
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self.pool):
            self.one_step(length)
        self.graphs[length] = graph

    def next_batch(self) -> int:
        if not self.order:
            for length, rows in self.data.buckets.items():
                size, shuffled = self.size(length), np.array(rows)
                np.random.default_rng(self.rng.randrange(1 << 30)).shuffle(shuffled)
                shuffled = np.concatenate([shuffled, shuffled[: -len(shuffled) % size]])
                shuffled = np.resize(shuffled, -(-len(shuffled) // size) * size)
                self.order += [(length, part) for part in shuffled.reshape(-1, size)]
            self.rng.shuffle(self.order)
        length, rows = self.order.pop()
        self.rows[length].copy_(torch.from_numpy(rows), non_blocking=True)
        return length

    def advance(self) -> None:
        length = self.next_batch()
        if not self.graphed:
            self.one_step(length)
        elif length in self.graphs:
            self.graphs[length].replay()
        else:
            self.capture(length)
        self.step += 1

    @torch.no_grad()
    def validate(self) -> dict[str, float]:
        """Losses on the validation sentences, whole text, with the right text and with that of another sentence."""
        self.talker.eval()
        length, totals = 256, {}
        rows = torch.from_numpy(np.concatenate(list(self.valid.buckets.values()))).to(self.device)
        for start in range(0, len(rows), 64):
            part = rows[start : start + 64]
            yes = torch.ones(len(part), dtype=torch.bool, device=self.device)
            zero = torch.zeros(len(part), dtype=torch.long, device=self.device)
            for name, texts in (("", part), ("other_", part.roll(1))):
                b = self.valid.build(part, texts, length, yes, yes, zero, 0.0)
                with self.autocast():
                    found = forward(self.talker, self.valid, b, 0.0, 1 << 30, name == "")
                levels = found.pop("levels")
                found |= dict(level1=levels[0], level2=levels[1], level15=levels[-1])
                for key, value in found.items():
                    totals[name + key] = totals.get(name + key, 0.0) + value.item() * len(part) / len(rows)
        self.talker.train()
        keep = ("code0", "other_code0", "stop", "acoustic", "level1", "level2", "level15", "guide")
        return {k: round(totals[k], 4) for k in keep}

    def state(self) -> dict:
        return dict(
            sizes=self.sizes, step=self.step, elapsed=self.elapsed, best=self.best,
            talker=self.talker.state_dict(), optimiser=self.optimiser.state_dict(),
        )

    def load(self, path: Path) -> None:
        k = torch.load(path, map_location=self.device, weights_only=True)
        self.talker.load_state_dict(k["talker"])
        if "optimiser" in k:
            self.optimiser.load_state_dict(k["optimiser"])
            for group in self.optimiser.param_groups:
                group["lr"] = self.rate if self.graphed else self.args.rate
        self.step = self.first_step = k["step"]
        self.elapsed, self.best = k.get("elapsed", 0.0), k.get("best", float("inf"))  # best.pt: weights alone

    def save(self, name: str, state: dict) -> None:
        part = self.args.out / f"{name}.part"
        torch.save(state, part)
        os.replace(part, self.args.out / name)

    def run(self) -> None:
        a, begin, before = self.args, time.time(), self.elapsed
        if a.until:
            a.seconds = a.until - begin
        saved, mark, mark_step = begin, begin, self.step
        with (a.out / "lm.log.jsonl").open("a") as log:
            while True:
                now = time.time()
                self.elapsed = before + now - begin
                share = min(1.0, self.elapsed / a.total if a.total else (now - begin) / a.seconds)
                if now - begin >= a.seconds or self.step >= a.steps or (a.out / "stop").exists():
                    break
                rate = a.rate * min(1.0, (self.step - self.first_step + 1) / 400) * (0.49 * (1 + math.cos(math.pi * share)) + 0.02)
                self.rate.fill_(rate)
                self.guide.fill_(a.guide * max(0.0, 1 - max(0.0, share - 0.25) * 8))
                self.advance()
                if self.step % 250 == 0:
                    train = dict(zip(METRICS, self.metrics.tolist()))  # waits for the GPU
                    now = time.time()
                    line = dict(step=self.step, seconds=round(self.elapsed, 1), ms=round((now - mark) / (self.step - mark_step) * 1e3, 2), rate=round(rate, 6))
                    line |= {f"train_{k}": round(v, 4) for k, v in train.items()}
                    if self.step % a.validate_every == 0:
                        line |= self.validate()
                        if line["code0"] < self.best:
                            self.best = line["code0"]
                            self.save("best.pt", dict(sizes=self.sizes, step=self.step, talker={k: v.half() for k, v in self.talker.state_dict().items()}))
                    log.write(json.dumps(line) + "\n")
                    log.flush()
                    if self.step % 1000 == 0:
                        print(line, flush=True)
                    if not math.isfinite(train["code0"]):
                        print("not finite: the last saved state stays", flush=True)
                        return
                    mark, mark_step = time.time(), self.step
                    if now - saved > a.save_every:
                        self.save("lm.pt", self.state())
                        saved = now
            line = dict(step=self.step, seconds=round(self.elapsed, 1)) | self.validate()
            log.write(json.dumps(line) + "\n")
            print(line, flush=True)
        self.save("lm.pt", self.state())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("codes", "texts", "valid-codes", "valid-texts", "tok", "out"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--resume", type=Path)
    parser.add_argument("--seconds", type=float, default=400)
    parser.add_argument("--total", type=float, default=0, help="seconds of the whole plan, over all runs (default: this run)")
    parser.add_argument("--until", type=float, default=0, help="end at this time of the clock (seconds since 1970) instead")
    parser.add_argument("--steps", type=int, default=10**9)
    parser.add_argument("--share", type=float, default=1.0, help="part of the utterances")
    parser.add_argument("--tokens", type=int, default=16384, help="rows of a batch")
    parser.add_argument("--frames", type=int, default=3072, help="frames a step for the code predictor")
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--weight-decay", type=float, default=0.05)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--noise", type=float, default=0.15, help="part of the heard frames replaced by random ones")
    parser.add_argument("--bpe-dropout", type=float, default=0.1)
    parser.add_argument("--variants", type=int, default=4)
    parser.add_argument("--guide", type=float, default=0.3)
    parser.add_argument("--validate-every", type=int, default=500)
    parser.add_argument("--save-every", type=float, default=90)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--smoke", action="store_true")
    args = parser.parse_args()
    if args.smoke:
        args.device, args.tokens, args.frames, args.steps, args.variants = "cpu", 512, 64, 4, 2
    torch.manual_seed(args.seed)
    torch.backends.cuda.matmul.allow_tf32 = True
    args.out.mkdir(parents=True, exist_ok=True)
    files = sorted(args.codes.glob("train.*.npz")) or sorted(args.codes.glob("*.npz"))
    data = Utterances(files, args.texts, args.tok, args.device, args.variants, args.bpe_dropout, args.share)
    valid = Utterances([args.valid_codes], args.valid_texts, args.tok, args.device, 1, 0.0)
    sizes = {k: len(v) for k, v in data.buckets.items()}
    print(f"{data.hours:.2f} h, utterances by length {sizes}, word places for {(data.text_words < NONE - 1).float().mean():.0%} of the tokens", flush=True)
    trainer = Trainer(args, data, valid)
    print(f"{sum(p.numel() for p in trainer.parameters) / 1e6:.2f} M parameters", flush=True)
    if args.resume:
        trainer.load(args.resume)
    trainer.run()


if __name__ == "__main__":
    main()
