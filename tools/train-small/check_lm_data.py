"""Checks lm_data.build and lm_train.multi_hot against the prompt rows written out one by one. usage: as lm_train.py --smoke, first three options and --tok"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from lm import Talker
from lm_data import Utterances, read_codes
from lm_train import multi_hot


def rows_of(u: Utterances, k: int, text: str, whole: bool, lang: bool) -> list[tuple[int, int, int]]:
    """(text id, codec id or -1, frame or -1) of one sequence, frames included."""
    i = u.ids
    tokens = u.tokenizer.encode(text).ids
    think = [i.think, i.think_bos, i.english, i.think_eos] if lang else [i.nothink, i.think_bos, i.think_eos]
    out = [(t, -1, -1) for t in u.role.tolist()] + [(i.tts_pad, c, -1) for c in (*think, i.speakers[int(u.voice[k])])]
    out.append((i.tts_bos, i.pad, -1))
    first, n = int(u.first[k]), int(u.frames[k])
    if whole:
        out += [(t, i.pad, -1) for t in tokens] + [(i.tts_eos, i.pad, -1), (i.tts_pad, i.bos, -1)]
        return out + [(i.tts_pad, -1, first + f) for f in range(n)]
    tail = [*tokens[1:], i.tts_eos]
    out.append((tokens[0], i.bos, -1))
    return out + [(tail[f] if f < len(tail) else i.tts_pad, -1, first + f) for f in range(n)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--codes", type=Path, required=True)
    parser.add_argument("--texts", type=Path, required=True)
    parser.add_argument("--tok", type=Path, required=True)
    args = parser.parse_args()
    u = Utterances(args.texts, args.tok, "cpu", 1, 0.0, 8.0)
    files = sorted(args.codes.glob("*.npz"))[:1]
    u.add(files)
    texts = read_codes(files, u.text_of, 1.0)["texts"]
    talker, count = Talker(), 0
    table, length = talker.input_table(u.ids), 256
    for k in range(min(8, u.count)):
        for whole in (False, True):
            for lang in (False, True):
                one = torch.tensor([k])
                b = u.build(one, one, length, torch.tensor([whole]), torch.tensor([lang]), torch.zeros(1, dtype=torch.long), None)
                got = (multi_hot(b, talker, len(table), len(u.ids.controls), table.dtype) @ table)[0]
                want = rows_of(u, k, texts[k], whole, lang)
                for p, (text, control, frame) in enumerate(want):
                    x = talker.text_table()[text]
                    if control >= 0:
                        x = x + talker.model.codec_embedding.weight[control]
                    if frame >= 0:
                        x = x + sum(talker.code_tables()[g, int(c)] for g, c in enumerate(u.codes[frame]))
                    torch.testing.assert_close(got[p], x)
                start, n, first = len(want) - int(u.frames[k]), int(u.frames[k]), int(u.first[k])
                assert b.target[0][b.has_target[0]].tolist() == list(range(first, first + n))
                assert b.has_target[0].nonzero()[0, 0] == start - 1 and b.stop[0].nonzero()[:, 0].tolist() == [start + n - 1]
                count += 1
    print(f"{count} sequences equal")


if __name__ == "__main__":
    main()
