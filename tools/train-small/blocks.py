"""Layers that codec and language model share. Names and arithmetic are those of the official classes (spec 3, 8, 9)."""

from __future__ import annotations

import torch
import torch.nn as nn
import torch.nn.functional as F

_angles: dict[tuple, tuple[torch.Tensor, torch.Tensor]] = {}


def rope_table(length: int, dim: int, theta: float, like: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosine and sine [length, dim/2], kept, so that a captured graph does not compute them again."""
    key = (length, dim, theta, like.device, like.dtype)
    if key not in _angles:
        angle = torch.arange(length, device=like.device)[:, None].float() * theta ** (
            -torch.arange(0, dim, 2, device=like.device).float() / dim
        )
        _angles[key] = angle.cos().to(like.dtype), angle.sin().to(like.dtype)
    return _angles[key]


def rotate(x: torch.Tensor, table: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """Half-split rotary embedding of x [..., time, dim]."""
    cos, sin = table
    u, v = x.chunk(2, -1)
    return torch.cat([u * cos - v * sin, v * cos + u * sin], -1)


class RMSNorm(nn.Module):
    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.rms_norm(x.float(), (x.shape[-1],), self.weight, self.eps).to(x.dtype)


class Scale(nn.Module):
    def __init__(self, size: int, value: float = 0.1) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.full((size,), value))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.scale


class Attention(nn.Module):
    """Grouped-query attention, causal unless a mask is given; `norm` adds the query and key norms of the language model."""

    def __init__(self, size: int, heads: int, dim: int, kv_heads: int, norm: bool, theta: float) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.dim, self.theta = heads, kv_heads, dim, theta
        self.q_proj = nn.Linear(size, heads * dim, bias=False)
        self.k_proj = nn.Linear(size, kv_heads * dim, bias=False)
        self.v_proj = nn.Linear(size, kv_heads * dim, bias=False)
        self.o_proj = nn.Linear(heads * dim, size, bias=False)
        if norm:
            self.q_norm, self.k_norm = RMSNorm(dim, 1e-6), RMSNorm(dim, 1e-6)
        self.norm = norm
        self.kept: tuple[torch.Tensor, torch.Tensor] | None = None  # queries and keys, where keep is set
        self.keep = False

    def heads_of(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Rotated queries and keys, and values, each [batch, heads, time, dim]."""
        batch, time, _ = x.shape
        q = self.q_proj(x).view(batch, time, self.heads, self.dim)
        k = self.k_proj(x).view(batch, time, self.kv_heads, self.dim)
        v = self.v_proj(x).view(batch, time, self.kv_heads, self.dim)
        if self.norm:
            q, k = self.q_norm(q), self.k_norm(k)
        table = rope_table(time, self.dim, self.theta, q)
        return rotate(q.transpose(1, 2), table), rotate(k.transpose(1, 2), table), v.transpose(1, 2)

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        q, k, v = self.heads_of(x)
        if self.keep:
            self.kept = q, k
        y = F.scaled_dot_product_attention(
            q, k, v, attn_mask=mask, is_causal=mask is None, enable_gqa=self.heads != self.kv_heads
        )
        return self.o_proj(y.transpose(1, 2).flatten(2))


class GatedMLP(nn.Module):
    def __init__(self, size: int, inner: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(size, inner, bias=False)
        self.up_proj = nn.Linear(size, inner, bias=False)
        self.down_proj = nn.Linear(inner, size, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class PlainMLP(nn.Module):
    def __init__(self, size: int, inner: int) -> None:
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(size, inner, bias=False), nn.Linear(inner, size, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc2(F.gelu(self.fc1(x)))


class Layer(nn.Module):
    """Transformer layer: 'rms' (codec decoder), 'ln' (codec encoder), 'lm' (talker and code predictor)."""

    def __init__(self, size: int, heads: int, dim: int, inner: int, kind: str, kv_heads: int | None = None, theta: float = 1e4) -> None:
        super().__init__()

        def norm() -> nn.Module:
            return nn.LayerNorm(size, eps=1e-5) if kind == "ln" else RMSNorm(size, 1e-6 if kind == "lm" else 1e-5)

        self.input_layernorm, self.post_attention_layernorm = norm(), norm()
        self.self_attn = Attention(size, heads, dim, kv_heads or heads, kind == "lm", theta)
        self.mlp = PlainMLP(size, inner) if kind == "ln" else GatedMLP(size, inner)
        if kind != "lm":
            self.self_attn_layer_scale, self.mlp_layer_scale = Scale(size), Scale(size)
        self.scaled = kind != "lm"

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None, dropout: float = 0.0) -> torch.Tensor:
        a = self.self_attn(self.input_layernorm(x), mask)
        x = x + F.dropout(self.self_attn_layer_scale(a) if self.scaled else a, dropout, dropout > 0)
        m = self.mlp(self.post_attention_layernorm(x))
        return x + F.dropout(self.mlp_layer_scale(m) if self.scaled else m, dropout, dropout > 0)


class Group(nn.Module):
    """A module that is nothing but its named children; gives parameters their official paths."""

    def __init__(self, **children: nn.Module) -> None:
        super().__init__()
        for name, child in children.items():
            self.add_module(name, child)
