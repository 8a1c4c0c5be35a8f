"""Speech from a language model checkpoint for a text list, with the official sampling defaults, as a shard for recognise.py.

Batched and without a cache: for checks during the training. The figures of the issue come from skald itself.

usage: lm_sample.py --lm best.pt --codec codec.pt --tok DIR --texts test.tsv --out samples.npz [--layout whole|streamed]
                    [--temperature 0.9] [--stride 3] [--max 40] [--device cuda]
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch

import bpe
import codec_decode
import codec_encode
from lm import Ids, Talker

LONGEST = 160


def prompts(ids: Ids, tokenizer, texts: list[str], voices: list[int], whole: bool) -> list[tuple[list[tuple[int, int]], list[int]]]:
    """Per text: rows of (text id, codec id or -1), and the text ids that go with the frames (streamed layout)."""
    role, out = [ids.im_start, *tokenizer.encode("assistant").ids, *tokenizer.encode("\n").ids], []
    for text, voice in zip(texts, voices):
        t = tokenizer.encode(text).ids
        think = (ids.think, ids.think_bos, ids.english, ids.think_eos, ids.speakers[voice])
        rows = [(x, -1) for x in role] + [(ids.tts_pad, c) for c in think] + [(ids.tts_bos, ids.pad)]
        if whole:
            out.append((rows + [(x, ids.pad) for x in t] + [(ids.tts_eos, ids.pad), (ids.tts_pad, ids.bos)], []))
        else:
            out.append((rows + [(t[0], ids.bos)], [*t[1:], ids.tts_eos]))
    return out


def pick(logits: torch.Tensor, temperature: float, top_k: int) -> torch.Tensor:
    if temperature == 0:
        return logits.argmax(-1)
    logits = logits / temperature
    low = logits.topk(min(top_k, logits.shape[-1])).values[:, -1:]
    return torch.multinomial(logits.masked_fill(logits < low, float("-inf")).softmax(-1), 1)[:, 0]


@torch.inference_mode()
def generate(talker: Talker, ids: Ids, prompt: list, device: str, temperature: float, second: float, top_k: int, penalty: float) -> tuple[list[np.ndarray], np.ndarray]:
    """-> codes [frames, 16] of each prompt, and which ended by the stop token."""
    batch, stop = len(prompt), talker.c["codes"]
    starts = torch.tensor([len(rows) for rows, _ in prompt], device=device)
    length = int(starts.max()) + LONGEST
    text, codec = torch.full((batch, length), ids.tts_pad), torch.full((batch, length), -1)
    for b, (rows, tail) in enumerate(prompt):
        text[b, : len(rows)], codec[b, : len(rows)] = torch.tensor(rows).T
        tail = tail[: length - len(rows)]
        text[b, len(rows) : len(rows) + len(tail)] = torch.tensor(tail, dtype=torch.long)
    text, codec = text.to(device), codec.to(device)
    x = talker.text_table()[text].float()
    x = x + talker.model.codec_embedding(codec.clamp(min=0)) * (codec >= 0)[..., None]
    tables, heads, rows = talker.code_tables(), talker.heads(), torch.arange(batch, device=device)
    seen = torch.zeros(batch, stop + 1, dtype=torch.bool, device=device)
    done, frames = torch.zeros(batch, dtype=torch.bool, device=device), []
    for f in range(LONGEST):
        h = talker.body(x[:, : int(starts.max()) + f])[rows, starts + f - 1]
        logits = talker.first_logits(h, ids).float()
        logits = torch.where(seen, torch.where(logits < 0, logits * penalty, logits / penalty), logits)
        if f < 2:
            logits[:, stop] = float("-inf")
        code = pick(logits, temperature, top_k)
        done |= code == stop
        if done.all():
            break
        code = code.clamp(max=stop - 1)
        seen[rows, code] = True
        inputs, codes = [h, tables[0][code].to(h.dtype)], [code]
        for level in range(15):
            y = talker.predict(torch.stack(inputs, 1))[:, -1]
            codes.append(pick((y @ heads[level].T).float(), second, top_k))
            inputs.append(tables[level + 1][codes[-1]].to(h.dtype))
        frame = torch.stack(codes, 1)
        frames.append(torch.where(done[:, None], -1, frame))
        x[rows, starts + f] += sum(inputs[1:]).to(x.dtype)
    made = torch.stack(frames, 1).cpu().numpy()
    return [m[m[:, 0] >= 0] for m in made], done.cpu().numpy()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("lm", "codec", "tok", "texts", "out"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--decoder", type=Path, help="another checkpoint for the decoder")
    parser.add_argument("--layout", choices=("whole", "streamed"), default="whole")
    parser.add_argument("--temperature", type=float, default=0.9)
    parser.add_argument("--second", type=float, help="temperature of levels 1 to 15 (default: the same)")
    parser.add_argument("--top-k", type=int, default=50)
    parser.add_argument("--penalty", type=float, default=1.05)
    parser.add_argument("--stride", type=int, default=1)
    parser.add_argument("--max", type=int, default=10**9)
    parser.add_argument("--device", default="cuda")
    args = parser.parse_args()
    torch.manual_seed(0)
    k = torch.load(args.lm, map_location=args.device, weights_only=True)
    talker = Talker(k["sizes"]).to(args.device).eval()
    talker.load_state_dict({n: w.float() for n, w in k["talker"].items()})
    tokenizer = bpe.load(args.tok)
    ids = Ids(k["sizes"]["codes"], tokenizer.get_vocab_size())
    lines = [line.split("\t") for line in args.texts.read_text().splitlines()][:: args.stride][: args.max]
    voices = [i % 2 for i in range(len(lines))]
    prompt = prompts(ids, tokenizer, [text for _, _, text in lines], voices, args.layout == "whole")
    codes, done = generate(talker, ids, prompt, args.device, args.temperature, args.temperature if args.second is None else args.second, args.top_k, args.penalty)
    print(f"step {k['step']}, {args.layout}: {done.sum()} of {len(done)} ended by the stop token, {np.mean([len(c) for c in codes]):.1f} frames each, longest {max(map(len, codes))}")
    _, quantiser = codec_encode.load(args.codec, args.device)
    decoder = codec_decode.load_decoder(args.decoder or args.codec, args.device)
    audio = codec_decode.decode(decoder, quantiser, [c if len(c) else np.zeros((1, 16), np.int64) for c in codes], args.device)
    codec_decode.write(args.out, [name for name, _, _ in lines], voices, audio)


if __name__ == "__main__":
    main()
