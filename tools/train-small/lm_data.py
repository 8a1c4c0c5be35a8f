"""Encoded speech and its text in GPU memory, growing while new speech is encoded; builds the official prompt rows (spec 4)
of a whole batch with tensor arithmetic.

Row p of a sequence sums a projected text token, a control id and a frame of codes, each or none of them:
  role (3 rows) | think block, speaker | bos | text, eos, start (whole-text layout) or start (streamed) | frames
Utterances are also joined in pairs of one voice ("One. Two."): longer sequences, and contexts that no list holds.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

import bpe
from lm import Ids

NONE = 255
BUCKETS = (32, 48, 64, 96, 128, 176, 256)
LONGEST_PAIR = 190  # frames


class Batch:
    """What one step needs: multi-hot inputs, targets, and the alignment of target rows and text columns."""

    def __init__(self, **fields: torch.Tensor) -> None:
        self.__dict__.update(fields)


def read_codes(files: list[Path], text_of: dict[str, str], share: float) -> dict:
    """Utterances of some files of codec_encode.py: lists of texts and, per utterance, codes, words, voice, word count."""
    found: dict = dict(texts=[], codes=[], words=[], voice=[], count=[])
    for path in files:
        z = np.load(path)
        names = z["names"].tolist()[: max(1, int(len(z["names"]) * share))]
        ends = np.cumsum(z["frames"].astype(np.int64))[:-1]
        found["texts"] += [text_of[n] for n in names]
        found["codes"] += np.split(z["codes"], ends)[: len(names)]
        found["words"] += np.split(z["words"], ends)[: len(names)]
        found["voice"] += z["voice"].tolist()[: len(names)]
        found["count"] += z["word_count"].astype(np.int64).tolist()[: len(names)]
    return found


def join_pairs(u: dict, wanted: int, rng: np.random.Generator) -> None:
    """Adds up to `wanted` pairs of utterances of one voice, one behind the other."""
    voice = np.array(u["voice"])
    singles = [rng.permutation(np.nonzero(voice == v)[0]) for v in np.unique(voice)]
    pairs = [(a, b) for rows in singles for a, b in zip(rows[::2], rows[1::2])]
    for a, b in (pairs[k] for k in rng.permutation(len(pairs))[:wanted]):
        if len(u["codes"][a]) + len(u["codes"][b]) > LONGEST_PAIR or u["count"][a] + u["count"][b] >= NONE - 1:
            continue
        second = u["words"][b]
        u["texts"].append(u["texts"][a] + " " + u["texts"][b])
        u["codes"].append(np.concatenate([u["codes"][a], u["codes"][b]]))
        u["words"].append(np.concatenate([u["words"][a], np.where(second == NONE, NONE, second + u["count"][a]).astype(np.uint8)]))
        u["voice"].append(u["voice"][a])
        u["count"].append(u["count"][a] + u["count"][b])


class Utterances:
    """room: hours of speech that fit; variants: segmentations of every text (the first one is the official one)."""

    def __init__(self, texts: Path, tok: Path, device: str, variants: int, dropout: float, room: float, joined: float = 0.0, share: float = 1.0) -> None:
        self.device, self.variants, self.joined, self.share = device, variants, joined, share
        self.text_of = dict(line.split("\t")[::2] for line in texts.read_text().splitlines())
        self.tokenizer, self.noisy = bpe.load(tok), bpe.load(tok, dropout) if variants > 1 else None
        self.ids = Ids(256, self.tokenizer.get_vocab_size())
        self.token_bytes = np.array([len(self.tokenizer.id_to_token(t)) for t in range(self.ids.end_of_text)])
        i, place = self.ids, {c: k for k, c in enumerate(self.ids.controls)}
        none = len(place)  # controls are places in Ids.controls; one more means none
        role = [i.im_start, self.tokenizer.encode("assistant").ids[0], self.tokenizer.encode("\n").ids[0]]
        plain, english = (i.nothink, i.think_bos, i.think_eos), (i.think, i.think_bos, i.english, i.think_eos)
        self.role, self.place = torch.tensor(role, device=device), place
        self.think = torch.tensor([[place[c] for c in plain] + [none], [place[c] for c in english]], device=device)

        frames, most = int(room * 45000), int(room * 3600 / 0.8)

        def empty(*shape: int, kind: torch.dtype) -> torch.Tensor:
            return torch.zeros(*shape, dtype=kind, device=device)

        self.codes, self.words = empty(frames, 16, kind=torch.uint8), empty(frames, kind=torch.uint8)
        self.voice, self.frames, self.first = (empty(most, kind=torch.long) for _ in range(3))
        self.text_ids, self.text_words = empty(frames * variants, kind=torch.int16), empty(frames * variants, kind=torch.uint8)
        self.text_len, self.text_first = (empty(variants, most, kind=torch.long) for _ in range(2))
        self.used_frames, self.used_text, self.count = 0, 0, 0
        self.hours = 0.0  # of speech, pairs not counted again
        self.first_singles = 0  # utterances at the beginning that are no pairs
        self.used = torch.zeros((), device=device)  # frames, for the noise
        self.buckets: dict[int, np.ndarray] = {}
        self.seen: set[Path] = set()

    def prepare(self, files: list[Path]) -> dict:
        """The host's part of adding files; may run in another thread."""
        u = read_codes(files, self.text_of, self.share)
        hours, singles = sum(map(len, u["codes"])) / 45000, len(u["texts"])
        if self.joined:
            join_pairs(u, int(self.joined * len(u["texts"])), np.random.default_rng(len(self.seen)))
        ids, words, lengths = [], [], []
        for v in range(self.variants):
            encoder = self.tokenizer if v == 0 else self.noisy
            flat, places, n = self.segment(encoder, u["texts"], u["count"])
            ids.append(flat)
            words.append(places)
            lengths.append(n)
        return dict(
            files=files, hours=hours, singles=singles, codes=np.concatenate(u["codes"]), words=np.concatenate(u["words"]), voice=np.array(u["voice"], np.int64),
            frames=np.array([len(c) for c in u["codes"]], np.int64), text_ids=np.concatenate(ids), text_words=np.concatenate(words),
            text_len=np.stack(lengths),
        )

    def segment(self, encoder, texts: list[str], counts: list[int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """-> token ids and word indices, all texts joined, and tokens per text. A token belongs to the word of its first letter."""
        found = [e.ids for e in encoder.encode_batch(texts)]
        n = np.array([len(f) for f in found], np.int64)
        flat = np.concatenate([np.array(f, np.int16) for f in found])
        raw = [t.encode() for t in texts]
        size = np.array([len(r) for r in raw], np.int64)
        spaces = np.cumsum(np.frombuffer(b"".join(raw), np.uint8) == ord(" "))
        width = self.token_bytes[flat]
        if width.sum() != size.sum():
            raise ValueError("tokens do not cover the texts byte for byte: texts must be NFC")
        start = np.cumsum(width) - width
        begin = np.cumsum(size) - size
        before = np.concatenate([[0], spaces])[begin]  # spaces of the texts in front
        place = spaces[start] - np.repeat(before, n)
        # digits and symbols may be spoken as several words: those texts stay unaligned
        matched = np.array([len(t.split()) == c for t, c in zip(texts, counts)])
        return flat, np.where(np.repeat(matched, n), place, NONE - 1).astype(np.uint8), n

    def put(self, p: dict) -> bool:
        """Copies prepared utterances to the device; False when there is no room left."""
        count, frames, tokens = len(p["frames"]), len(p["codes"]), len(p["text_ids"])
        self.seen |= set(p["files"])
        if self.count + count > len(self.voice) or self.used_frames + frames > len(self.codes) or self.used_text + tokens > len(self.text_ids):
            return False

        def copy(to: torch.Tensor, at: int, values: np.ndarray) -> None:
            to[..., at : at + values.shape[-1]].copy_(torch.from_numpy(np.ascontiguousarray(values)))

        self.codes[self.used_frames : self.used_frames + frames].copy_(torch.from_numpy(p["codes"]))
        copy(self.words, self.used_frames, p["words"])
        copy(self.voice, self.count, p["voice"])
        copy(self.frames, self.count, p["frames"])
        copy(self.first, self.count, np.cumsum(p["frames"]) - p["frames"] + self.used_frames)
        copy(self.text_ids, self.used_text, p["text_ids"])
        copy(self.text_words, self.used_text, p["text_words"])
        flat = p["text_len"].ravel()
        copy(self.text_len, self.count, p["text_len"])
        copy(self.text_first, self.count, (np.cumsum(flat) - flat + self.used_text).reshape(p["text_len"].shape))
        total = 9 + 2 + p["text_len"].max(0) + p["frames"]
        for low, high in zip((0, *BUCKETS), BUCKETS):
            rows = np.nonzero((total > low) & (total <= high))[0] + self.count
            if len(rows):
                self.buckets[high] = np.concatenate([self.buckets.get(high, rows[:0]), rows])
        self.used_frames, self.used_text, self.count = self.used_frames + frames, self.used_text + tokens, self.count + count
        self.used.fill_(self.used_frames)
        self.hours += p["hours"]
        self.first_singles = self.first_singles or p["singles"]
        return True

    def add(self, files: list[Path]) -> None:
        self.put(self.prepare(files))

    def disturbed(self, source: torch.Tensor, first: torch.Tensor, n: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
        """Places of the heard frames, some of them replaced: a level of noise per sequence, uniform up to `noise`; two thirds
        become any frame at all, one third a neighbour (a sound held too long or left out)."""
        rand = torch.rand(3, *source.shape, device=self.device)
        level = noise * torch.rand(len(source), 1, device=self.device)
        anywhere = (rand[1] * 1.5 * self.used).long()  # where it is taken, rand[1] is below two thirds
        step = torch.randint(1, 3, source.shape, device=self.device) * torch.where(rand[2] < 0.5, -1, 1)
        near = torch.minimum(torch.maximum(source + step, first), first + n - 1)
        return torch.where(rand[0] < level, torch.where(rand[1] < 2 / 3, anywhere, near), source).clamp(max=len(self.codes) - 1)

    def build(self, rows: torch.Tensor, text_rows: torch.Tensor, length: int, whole: torch.Tensor, lang: torch.Tensor, variant: torch.Tensor, noise: torch.Tensor | None) -> Batch:
        """rows, text_rows (usually the same): utterances [batch]; whole, lang: bool [batch]; variant [batch]; noise: scalar."""
        i, device = self.ids, self.device
        p = torch.arange(length, device=device)[None]
        count, begin = (t[variant, text_rows][:, None] for t in (self.text_len, self.text_first))
        n, first = self.frames[rows][:, None], self.first[rows][:, None]
        whole, lang = whole[:, None], lang[:, None]
        prefix = 8 + lang.long()
        start = torch.where(whole, prefix + count + 2, prefix + 1)  # row of the first frame

        # text
        j = p - prefix
        in_text = (j >= 0) & (j < count)
        at = (begin + j).clamp(0, len(self.text_ids) - 1)
        text = torch.where(in_text, self.text_ids[at].long(), i.tts_pad)
        text = torch.where(j == count, i.tts_eos, text)
        text = torch.where(j == -1, i.tts_bos, text)
        text = torch.where(p < 3, self.role[p.clamp(max=2)], text)

        # control ids
        place, none = self.place, len(self.place)
        speaker = place[i.speakers[0]] + self.voice[rows][:, None]
        control = torch.full((len(rows), length), none, device=device)
        control = torch.where((p >= 3) & (p < 7), self.think[lang.long()[:, 0]][:, (p[0] - 3).clamp(0, 3)], control)
        control = torch.where(j == -2, speaker, control)
        control = torch.where((j == -1) | (whole & (j >= 0) & (j <= count)), place[i.pad], control)
        control = torch.where(p == start - 1, place[i.bos], control)

        # frames: heard at their own row, targets one row earlier
        f = p - start
        heard = (f >= 0) & (f < n)
        source = (first + f).clamp(0, len(self.codes) - 1)
        if noise is not None:
            source = self.disturbed(source, first, n, noise)
        target = (first + f + 1).clamp(0, len(self.codes) - 1)
        has_target = (f >= -1) & (f < n - 1)
        row_word = torch.where(has_target, self.words[target].long(), NONE)
        column_word = torch.where(in_text, self.text_words[at].long(), NONE - 1)
        return Batch(
            text=text, control=control, heard=heard, heard_codes=self.codes[source].long(), target=target,
            has_target=has_target, stop=f == n - 1, row_word=row_word, column_word=column_word,
        )
