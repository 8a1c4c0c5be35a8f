"""Sentence files from freely usable packages: one text file per source, one sentence per line.

Sources (licences and versions: README.md): WordNet, Jane Austen, the World English Bible, ChatterBot, and, held out
of the training altogether, the Harvard sentences and Moby Dick.

usage: corpora.py --packages DIR --out DATA/corpora
DIR holds the Debian packages unpacked with `dpkg -x` (usr/...) and chatterbot_corpus-1.3.3-*.whl.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import zipfile
from pathlib import Path

import yaml

import rlazy

ABBREVIATION = re.compile(r"\b(Mr|Mrs|Dr|St|Capt|Col|Esq|Messrs|etc|viz|i\.e|e\.g|Gen|vol|chap)\.$")
PLAIN = re.compile(r"[A-Z][A-Za-z ,.'\-?!;:]*[.?!]")
SUBJECTS = set(
    "i you he she it we they this that these those there the a an his her my our their your what who how why when "
    "where do did does is are was were can could will would if let don't please".split()
)
QUOTES = str.maketrans({"“": '"', "”": '"', "’": "'", "‘": "'"})


def sentences(text: str) -> list[str]:
    """Splits running text at sentence ends, not after abbreviations."""
    text = re.sub(r"\s+", " ", text.replace("_", "").replace("--", ", ").translate(QUOTES))
    found, current = [], ""
    for part in re.split(r"(?<=[.!?])(?=[\"']?\s)", text):
        current += part
        if not ABBREVIATION.search(current):
            found.append(current.strip())
            current = ""
    return found


def usable(sentence: str) -> str | None:
    """The sentence without quotation marks, or None when it has other characters or an unsuitable length."""
    s = sentence.replace('"', "").strip(" '")
    if not 4 <= len(s.split()) <= 25 or not PLAIN.fullmatch(s) or sum(c.isupper() for c in s) >= 12:
        return None
    return s


def austen(root: Path) -> list[str]:
    found = []
    for lines in rlazy.load(root / "usr/lib/R/site-library/janeaustenr/data/Rdata").values():
        kept = [str(x) for x in lines if not re.match(r"(?i)^(chapter|volume|finis|by jane)", str(x))]
        for paragraph in "\n".join(kept).split("\n\n"):
            found += sentences(paragraph)
    return found


def moby_dick(root: Path) -> list[str]:
    text = str(rlazy.load(root / "usr/lib/R/site-library/tokenizers/data/Rdata")["mobydick"][0])
    text = text[text.find("Call me Ishmael") : text.find("End of Project Gutenberg")]
    return [s for paragraph in text.split("\r\n\r\n") for s in sentences(paragraph)]


def harvard(root: Path) -> list[str]:
    return [str(x) for x in rlazy.load(root / "usr/lib/R/site-library/stringr/data/Rdata")["sentences"]]


def bible(root: Path) -> list[str]:
    """The SWORD module through `mod2imp` (package libsword-utils)."""
    run = subprocess.run(
        ["mod2imp", "engWEB2015eb"],
        capture_output=True, text=True, check=True, env={"SWORD_PATH": str(root / "usr/share/sword"), "PATH": "/usr/bin"},
    )
    found = []
    for block in run.stdout.split("$$$"):
        if re.match(r"[A-Z0-9].* \d+:[1-9]", block):
            text = re.sub(r"<(note|title).*?</\1>", "", block.split("\n", 1)[1], flags=re.S)
            found += sentences(re.sub(r"<[^>]+>", "", text))
    return found


def chatterbot(root: Path) -> list[str]:
    found = []
    with zipfile.ZipFile(next(root.glob("chatterbot_corpus-*.whl"))) as wheel:
        for name in wheel.namelist():
            if "/english/" in name and name.endswith(".yml"):
                for talk in yaml.safe_load(wheel.read(name)).get("conversations", []):
                    for line in talk:
                        found += sentences(str(line))
    return found


def glosses(root: Path):
    """Lines of WordNet's data files as (part of speech, gloss)."""
    for part in ("noun", "verb", "adj", "adv"):
        for line in (root / f"usr/share/wordnet/data.{part}").read_text(encoding="latin1").splitlines():
            if not line.startswith("  ") and "|" in line:
                yield part, line.split("|", 1)[1].strip()


def capital(s: str) -> str:
    s = s.rstrip(" .,;:")
    return s[:1].upper() + s[1:] + ("" if s[-1:] in "?!" else ".")


def wordnet_examples(root: Path) -> tuple[list[str], list[str]]:
    """-> example sentences that begin like one, and the shorter phrases."""
    full, phrases = set(), set()
    for _, gloss in glosses(root):
        for example in re.findall(r'"([^"]+)"', gloss):
            s = example.strip().rstrip(";,")
            if not s or not re.fullmatch(r"[A-Za-z][A-Za-z ,.'\-?!;:]*", s):
                continue
            words = s.split()
            if len(words) >= 4 and (words[0].lower().rstrip(",'") in SUBJECTS or words[0][0].isupper()):
                full.add(capital(s))
            elif 2 <= len(words) <= 12:
                phrases.add(capital(s))
    return sorted(full), sorted(phrases)


def wordnet_definitions(root: Path) -> list[str]:
    found = set()
    for _, gloss in glosses(root):
        s = re.sub(r"\([^)]*\)", "", gloss.split('"')[0].split(";")[0])
        s = re.sub(r"\s+", " ", s).strip()
        if 3 <= len(s.split()) <= 14 and re.fullmatch(r"[A-Za-z][A-Za-z ,'\-]*", s):
            found.add(capital(s))
    return sorted(found)


def wordnet_words(root: Path) -> tuple[list[str], list[str]]:
    """-> single words and collocations, the most frequent first (by the number of senses seen in tagged text)."""
    uses: dict[str, int] = {}
    for part in ("noun", "verb", "adj", "adv"):
        for line in (root / f"usr/share/wordnet/index.{part}").read_text(encoding="latin1").splitlines():
            if not line.startswith("  "):
                lemma, _, senses, pointers, *rest = line.split()
                tagged = rest[int(pointers) + 1]
                uses[lemma] = uses.get(lemma, 0) + 10 * int(tagged) + int(senses)
    words, pairs = [], []
    for word in sorted(uses, key=lambda w: (-uses[w], w)):
        if re.fullmatch(r"[a-z]{2,13}", word):
            words.append(word)
        elif re.fullmatch(r"[a-z']{2,12}(_[a-z']{2,12}){1,2}", word):
            pairs.append(word.replace("_", " "))
    return words, pairs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--packages", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    root = args.packages

    examples, phrases = wordnet_examples(root)
    words, pairs = wordnet_words(root)
    running = {
        "wordnet": examples, "austen": austen(root), "bible": bible(root), "chatterbot": chatterbot(root),
        "harvard": harvard(root), "mobydick": moby_dick(root),
    }
    files = {name: sorted({s for s in map(usable, lines) if s}) for name, lines in running.items()}
    files |= {"phrases": phrases, "definitions": wordnet_definitions(root), "words": words, "pairs": pairs}
    for name, lines in files.items():
        (args.out / f"{name}.txt").write_text("\n".join(lines) + "\n")
        print(f"{name}: {len(lines)} lines, {sum(len(s.split()) for s in lines)} words")


if __name__ == "__main__":
    main()
