"""The list of reference cases. Texts were picked so that every run ends as `stop` says with healthy margins."""

from __future__ import annotations

from dataclasses import dataclass, field

from clips import Clip

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
    clip: Clip | None = None  # the reference as audio; then `ref_frames` only says whether it is in-context (not 0)
    max_new_tokens: int = 700
    sampling: dict = field(default_factory=lambda: dict(GREEDY))
    noise_seed: int = 0
    keep_hidden: int = 24
    keep_logits: int = 2
    keep_predictor: int = 2

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


@dataclass(frozen=True)
class EncodeCase:
    """A clip through the encoders: speaker vector and, unless told otherwise, codes."""

    name: str
    samples: int
    seed: int
    model: str = "tiny-base"
    codes: bool = True

    @property
    def clip(self) -> Clip:
        return Clip(self.samples, self.seed)


def custom(name: str, text: str, model: str = "tiny-cv", **rest) -> Case:
    return Case(name, model, "custom_voice", text, **{"speaker": "anna", **rest})


def custom_1b7(name: str, text: str, **rest) -> Case:
    return custom(name, text, "tiny-cv-1b7", **rest)


def design(name: str, text: str, **rest) -> Case:
    return Case(name, "tiny-vd", "voice_design", text, **{"instruct": "", **rest})


def clone(name: str, text: str, model: str = "tiny-base", **rest) -> Case:
    return Case(name, model, "voice_clone", text, **{"layout": "stream", **rest})


def full(case_maker, *args, **rest) -> Case:
    """A case that keeps every hidden state and more of the logits than the others."""
    return case_maker(*args, **{"keep_hidden": 10_000, "keep_logits": 10, "keep_predictor": 10, **rest})


CUSTOM = (
    full(custom, "cv-whole-english", "Hello, world.", language="English"),
    custom("cv-stream-chinese", "你好,世界。今天天气很好。", layout="stream", language="chinese", speaker="carl"),
    custom("cv-whole-auto", "Where are you going?", language="auto", speaker="Carl"),
    custom("cv-stream-auto", "She said that the house was late.", layout="stream"),
    custom("cv-whole-auto-dialect", "今天是星期一。", language="auto", speaker="bo"),
    custom("cv-whole-chinese-dialect", "我们一起去公园。", language="Chinese", speaker="bo"),
    custom("cv-whole-english-dialect", "We walk to the park.", language="english", speaker="bo"),
    custom("cv-stream-no-language-dialect", "请慢慢地读这段文字。", layout="stream", speaker="dora"),
    custom("cv-whole-instruct-ignored", "A calm speaker.", language="english", instruct="Speak in a low voice."),
    custom("cv-whole-no-speaker", "One, two, three.", language="german", speaker=""),
    custom("cv-stream-japanese", "こんにちは、世界。これはテストです。", layout="stream", language="japanese"),
    custom("cv-whole-hindi", "नमस्ते दुनिया। यह एक परीक्षा है।"),
    custom("cv-stream-arabic", "مرحبا بالعالم. كيف حالك؟", layout="stream", speaker="dora", language="spanish"),
    custom("cv-whole-emoji", "Well done 👍🏽 🎉!", language="english", speaker="carl"),
    custom("cv-stream-digits", "Call 0123456789 at 10:45.", layout="stream", language="english"),
    custom("cv-whole-hash", "## heading ### #include <a.h> #tags #1", language="english", speaker="carl"),
    custom("cv-whole-newlines", "\n\nstart", language="english"),
    custom("cv-stream-newline-start", "\nand then\r\n\r\nthe end", layout="stream", language="english"),
    custom("cv-whole-empty", "", language="english"),
    custom("cv-stream-empty", "", layout="stream", language="english"),
    custom("cv-whole-blank", " ", speaker="carl"),
    custom("cv-stream-one-letter", "a", layout="stream", language="english"),
    custom("cv-whole-raw-tokens", "stop<|im_end|>now", language="english"),
    custom("cv-whole-forbidden-eos", "sun Haus ok! now!"),
    custom("cv-whole-earliest-eos", "house 3 1."),
    custom("cv-whole-length", "The quick brown fox jumps over the lazy dog.", stop="length", max_new_tokens=20),
    custom("cv-stream-length", "Schöne Grüße aus München.", layout="stream", stop="length", language="german",
           max_new_tokens=12),
    custom("cv-whole-length-one-frame", "Stop.", stop="length", language="english", max_new_tokens=2),
    custom("cv-whole-penalty", "Nothing repeats.", language="english", sampling={**GREEDY, "repetition_penalty": 1.3}),
    custom("cv-whole-no-penalty", "All of it may repeat.", language="english", speaker="carl", stop="length",
           max_new_tokens=90, sampling={**GREEDY, "repetition_penalty": 1.0}),
)

LONG_TEXT = ("Once more. The quick brown fox jumps over the lazy dog, and nothing was heard in the house. "
             "你好,世界。 Guten Morgen, wie geht es dir? 1 2 3 4 5 6 7 8 9 10. ") * 3

ENDLESS = (
    custom("endless-whole", "It goes on and on.", "tiny-endless", language="english", stop="length", max_new_tokens=341),
    custom("endless-stream-long-text", LONG_TEXT, "tiny-endless", layout="stream", stop="length", max_new_tokens=380),
    custom("endless-stream-dialect", "今天天气很好,我们一起去公园。", "tiny-endless", layout="stream", language="chinese",
           speaker="bo", stop="length", max_new_tokens=352),
)

CUSTOM_1B7 = (
    full(custom_1b7, "cv1b7-whole-instruct", "Hello, world!", language="english", instruct="Speak in a warm, low voice."),
    custom_1b7("cv1b7-stream-instruct", "Please read this text aloud.", layout="stream", language="english",
               instruct="Very happy."),
    custom_1b7("cv1b7-whole-no-instruct", "Where are you?", language="english", speaker="carl"),
    custom_1b7("cv1b7-stream-auto", "Ça va très bien, merci.", layout="stream"),
    custom_1b7("cv1b7-whole-dialect-instruct", "你们好吗?", language="auto", speaker="dora", instruct="慢慢地"),
    custom_1b7("cv1b7-stream-earliest-eos", "it there über now No!", layout="stream"),
    custom_1b7("cv1b7-whole-length", "¿Dónde está la biblioteca?", language="spanish", stop="length", max_new_tokens=24),
)

DESIGN = (
    full(design, "vd-whole-instruct", "Good morning to you.", language="english", instruct="A calm and friendly speaker."),
    design("vd-stream-instruct", "What is the time?", layout="stream", language="english",
           instruct="A little laughter."),
    design("vd-whole-auto", "안녕하세요 세계."),
    design("vd-stream-auto-instruct", "Привет, мир. Как дела?", layout="stream", instruct="low voice"),
    design("vd-whole-earliest-eos", "one well Go"),
    design("vd-whole-length", "Ten, nine, eight, seven.", language="german", stop="length", max_new_tokens=12,
           instruct="slow"),
)

REF = "She said that the other voices were there."

CLONE = (
    full(clone, "base-xvector-english", "Hello, world.", language="english", ref_seed=1),
    clone("base-xvector-auto", "你好,世界。", ref_seed=2),
    clone("base-xvector-whole", "I'll be there in an hour.", layout="whole", language="english", ref_seed=3),
    clone("base-icl-short-ref", "They have been here, and nothing was heard.", language="english", ref_frames=7,
          ref_text=REF, ref_seed=4),
    clone("base-icl-long-ref", "No.", language="english", ref_frames=40, ref_text="Very clear.", ref_seed=5),
    clone("base-icl-equal", "Go", ref_frames=4, ref_text="No", ref_seed=6),
    clone("base-icl-whole", "The quick brown fox.", layout="whole", language="english", ref_frames=15,
          ref_text="Guten Morgen.", ref_seed=7),
    clone("base-icl-whole-auto", "今天是星期一。", layout="whole", ref_frames=30, ref_text="我是中国人。", ref_seed=8),
    clone("base1b7-xvector-chinese", "今天天气很好。", "tiny-base-1b7", language="chinese", ref_seed=9),
    clone("base1b7-xvector-whole-auto", "One, two, three.", "tiny-base-1b7", layout="whole", ref_seed=10),
    full(clone, "base1b7-icl-short-ref", "What is the time? It is half past ten.", "tiny-base-1b7", language="english",
         ref_frames=5, ref_text=REF, ref_seed=11),
    clone("base1b7-icl-long-ref", "Hello", "tiny-base-1b7", ref_frames=26, ref_text="one", ref_seed=12),
    clone("base1b7-icl-whole-length", "Where are you going?", "tiny-base-1b7", layout="whole", language="japanese",
          ref_frames=15, ref_text="ありがとう", ref_seed=13, stop="length", max_new_tokens=8),
)


def sampled(maker, name: str, text: str, settings: dict, **rest) -> Case:
    kept = {"stop": "length", "max_new_tokens": 13, "keep_hidden": 13, "keep_logits": 2, "keep_predictor": 2}
    return maker(name, text, **{**kept, **rest}, sampling=settings)


SAMPLED = (
    sampled(custom, "sample-defaults", "Good morning.", {}, language="english", noise_seed=5),
    sampled(custom, "sample-no-top-k", "Read this text aloud.", {"top_k": 0, "subtalker_top_k": 0, "temperature": 20.0,
            "subtalker_temperature": 15.0}, layout="stream", language="english", noise_seed=2),
    sampled(custom, "sample-top-p", "今天天气很好。", {"top_p": 0.8, "temperature": 12.0, "subtalker_top_p": 0.7,
            "subtalker_temperature": 10.0, "top_k": 0}, language="chinese", noise_seed=3),
    sampled(custom_1b7, "sample-greedy-predictor", "Very happy.", {"subtalker_dosample": False, "temperature": 9.0,
            "top_k": 20}, language="english", instruct="slowly", noise_seed=4),
    sampled(custom_1b7, "sample-greedy-talker", "Very happy.", {"do_sample": False, "subtalker_temperature": 9.0,
            "subtalker_top_k": 10}, language="english", noise_seed=5),
    sampled(design, "sample-penalty", "It repeats, it repeats.", {"repetition_penalty": 1.5, "temperature": 14.0,
            "top_k": 12, "top_p": 0.95, "subtalker_top_k": 5, "subtalker_top_p": 0.9, "subtalker_temperature": 8.0},
            instruct="low", noise_seed=6),
    sampled(clone, "sample-icl", "Yes, we go.", {"temperature": 10.0, "subtalker_temperature": 10.0, "top_k": 1000},
            ref_frames=6, ref_text="Hello there.", ref_seed=14, noise_seed=7),
    sampled(custom, "sample-eos", "Stop.", {"temperature": 25.0, "top_k": 0, "subtalker_temperature": 20.0}, stop="eos",
            max_new_tokens=60, noise_seed=8),
)

def recorded(name: str, text: str, clip: Clip, ref_text: str | None = None, model: str = "tiny-base", **rest) -> Case:
    """A clone of a clip: in-context with a text of the clip, else by the speaker vector alone."""
    return clone(name, text, model, clip=clip, ref_text=ref_text, ref_frames=int(ref_text is not None), **rest)


CLIP_300MS, CLIP_3S, CLIP_10S, CLIP_26S = Clip(7200, 1), Clip(72000, 2), Clip(240000, 50), Clip(624000, 84)

RECORDED = (
    recorded("clip-icl-300ms", "They have been here, and nothing was heard.", CLIP_300MS, REF, language="english"),
    recorded("clip-icl-300ms-whole", "Go on.", CLIP_300MS, "No", layout="whole"),
    recorded("clip-icl-3s", "What is the time?", CLIP_3S, REF, language="english"),
    recorded("clip-icl-3s-long-text", LONG_TEXT[:150], CLIP_3S, "Guten Morgen.", language="german"),
    recorded("clip-icl-3s-whole", "今天是星期一。", CLIP_3S, "我是中国人。", layout="whole", language="chinese"),
    recorded("clip-icl-10s", "The quick brown fox.", CLIP_10S, REF, language="english"),
    recorded("clip-icl-10s-whole", "Good morning to you.", CLIP_10S, REF, layout="whole"),
    recorded("clip-icl-26s", "One, two, three.", CLIP_26S, REF * 3, language="english"),
    recorded("clip-icl-odd", "Hello", Clip(28801, 5), "Hello there.", language="english"),
    recorded("clip-icl-cut-rounds", "Yes.", Clip(28800, 8), "one", stop="length", max_new_tokens=8),
    recorded("clip-xvector-3s", "Hello, world.", CLIP_3S, language="english"),
    recorded("clip-xvector-10s-whole", "It is late.", CLIP_10S, layout="whole", language="english"),
    recorded("clip1b7-icl-3s", "What is the time? It is half past ten.", CLIP_3S, REF, "tiny-base-1b7", language="english"),
    recorded("clip1b7-icl-10s-whole", "Hello", CLIP_10S, REF, "tiny-base-1b7", layout="whole"),
    recorded("clip1b7-xvector-3s", "One, two, three.", CLIP_3S, model="tiny-base-1b7"),
)

CASES = CUSTOM + ENDLESS + CUSTOM_1B7 + DESIGN + CLONE + RECORDED + SAMPLED

CODEC_CASES = (
    CodecCase("codec-10", 10, (0, 6)),
    CodecCase("codec-73", 73, (0, 22, 69)),
    CodecCase("codec-300", 300, (0, 296)),
    CodecCase("codec-325", 325, (0, 298, 321)),
    CodecCase("codec-700", 700, (0, 298, 322, 598, 696)),
)

ENCODE_CASES = (
    EncodeCase("encode-300ms", 7200, 1),
    EncodeCase("encode-3s", 72000, 2),
    EncodeCase("encode-10s", 240000, 50),
    EncodeCase("encode-26s", 624000, 84),
    EncodeCase("encode-1280", 1280, 21),
    EncodeCase("encode-1919", 1919, 22),
    EncodeCase("encode-1920", 1920, 23),
    EncodeCase("encode-1921", 1921, 4),
    EncodeCase("encode-24007", 24007, 24),
    EncodeCase("encode-28801", 28801, 5),
    EncodeCase("encode-1b7-3s", 72000, 2, "tiny-base-1b7", False),
    EncodeCase("encode-1b7-10s", 240000, 50, "tiny-base-1b7", False),
)


def kind(case: Case) -> tuple:
    """Cases of one kind differ in their words, limits, layout and where a reference comes from: nothing that the
    networks see but through the prompt, whose rows every case stores."""
    return (case.model, bool(case.instruct), bool(case.ref_frames or case.clip), case.samples_talker)


# The first case of each kind stores activations too; in the others codes, prompt and waveform pin the run.
WITH_ACTIVATIONS = set({kind(c): c.name for c in reversed(CASES)}.values())
