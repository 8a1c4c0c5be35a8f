"""Tensor lists, weight distributions and a streaming safetensors writer for random-weight snapshots.

The names and shapes follow the official Qwen3-TTS 12 Hz checkpoints (main file and codec file) for any configuration, so
the tiny test models and the full-size random models come from one list. Only numpy is needed.

A tensor's values depend on nothing but the seed, its name and its shape: adding or reordering tensors changes no other.
"""

from __future__ import annotations

import json
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Iterator

import numpy as np

BLOCK_VALUES = 1 << 22  # values generated at a time: bounds the memory of the full-size generator

ADDED_TOKENS = (
    "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|object_ref_start|>", "<|object_ref_end|>", "<|box_start|>",
    "<|box_end|>", "<|quad_start|>", "<|quad_end|>", "<|vision_start|>", "<|vision_end|>", "<|vision_pad|>",
    "<|image_pad|>", "<|video_pad|>", "<tool_call>", "</tool_call>", "<|fim_prefix|>", "<|fim_middle|>",
    "<|fim_suffix|>", "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>", "<tool_response>", "</tool_response>",
    "<think>", "</think>", "<|audio_start|>", "<|audio_end|>", "<tts_pad>", "<tts_text_bos>", "<tts_text_eod>",
    "<tts_text_bos_single>", "<|audio_pad|>",
)  # ids are consecutive, directly after the last entry of vocab.json


@dataclass(frozen=True)
class Tensor:
    """One tensor of a checkpoint. `fill` draws `count` values that follow each other in C order."""

    name: str
    shape: tuple[int, ...]
    fill: Callable[[np.random.Generator, int], np.ndarray]
    patch: Callable[[np.ndarray, int], None] | None = None  # edits a block of values in place, given its first index

    @property
    def size(self) -> int:
        return int(np.prod(self.shape))


def normal(std: float, mean: float = 0.0):
    def fill(rng, count):
        values = rng.standard_normal(count, dtype=np.float32) * np.float32(std)
        return values + np.float32(mean) if mean else values

    return fill


def uniform(low: float, high: float):
    return lambda rng, count: (low + (high - low) * rng.random(count, dtype=np.float32)).astype(np.float32)


def constant(value: float):
    return lambda rng, count: np.full(count, value, np.float32)


NORM = normal(0.1, 1.0)
BIAS = normal(0.1)
SCALE = uniform(0.2, 1.0)  # layer scales and gamma: small published values would hide attention faults
SNAKE = normal(0.3)


def matrix(name: str, out: int, inner: int, gain: float = 1.0) -> Tensor:
    return Tensor(name, (out, inner), normal(gain / inner**0.5))


def conv(name: str, out: int, inner: int, kernel: int, gain: float = 1.0, bias: bool = True, bias_gain: float = 1.0):
    """A convolution [out, in / groups, kernel]: weight and, unless told otherwise, bias."""
    yield Tensor(name + ".weight", (out, inner, kernel), normal(gain / (inner * kernel) ** 0.5))
    if bias:
        yield Tensor(name + ".bias", (out,), normal(0.1 * bias_gain))


def scaled_row(width: int, row: int, scale: float):
    """A patch that multiplies one row of a matrix, wherever the block boundaries fall."""

    def patch(values, first):
        low, high = max(row * width - first, 0), min((row + 1) * width - first, len(values))
        if low < high:
            values[low:high] *= np.float32(scale)

    return patch


# ---------------------------------------------------------------------------------------------- main file

def decoder_layers(prefix: str, c: dict) -> Iterator[Tensor]:
    width, inner, head = c["hidden_size"], c["intermediate_size"], c["head_dim"]
    q, kv = c["num_attention_heads"] * head, c["num_key_value_heads"] * head
    for i in range(c["num_hidden_layers"]):
        p = f"{prefix}.{i}."
        yield Tensor(p + "input_layernorm.weight", (width,), NORM)
        yield Tensor(p + "post_attention_layernorm.weight", (width,), NORM)
        yield matrix(p + "self_attn.q_proj.weight", q, width)
        yield matrix(p + "self_attn.k_proj.weight", kv, width)
        yield matrix(p + "self_attn.v_proj.weight", kv, width)
        yield matrix(p + "self_attn.o_proj.weight", width, q)
        yield Tensor(p + "self_attn.q_norm.weight", (head,), NORM)
        yield Tensor(p + "self_attn.k_norm.weight", (head,), NORM)
        yield matrix(p + "mlp.gate_proj.weight", inner, width)
        yield matrix(p + "mlp.up_proj.weight", inner, width)
        yield matrix(p + "mlp.down_proj.weight", width, inner)


def speaker_encoder(c: dict) -> Iterator[Tensor]:
    """ECAPA-TDNN. Keys that the published configurations leave out take the class defaults, which describe them."""
    channels = c.get("enc_channels", [512, 512, 512, 512, 1536])
    kernels = c.get("enc_kernel_sizes", [5, 3, 3, 3, 1])
    attention, squeeze = c.get("enc_attention_channels", 128), c.get("enc_se_channels", 128)
    scale, mel = c.get("enc_res2net_scale", 8), c.get("mel_dim", 128)
    p = "speaker_encoder."
    yield from conv(p + "blocks.0.conv", channels[0], mel, kernels[0])
    for i in range(1, len(channels) - 1):
        b, n = p + f"blocks.{i}.", channels[i]
        yield from conv(b + "tdnn1.conv", n, channels[i - 1], 1)
        for j in range(scale - 1):
            yield from conv(b + f"res2net_block.blocks.{j}.conv", n // scale, n // scale, kernels[i])
        yield from conv(b + "tdnn2.conv", n, n, 1)
        yield from conv(b + "se_block.conv1", squeeze, n, 1)
        yield from conv(b + "se_block.conv2", n, squeeze, 1)
    last = channels[-1]
    yield from conv(p + "mfa.conv", last, last, kernels[-1])
    yield from conv(p + "asp.tdnn.conv", attention, 3 * last, 1)
    yield from conv(p + "asp.conv", last, attention, 1)
    yield from conv(p + "fc", c["enc_dim"], 2 * last, 1)


def main_tensors(config: dict, head_gain: float, eos_scale: float) -> Iterator[Tensor]:
    """model.safetensors. `head_gain` sets the spread of the logits, `eos_scale` multiplies the stop token's row (0 = never)."""
    t = config["talker_config"]
    p = t["code_predictor_config"]
    width, text, codes = t["hidden_size"], t["text_hidden_size"], p["vocab_size"]
    yield Tensor("talker.model.text_embedding.weight", (t["text_vocab_size"], text), normal(1.0))
    yield Tensor("talker.model.codec_embedding.weight", (t["vocab_size"], width), normal(0.5))
    yield Tensor("talker.model.norm.weight", (width,), NORM)
    yield Tensor("talker.codec_head.weight", (t["vocab_size"], width), normal(head_gain / width**0.5),
                 scaled_row(width, t["codec_eos_token_id"], eos_scale))
    yield matrix("talker.text_projection.linear_fc1.weight", text, text)
    yield Tensor("talker.text_projection.linear_fc1.bias", (text,), BIAS)
    yield matrix("talker.text_projection.linear_fc2.weight", width, text)
    yield Tensor("talker.text_projection.linear_fc2.bias", (width,), BIAS)
    yield from decoder_layers("talker.model.layers", t)
    yield from decoder_layers("talker.code_predictor.model.layers", p)
    yield Tensor("talker.code_predictor.model.norm.weight", (p["hidden_size"],), NORM)
    for g in range(t["num_code_groups"] - 1):
        yield Tensor(f"talker.code_predictor.model.codec_embedding.{g}.weight", (codes, width), normal(0.5))
        yield matrix(f"talker.code_predictor.lm_head.{g}.weight", codes, p["hidden_size"], head_gain)
    if p["hidden_size"] != width:
        yield matrix("talker.code_predictor.small_to_mtp_projection.weight", p["hidden_size"], width)
        yield Tensor("talker.code_predictor.small_to_mtp_projection.bias", (p["hidden_size"],), BIAS)
    if config["tts_model_type"] == "base":
        yield from speaker_encoder(config["speaker_encoder_config"])


# --------------------------------------------------------------------------------------------- codec file

def codeword_usage(prefix: str, rows: int) -> np.ndarray:
    """Usage counts of a codebook. Two are 0, so that the floor of 1e-5 under the division is exercised."""
    usage = uniform(0.5, 20)(np.random.default_rng(zlib.crc32(prefix.encode())), rows)
    usage[[rows // 3, rows - 1]] = 0
    return usage


def codebook(prefix: str, sums: str, rows: int, width: int, spread: float, by_usage: bool) -> Iterator[Tensor]:
    """Usage counts and the table of sums; `by_usage` makes the codewords, not the sums, N(0, spread).

    A codebook is far smaller than a block, so `fill` always draws a whole table.
    """
    usage = codeword_usage(prefix, rows)
    weight = np.maximum(usage, 1e-5) if by_usage else np.where(usage > 0, 1, 1e-5)

    def table(rng, count):
        return normal(spread)(rng, count) * np.repeat(weight, width).astype(np.float32)

    yield Tensor(prefix + "cluster_usage", (rows,), lambda rng, count: usage)
    yield Tensor(prefix + sums, (rows, width), table)


def codec_decoder(c: dict) -> Iterator[Tensor]:
    d, half = "decoder.", c["codebook_dim"] // 2
    for side, count in (("rvq_first", c["num_semantic_quantizers"]),
                        ("rvq_rest", c["num_quantizers"] - c["num_semantic_quantizers"])):
        q = d + f"quantizer.{side}."
        yield from conv(q + "input_proj", half, c["codebook_dim"], 1, bias=False)
        yield from conv(q + "output_proj", c["codebook_dim"], half, 1, bias=False)
        for k in range(count):
            yield from codebook(q + f"vq.layers.{k}._codebook.", "embedding_sum", c["codebook_size"], half, 1.0, False)
    latent, width, inner = c["latent_dim"], c["hidden_size"], c["intermediate_size"]
    heads = c["num_attention_heads"] * c["head_dim"]
    kv = c["num_key_value_heads"] * c["head_dim"]
    yield from conv(d + "pre_conv.conv", latent, c["codebook_dim"], 3)
    t = d + "pre_transformer."
    yield matrix(t + "input_proj.weight", width, latent)
    yield Tensor(t + "input_proj.bias", (width,), BIAS)
    for i in range(c["num_hidden_layers"]):
        p = t + f"layers.{i}."
        for name in ("input_layernorm", "post_attention_layernorm"):
            yield Tensor(p + name + ".weight", (width,), NORM)
        for name, rows, cols in (("self_attn.q_proj", heads, width), ("self_attn.k_proj", kv, width),
                                 ("self_attn.v_proj", kv, width), ("self_attn.o_proj", width, heads),
                                 ("mlp.gate_proj", inner, width), ("mlp.up_proj", inner, width),
                                 ("mlp.down_proj", width, inner)):
            yield matrix(p + name + ".weight", rows, cols)
        for name in ("self_attn_layer_scale", "mlp_layer_scale"):
            yield Tensor(p + name + ".scale", (width,), SCALE)
    yield Tensor(t + "norm.weight", (width,), NORM)
    yield matrix(t + "output_proj.weight", latent, width)
    yield Tensor(t + "output_proj.bias", (latent,), BIAS)
    for i, ratio in enumerate(c["upsampling_ratios"]):
        u = d + f"upsample.{i}."
        yield Tensor(u + "0.conv.weight", (latent, latent, ratio), normal(1 / latent**0.5))
        yield Tensor(u + "0.conv.bias", (latent,), BIAS)
        yield from conv(u + "1.dwconv.conv", latent, 1, 7)
        yield Tensor(u + "1.norm.weight", (latent,), NORM)
        yield Tensor(u + "1.norm.bias", (latent,), BIAS)
        yield matrix(u + "1.pwconv1.weight", 4 * latent, latent)
        yield Tensor(u + "1.pwconv1.bias", (4 * latent,), BIAS)
        yield matrix(u + "1.pwconv2.weight", latent, 4 * latent)
        yield Tensor(u + "1.pwconv2.bias", (latent,), BIAS)
        yield Tensor(u + "1.gamma", (latent,), SCALE)
    yield from codec_vocoder(c)


def snake(name: str, channels: int) -> Iterator[Tensor]:
    yield Tensor(name + ".alpha", (channels,), SNAKE)
    yield Tensor(name + ".beta", (channels,), SNAKE)


def codec_vocoder(c: dict) -> Iterator[Tensor]:
    """The convolutional half. The reduced gains keep the output away from the clamp at +-1."""
    d, width = "decoder.decoder.", c["decoder_dim"]
    yield from conv(d + "0.conv", width, c["latent_dim"], 7)
    for i, rate in enumerate(c["upsample_rates"]):
        b, inner, out = d + f"{i + 1}.block.", width >> i, width >> (i + 1)
        yield from snake(b + "0", inner)
        yield Tensor(b + "1.conv.weight", (inner, out, 2 * rate), normal(0.5 / (2 * inner) ** 0.5))
        yield Tensor(b + "1.conv.bias", (out,), BIAS)
        for j in (2, 3, 4):
            yield from snake(b + f"{j}.act1", out)
            yield from conv(b + f"{j}.conv1.conv", out, out, 7)
            yield from snake(b + f"{j}.act2", out)
            yield from conv(b + f"{j}.conv2.conv", out, out, 1, gain=0.3, bias_gain=0.3)
    last = len(c["upsample_rates"]) + 1
    channels = width >> (last - 1)
    yield from snake(d + f"{last}", channels)
    yield from conv(d + f"{last + 1}.conv", 1, channels, 7, gain=0.2, bias_gain=0.1)


def codec_encoder(c: dict) -> Iterator[Tensor]:
    """The Mimi encoder, as far as the files hold it (its decoder half is never stored).

    The gains make up for what ELU takes away, and small biases leave the signal the larger part: with plain ones every clip
    would have nearly the same codes.
    """
    loud = {"gain": 1.25, "bias_gain": 0.3}
    e, channels, index = "encoder.encoder.layers.", c["num_filters"], 0
    yield from conv(e + "0.conv", channels, c["audio_channels"], c["kernel_size"], gain=2.0, bias_gain=0.3)
    for ratio in reversed(c["upsampling_ratios"]):
        inner = channels // c["compress"]
        yield from conv(e + f"{index + 1}.block.1.conv", inner, channels, c["residual_kernel_size"], **loud)
        yield from conv(e + f"{index + 1}.block.3.conv", channels, inner, 1, **loud)
        yield from conv(e + f"{index + 3}.conv", 2 * channels, channels, 2 * ratio, **loud)
        channels, index = 2 * channels, index + 3
    width, inner = c["hidden_size"], c["intermediate_size"]
    yield from conv(e + f"{index + 2}.conv", width, channels, c["last_kernel_size"], **loud)
    heads, kv = c["num_attention_heads"] * c["head_dim"], c["num_key_value_heads"] * c["head_dim"]
    for i in range(c["num_hidden_layers"]):
        p = f"encoder.encoder_transformer.layers.{i}."
        for name in ("input_layernorm", "post_attention_layernorm"):
            yield Tensor(p + name + ".weight", (width,), NORM)
            yield Tensor(p + name + ".bias", (width,), BIAS)
        for name, rows, cols in (("self_attn.q_proj", heads, width), ("self_attn.k_proj", kv, width),
                                 ("self_attn.v_proj", kv, width), ("self_attn.o_proj", width, heads),
                                 ("mlp.fc1", inner, width), ("mlp.fc2", width, inner)):
            yield matrix(p + name + ".weight", rows, cols)
        for name in ("self_attn_layer_scale", "mlp_layer_scale"):
            yield Tensor(p + name + ".scale", (width,), SCALE)
    yield from conv("encoder.downsample.conv", width, width, 4, bias=False)
    semantic = c["num_semantic_quantizers"]
    code_width = c["vector_quantization_hidden_dimension"]
    for side, count in (("semantic", semantic), ("acoustic", c["num_quantizers"] - semantic)):
        q = f"encoder.quantizer.{side}_residual_vector_quantizer."
        yield from conv(q + "input_proj", code_width, width, 1, bias=False)
        yield from conv(q + "output_proj", width, code_width, 1, bias=False)
        for k in range(count):
            book = q + f"layers.{k}.codebook."
            yield from codebook(book, "embed_sum", c["codebook_size"], c["codebook_dim"], 0.8, True)
            yield Tensor(book + "initialized", (1,), constant(1.0))


def codec_tensors(config: dict) -> Iterator[Tensor]:
    """speech_tokenizer/model.safetensors."""
    yield from codec_decoder(config["decoder_config"])
    yield from codec_encoder(config["encoder_config"])


# ------------------------------------------------------------------------------------------------ writing

def blocks(tensor: Tensor, seed: int) -> Iterator[np.ndarray]:
    """The values of a tensor in bounded pieces, each a whole number of rows unless a row is larger than a block."""
    rng = np.random.default_rng([seed, zlib.crc32(tensor.name.encode())])
    row = tensor.shape[-1] if len(tensor.shape) > 1 else 1
    step = max(BLOCK_VALUES // row, 1) * row
    for first in range(0, tensor.size, step):
        values = tensor.fill(rng, min(step, tensor.size - first))
        if tensor.patch:
            tensor.patch(values, first)
        yield values


def to_bf16(values: np.ndarray) -> np.ndarray:
    """Rounds float32 to the nearest bfloat16 (ties to even); the result holds the 16 bits."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def write_safetensors(path: Path, tensors: Iterator[Tensor], dtype: str, seed: int) -> tuple[int, int]:
    """Writes BF16 or F32 tensors sorted by name. Returns (number of tensors, number of values)."""
    tensors = sorted(tensors, key=lambda t: t.name)
    size = {"BF16": 2, "F32": 4}[dtype]
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for t in tensors:
        end = offset + t.size * size
        header[t.name] = {"dtype": dtype, "shape": list(t.shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)))
        f.write(text)
        for t in tensors:
            for values in blocks(t, seed):
                f.write((to_bf16(values) if dtype == "BF16" else values.astype("<f4")).tobytes())
    return len(tensors), sum(t.size for t in tensors)


def write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


GENERATION_CONFIG = {
    "do_sample": True, "repetition_penalty": 1.05, "temperature": 0.9, "top_p": 1.0, "top_k": 50,
    "subtalker_dosample": True, "subtalker_temperature": 0.9, "subtalker_top_p": 1.0, "subtalker_top_k": 50,
    "max_new_tokens": 8192,
}
PROCESSOR_CONFIG = {
    "padding_side": "left", "padding_value": 0.0, "processor_class": "Qwen3TTSProcessor", "return_attention_mask": True,
}
CODEC_FEATURE_CONFIG = {
    "chunk_length_s": None, "feature_extractor_type": "EncodecFeatureExtractor", "feature_size": 1, "overlap": None,
    "padding_side": "right", "padding_value": 0.0, "return_attention_mask": True, "sampling_rate": 24000,
}


def tokenizer_config(first_added_id: int) -> dict:
    plain = {"lstrip": False, "normalized": False, "rstrip": False, "single_word": False, "special": True}
    return {
        "add_prefix_space": False,
        "added_tokens_decoder": {str(first_added_id + i): {"content": t, **plain} for i, t in enumerate(ADDED_TOKENS)},
        "additional_special_tokens": [t for t in ADDED_TOKENS[1:14]],
        "bos_token": None, "clean_up_tokenization_spaces": False, "eos_token": "<|im_end|>", "errors": "replace",
        "model_max_length": 131072, "pad_token": "<|endoftext|>", "split_special_tokens": False,
        "tokenizer_class": "Qwen2Tokenizer", "unk_token": None,
    }


def byte_characters() -> list[str]:
    """The 256 GPT-2 byte characters in vocabulary order: printable bytes first, then the shifted ones."""
    printable = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    return [chr(b) for b in printable] + [chr(256 + i) for i in range(256 - len(printable))]


def write_tokenizer(folder: Path, merges: list[tuple[str, str]]) -> int:
    """vocab.json, merges.txt, tokenizer_config.json. Returns the id of the first added token."""
    tokens = byte_characters() + [a + b for a, b in merges]
    vocabulary = {token: i for i, token in enumerate(tokens)}
    if len(vocabulary) != len(tokens):
        raise ValueError("two merges make the same token")
    (folder / "vocab.json").write_text(json.dumps(vocabulary, ensure_ascii=False), encoding="utf-8")
    lines = ["#version: 0.2"] + [f"{a} {b}" for a, b in merges]
    (folder / "merges.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    write_json(folder / "tokenizer_config.json", tokenizer_config(len(tokens)))
    return len(tokens)


def write_snapshot(folder: Path, config: dict, codec_config: dict, merges: list[tuple[str, str]], *, seed: int,
                   codec_seed: int, head_gain: float, eos_scale: float) -> dict[str, int]:
    """Writes every file that the official loader needs. Returns counts of tensors and values."""
    (folder / "speech_tokenizer").mkdir(parents=True, exist_ok=True)
    write_tokenizer(folder, merges)
    write_json(folder / "config.json", config)
    write_json(folder / "generation_config.json", GENERATION_CONFIG)
    write_json(folder / "preprocessor_config.json", PROCESSOR_CONFIG)
    write_json(folder / "speech_tokenizer" / "config.json", codec_config)
    write_json(folder / "speech_tokenizer" / "preprocessor_config.json", CODEC_FEATURE_CONFIG)
    main = write_safetensors(folder / "model.safetensors", main_tensors(config, head_gain, eos_scale), "BF16", seed)
    codec = write_safetensors(folder / "speech_tokenizer" / "model.safetensors", codec_tensors(codec_config), "F32",
                              codec_seed)
    return {"main_tensors": main[0], "main_values": main[1], "codec_tensors": codec[0], "codec_values": codec[1]}
