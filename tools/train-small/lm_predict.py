"""Levels 1 to 15 as the language model would choose them, code 0 and its past given: what the decoder is to be trained on.

The first pass hears the true codes; the second hears the choices of the first, as in free speech. One output per file of
codec_encode.py, of the same name: names, frames, codes (true), predicted, both [all frames, 16].

usage: lm_predict.py --lm ema.pt --codes DIR --texts train.tsv --tok DIR --out DIR [--first-shard 384] [--temperature 0.5]
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import torch

from lm import Talker
from lm_data import Utterances
from lm_sample import pick
from lm_train import multi_hot


@torch.inference_mode()
def choose(talker: Talker, h: torch.Tensor, first: torch.Tensor, temperature: float, top_k: int) -> torch.Tensor:
    """Hidden states [frames, hidden], code 0 [frames] -> codes [frames, 16]."""
    tables, heads = talker.code_tables(), talker.heads()
    inputs, codes = [h, tables[0][first].to(h.dtype)], [first]
    for level in range(15):
        y = talker.predict(torch.stack(inputs, 1))[:, -1]
        codes.append(pick((y @ heads[level].T.to(y.dtype)).float(), temperature, top_k))
        inputs.append(tables[level + 1][codes[-1]].to(h.dtype))
    return torch.stack(codes, 1)


@torch.inference_mode()
def predict(talker: Talker, data: Utterances, args: argparse.Namespace) -> tuple[np.ndarray, np.ndarray]:
    """-> true and predicted codes of everything in data."""
    true, heard = data.codes.clone(), data.codes.clone()
    for _ in range(2):
        made = true.clone()
        data.codes = heard
        for length, rows in data.buckets.items():
            size = max(1, args.tokens // length)
            for start in range(0, len(rows), size):
                part = torch.from_numpy(rows[start : start + size]).to(args.device)
                yes, zero = torch.ones(len(part), dtype=torch.bool, device=args.device), torch.zeros(len(part), dtype=torch.long, device=args.device)
                b = data.build(part, part, length, yes, yes, zero, None)
                with torch.autocast(args.device.split(":")[0], torch.bfloat16, enabled=args.device != "cpu"):
                    table = talker.input_table(data.ids)
                    h = talker.body((multi_hot(b, talker, len(table), len(data.ids.controls), table.dtype) @ table).float())
                    at = b.target[b.has_target]
                    made[at] = choose(talker, h[b.has_target], true[at, 0].long(), args.temperature, args.top_k).to(torch.uint8)
        heard = made
    return tuple(c[: data.used_frames].cpu().numpy() for c in (true, made))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("lm", "codes", "texts", "tok", "out"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--list", default="train")
    parser.add_argument("--first-shard", type=int, default=0)
    parser.add_argument("--hours", type=float, default=12, help="stop when that much is done")
    parser.add_argument("--temperature", type=float, default=0.5)
    parser.add_argument("--top-k", type=int, default=50)
    parser.add_argument("--tokens", type=int, default=16384)
    parser.add_argument("--share", type=float, default=1.0)
    parser.add_argument("--device", default="cuda")
    args = parser.parse_args()
    torch.manual_seed(0)
    k = torch.load(args.lm, map_location=args.device, weights_only=True)
    talker = Talker(k["sizes"]).to(args.device).eval()
    talker.load_state_dict({n: w.float() for n, w in k["talker"].items()})
    args.out.mkdir(parents=True, exist_ok=True)
    frames = 0
    for path in sorted(args.codes.glob(f"{args.list}.*.npz")):
        if int(path.name.split(".")[1]) < args.first_shard or frames > args.hours * 45000:
            continue
        z, start = np.load(path), time.time()
        data = Utterances(args.texts, args.tok, args.device, 1, 0.0, z["frames"].sum() / 45000 * 1.01 + 0.02, share=args.share)
        data.add([path])
        count = data.count
        true, made = predict(talker, data, args)
        np.savez(args.out / path.name, names=z["names"][:count], frames=z["frames"][:count], codes=true, predicted=made)
        frames += len(true)
        same = (true == made).mean(0)
        print(f"{path.name}: {len(true) / 45000:.2f} h in {time.time() - start:.1f} s, equal at levels 1, 2, 3, 15: {same[1]:.2f} {same[2]:.2f} {same[3]:.2f} {same[15]:.2f}", flush=True)


if __name__ == "__main__":
    main()
