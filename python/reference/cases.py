"""The list of reference cases."""

from __future__ import annotations

from dataclasses import dataclass, field

GREEDY = {"do_sample": False, "subtalker_dosample": False}


@dataclass(frozen=True)
class Case:
    """One call of the official wrapper. Settings that `sampling` leaves out come from generation_config.json."""

    name: str
    model: str
    mode: str  # custom_voice, voice_design, voice_clone
    text: str
    stop: str = "eos"  # how it must end: "eos" or "length"
    layout: str = "whole"  # "whole" is non_streaming_mode=True, "stream" is False
    language: str | None = None
    speaker: str | None = None
    instruct: str | None = None
    ref_frames: int = 0  # 0: x-vector only; else in-context cloning with that many given frames
    ref_text: str | None = None
    ref_seed: int = 0
    max_new_tokens: int = 700
    sampling: dict = field(default_factory=lambda: dict(GREEDY))
    noise_seed: int = 0
    keep_hidden: int = 24
    keep_logits: int = 3
    keep_predictor: int = 3

    @property
    def samples_talker(self) -> bool:
        return self.sampling.get("do_sample", True)

    @property
    def samples_predictor(self) -> bool:
        return self.sampling.get("subtalker_dosample", True)


@dataclass(frozen=True)
class CodecCase:
    """Random codes through the codec: chunked as in the official decode, and whole."""

    name: str
    frames: int
    starts: tuple[int, ...]  # first frames of the windows that are stored sample by sample
    model: str = "tiny-cv"
    window: int = 4
    stride: int = 61  # shares no factor with 1920, so every phase of the upsampling is met
    seed: int = 7


CASES = (
    Case("cv-whole-english", "tiny-cv", "custom_voice", "Hello, world.", language="English",
         speaker="anna", keep_hidden=10_000, keep_logits=24, keep_predictor=24),
    Case("cv-stream-chinese", "tiny-cv", "custom_voice", "你好,世界。今天天气很好。", layout="stream", language="chinese",
         speaker="carl"),
    Case("cv-whole-auto-dialect", "tiny-cv", "custom_voice", "今天是星期一。", language="auto", speaker="bo"),
    Case("cv-whole-length", "tiny-cv", "custom_voice", "The quick brown fox jumps over the lazy dog.", stop="length",
         speaker="anna", max_new_tokens=20),
)

CODEC_CASES = (
    CodecCase("codec-10", 10, (0, 6)),
)
