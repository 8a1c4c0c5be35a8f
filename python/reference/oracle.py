"""Runs the official package on a snapshot and records what passes between its parts.

Nothing of its arithmetic is replaced. Recording uses forward hooks, spies around the three `generate` methods (they copy
arguments and ask for the processed scores, a public option of `generate`), and for sampled runs a `torch.multinomial`
that does what the CPU kernel does, argmax(p / e) with exponential noise e, but keeps e.
"""

from __future__ import annotations

import os

os.environ["HF_HUB_OFFLINE"] = "1"  # before the imports: a local folder must never cause a look-up

import contextlib
import io
import logging
import warnings
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch

with contextlib.redirect_stdout(io.StringIO()):  # the package prints advice about flash-attn
    from qwen_tts import Qwen3TTSModel, VoiceClonePromptItem
from transformers import LogitsProcessor, LogitsProcessorList

torch.set_num_threads(1)
warnings.filterwarnings("ignore")
logging.getLogger("transformers").setLevel(logging.ERROR)


def load(folder: Path) -> Qwen3TTSModel:
    """Loads a snapshot in float32 and makes sure that every tensor of the files is in use, and none is missing."""
    wrapper = Qwen3TTSModel.from_pretrained(str(folder), attn_implementation=None)
    for module, path in ((wrapper.model, folder / "model.safetensors"),
                         (wrapper.model.speech_tokenizer.model, folder / "speech_tokenizer" / "model.safetensors")):
        compare_with_file(module, path)
    return wrapper


def compare_with_file(module: torch.nn.Module, path: Path) -> None:
    from safetensors import safe_open

    state = module.state_dict()
    with safe_open(str(path), framework="pt") as file:
        names = set(file.keys())
        if names != set(state):
            raise ValueError(f"{path}: unused {sorted(names - set(state))[:3]}, missing {sorted(set(state) - names)[:3]}")
        for name in names:
            if not torch.equal(file.get_tensor(name).float(), state[name].float()):
                raise ValueError(f"{path}: {name} was not loaded as stored")


@dataclass
class Run:
    """What one call recorded. Arrays follow the shapes of README.md; V talker vocabulary, C codes, H hidden size."""

    ids: np.ndarray | None = None
    instruct_ids: np.ndarray | None = None
    ref_ids: np.ndarray | None = None
    prompt_rows: np.ndarray | None = None
    trailing: np.ndarray | None = None
    codes: np.ndarray | None = None
    wave: np.ndarray | None = None
    code0: list[int] = field(default_factory=list)  # every sampled value, the stop token included
    hidden: list[np.ndarray] = field(default_factory=list)
    logits: list[np.ndarray] = field(default_factory=list)
    scores: list[np.ndarray] = field(default_factory=list)
    predictor_logits: list[np.ndarray] = field(default_factory=list)  # 15 a frame
    predictor_scores: list[np.ndarray] = field(default_factory=list)
    talker_draws: list[tuple[np.ndarray, np.ndarray]] = field(default_factory=list)  # (probabilities, noise)
    predictor_draws: list[tuple[np.ndarray, np.ndarray]] = field(default_factory=list)


def row(tensor: torch.Tensor) -> np.ndarray:
    """The last position of a batch of one, as float32."""
    return tensor.detach().reshape(-1, tensor.shape[-1])[-1].float().numpy().copy()


class Forced(LogitsProcessor):
    """Makes `generate` pick given codes, one after the other; the raw logits are recorded elsewhere."""

    def __init__(self, codes):
        self._codes = iter(codes)

    def __call__(self, input_ids, scores):
        forced = torch.full_like(scores, -torch.inf)
        forced[:, int(next(self._codes))] = 0
        return forced


class Recorder:
    """Context manager around one public call of the wrapper.

    `forced` [frames, 16] replaces every pick (the last sampled value, which `max_new_tokens` discards, is set to 0).
    """

    def __init__(self, wrapper: Qwen3TTSModel, noise_seed: int = 0, forced: np.ndarray | None = None):
        self.model, self.run = wrapper.model, Run()
        self.noise_seed = noise_seed
        self.forced = forced
        self._frame = 0
        self._undo: list = []

    def __enter__(self) -> Run:
        talker = self.model.talker
        self._hook(talker.codec_head, self._on_codec_head)
        for head in talker.code_predictor.lm_head:
            self._hook(head, lambda m, args, out: self.run.predictor_logits.append(row(out)))
        self._spy(self.model, "generate", self._around_model)
        self._spy(talker, "generate", self._around_talker)
        self._spy(talker.code_predictor, "generate", self._around_predictor)
        self._record_draws()
        return self.run

    def __exit__(self, *_):
        for undo in reversed(self._undo):
            undo()

    def _hook(self, module, function):
        handle = module.register_forward_hook(function)
        self._undo.append(handle.remove)

    def _spy(self, owner, name, around):
        original = getattr(owner, name)
        setattr(owner, name, lambda *args, **kwargs: around(original, *args, **kwargs))
        self._undo.append(lambda: delattr(owner, name))

    def _on_codec_head(self, module, args, out):
        self.run.hidden.append(row(args[0]))
        self.run.logits.append(row(out))

    def _around_model(self, original, **kwargs):
        def first(name):
            value = kwargs.get(name)
            return None if value is None or value[0] is None else value[0].reshape(-1).numpy().astype(np.int32)

        self.run.ids, self.run.instruct_ids, self.run.ref_ids = first("input_ids"), first("instruct_ids"), first("ref_ids")
        codes, hidden = original(**kwargs)
        self.run.codes = codes[0].numpy().astype(np.int16)
        return codes, hidden

    def _around_talker(self, original, **kwargs):
        self.run.prompt_rows = kwargs["inputs_embeds"][0].float().numpy().copy()
        self.run.trailing = kwargs["trailing_text_hidden"][0].float().numpy().copy()
        if self.forced is not None:
            kwargs["logits_processor"] = LogitsProcessorList([Forced([*self.forced[:, 0], 0])])
        result = original(**kwargs, output_scores=True)
        self.run.scores = [row(s) for s in result.scores]
        self.run.code0 = result.sequences[0].tolist()
        return result

    def _around_predictor(self, original, **kwargs):
        if self.forced is not None:
            kwargs["logits_processor"] = LogitsProcessorList([Forced(self.forced[self._frame, 1:])])
            self._frame += 1
        result = original(**kwargs, output_scores=True)
        self.run.predictor_scores += [row(s) for s in result.scores]
        return result

    def _record_draws(self):
        original, generator = torch.multinomial, torch.Generator().manual_seed(self.noise_seed)
        talker_width = self.model.talker.config.vocab_size

        def multinomial(probabilities, num_samples, replacement=False, *, generator_=generator, out=None):
            assert num_samples == 1 and out is None
            noise = torch.empty_like(probabilities).exponential_(1, generator=generator_)
            draws = self.run.talker_draws if probabilities.shape[-1] == talker_width else self.run.predictor_draws
            draws.append((row(probabilities), row(noise)))
            return torch.argmax(probabilities / noise, dim=-1, keepdim=True)

        torch.multinomial = multinomial
        self._undo.append(lambda: setattr(torch, "multinomial", original))


def margin(scores: np.ndarray) -> float:
    """Distance between the best and the second-best value."""
    best = np.partition(scores, -2)[-2:]
    return float(best[1] - best[0])


def decode_chunked(wrapper: Qwen3TTSModel, codes: np.ndarray) -> np.ndarray:
    """The public decode: chunks of 300 frames with 25 frames of left context. codes [T, 16] -> samples [1920 T]."""
    return wrapper.model.speech_tokenizer.decode([{"audio_codes": codes.astype(np.int64)}])[0][0]


def decode_whole(wrapper: Qwen3TTSModel, codes: np.ndarray) -> np.ndarray:
    """The decoder network applied once to all frames."""
    decoder = wrapper.model.speech_tokenizer.model.decoder
    with torch.inference_mode():
        return decoder(torch.from_numpy(codes.astype(np.int64).T[None]))[0, 0].numpy()
