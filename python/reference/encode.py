"""Encode cases: what the official package makes of a clip, stage by stage."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

import clips
from cases import EncodeCase

MIN_GAP = 1e-4  # between the nearest codeword and the next: float32 moves a distance by some 1e-6
EDGE, STRIDE = 8, 37  # mel frames kept from each end, and every so many


class Hooks:
    """Keeps the outputs of modules, and the distances behind every code that is kept, while in scope."""

    def __init__(self, wrapper):
        encoder = wrapper.model.speech_tokenizer.model.encoder
        self.speaker = wrapper.model.speaker_encoder
        self.outputs: dict[str, np.ndarray] = {}
        self.gaps: list[float] = []
        self._undo = []
        for name, module in (("conv", encoder.encoder), ("latent", encoder.downsample), ("mfa", self.speaker.mfa),
                             ("pooled", self.speaker.asp)):
            self._undo.append(module.register_forward_hook(self._keep(name)).remove)
        hook = self.speaker.register_forward_pre_hook(lambda module, args: self._store("mel", args[0][0]))
        self._undo.append(hook.remove)
        quantizer = encoder.quantizer
        books = [*quantizer.semantic_residual_vector_quantizer.layers, *quantizer.acoustic_residual_vector_quantizer.layers]
        for layer in books[: wrapper.model.speech_tokenizer.model.encoder_valid_num_quantizers]:
            self._watch(layer.codebook)

    def _store(self, name: str, tensor: torch.Tensor) -> None:
        self.outputs[name] = tensor.detach().float().numpy().copy()

    def _keep(self, name: str):
        return lambda module, args, out: self._store(name, out[0].transpose(0, 1))  # [time, channels]

    def _watch(self, codebook) -> None:
        original = codebook.quantize

        def quantize(vectors):
            distances = torch.cdist(vectors.double(), codebook.embed.double())
            nearest = distances.topk(2, largest=False).values
            self.gaps.append(float((nearest[:, 1] - nearest[:, 0]).min()))
            return original(vectors)

        codebook.quantize = quantize
        self._undo.append(lambda: delattr(codebook, "quantize"))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for undo in self._undo:
            undo()


def export_encode_case(wrapper, case: EncodeCase, out: Path, write) -> list[str]:
    audio = clips.samples(case.clip)
    with Hooks(wrapper) as seen:
        vector = wrapper.model.extract_speaker_embedding(audio, clips.RATE).float().numpy()
        codes = wrapper.model.speech_tokenizer.encode([audio], sr=clips.RATE).audio_codes[0].numpy() if case.codes else None
    mel = seen.outputs["mel"]
    info = {"name": case.name, "model": case.model, "mode": "encode", "samples": case.samples, "seed": case.seed,
            "crc": clips.crc(case.clip), "frames": 0 if codes is None else len(codes), "mel_frames": len(mel),
            "mel_edge": min(EDGE, len(mel)), "mel_stride": STRIDE, "rms": float(np.sqrt(np.mean(np.square(audio))))}
    files = {"xvector": vector, "mel_head": mel[:EDGE], "mel_tail": mel[-EDGE:], "mel_strided": mel[::STRIDE],
             "mfa_head": seen.outputs["mfa"][:EDGE], "pooled": seen.outputs["pooled"].reshape(-1)}
    problems = []
    if codes is not None:
        info["gap"] = min(seen.gaps)
        files |= {"codes": codes.astype(np.int16), "conv": seen.outputs["conv"], "latent": seen.outputs["latent"]}
        if info["gap"] < MIN_GAP:
            problems.append(f"the nearest codeword is {info['gap']:.1e} nearer than the next")
    write(out / case.name, info, files)
    print(f"{case.name}: {info['frames']} frames, {len(mel)} of mel, gap {info.get('gap', 0):.1e}", flush=True)
    return problems
