"""Training of the language model on one GPU: resumable, every step one replay of a CUDA graph (one graph per length).

Against learning by heart: history noise, BPE dropout, both text layouts, dropout, pairs of utterances, and new codes taken
in as they appear in the folder. For reading: two heads of one layer are shown the known alignment (word level, from the
teacher's durations), fully at first, weakly to the end. The logits of code 0 are kept near log probabilities (z loss), so that
the official repetition penalty hardly changes them. The rate is constant, then falls to zero; the weights to keep are the
running average. The gate printed with every validation: loss of code 0 with the right text, and with another sentence's text.

usage: lm_train.py --codes DIR --texts train.tsv --valid-codes FILE --valid-texts valid.tsv --tok DIR --out DIR
                   --seconds 400 [--share 0.5] [--resume lm.pt] [--smoke]
Writes OUT/lm.pt (everything), OUT/stable.pt (everything, before the rate falls), OUT/ema.pt (averaged weights), OUT/best.pt
(averaged weights of the best validation), OUT/lm.log.jsonl. OUT/stop ends the run; OUT/control.json changes settings in it.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import queue
import random
import threading
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

from lm import GUIDED_HEADS, GUIDED_LAYER, SIZES, Talker
from lm_data import NONE, Batch, Utterances

METRICS = ("code0", "stop", "acoustic", "guide", "z", "norm")
EVERY = 250  # steps between two lines of the log
CONTROLS = ("rate", "noise", "guide", "dropout", "decay_from", "until")  # what OUT/control.json may name


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
    """Losses: code0 and stop (means), acoustic (mean over `frames` random frames and 15 levels; `weighted` counts the first
    levels most), z (squared log of the sum of code 0's exponentials), guide."""
    ids, device = data.ids, b.text.device
    table = talker.input_table(ids)
    hot = multi_hot(b, talker, len(table), len(ids.controls), table.dtype)
    x = F.dropout((hot @ table).float(), dropout, dropout > 0)
    h = talker.body(x, dropout)
    wanted = b.has_target | b.stop
    codes = data.codes[b.target].long()  # [batch, length, 16]
    goal = torch.where(b.stop, talker.c["codes"], codes[..., 0])
    logits = talker.first_logits(h, ids).float()
    each = F.cross_entropy(logits.flatten(0, 1), goal.flatten(), reduction="none").view_as(goal)
    z = (logits.logsumexp(-1).square() * wanted).sum() / wanted.sum().clamp(min=1)
    code0 = (each * b.has_target).sum() / b.has_target.sum().clamp(min=1)
    stop = (each * b.stop).sum() / b.stop.sum().clamp(min=1)
    found = dict(code0=code0, stop=stop, z=z, first=(each * wanted).sum() / wanted.sum().clamp(min=1))

    flat = b.has_target.flatten()
    frames = min(frames, len(flat))
    chosen = (torch.rand(len(flat), device=device) + 2 * flat).topk(frames).indices
    weight = flat[chosen].float()
    codes = codes.flatten(0, 1)[chosen]
    tables = talker.code_tables()
    hot = (codes[:, :-1].T[..., None] == torch.arange(talker.c["codes"], device=device)).to(table.dtype)  # [15, frames, 256]
    history = torch.bmm(hot, tables[:-1].to(table.dtype)).transpose(0, 1)
    inputs = torch.cat([h.flatten(0, 1)[chosen][:, None], history.float()], 1)
    y = talker.predict(inputs)[:, 1:]
    logits = torch.einsum("nth,tkh->ntk", y, talker.heads())
    acoustic = F.cross_entropy(logits.float().flatten(0, 1), codes[:, 1:].flatten(), reduction="none").view(frames, -1)
    found["acoustic"] = (acoustic.mean(1) * weight).sum() / weight.sum().clamp(min=1)
    found["levels"] = (acoustic * weight[:, None]).sum(0) / weight.sum().clamp(min=1)
    # The first levels carry what can be understood: weights from 3 to 0.2, 1 on average.
    weights = torch.exp(-torch.arange(len(found["levels"]), device=device) / 4) + 0.05
    found["weighted"] = (found["levels"] * weights / weights.sum()).sum()
    if guided:
        found["guide"] = guide_loss(talker, b)
    return found


class Feeder:
    """New files of a folder, prepared in a thread, one at a time."""

    def __init__(self, folder: Path, data: Utterances) -> None:
        self.folder, self.data, self.ready = folder, data, queue.Queue(1)
        self.known = set(data.seen)
        self.thread = threading.Thread(target=self.work, daemon=True)
        self.thread.start()

    def work(self) -> None:
        while True:
            for path in sorted(set(self.folder.glob("train.*.npz")) - self.known):
                self.known.add(path)
                self.ready.put(self.data.prepare([path]))
            time.sleep(3)

    def take(self) -> None:
        try:
            p = self.ready.get_nowait()
        except queue.Empty:
            return
        if not self.data.put(p):
            print(f"no room for {p['files'][0].name}", flush=True)


class Trainer:
    def __init__(self, args: argparse.Namespace, data: Utterances, valid: Utterances) -> None:
        self.args, self.data, self.valid, self.device = args, data, valid, args.device
        self.graphed = self.device.startswith("cuda")
        self.sizes = dict(SIZES, text_vocab=-(-(data.ids.end_of_text + 6) // 16) * 16)
        self.talker = Talker(self.sizes).to(self.device)
        self.rate, self.guide, self.noise = (torch.zeros((), device=self.device) for _ in range(3))
        named = list(self.talker.named_parameters())
        decayed = [p for n, p in named if p.dim() > 1 and "embedding" not in n]
        plain = [p for n, p in named if p.dim() < 2 or "embedding" in n]
        self.parameters = decayed + plain
        self.average = [p.detach().clone() for p in self.parameters]
        groups = [dict(params=decayed, weight_decay=args.weight_decay), dict(params=plain, weight_decay=0.0)]
        self.optimiser = torch.optim.AdamW(
            groups, self.rate if self.graphed else args.rate, betas=(0.9, 0.98), fused=self.graphed, capturable=self.graphed
        )
        if self.graphed:
            for group in self.optimiser.param_groups:
                group["lr"] = self.rate
        self.metrics = torch.zeros(len(METRICS), device=self.device)
        self.graphs: dict[int, torch.cuda.CUDAGraph] = {}
        self.rows: dict[int, torch.Tensor] = {}
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
        b = self.data.build(rows, rows, length, chance(0.75), chance(0.6), variant, self.noise)
        for p in self.parameters:
            p.grad = None
        with self.autocast():
            found = forward(self.talker, self.data, b, a.dropout, a.frames, True)
        (found["first"] + a.acoustic * found["weighted"] + self.guide * found["guide"] + a.z * found["z"]).backward()
        found["norm"] = nn.utils.clip_grad_norm_(self.parameters, 1.0, foreach=True)
        self.optimiser.step()
        with torch.no_grad():
            torch._foreach_lerp_(self.average, [p.detach() for p in self.parameters], 1 - a.average)
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
        if length not in self.rows:
            self.rows[length] = torch.zeros(self.size(length), dtype=torch.long, device=self.device)
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

    def losses(self, data: Utterances, rows: torch.Tensor) -> dict[str, float]:
        """Losses on undisturbed utterances, whole text: with the right text, and (`other_`) with that of another one."""
        length, totals = 256, {}
        for start in range(0, len(rows), 64):
            part = rows[start : start + 64]
            yes = torch.ones(len(part), dtype=torch.bool, device=self.device)
            zero = torch.zeros(len(part), dtype=torch.long, device=self.device)
            for name, texts in (("", part), ("other_", part.roll(1))):
                b = data.build(part, texts, length, yes, yes, zero, None)
                with self.autocast():
                    found = forward(self.talker, data, b, 0.0, 1 << 30, name == "")
                levels = found.pop("levels")
                found |= dict(level1=levels[0], level2=levels[1], level3=levels[2], level15=levels[-1])
                for key, value in found.items():
                    totals[name + key] = totals.get(name + key, 0.0) + value.item() * len(part) / len(rows)
        return totals

    @torch.no_grad()
    def validate(self) -> dict[str, float]:
        """The averaged weights on the validation sentences, and on some of the training (`seen_`)."""
        last = [p.detach().clone() for p in self.parameters]
        torch._foreach_copy_([p.detach() for p in self.parameters], self.average)
        self.talker.eval()
        few = 4 if self.args.smoke else 192
        totals = self.losses(self.valid, torch.arange(min(few, self.valid.count), device=self.device))
        seen = self.losses(self.data, torch.linspace(0, self.data.first_singles - 1, few, device=self.device).long())
        self.talker.train()
        torch._foreach_copy_([p.detach() for p in self.parameters], last)
        keep = ("code0", "other_code0", "stop", "z", "acoustic", "level1", "level2", "level3", "level15", "guide")
        return {k: round(totals[k], 4) for k in keep} | dict(seen_code0=round(seen["code0"], 4), seen_level1=round(seen["level1"], 4))

    def averaged(self) -> dict:
        """Weights alone, float16, under their official names."""
        names = {id(p): n for n, p in self.talker.named_parameters()}
        weights = {names[id(p)]: w.half() for p, w in zip(self.parameters, self.average)}
        return dict(sizes=self.sizes, step=self.step, talker=weights)

    def state(self) -> dict:
        return dict(
            sizes=self.sizes, step=self.step, elapsed=self.elapsed, best=self.best,
            talker=self.talker.state_dict(), average=self.average, optimiser=self.optimiser.state_dict(),
        )

    def load(self, path: Path) -> None:
        k = torch.load(path, map_location=self.device, weights_only=True)
        self.talker.load_state_dict(k["talker"])
        for mine, saved in zip(self.average, k.get("average", self.parameters)):
            mine.copy_(saved.detach())
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

    def control(self) -> None:
        """Takes over what OUT/control.json says; another dropout needs new graphs."""
        path = self.args.out / "control.json"
        if not path.exists():
            return
        wanted = {k: v for k, v in json.loads(path.read_text()).items() if k in CONTROLS and getattr(self.args, k) != v}
        if wanted:
            print(f"step {self.step}: now {wanted}", flush=True)
            if "dropout" in wanted:
                self.graphs.clear()
            self.args.__dict__.update(wanted)

    def schedule(self, share: float) -> None:
        """Rate: rises, stays, falls as one minus a square root. Guide: falls to a fifth in the second third."""
        a = self.args
        fall = max(0.0, (share - a.decay_from) / (1 - a.decay_from)) if a.decay_from < 1 else 0.0
        self.rate.fill_(a.rate * min(1.0, (self.step - self.first_step + 1) / 500) * (1 - math.sqrt(min(1.0, fall))))
        self.guide.fill_(a.guide * (1 - 0.8 * min(1.0, max(0.0, share * 3 - 1))))
        self.noise.fill_(a.noise)

    def report(self, log, mark: tuple[float, int]) -> bool:
        """One line of the log; False when the run has failed."""
        train = dict(zip(METRICS, self.metrics.tolist()))  # waits for the GPU
        line = dict(step=self.step, seconds=round(self.elapsed, 1), hours=round(self.data.hours, 1))
        line |= dict(ms=round((time.time() - mark[0]) / (self.step - mark[1]) * 1e3, 2), rate=round(self.rate.item(), 6))
        line |= {f"train_{k}": round(v, 4) for k, v in train.items()}
        if self.step % self.args.validate_every == 0:
            line |= self.validate()
            if line["code0"] < self.best:
                self.best = line["code0"]
                self.save("best.pt", self.averaged())
            print(line, flush=True)
        log.write(json.dumps(line) + "\n")
        log.flush()
        return all(map(math.isfinite, train.values()))

    def run(self, feeder: Feeder) -> None:
        a, begin, before, saved, stable = self.args, time.time(), self.elapsed, time.time(), False
        mark = (begin, self.step)
        self.control()
        with (a.out / "lm.log.jsonl").open("a") as log:
            while time.time() < a.until and self.step < a.steps and not (a.out / "stop").exists():
                self.elapsed = before + time.time() - begin
                share = min(1.0, (time.time() - a.begin) / (a.until - a.begin))
                if share > a.decay_from and not stable:
                    stable = (a.out / "stable.pt").exists() or self.save("stable.pt", self.state()) is None
                self.schedule(share)
                self.advance()
                if self.step % 25 == 0:
                    feeder.take()
                if self.step % EVERY == 0:
                    if not self.report(log, mark):
                        print("not finite: the last saved state stays", flush=True)
                        return
                    self.control()
                    if time.time() - saved > a.save_every:
                        self.save("lm.pt", self.state())
                        self.save("ema.pt", self.averaged())
                        saved = time.time()
                    mark = (time.time(), self.step)
            line = dict(step=self.step, seconds=round(self.elapsed, 1), hours=round(self.data.hours, 1)) | self.validate()
            log.write(json.dumps(line) + "\n")
            print(line, flush=True)
        self.save("ema.pt", self.averaged())
        self.save("lm.pt", self.state())
        (a.out / "finished").touch()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("codes", "texts", "valid-codes", "valid-texts", "tok", "out"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--resume", type=Path)
    parser.add_argument("--seconds", type=float, default=400)
    parser.add_argument("--begin", type=float, default=0, help="time of the clock (seconds since 1970) at which the plan began")
    parser.add_argument("--until", type=float, default=0, help="end at this time of the clock instead of after --seconds")
    parser.add_argument("--decay-from", type=float, default=0.65, help="part of the time after which the rate falls")
    parser.add_argument("--room", type=float, default=0, help="hours of speech that fit, pairs included (default: what is there)")
    parser.add_argument("--first-files", type=int, default=4, help="files to load before the first step")
    parser.add_argument("--joined", type=float, default=0.15, help="pairs of utterances, as a part of the utterances")
    parser.add_argument("--average", type=float, default=0.9995, help="decay of the running average of the weights")
    parser.add_argument("--acoustic", type=float, default=2.0, help="weight of levels 1 to 15 beside code 0")
    parser.add_argument("--z", type=float, default=0.01, help="weight of the z loss")
    parser.add_argument("--steps", type=int, default=10**9)
    parser.add_argument("--share", type=float, default=1.0, help="part of the utterances")
    parser.add_argument("--tokens", type=int, default=16384, help="rows of a batch")
    parser.add_argument("--frames", type=int, default=4096, help="frames a step for the code predictor")
    parser.add_argument("--rate", type=float, default=1.2e-3)
    parser.add_argument("--weight-decay", type=float, default=0.1)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--noise", type=float, default=0.5, help="largest part of the heard frames that is replaced; half of it on average")
    parser.add_argument("--bpe-dropout", type=float, default=0.1)
    parser.add_argument("--variants", type=int, default=6)
    parser.add_argument("--guide", type=float, default=0.5)
    parser.add_argument("--validate-every", type=int, default=1000)
    parser.add_argument("--save-every", type=float, default=90)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--smoke", action="store_true")
    args = parser.parse_args()
    if args.smoke:
        args.device, args.tokens, args.frames, args.variants, args.first_files = "cpu", 512, 64, 2, 1
        args.steps = 4 if args.steps == 10**9 else args.steps
    args.begin = args.begin or time.time()
    args.until = args.until or time.time() + args.seconds
    torch.manual_seed(args.seed)
    torch.backends.cuda.matmul.allow_tf32 = True
    args.out.mkdir(parents=True, exist_ok=True)
    files = sorted(args.codes.glob("train.*.npz"))
    room = args.room or sum(np.load(f)["frames"].sum() for f in files) / 45000 * (1 + 3 * args.joined)
    data = Utterances(args.texts, args.tok, args.device, args.variants, args.bpe_dropout, room, args.joined, args.share)
    data.add(files[: args.first_files])
    valid = Utterances(args.valid_texts, args.tok, args.device, 1, 0.0, 0.5)
    valid.add([args.valid_codes])
    sizes = {k: len(v) for k, v in data.buckets.items()}
    print(f"{data.hours:.2f} h, utterances by length {sizes}, word places for {(data.text_words[: data.used_text] < NONE - 1).float().mean():.0%} of the tokens", flush=True)
    trainer = Trainer(args, data, valid)
    print(f"{sum(p.numel() for p in trainer.parameters) / 1e6:.2f} M parameters", flush=True)
    if args.resume:
        trainer.load(args.resume)
    trainer.run(Feeder(args.codes, data))


if __name__ == "__main__":
    main()
