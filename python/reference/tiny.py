"""Generates the tiny random-weight snapshots under tests/fixtures/models: every model type, official layout, ~1 MB each.

    python tiny.py OUT [NAME ...] [--no-stop] [--seed N]
    python tiny.py OUT --missing

The result depends on the seed alone (numpy is the only dependency). Without names all snapshots are written. The weights
are not committed: the build of the tests calls the second form, which draws those that are not there yet and compares
them with tiny.sha256 beside this file, so that every machine tests the same numbers.
"""

from __future__ import annotations

import argparse
import copy
import hashlib
import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import toy_tokenizer
from snapshot import ADDED_TOKENS, write_snapshot

CODES = 64  # codes per codebook; the talker has 1024 control ids after them
CODEC_SEED = 4212  # one codec for all snapshots, as in the published ones
SUMS = Path(__file__).with_name("tiny.sha256")  # of every weight file, as `sha256sum` prints them
HEAD_GAIN = 28.0  # spread of the logits: keeps the argmax margins of long runs above 1e-3


@dataclass(frozen=True)
class Variant:
    """What tells one tiny snapshot from another. `eos_scale` was chosen by experiment: see README.md."""

    model_type: str
    size: str
    seed: int
    eos_scale: float


VARIANTS = {
    "tiny-cv": Variant("custom_voice", "0b6", 101, 1.4),
    "tiny-cv-1b7": Variant("custom_voice", "1b7", 102, 1.05),
    "tiny-vd": Variant("voice_design", "1b7", 103, 1.0),
    "tiny-base": Variant("base", "0b6", 104, 1.35),
    "tiny-base-1b7": Variant("base", "1b7", 105, 1.1),
    "tiny-endless": Variant("custom_voice", "0b6", 106, 0.0),
}

# Width of the talker (the 1b7 is twice the predictor, as published) and of its feed-forward part.
WIDTHS = {"0b6": (32, 96), "1b7": (64, 128)}
LANGUAGES = {"english": 70, "german": 73, "spanish": 74, "chinese": 75, "japanese": 78}
DIALECTS = {"sichuan_dialect": 82, "beijing_dialect": 94}
SPEAKERS = {"anna": 900, "bo": 901, "carl": 905, "dora": 1010}
SPEAKER_DIALECTS = {"anna": False, "bo": "sichuan_dialect", "carl": False, "dora": "beijing_dialect"}


def predictor_config() -> dict:
    return {
        "model_type": "qwen3_tts_talker_code_predictor", "attention_bias": False, "attention_dropout": 0, "head_dim": 32,
        "hidden_act": "silu", "hidden_size": 32, "initializer_range": 0.02, "intermediate_size": 96,
        "layer_types": ["full_attention", "full_attention"], "max_position_embeddings": 65536, "num_attention_heads": 4,
        "num_code_groups": 16, "num_hidden_layers": 2, "num_key_value_heads": 2, "rms_norm_eps": 1e-06,
        "rope_scaling": None, "rope_theta": 1000000, "sliding_window": None, "use_cache": True,
        "use_sliding_window": False, "vocab_size": CODES,
    }


def talker_config(variant: Variant, text_vocab: int) -> dict:
    hidden, intermediate = WIDTHS[variant.size]
    custom = variant.model_type == "custom_voice"
    return {
        "attention_bias": False, "attention_dropout": 0, "code_predictor_config": predictor_config(),
        "codec_bos_id": 101, "codec_eos_token_id": 102, "codec_think_id": 106,
        "codec_language_id": {**LANGUAGES, **(DIALECTS if custom else {})},
        "codec_nothink_id": 107, "codec_pad_id": 100, "codec_think_bos_id": 108, "codec_think_eos_id": 109,
        "spk_id": SPEAKERS if custom else {},
        "spk_is_dialect": SPEAKER_DIALECTS if custom else {},
        "head_dim": 32, "hidden_act": "silu", "hidden_size": hidden, "initializer_range": 0.02,
        "intermediate_size": intermediate, "max_position_embeddings": 32768, "model_type": "qwen3_tts_talker",
        "num_attention_heads": 4, "num_code_groups": 16, "num_hidden_layers": 2, "num_key_value_heads": 2,
        "position_id_per_seconds": 13, "rms_norm_eps": 1e-06,
        "rope_scaling": {"interleaved": True, "mrope_section": [6, 5, 5], "rope_type": "default", "type": "default"},
        "rope_theta": 1000000, "sliding_window": None, "text_hidden_size": 64, "text_vocab_size": text_vocab,
        "use_cache": True, "use_sliding_window": False, "vocab_size": CODES + 1024,
    }


def model_config(variant: Variant, vocabulary: list[str], first_added: int) -> dict:
    """config.json. A few unused rows follow the last text id, as in the published models."""
    added = {token: first_added + i for i, token in enumerate(ADDED_TOKENS)}
    text_vocab = -(-(first_added + len(ADDED_TOKENS) + 3) // 32) * 32
    config = {
        "architectures": ["Qwen3TTSForConditionalGeneration"], "assistant_token_id": vocabulary.index("assistant"),
        "im_end_token_id": added["<|im_end|>"], "im_start_token_id": added["<|im_start|>"],
        "tts_bos_token_id": added["<tts_text_bos>"], "tts_eos_token_id": added["<tts_text_eod>"],
        "tts_pad_token_id": added["<tts_pad>"], "model_type": "qwen3_tts",
        "tokenizer_type": "qwen3_tts_tokenizer_12hz", "tts_model_size": variant.size,
        "tts_model_type": variant.model_type, "talker_config": talker_config(variant, text_vocab),
        "transformers_version": "4.57.3",
    }
    if variant.model_type == "base":
        config["speaker_encoder_config"] = {
            "enc_dim": WIDTHS[variant.size][0], "sample_rate": 24000, "enc_channels": [32, 32, 32, 32, 96],
            "enc_attention_channels": 16, "enc_se_channels": 16,
        }
    return config


CODEC_CONFIG = {
    "architectures": ["Qwen3TTSTokenizerV2Model"], "model_type": "qwen3_tts_tokenizer_12hz",
    "encoder_valid_num_quantizers": 16, "input_sample_rate": 24000, "output_sample_rate": 24000,
    "decode_upsample_rate": 1920, "encode_downsample_rate": 1920,
    "decoder_config": {
        "attention_bias": False, "attention_dropout": 0.0, "latent_dim": 32, "codebook_dim": 32, "codebook_size": CODES,
        "decoder_dim": 48, "hidden_act": "silu", "hidden_size": 16, "intermediate_size": 32,
        "layer_scale_initial_scale": 0.01, "max_position_embeddings": 8000, "head_dim": 8, "num_attention_heads": 4,
        "num_hidden_layers": 2, "num_key_value_heads": 4, "num_quantizers": 16, "num_semantic_quantizers": 1,
        "rms_norm_eps": 1e-05, "rope_theta": 10000, "semantic_codebook_size": 4096, "sliding_window": 24,
        "upsample_rates": [8, 5, 4, 3], "upsampling_ratios": [2, 2], "vector_quantization_hidden_dimension": 512,
    },
    "encoder_config": {
        "_frame_rate": 12.5, "attention_bias": False, "attention_dropout": 0.0, "audio_channels": 1, "codebook_dim": 8,
        "codebook_size": CODES, "compress": 2, "dilation_growth_rate": 2, "dtype": "float32", "head_dim": 8,
        "hidden_act": "gelu", "hidden_size": 16, "initializer_range": 0.02, "intermediate_size": 32, "kernel_size": 7,
        "last_kernel_size": 3, "layer_scale_initial_scale": 0.01, "max_position_embeddings": 8000, "norm_eps": 1e-05,
        "normalize": False, "num_attention_heads": 2, "num_filters": 4, "num_hidden_layers": 2, "num_key_value_heads": 2,
        "num_quantizers": 18, "num_residual_layers": 1, "num_semantic_quantizers": 1, "pad_mode": "constant",
        "residual_kernel_size": 3, "rope_theta": 10000.0, "sampling_rate": 24000, "sliding_window": 12,
        "trim_right_ratio": 1.0, "upsample_groups": 16, "upsampling_ratios": [8, 6, 5, 4], "use_cache": False,
        "use_causal_conv": True, "use_conv_shortcut": False, "use_streaming": False,
        "vector_quantization_hidden_dimension": 8,
    },
    "transformers_version": "4.57.3",
}


def write_tiny(folder: Path, variant: Variant) -> dict[str, int]:
    merges = toy_tokenizer.train()
    vocabulary = toy_tokenizer.byte_characters() + [a + b for a, b in merges]
    config = model_config(variant, vocabulary, len(vocabulary))
    return write_snapshot(folder, config, copy.deepcopy(CODEC_CONFIG), merges, seed=variant.seed, codec_seed=CODEC_SEED,
                          head_gain=HEAD_GAIN, eos_scale=variant.eos_scale)


def missing_weights(folder: Path) -> dict[str, str]:
    """The weight files of tiny.sha256 that are not there, with their sums."""
    lines = SUMS.read_text().splitlines()
    return {name: total for total, name in (line.split("  ") for line in lines) if not (folder / name).exists()}


def draw_missing(folder: Path) -> None:
    """Draws every missing weight file. Each appears whole or not at all; exits with a sentence if a sum differs."""
    missing = missing_weights(folder)
    for snapshot in sorted({name.split("/")[0] for name in missing}):
        with tempfile.TemporaryDirectory(dir=folder, prefix=".drawn-") as fresh:
            write_tiny(Path(fresh) / snapshot, VARIANTS[snapshot])
            for name in (name for name in missing if name.startswith(snapshot + "/")):
                if hashlib.sha256((Path(fresh) / name).read_bytes()).hexdigest() != missing[name]:
                    sys.exit(f"tiny.py: {folder / name}: this numpy ({np.__version__}) draws other numbers than "
                             f"{SUMS.name} expects; use the numpy of Debian 12 or 13")
                os.replace(Path(fresh) / name, folder / name)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path, help="folder that receives one folder per snapshot")
    parser.add_argument("names", nargs="*", help=f"of {', '.join(VARIANTS)}; default all")
    parser.add_argument("--no-stop", action="store_true", help="make the stop token unreachable")
    parser.add_argument("--seed", type=int, help="other weights than those of the fixtures")
    parser.add_argument("--missing", action="store_true", help="only the weights that are not there, as tiny.sha256 has them")
    args = parser.parse_args()
    if args.missing:
        return draw_missing(args.out)
    for name in args.names or VARIANTS:
        if name not in VARIANTS:
            parser.error(f"unknown snapshot {name!r}")
        v = VARIANTS[name]
        v = Variant(v.model_type, v.size, args.seed or v.seed, 0.0 if args.no_stop else v.eos_scale)
        counts = write_tiny(args.out / name, v)
        total = sum(f.stat().st_size for f in (args.out / name).rglob("*") if f.is_file())
        print(f"{name}: {counts['main_tensors']} + {counts['codec_tensors']} tensors, {total / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
