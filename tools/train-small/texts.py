"""The text lists: 120 test sentences, 200 for validation, and the training list, which shares no 6-gram with either.

Lines are `id <TAB> kind <TAB> text`. Training lines are shuffled, so that every prefix is the same mixture; an id
never changes its meaning for one seed and one set of corpora.

usage: texts.py --data DATA [--lines 200000]        reads DATA/corpora, writes DATA/texts/{test,valid,train}.tsv
"""

from __future__ import annotations

import argparse
import random
import re
from pathlib import Path

import templates

# Shares of the lines of the training list. A kind that runs out leaves its share to the others.
MIX = {
    "wordnet": 0.17, "austen": 0.10, "bible": 0.10, "chatterbot": 0.005, "phrases": 0.11,
    "definitions": 0.17, "words": 0.13, "pairs": 0.10, "template": 0.115,
}
TEST = {"harvard": 40, "wordnet": 20, "austen": 10, "bible": 10, "mobydick": 10, "chatterbot": 10}
VALID = {"wordnet": 60, "austen": 40, "bible": 30, "definitions": 20, "harvard": 30, "mobydick": 20}
DIGITS = """The train to Glasgow leaves at 7:45 from platform 3.
Room 214 is at the end of the hall.
She ran 5 miles in 42 minutes.
My flight lands at 6:10 on May 23.
There were 18 ships and 367 sailors.
Please dial 9 and wait for 20 seconds.
The recipe needs 2 eggs and 150 grams of flour.
He was 34 years old in 1987.
The bridge is 96 feet high.
Chapter 12 begins on page 281.
We counted 1,250 votes by 11 o'clock.
The bill came to 58 dollars.
Bus number 73 stops here every 15 minutes.
It was 4 degrees below zero on January 8.
The parcel weighs 27 pounds.
Only 6 of the 40 lamps still work.
The movie starts at 8:30 and ends at 10:55.
Add 16 and 29 to get 45.
The shop has sold bread since 1902.
About 75 percent of the class passed.""".splitlines()
SUBJECT = re.compile(
    r"^(I|You|He|She|It|We|They|There|This|That|These|Those|The|A|An|His|Her|My|Our|Their|Your|What|Who|How|Why|When|"
    r"Where|Do|Did|Does|Don't|Please|Let|If|[A-Z][a-z]+) "
)


def words(sentence: str) -> list[str]:
    return re.sub(r"[^a-z0-9' ]", " ", sentence.lower().replace("-", " ")).split()


def grams(sentence: str, n: int = 6) -> set[str]:
    """All runs of n words; the whole sentence when it is shorter."""
    w = words(sentence)
    return {" ".join(w[i : i + n]) for i in range(len(w) - n + 1)} or {" ".join(w)}


def sensible(kind: str, s: str) -> bool:
    """Long enough, short enough for one breath, and (running text) without words run together."""
    if len(s) > 130 or len(s.split()) > 20 or re.search(r"[a-z][A-Z]|,[A-Za-z]", s):
        return False
    if kind in ("wordnet", "austen", "bible", "chatterbot", "harvard", "mobydick"):
        return len(s.split()) >= 4
    return True


def read(corpora: Path, kind: str) -> list[str]:
    lines = [s for s in (corpora / f"{kind}.txt").read_text().splitlines() if sensible(kind, s)]
    if kind == "wordnet":
        lines = [s for s in lines if SUBJECT.match(s)]
    if kind in ("words", "pairs"):
        lines = [s[:1].upper() + s[1:] + "." for s in lines[:40000]]  # the frequent ones
    return lines


def choose(corpora: Path, counts: dict[str, int], rng: random.Random, taken: set[str]) -> list[tuple[str, str]]:
    chosen = []
    for kind, count in counts.items():
        pool = [s for s in read(corpora, kind) if 5 <= len(s.split()) <= 14 and not grams(s) & taken]
        for s in rng.sample(pool, count):
            taken |= grams(s)
            chosen.append((kind, s))
    return chosen


def mixture(pools: dict[str, list[str]], count: int, rng: random.Random) -> list[tuple[str, str]]:
    out, seen = [], set()
    while len(out) < count:
        kinds = [k for k in MIX if pools[k]]
        if not kinds:
            break
        kind = rng.choices(kinds, [MIX[k] for k in kinds])[0]
        s = pools[kind].pop()
        if s.lower() not in seen:
            seen.add(s.lower())
            out.append((kind, s))
    return out


def write(path: Path, prefix: str, rows: list[tuple[str, str]]) -> None:
    path.write_text("".join(f"{prefix}{i:06d}\t{kind}\t{s}\n" for i, (kind, s) in enumerate(rows)))
    print(f"{path.name}: {len(rows)} lines, {sum(len(s) for _, s in rows)} characters")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--lines", type=int, default=200_000)
    args = parser.parse_args()
    corpora, out, rng = args.data / "corpora", args.data / "texts", random.Random(11)
    out.mkdir(parents=True, exist_ok=True)

    taken: set[str] = set().union(*(grams(s) for s in DIGITS))
    test = choose(corpora, TEST, rng, taken) + [("digits", s) for s in DIGITS]
    valid = choose(corpora, VALID, rng, taken)
    write(out / "test.tsv", "test", test)
    write(out / "valid.tsv", "valid", valid)

    pools = {}
    for kind in MIX:
        lines = sorted({templates.sentence(rng) for _ in range(60_000)}) if kind == "template" else read(corpora, kind)
        pools[kind] = [s for s in lines if not grams(s) & taken]
        rng.shuffle(pools[kind])
        print(f"  {kind}: {len(pools[kind])} usable")
    train = mixture(pools, args.lines, rng)
    write(out / "train.tsv", "t", train)
    shared = set().union(*(grams(s) for _, s in test + valid)) & set().union(*(grams(s) for _, s in train))
    if shared:
        raise SystemExit(f"training and held-out texts share {len(shared)} 6-grams, for example {min(shared)!r}")


if __name__ == "__main__":
    main()
