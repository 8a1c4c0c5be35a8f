"""Byte-level BPE with the Qwen2 pre-tokeniser; the same texts in several segmentations (BPE dropout) for the training.

usage: bpe.py --texts DATA/texts/train.tsv --entries 576 --out DATA/tok      writes DATA/tok/{vocab.json,merges.txt}
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

SPLIT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<tts_pad>", "<tts_text_bos>", "<tts_text_eod>")


def make(model: models.BPE) -> Tokenizer:
    t = Tokenizer(model)
    t.normalizer = normalizers.NFC()
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    t.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(SPLIT), "isolated"), byte_level])
    return t


def load(folder: Path, dropout: float | None = None) -> Tokenizer:
    vocab = json.loads((folder / "vocab.json").read_text())
    merges = [tuple(line.split(" ")) for line in (folder / "merges.txt").read_text().splitlines()[1:]]
    return make(models.BPE(vocab, merges, dropout=dropout))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--texts", type=Path, required=True)
    parser.add_argument("--entries", type=int, default=576)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    lines = [line.split("\t")[2] for line in args.texts.read_text().splitlines()]
    tokenizer = make(models.BPE())
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=args.entries, min_frequency=2, initial_alphabet=alphabet, show_progress=False)
    # `assistant` and the newline must each be one token: they belong to every prompt.
    tokenizer.train_from_iterator(lines + ["assistant\n"] * (len(lines) // 4), trainer)
    model = json.loads(tokenizer.to_str())["model"]
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "vocab.json").write_text(json.dumps(model["vocab"], ensure_ascii=False))
    merges = [" ".join(m) if isinstance(m, list) else m for m in model["merges"]]
    (args.out / "merges.txt").write_text("#version: 0.2\n" + "\n".join(merges) + "\n")
    for word in ("assistant", "\n"):
        if len(tokenizer.encode(word).ids) != 1:
            raise SystemExit(f"{word!r} is not one token: repeat it more often")
    ids = [tokenizer.encode(s).ids for s in lines[:3000]]
    print(len(model["vocab"]), "entries,", round(sum(map(len, lines[:3000])) / sum(map(len, ids)), 2), "characters per token")


if __name__ == "__main__":
    main()
