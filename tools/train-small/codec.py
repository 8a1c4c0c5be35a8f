"""The codec: encoder, split residual quantiser, decoder. The inference graph is that of spec 8 and 9.

Latents are [batch, width, frames], codes [batch, frames, levels]; one frame is 1920 samples at 24 kHz.
"""

from __future__ import annotations

import torch
import torch.nn as nn
import torch.nn.functional as F

from blocks import Group, Layer, RMSNorm
from snake import snake

FRAME = 1920
SIZES = dict(
    codes=256, levels=16, width=64,
    codebook_dim=128, latent=192, decoder_dim=320, hidden=192, layers=3, heads=4, head_dim=64, inner=512, window=72,
    rates=(8, 5, 4, 3), upsampling=(2, 2),
    enc_filters=16, enc_hidden=192, enc_layers=2, enc_heads=3, enc_head_dim=64, enc_inner=768, enc_ratios=(4, 5, 6, 8),
)


class CausalConv(nn.Module):
    def __init__(self, cin: int, cout: int, kernel: int, stride: int = 1, dilation: int = 1, groups: int = 1, bias: bool = True, mode: str = "constant") -> None:
        super().__init__()
        self.conv = nn.Conv1d(cin, cout, kernel, stride, dilation=dilation, groups=groups, bias=bias)
        self.left, self.stride, self.mode = (kernel - 1) * dilation + 1 - stride, stride, mode

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        right = -x.shape[-1] % self.stride
        return self.conv(F.pad(x, (self.left, right), mode=self.mode) if self.left or right else x)


class CausalTransposed(nn.Module):
    def __init__(self, cin: int, cout: int, kernel: int, stride: int) -> None:
        super().__init__()
        self.conv = nn.ConvTranspose1d(cin, cout, kernel, stride)
        self.cut = kernel - stride

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.conv(x)
        return y[..., : y.shape[-1] - self.cut] if self.cut else y


class Snake(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.alpha, self.beta = nn.Parameter(torch.zeros(channels)), nn.Parameter(torch.zeros(channels))

    def forward(self, x: torch.Tensor, pad: int = 0) -> torch.Tensor:
        return snake(x, self.alpha, self.beta, pad)


class ResidualUnit(nn.Module):
    def __init__(self, channels: int, dilation: int) -> None:
        super().__init__()
        self.act1, self.conv1 = Snake(channels), CausalConv(channels, channels, 7, dilation=dilation)
        self.act2, self.conv2 = Snake(channels), CausalConv(channels, channels, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.conv1.conv(self.act1(x, self.conv1.left))  # the snake writes the padding
        return x + self.conv2(self.act2(y))


class DecoderBlock(nn.Module):
    def __init__(self, cin: int, cout: int, rate: int) -> None:
        super().__init__()
        units = [ResidualUnit(cout, d) for d in (1, 3, 9)]
        self.block = nn.Sequential(Snake(cin), CausalTransposed(cin, cout, 2 * rate, rate), *units)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.block(x)


class ConvNeXt(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.dwconv = CausalConv(channels, channels, 7, groups=channels)
        self.norm = nn.LayerNorm(channels, eps=1e-6)
        self.pwconv1, self.pwconv2 = nn.Linear(channels, 4 * channels), nn.Linear(4 * channels, channels)
        self.gamma = nn.Parameter(torch.full((channels,), 0.1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.pwconv2(F.gelu(self.pwconv1(self.norm(self.dwconv(x).transpose(1, 2)))))
        return x + (self.gamma * y).transpose(1, 2)


class PreTransformer(nn.Module):
    def __init__(self, c: dict) -> None:
        super().__init__()
        self.input_proj, self.output_proj = nn.Linear(c["latent"], c["hidden"]), nn.Linear(c["hidden"], c["latent"])
        self.layers = nn.ModuleList(Layer(c["hidden"], c["heads"], c["head_dim"], c["inner"], "rms") for _ in range(c["layers"]))
        self.norm, self.window = RMSNorm(c["hidden"], 1e-5), c["window"]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mask = None
        if x.shape[1] > self.window:  # otherwise plainly causal
            i = torch.arange(x.shape[1], device=x.device)
            distance = i[:, None] - i
            mask = (distance >= 0) & (distance < self.window)
        x = self.input_proj(x)
        for layer in self.layers:
            x = layer(x, mask)
        return self.output_proj(self.norm(x))


class Decoder(nn.Module):
    def __init__(self, c: dict = SIZES) -> None:
        super().__init__()
        latent, dim, n = c["latent"], c["decoder_dim"], len(c["rates"])
        self.first = nn.Conv1d(c["width"], c["codebook_dim"], 1, bias=False)  # quantizer.rvq_first.output_proj
        self.rest = nn.Conv1d(c["width"], c["codebook_dim"], 1, bias=False)  # quantizer.rvq_rest.output_proj
        self.pre_conv = CausalConv(c["codebook_dim"], latent, 3)
        self.pre_transformer = PreTransformer(c)
        self.upsample = nn.ModuleList(nn.ModuleList([CausalTransposed(latent, latent, r, r), ConvNeXt(latent)]) for r in c["upsampling"])
        blocks = [DecoderBlock(dim >> i, dim >> (i + 1), r) for i, r in enumerate(c["rates"])]
        self.decoder = nn.ModuleList([CausalConv(latent, dim, 7), *blocks, Snake(dim >> n), CausalConv(dim >> n, 1, 7)])

    def forward(self, semantic: torch.Tensor, acoustic: torch.Tensor) -> torch.Tensor:
        """Quantised vectors -> samples [batch, frames * 1920], not yet clamped to [-1, 1]."""
        x = self.pre_conv(self.first(semantic) + self.rest(acoustic))
        x = self.pre_transformer(x.transpose(1, 2)).transpose(1, 2)
        for up, block in self.upsample:
            x = block(up(x))
        *body, act, last = self.decoder
        for module in body:
            x = module(x)
        return last.conv(act(x, last.left))[:, 0]


class EncoderUnit(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        half = channels // 2
        self.block = nn.ModuleList([nn.ELU(), CausalConv(channels, half, 3), nn.ELU(), CausalConv(half, channels, 1)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x
        for module in self.block:
            y = module(y)
        return x + y


class Encoder(nn.Module):
    def __init__(self, c: dict = SIZES) -> None:
        super().__init__()
        n, hidden = c["enc_filters"], c["enc_hidden"]
        layers: list[nn.Module] = [CausalConv(1, n, 7)]
        for rate in c["enc_ratios"]:
            layers += [EncoderUnit(n), nn.ELU(), CausalConv(n, 2 * n, 2 * rate, rate)]
            n *= 2
        layers += [nn.ELU(), CausalConv(n, hidden, 3)]
        transformer = [Layer(hidden, c["enc_heads"], c["enc_head_dim"], c["enc_inner"], "ln") for _ in range(c["enc_layers"])]
        self.encoder, self.encoder_transformer = Group(layers=nn.ModuleList(layers)), Group(layers=nn.ModuleList(transformer))
        self.downsample = CausalConv(hidden, hidden, 4, 2, bias=False, mode="replicate")
        self.sem = nn.Conv1d(hidden, c["width"], 1, bias=False)  # semantic_residual_vector_quantizer.input_proj
        self.ac = nn.Conv1d(hidden, c["width"], 1, bias=False)  # acoustic_residual_vector_quantizer.input_proj

    def forward(self, wave: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """[batch, samples] -> semantic and acoustic latents [batch, width, ceil(samples / 1920)]."""
        x = wave[:, None]
        for module in self.encoder.layers:
            x = module(x)
        x = x.transpose(1, 2)
        for layer in self.encoder_transformer.layers:
            x = layer(x)
        x = self.downsample(x.transpose(1, 2))
        return self.sem(x), self.ac(x)


@torch.no_grad()
def initialise(encoder: Encoder, decoder: Decoder) -> None:
    """Variance-keeping start; PyTorch's default fades the signal below the biases, and the code books collapse."""
    for root, gain in ((encoder, 1.3), (decoder, 1.0)):
        for name, m in root.named_modules():
            if not isinstance(m, (nn.Conv1d, nn.ConvTranspose1d)):
                continue
            transposed = isinstance(m, nn.ConvTranspose1d)
            fan_in = m.weight.shape[0] * m.kernel_size[0] / m.stride[0] if transposed else m.weight[0].numel()
            last = "conv2." in name or name.endswith("block.3.conv")  # end of a residual branch
            nn.init.normal_(m.weight, 0, (0.5 if last else 1.0) * gain / fan_in**0.5)
            if m.bias is not None:
                nn.init.zeros_(m.bias)
    encoder.encoder.layers[0].conv.weight.mul_(8)
    decoder.decoder[-1].conv.weight.mul_(0.1)


class Quantiser(nn.Module):
    """One semantic and 15 acoustic levels of 256 vectors, moved by exponential averages; unused vectors restart on data.

    Everything has static shapes and no host synchronisation, so that a training step can be captured as a CUDA graph.
    """

    def __init__(self, c: dict = SIZES, decay: float = 0.99) -> None:
        super().__init__()
        self.levels, self.codes, self.decay = c["levels"], c["codes"], decay
        self.register_buffer("sums", torch.randn(self.levels, self.codes, c["width"]))
        self.register_buffer("usage", torch.ones(self.levels, self.codes))

    def books(self) -> torch.Tensor:
        return self.sums / self.usage.clamp(min=1e-5)[..., None]

    def nearest(self, x: torch.Tensor, book: torch.Tensor) -> torch.Tensor:
        return torch.addmm(book.pow(2).sum(1), x, book.T, alpha=-2).argmin(1)

    @torch.no_grad()
    def forward(self, semantic: torch.Tensor, acoustic: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """Latents -> codes, semantic vector, acoustic vectors [15, batch, frames, width], inputs of the levels [16, rows, width]."""
        tf32, torch.backends.cuda.matmul.allow_tf32 = torch.backends.cuda.matmul.allow_tf32, False
        with torch.autocast(semantic.device.type, enabled=False):
            sem, rest = (t.transpose(1, 2).float() for t in (semantic, acoustic))
            shape, books = sem.shape[:2], self.books()
            sem, rest = sem.flatten(0, 1), rest.flatten(0, 1)
            codes, inputs, vectors = [self.nearest(sem, books[0])], [sem], []
            for level in range(1, self.levels):
                inputs.append(rest)
                codes.append(self.nearest(rest, books[level]))
                vectors.append(books[level][codes[-1]])
                rest = rest - vectors[-1]
        torch.backends.cuda.matmul.allow_tf32 = tf32
        first = books[0][codes[0]].view(*shape, -1).transpose(1, 2)
        return torch.stack(codes, -1).view(*shape, -1), first, torch.stack(vectors).view(self.levels - 1, *shape, -1), torch.stack(inputs)

    @torch.no_grad()
    def update(self, inputs: torch.Tensor, codes: torch.Tensor, valid: torch.Tensor) -> None:
        """Moves the code books towards the valid rows (inputs [16, rows, width], codes and valid over the same rows)."""
        levels, rows, width = inputs.shape
        weight = valid.reshape(-1).float()
        flat = (codes.reshape(rows, levels).T + torch.arange(levels, device=codes.device)[:, None] * self.codes).reshape(-1)
        count = torch.zeros(levels * self.codes, device=flat.device).index_add_(0, flat, weight.repeat(levels))
        total = torch.zeros(levels * self.codes, width, device=flat.device).index_add_(0, flat, (inputs * weight[:, None]).flatten(0, 1))
        self.usage.lerp_(count.view_as(self.usage), 1 - self.decay)
        self.sums.lerp_(total.view_as(self.sums), 1 - self.decay)
        mean = weight.sum() / self.codes
        most = min(self.codes, rows)
        chosen = (torch.rand(levels, rows, device=flat.device) + 2 * weight).topk(most, 1).indices  # valid rows first
        chosen = chosen[:, torch.arange(self.codes, device=flat.device) % most]
        fresh = inputs.gather(1, chosen[..., None].expand(-1, -1, width))
        dead = self.usage < 0.03 * mean
        self.sums.copy_(torch.where(dead[..., None], fresh * (0.3 * mean), self.sums))
        self.usage.copy_(torch.where(dead, (0.3 * mean).expand_as(self.usage), self.usage))

    @torch.no_grad()
    def start(self, semantic: torch.Tensor, acoustic: torch.Tensor, valid: torch.Tensor) -> None:
        """First code books: random data points of the running residual."""
        good = valid.reshape(-1).nonzero()[:, 0]
        sem, rest = (t.transpose(1, 2).flatten(0, 1).float()[good] for t in (semantic, acoustic))
        size = len(good) / self.codes
        self.usage.fill_(size)
        for level in range(self.levels):
            x = sem if level == 0 else rest
            book = x[torch.randint(len(x), (self.codes,), device=x.device)]
            self.sums[level] = book * size
            if level:
                rest = rest - book[torch.cdist(rest, book).argmin(1)]

    def lookup(self, codes: torch.Tensor, levels: int | None = None) -> tuple[torch.Tensor, torch.Tensor]:
        """Codes [batch, frames, 16] -> semantic and summed acoustic vectors of the first `levels` levels."""
        books = self.books()
        first = books[0][codes[..., 0]]
        rest = torch.zeros_like(first)
        for level in range(1, levels or self.levels):
            rest = rest + books[level][codes[..., level]]
        return first.transpose(1, 2), rest.transpose(1, 2)
