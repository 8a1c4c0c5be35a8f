"""Talker and code predictor: official names and arithmetic (spec 3 and 5), arranged for training with static shapes."""

from __future__ import annotations

import math

import torch
import torch.nn as nn
import torch.nn.functional as F

from blocks import Group, Layer, RMSNorm

SIZES = dict(
    codes=256, levels=16, text_vocab=592, text_hidden=256, hidden=256, inner=640, layers=6, heads=4, kv_heads=2, head_dim=64,
    p_hidden=256, p_inner=512, p_layers=2, p_heads=4, p_kv_heads=2, p_head_dim=64, theta=1e6,
)
CONTROLS = 1024  # ids above the codes
GUIDED_LAYER, GUIDED_HEADS = 2, 2  # attention that is shown the alignment; both heads share one key head


class Ids:
    """Token ids of one vocabulary (entries: size of the BPE vocabulary) and one code book size."""

    def __init__(self, codes: int, entries: int) -> None:
        self.end_of_text, self.im_start, self.im_end, self.tts_pad, self.tts_bos, self.tts_eos = range(entries, entries + 6)
        self.english, self.pad, self.bos, self.eos = (codes + x for x in (2, 44, 45, 46))
        self.think, self.nothink, self.think_bos, self.think_eos = (codes + x for x in (50, 51, 52, 53))
        self.speakers = (codes + 744, codes + 745)  # af_heart, am_michael
        self.controls = (
            self.english, self.pad, self.bos, self.think, self.nothink, self.think_bos, self.think_eos, *self.speakers,
        )


class Talker(nn.Module):
    def __init__(self, c: dict = SIZES) -> None:
        super().__init__()
        hidden, vocab, p_hidden, more = c["hidden"], c["codes"] + CONTROLS, c["p_hidden"], c["levels"] - 1
        layers = [Layer(hidden, c["heads"], c["head_dim"], c["inner"], "lm", c["kv_heads"], c["theta"]) for _ in range(c["layers"])]
        p_layers = [Layer(p_hidden, c["p_heads"], c["p_head_dim"], c["p_inner"], "lm", c["p_kv_heads"], c["theta"]) for _ in range(c["p_layers"])]
        self.c = c
        self.model = Group(
            text_embedding=nn.Embedding(c["text_vocab"], c["text_hidden"]), codec_embedding=nn.Embedding(vocab, hidden),
            norm=RMSNorm(hidden, 1e-6), layers=nn.ModuleList(layers),
        )
        self.text_projection = Group(linear_fc1=nn.Linear(c["text_hidden"], c["text_hidden"]), linear_fc2=nn.Linear(c["text_hidden"], hidden))
        self.codec_head = nn.Linear(hidden, vocab, bias=False)
        self.code_predictor = Group(
            model=Group(
                layers=nn.ModuleList(p_layers), norm=RMSNorm(p_hidden, 1e-6),
                codec_embedding=nn.ModuleList(nn.Embedding(c["codes"], hidden) for _ in range(more)),
            ),
            lm_head=nn.ModuleList(nn.Linear(p_hidden, c["codes"], bias=False) for _ in range(more)),
        )
        if p_hidden != hidden:
            self.code_predictor.small_to_mtp_projection = nn.Linear(hidden, p_hidden)
        for name, p in self.named_parameters():
            if p.dim() > 1:
                branch_end = "o_proj" in name or "down_proj" in name
                nn.init.normal_(p, 0, 0.02 / math.sqrt(2 * c["layers"]) if branch_end else 0.02)
        layers[GUIDED_LAYER].self_attn.keep = True
        self.register_buffer("control_rows", torch.zeros(0, dtype=torch.long), persistent=False)

    def text_table(self) -> torch.Tensor:
        """Projected embeddings of the whole text vocabulary [text_vocab, hidden]."""
        t = self.text_projection
        return t.linear_fc2(F.silu(t.linear_fc1(self.model.text_embedding.weight)))

    def code_tables(self) -> torch.Tensor:
        """Embeddings of the codes [16, 256, hidden]: level 0, then the predictor's."""
        first = self.model.codec_embedding.weight[: self.c["codes"]]
        return torch.stack([first, *(e.weight for e in self.code_predictor.model.codec_embedding)])

    def input_table(self, ids: Ids) -> torch.Tensor:
        """Rows that an input position may sum: text vocabulary, control ids, the codes level by level, zeros (at least one)."""
        text = self.text_table()
        if self.control_rows.numel() == 0:
            self.control_rows = torch.tensor(ids.controls, device=text.device)
        controls = self.model.codec_embedding.weight.index_select(0, self.control_rows).to(text.dtype)
        rows = torch.cat([text, controls, self.code_tables().flatten(0, 1).to(text.dtype)])
        return F.pad(rows, (0, 0, 0, 8 - len(rows) % 8))

    def body(self, x: torch.Tensor, dropout: float = 0.0) -> torch.Tensor:
        """[batch, length, hidden] -> final hidden states."""
        for layer in self.model.layers:
            x = layer(x, None, dropout)
        return self.model.norm(x)

    def first_logits(self, h: torch.Tensor, ids: Ids) -> torch.Tensor:
        """Logits of the 256 codes and, last, of the stop token; every other id is suppressed in any case."""
        w = self.codec_head.weight
        return F.linear(h, torch.cat([w[: self.c["codes"]], w[ids.eos : ids.eos + 1]]))

    def project(self, x: torch.Tensor) -> torch.Tensor:
        p = self.code_predictor
        return p.small_to_mtp_projection(x) if hasattr(p, "small_to_mtp_projection") else x

    def predict(self, x: torch.Tensor, dropout: float = 0.0) -> torch.Tensor:
        """Predictor inputs [rows, positions, hidden] -> its final hidden states."""
        x = self.project(x)
        for layer in self.code_predictor.model.layers:
            x = layer(x, None, dropout)
        return self.code_predictor.model.norm(x)

    def heads(self) -> torch.Tensor:
        return torch.stack([h.weight for h in self.code_predictor.lm_head])
