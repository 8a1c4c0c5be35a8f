"""Teacher speech in GPU memory, with its phonemes, for the codec's training; grows while the teacher is still speaking.

Every utterance starts at a multiple of 1920 samples. Labels are phoneme classes in steps of 240 samples (10 ms).
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import torch

from speak import UNIT

STEP, FRAME = 240, 1920
MARKS = "ˈˌːʰʲ"  # stress and length: part of the phoneme beside them
PAUSE = 0


def classes(vocab: dict[str, int]) -> tuple[np.ndarray, int]:
    """Token id -> class (0: space, punctuation, edges; -1: belongs to the next token), and the number of classes."""
    table, count = np.zeros(256, np.int16), 1
    for symbol, token in vocab.items():
        if symbol in MARKS:
            table[token] = -1
        elif symbol.isalpha() or symbol == "ᵻ":
            table[token], count = count, count + 1
    return table, count


def labels(tokens: np.ndarray, durations: np.ndarray, lead: int, samples: int, table: np.ndarray) -> np.ndarray:
    """Class of every 10 ms of a trimmed utterance."""
    cls = table[tokens].copy()
    for i in range(len(cls) - 2, -1, -1):  # marks take the class of the phoneme that follows
        if cls[i] < 0:
            cls[i] = cls[i + 1]
    cls[cls < 0] = PAUSE
    at = (np.arange(-(-samples // STEP)) * STEP + STEP // 2 + lead) // UNIT
    ends = np.cumsum(durations.astype(np.int64))
    where = np.searchsorted(ends, at, side="right")
    inside = (at >= 0) & (where < len(cls))
    return np.where(inside, cls[np.minimum(where, len(cls) - 1)], PAUSE).astype(np.uint8)


class Shard:
    """The utterances of one file of speak.py."""

    def __init__(self, path: Path) -> None:
        z = np.load(path)
        self.names, self.voice, self.samples, self.lead = z["names"], z["voice"], z["samples"].astype(np.int64), z["lead"]
        self.audio = np.split(z["audio"], np.cumsum(self.samples)[:-1])
        ends = np.cumsum(z["tokens"].astype(np.int64))[:-1]
        self.tokens, self.durations = np.split(z["token_ids"], ends), np.split(z["durations"], ends)


    def keep(self, which: list[bool]) -> None:
        chosen = np.nonzero(which)[0]
        for name in ("names", "voice", "samples", "lead"):
            setattr(self, name, getattr(self, name)[chosen])
        for name in ("audio", "tokens", "durations"):
            setattr(self, name, [getattr(self, name)[i] for i in chosen])


class Corpus:
    """Flat audio and labels on the device with room for `hours`; crops() is static and may be captured in a graph."""

    def __init__(self, hours: float, vocab: Path, device: str, spoken: dict[str, tuple[np.ndarray, np.ndarray]] | None = None) -> None:
        """spoken: true and predicted codes by name (lm_predict.py); utterances without them are left out."""
        size = int(hours * 3600 * 24000) // FRAME * FRAME
        self.table, self.classes = classes(json.loads(vocab.read_text())["vocab"])
        self.audio = torch.zeros(size, dtype=torch.int16, device=device)
        self.labels = torch.zeros(size // STEP, dtype=torch.uint8, device=device)
        most = int(hours * 3600 / 0.5)
        self.start, self.samples = (torch.zeros(most, dtype=torch.long, device=device) for _ in range(2))
        self.ends = torch.full((most,), 2.0**40, dtype=torch.float64, device=device)  # running sum of lengths
        self.total = torch.zeros((), dtype=torch.float64, device=device)
        self.used, self.count, self.seen, self.device, self.spoken = 0, 0, set(), device, spoken
        self.codes = torch.zeros(2, size // FRAME if spoken else 0, 16, dtype=torch.uint8, device=device)

    def refresh(self, files: list[Path], limit: int = 8) -> None:
        """Takes in up to `limit` files not seen before, as long as there is room."""
        for path in [p for p in files if p not in self.seen][:limit]:
            shard = Shard(path)
            if self.spoken is not None:
                shard.keep([n in self.spoken for n in shard.names.tolist()])
                if not len(shard.names):
                    self.seen.add(path)
                    continue
            padded = -(-shard.samples // FRAME) * FRAME
            if self.used + padded.sum() > len(self.audio) or self.count + len(padded) > len(self.start):
                return
            self.seen.add(path)
            audio, marks = np.zeros(padded.sum(), np.int16), np.zeros(padded.sum() // STEP, np.uint8)
            starts = np.concatenate([[0], np.cumsum(padded)[:-1]])
            for i, s in enumerate(starts):
                n = shard.samples[i]
                audio[s : s + n] = shard.audio[i]
                found = labels(shard.tokens[i], shard.durations[i], int(shard.lead[i]), n, self.table)
                marks[s // STEP : s // STEP + len(found)] = found
            if self.spoken is not None:
                both = np.concatenate([np.stack(self.spoken[n]) for n in shard.names.tolist()], 1)
                self.codes[:, self.used // FRAME : self.used // FRAME + both.shape[1]] = torch.from_numpy(both).to(self.device)
            self.put(audio, marks, starts, shard.samples)

    def put(self, audio: np.ndarray, marks: np.ndarray, starts: np.ndarray, samples: np.ndarray) -> None:
        a, n = self.used, len(starts)
        self.audio[a : a + len(audio)] = torch.from_numpy(audio).to(self.device)
        self.labels[a // STEP : a // STEP + len(marks)] = torch.from_numpy(marks).to(self.device)
        rows = slice(self.count, self.count + n)
        self.start[rows] = torch.from_numpy(starts + a).to(self.device)
        self.samples[rows] = torch.from_numpy(samples).to(self.device)
        self.ends[rows] = torch.from_numpy(np.cumsum(samples).astype(np.float64)).to(self.device) + self.total
        self.total += float(samples.sum())
        self.used, self.count = a + len(audio), self.count + n

    @property
    def hours(self) -> float:
        return self.used / 24000 / 3600

    def crops(self, batch: int, frames: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Random crops -> audio [batch, samples], valid [batch, samples] (0.2 s past the end included), labels [batch, frames, 8].

        Utterances are drawn by length; a crop may begin 0.2 s before its utterance, as silence.
        """
        length, device = frames * FRAME, self.device
        pick = torch.searchsorted(self.ends, torch.rand(batch, dtype=torch.float64, device=device) * self.total, right=True)
        start, samples = self.start[pick], self.samples[pick]
        edge = 4800
        room = (samples - length + 2 * edge).clamp(min=edge)
        first = (torch.rand(batch, device=device) * room).long() // STEP * STEP - edge
        at = first[:, None] + torch.arange(length, device=device)
        real = (at >= 0) & (at < samples[:, None])
        index = (start[:, None] + at).clamp(0, len(self.audio) - 1)
        audio = torch.where(real, self.audio[index].float() / 32768, 0.0)
        valid = (at < samples[:, None] + edge).float()
        step = first[:, None] // STEP + torch.arange(length // STEP, device=device)
        inside = (step >= 0) & (step * STEP < samples[:, None])
        marks = self.labels[(start[:, None] // STEP + step).clamp(0, len(self.labels) - 1)].long()
        marks = torch.where(inside, marks, PAUSE)
        return audio, valid, marks.view(batch, frames, FRAME // STEP)

    def coded_crops(self, batch: int, frames: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Random crops at whole frames -> audio [batch, samples], valid [batch, samples], codes [2, batch, frames, 16]."""
        length, device = frames * FRAME, self.device
        pick = torch.searchsorted(self.ends, torch.rand(batch, dtype=torch.float64, device=device) * self.total, right=True)
        start, samples = self.start[pick], self.samples[pick]
        count = (samples + FRAME - 1) // FRAME
        first = (torch.rand(batch, device=device) * ((count - frames).clamp(min=0) + 1)).long()
        at = first[:, None] * FRAME + torch.arange(length, device=device)
        audio = self.audio[(start[:, None] + at).clamp(0, len(self.audio) - 1)].float() / 32768
        audio = torch.where(at < samples[:, None], audio, 0.0)
        valid = (at < count[:, None] * FRAME).float()
        place = first[:, None] + torch.arange(frames, device=device)
        place = start[:, None] // FRAME + torch.minimum(place, count[:, None] - 1)
        return audio, valid, self.codes[:, place].long()
