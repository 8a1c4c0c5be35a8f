"""Encoded speech and its text in GPU memory; builds the official prompt rows (spec 4) of a whole batch with tensor arithmetic.

Row p of a sequence sums a projected text token, a control id and a frame of codes, each or none of them:
  role (3 rows) | think block, speaker | bos | text, eos, start (whole-text layout) or start (streamed) | frames
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

import bpe
from lm import Ids

NONE = 255
BUCKETS = (32, 48, 64, 96, 128, 176, 256)


class Batch:
    """What one step needs: multi-hot inputs, targets, and the alignment of target rows and text columns."""

    def __init__(self, **fields: torch.Tensor) -> None:
        self.__dict__.update(fields)


class Utterances:
    def __init__(self, files: list[Path], texts: Path, tok: Path, device: str, variants: int, dropout: float, share: float = 1.0) -> None:
        self.device, self.variants = device, variants
        text_of = dict(line.split("\t")[::2] for line in texts.read_text().splitlines())
        parts = [np.load(f) for f in files]
        names = [n for z in parts for n in z["names"].tolist()]
        self.frames_np = np.concatenate([z["frames"] for z in parts]).astype(np.int64)
        keep = max(1, int(len(names) * share))
        self.texts = [text_of[n] for n in names]
        self.tokenizer = bpe.load(tok)
        self.ids = Ids(256, self.tokenizer.get_vocab_size())

        def put(x: np.ndarray) -> torch.Tensor:
            return torch.from_numpy(np.ascontiguousarray(x)).to(device)

        i, place = self.ids, {c: k for k, c in enumerate(self.ids.controls)}
        none = len(place)  # controls are places in Ids.controls; one more means none
        role = [i.im_start, self.tokenizer.encode("assistant").ids[0], self.tokenizer.encode("\n").ids[0]]
        plain, english = (i.nothink, i.think_bos, i.think_eos), (i.think, i.think_bos, i.english, i.think_eos)
        self.role, self.place = put(np.array(role)), place
        self.think = put(np.array([[place[c] for c in plain] + [none], [place[c] for c in english]]))

        self.codes = put(np.concatenate([z["codes"] for z in parts]))
        self.words = put(np.concatenate([z["words"] for z in parts]))
        self.voice = put(np.concatenate([z["voice"] for z in parts]).astype(np.int64))
        self.frames = put(self.frames_np)
        self.first = put(np.concatenate([[0], np.cumsum(self.frames_np)[:-1]]))
        self.segment(np.concatenate([z["word_count"] for z in parts]), bpe.load(tok, dropout) if variants > 1 else None, put)
        total = 9 + 2 + self.longest + self.frames_np
        self.buckets = {}
        for low, high in zip((0, *BUCKETS), BUCKETS):
            rows = np.nonzero((total[:keep] > low) & (total[:keep] <= high))[0]
            if len(rows):
                self.buckets[high] = rows
        self.hours = self.frames_np[:keep].sum() / 45000

    def segment(self, word_count: np.ndarray, noisy, put) -> None:
        """Token ids and word indices of every text, `variants` segmentations; variant 0 is the official one."""
        ids, words, lengths = [], [], []
        for v in range(self.variants):
            encoder = self.tokenizer if v == 0 else noisy
            for text, count, enc in zip(self.texts, word_count, encoder.encode_batch(self.texts)):
                spaces = np.cumsum([c == " " for c in text])
                matched = len(text.split()) == count  # digits and symbols may be spoken as several words
                for start, end in enc.offsets:
                    words.append(int(spaces[min(start + (text[start] == " "), len(text) - 1)]) if matched else NONE - 1)
                ids += enc.ids
                lengths.append(len(enc.ids))
        n = np.array(lengths, np.int64)
        self.text_ids, self.text_words = put(np.array(ids, np.int16)), put(np.array(words, np.uint8))
        self.text_len = put(n.reshape(self.variants, -1))
        self.text_first = put(np.concatenate([[0], np.cumsum(n)[:-1]]).reshape(self.variants, -1))
        self.longest = n.reshape(self.variants, -1).max(0)

    def build(self, rows: torch.Tensor, text_rows: torch.Tensor, length: int, whole: torch.Tensor, lang: torch.Tensor, variant: torch.Tensor, noise: float) -> Batch:
        """rows, text_rows (usually the same): utterances [batch]; whole, lang: bool [batch]; variant [batch]."""
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
        if noise:
            other = torch.randint(0, len(self.codes), source.shape, device=device)
            source = torch.where(torch.rand(source.shape, device=device) < noise, other, source)
        target = (first + f + 1).clamp(0, len(self.codes) - 1)
        has_target = (f >= -1) & (f < n - 1)
        row_word = torch.where(has_target, self.words[target].long(), NONE)
        column_word = torch.where(in_text, self.text_words[at].long(), NONE - 1)
        return Batch(
            text=text, control=control, heard=heard, heard_codes=self.codes[source].long(), target=target,
            has_target=has_target, stop=f == n - 1, row_word=row_word, column_word=column_word,
        )
