"""Losses of the codec: log-mel distances over six windows, and a discriminator on short-time spectra."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

RATE = 24000


def mel_bank(window: int, bands: int) -> torch.Tensor:
    """Triangular filters [bands, window/2 + 1]."""
    top = 2595 * np.log10(1 + RATE / 2 / 700)
    edges = 700 * (10 ** (np.linspace(0, top, bands + 2) / 2595) - 1)
    f = np.linspace(0, RATE / 2, window // 2 + 1)
    rows = [
        np.maximum(0, np.minimum((f - a) / (b - a), (c - f) / (c - b))) for a, b, c in zip(edges, edges[1:], edges[2:])
    ]
    return torch.tensor(np.stack(rows), dtype=torch.float32)


class MelLoss(nn.Module):
    """Mean over windows of |d| + d^2/2 (bounded), d the difference of the log-mel spectra.

    The floor inside the logarithm is added, not clamped, and lies at about -75 dB: the teacher's silence is exact zero
    and would dominate the loss otherwise.
    """

    SCALES = ((64, 8), (128, 16), (256, 32), (512, 64), (1024, 80), (2048, 120))  # window, bands

    def __init__(self) -> None:
        super().__init__()
        for n, bands in self.SCALES:
            self.register_buffer(f"window{n}", torch.hann_window(n))
            self.register_buffer(f"bank{n}", mel_bank(n, bands))

    def log_mel(self, x: torch.Tensor, n: int) -> torch.Tensor:
        z = torch.stft(x, n, n // 4, window=getattr(self, f"window{n}"), return_complex=True)
        magnitude = torch.view_as_real(z).square().sum(-1).add(1e-9).sqrt()  # abs() has no gradient at 0
        return (getattr(self, f"bank{n}") @ magnitude + 4e-3 * (n / 1024) ** 0.5).log()

    def forward(self, made: torch.Tensor, real: torch.Tensor, valid: torch.Tensor) -> torch.Tensor:
        total = made.new_zeros(())
        for n, _ in self.SCALES:
            with torch.no_grad():
                target = self.log_mel(real, n)
            d = (self.log_mel(made, n) - target)[..., : -(-valid.shape[1] // (n // 4))]
            weight = valid[:, :: n // 4][:, None]
            total = total + ((d.abs() + 0.5 * d * d / (1 + 0.25 * d.abs())) * weight).mean() / weight.mean().clamp(min=0.1)
        return total / len(self.SCALES)


class SpectrumJudge(nn.Module):
    def __init__(self, window: int, channels: int) -> None:
        super().__init__()
        self.n = window
        self.register_buffer("window", torch.hann_window(window))
        wn = nn.utils.parametrizations.weight_norm
        c = channels
        self.convs = nn.ModuleList(
            [wn(nn.Conv2d(2, c, (3, 9), padding=(1, 4)))]
            + [wn(nn.Conv2d(c, c, (3, 9), (1, 2), dilation=(d, 1), padding=(d, 4))) for d in (1, 2, 4)]
            + [wn(nn.Conv2d(c, c, 3, padding=1))]
        )
        self.last = wn(nn.Conv2d(c, 1, 3, padding=1))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, list[torch.Tensor]]:
        z = torch.stft(x, self.n, self.n // 4, window=self.window, return_complex=True) * (4 / self.n**0.5)
        h, features = torch.view_as_real(z).permute(0, 3, 2, 1).contiguous(memory_format=torch.channels_last), []
        with torch.autocast(x.device.type, torch.bfloat16, enabled=x.is_cuda, cache_enabled=False):
            for conv in self.convs:
                h = F.leaky_relu(conv(h), 0.2)
                features.append(h)
            return self.last(h).float(), features


class Judge(nn.Module):
    """Discriminator over three windows; forward gives (score, features) of each."""

    def __init__(self, channels: int = 32) -> None:
        super().__init__()
        self.scales = nn.ModuleList(SpectrumJudge(n, channels) for n in (1024, 512, 256))

    def forward(self, x: torch.Tensor) -> list[tuple[torch.Tensor, list[torch.Tensor]]]:
        return [scale(x) for scale in self.scales]


def judge_loss(real: list, made: list) -> torch.Tensor:
    return sum(F.relu(1 - r).mean() + F.relu(1 + m).mean() for (r, _), (m, _) in zip(real, made)) / len(real)


def generator_loss(real: list, made: list) -> tuple[torch.Tensor, torch.Tensor]:
    """-> adversarial loss, feature distance."""
    adversarial = sum(-m.mean() for m, _ in made) / len(made)
    distances = [
        (m.float() - r.detach().float()).abs().mean() / r.detach().float().abs().mean().clamp(min=1e-3)
        for (_, fr), (_, fm) in zip(real, made) for r, m in zip(fr, fm)
    ]
    return adversarial, sum(distances) / len(distances)


def soft_cross_entropy(logits: torch.Tensor, target: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """logits and target [batch, frames, classes] (target: shares), weight [batch, frames]."""
    each = -(target * logits.float().log_softmax(-1)).sum(-1)
    return (each * weight).sum() / weight.sum().clamp(min=1)
