"""Checkpoints to a snapshot in the official layout, which skald and the official package load unchanged.

The official sampling defaults (temperature 0.9, top-k 50, repetition penalty 1.05) stay in generation_config.json. The output
heads are multiplied by 0.9 / T, so that those defaults draw as T would from the heads as trained.

usage: export.py --lm ema.pt --codec codec.pt --tok DIR --out DIR [--temperature 0.9] [--second 0.9] [--dtype f32]
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path

import torch
from safetensors.torch import save_file

from bpe import SPECIAL
from codec import SIZES as CODEC
from lm import CONTROLS, Ids
from speak import VOICES

OFFICIAL_TEMPERATURE = 0.9
NARROW = {"bf16": (torch.bfloat16, torch.float16), "f32": (torch.float32, torch.float32)}  # language model, codec


def talker_config(c: dict, ids: Ids) -> dict:
    common = dict(
        attention_bias=False, attention_dropout=0, hidden_act="silu", initializer_range=0.02, num_code_groups=c["levels"],
        rms_norm_eps=1e-6, rope_theta=int(c["theta"]), sliding_window=None, use_cache=True, use_sliding_window=False,
    )
    predictor = common | dict(
        model_type="qwen3_tts_talker_code_predictor", hidden_size=c["p_hidden"], intermediate_size=c["p_inner"], num_hidden_layers=c["p_layers"],
        num_attention_heads=c["p_heads"], num_key_value_heads=c["p_kv_heads"], head_dim=c["p_head_dim"], vocab_size=c["codes"],
        layer_types=["full_attention"] * c["p_layers"], max_position_embeddings=65536, rope_scaling=None, tie_word_embeddings=False,
    )
    half = c["head_dim"] // 2
    third = half // 3
    sections = [half - 2 * third, third, third]
    return common | dict(
        model_type="qwen3_tts_talker", hidden_size=c["hidden"], intermediate_size=c["inner"], num_hidden_layers=c["layers"],
        num_attention_heads=c["heads"], num_key_value_heads=c["kv_heads"], head_dim=c["head_dim"], vocab_size=c["codes"] + CONTROLS,
        text_vocab_size=c["text_vocab"], text_hidden_size=c["text_hidden"], max_position_embeddings=32768, position_id_per_seconds=13,
        rope_scaling=dict(interleaved=True, mrope_section=sections, rope_type="default", type="default"),
        codec_pad_id=ids.pad, codec_bos_id=ids.bos, codec_eos_token_id=ids.eos, codec_think_id=ids.think, codec_nothink_id=ids.nothink,
        codec_think_bos_id=ids.think_bos, codec_think_eos_id=ids.think_eos, codec_language_id=dict(english=ids.english),
        spk_id=dict(zip(VOICES, ids.speakers)), spk_is_dialect={v: False for v in VOICES}, code_predictor_config=predictor,
    )


def main_configs(c: dict, ids: Ids, entries: dict[str, int]) -> dict[str, dict]:
    """File name -> content, for everything beside the weights and the vocabulary."""
    config = dict(
        architectures=["Qwen3TTSForConditionalGeneration"], model_type="qwen3_tts", tokenizer_type="qwen3_tts_tokenizer_12hz",
        tts_model_size="0b6", tts_model_type="custom_voice", im_start_token_id=ids.im_start, im_end_token_id=ids.im_end,
        assistant_token_id=entries["assistant"], tts_pad_token_id=ids.tts_pad, tts_bos_token_id=ids.tts_bos, tts_eos_token_id=ids.tts_eos,
        talker_config=talker_config(c, ids), transformers_version="4.57.3",
    )
    sampling = dict(
        do_sample=True, repetition_penalty=1.05, temperature=OFFICIAL_TEMPERATURE, top_p=1.0, top_k=50, subtalker_dosample=True,
        subtalker_temperature=OFFICIAL_TEMPERATURE, subtalker_top_p=1.0, subtalker_top_k=50, max_new_tokens=1024,
    )
    marks = dict(lstrip=False, normalized=False, rstrip=False, single_word=False, special=True)
    tokenizer = dict(
        add_bos_token=False, add_prefix_space=False, additional_special_tokens=list(SPECIAL[1:]), bos_token=None, clean_up_tokenization_spaces=False,
        added_tokens_decoder={str(len(entries) + i): dict(content=t, **marks) for i, t in enumerate(SPECIAL)}, eos_token="<|im_end|>", errors="replace",
        model_max_length=32768, pad_token="<|endoftext|>", split_special_tokens=False, tokenizer_class="Qwen2Tokenizer", unk_token=None,
    )
    processor = dict(padding_side="left", padding_value=0.0, processor_class="Qwen3TTSProcessor", return_attention_mask=True)
    return {
        "config.json": config, "generation_config.json": sampling, "tokenizer_config.json": tokenizer, "preprocessor_config.json": processor,
        "speech_tokenizer/config.json": codec_config(CODEC),
        "speech_tokenizer/preprocessor_config.json": dict(
            chunk_length_s=None, feature_extractor_type="EncodecFeatureExtractor", feature_size=1, overlap=None, padding_side="right",
            padding_value=0.0, return_attention_mask=True, sampling_rate=24000,
        ),
    }


def codec_config(k: dict) -> dict:
    decoder = dict(
        attention_bias=False, attention_dropout=0.0, codebook_dim=k["codebook_dim"], codebook_size=k["codes"], decoder_dim=k["decoder_dim"],
        head_dim=k["head_dim"], hidden_act="silu", hidden_size=k["hidden"], intermediate_size=k["inner"], latent_dim=k["latent"],
        layer_scale_initial_scale=0.01, max_position_embeddings=8000, num_attention_heads=k["heads"], num_hidden_layers=k["layers"],
        num_key_value_heads=k["heads"], num_quantizers=k["levels"], num_semantic_quantizers=1, rms_norm_eps=1e-5, rope_theta=10000,
        semantic_codebook_size=k["codes"], sliding_window=k["window"], upsample_rates=list(k["rates"]), upsampling_ratios=list(k["upsampling"]),
        vector_quantization_hidden_dimension=k["codebook_dim"],
    )
    encoder = dict(
        _frame_rate=12.5, attention_bias=False, attention_dropout=0.0, audio_channels=1, codebook_dim=k["width"], codebook_size=k["codes"], compress=2,
        dilation_growth_rate=2, dtype="float32", head_dim=k["enc_head_dim"], hidden_act="gelu", hidden_size=k["enc_hidden"], initializer_range=0.02,
        intermediate_size=k["enc_inner"], kernel_size=7, last_kernel_size=3, layer_scale_initial_scale=0.01, max_position_embeddings=8000,
        norm_eps=1e-5, normalize=False, num_attention_heads=k["enc_heads"], num_filters=k["enc_filters"], num_hidden_layers=k["enc_layers"],
        num_key_value_heads=k["enc_heads"], num_quantizers=k["levels"], num_residual_layers=1, num_semantic_quantizers=1, pad_mode="constant",
        residual_kernel_size=3, rope_theta=10000.0, sampling_rate=24000, sliding_window=250, trim_right_ratio=1.0, upsample_groups=k["enc_hidden"],
        upsampling_ratios=list(k["enc_ratios"])[::-1], use_cache=False, use_causal_conv=True, use_conv_shortcut=False, use_streaming=False,
        vector_quantization_hidden_dimension=k["width"],
    )
    return dict(
        architectures=["Qwen3TTSTokenizerV2Model"], model_type="qwen3_tts_tokenizer_12hz", encoder_valid_num_quantizers=k["levels"],
        input_sample_rate=24000, output_sample_rate=24000, decode_upsample_rate=1920, encode_downsample_rate=1920,
        decoder_config=decoder, encoder_config=encoder, transformers_version="4.57.3",
    )


def talker_tensors(lm: dict, temperature: float, second: float) -> dict[str, torch.Tensor]:
    out = {}
    for name, w in lm["talker"].items():
        w = w.float()
        if "lm_head" in name:
            w = w * (OFFICIAL_TEMPERATURE / second)
        elif name == "codec_head.weight":
            w = w * (OFFICIAL_TEMPERATURE / temperature)
        out["talker." + name] = w
    return out


def codec_tensors(codec: dict) -> dict[str, torch.Tensor]:
    k, out = codec["sizes"], {}
    decoder = codec["smooth"] if codec.get("smoothing") else codec["decoder"]
    renamed = {"first.weight": "quantizer.rvq_first.output_proj.weight", "rest.weight": "quantizer.rvq_rest.output_proj.weight"}
    out |= {"decoder." + renamed.get(n, n): w.float() for n, w in decoder.items()}
    quantizer = "encoder.quantizer.{}_residual_vector_quantizer."
    latents = {"sem.weight": quantizer.format("semantic") + "input_proj.weight", "ac.weight": quantizer.format("acoustic") + "input_proj.weight"}
    out |= {latents.get(n, "encoder." + n): w.float() for n, w in codec["encoder"].items()}
    for kind in ("semantic", "acoustic"):  # in the layout, without use
        out[quantizer.format(kind) + "output_proj.weight"] = torch.zeros(k["enc_hidden"], k["width"], 1)
    for kind in ("first", "rest"):
        out[f"decoder.quantizer.rvq_{kind}.input_proj.weight"] = torch.zeros(k["width"], k["codebook_dim"], 1)
    usage, sums = codec["quantiser"]["usage"].float(), codec["quantiser"]["sums"].float()
    books = sums / usage.clamp(min=1e-5)[..., None]
    ones = torch.ones(k["codes"])  # vectors with usage 1: they are rounded once
    for level in range(k["levels"]):
        kind, other, at = ("first", "semantic", 0) if level == 0 else ("rest", "acoustic", level - 1)
        place = f"decoder.quantizer.rvq_{kind}.vq.layers.{at}._codebook."
        out |= {place + "cluster_usage": ones, place + "embedding_sum": books[level]}
        place = quantizer.format(other) + f"layers.{at}.codebook."
        out |= {place + "cluster_usage": ones, place + "embed_sum": books[level], place + "initialized": torch.ones(1)}
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("lm", "codec", "tok", "out"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--temperature", type=float, default=OFFICIAL_TEMPERATURE, help="of code 0")
    parser.add_argument("--second", type=float, default=OFFICIAL_TEMPERATURE, help="of levels 1 to 15")
    parser.add_argument("--dtype", choices=NARROW, default="bf16", help="bf16: language model bfloat16, codec float16")
    args = parser.parse_args()
    lm, codec = (torch.load(p, map_location="cpu", weights_only=True) for p in (args.lm, args.codec))
    (args.out / "speech_tokenizer").mkdir(parents=True, exist_ok=True)
    for name in ("vocab.json", "merges.txt"):
        shutil.copy(args.tok / name, args.out)
    entries = json.loads((args.tok / "vocab.json").read_text())
    ids = Ids(lm["sizes"]["codes"], len(entries))
    for name, content in main_configs(lm["sizes"], ids, entries).items():
        (args.out / name).write_text(json.dumps(content, indent=2) + "\n")
    files = {"model.safetensors": talker_tensors(lm, args.temperature, args.second), "speech_tokenizer/model.safetensors": codec_tensors(codec)}
    for (name, tensors), dtype in zip(files.items(), NARROW[args.dtype]):
        save_file({n: w.to(dtype).clone().contiguous() for n, w in tensors.items()}, args.out / name, metadata={"format": "pt"})
    size = sum(p.stat().st_size for p in args.out.rglob("*") if p.is_file())
    print(f"{args.out}: {size / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
