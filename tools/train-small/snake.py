"""SnakeBeta, x + sin^2(x e^alpha) / (e^beta + 1e-9), fused with the left padding of the convolution behind it.

On a GPU one Triton kernel forward and one backward replace about a dozen launches and as many passes over memory;
on the CPU plain PyTorch does the same (and is what the Triton kernels are tested against: python snake.py).
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

try:
    import triton
    import triton.language as tl
except ImportError:  # the CPU path needs none
    triton = None

BLOCK = 1024


def plain(x: torch.Tensor, alpha: torch.Tensor, beta: torch.Tensor, pad: int) -> torch.Tensor:
    a, b = alpha.exp()[:, None], beta.exp()[:, None]
    return F.pad(x + torch.sin(x * a) ** 2 / (b + 1e-9), (pad, 0))


if triton is not None:

    @triton.jit
    def forward_kernel(x, alpha, beta, y, C, T, x_row, x_channel, pad, B: tl.constexpr):
        row = tl.program_id(0)
        b, c = row // C, row % C
        at = tl.program_id(1) * B + tl.arange(0, B)  # position in the padded output
        inside = (at >= pad) & (at < T + pad)
        a = tl.exp(tl.load(alpha + c))
        k = 1.0 / (tl.exp(tl.load(beta + c)) + 1e-9)
        v = tl.load(x + b.to(tl.int64) * x_row + c.to(tl.int64) * x_channel + at - pad, mask=inside, other=0.0)
        s = tl.sin(v * a)
        tl.store(y + row.to(tl.int64) * (T + pad) + at, v + s * s * k, mask=at < T + pad)

    @triton.jit
    def backward_kernel(x, alpha, beta, g, dx, da, db, C, T, x_row, x_channel, g_row, g_channel, pad, B: tl.constexpr):
        row = tl.program_id(0)
        b, c = row // C, row % C
        at = tl.program_id(1) * B + tl.arange(0, B)
        inside = at < T
        a = tl.exp(tl.load(alpha + c))
        e = tl.exp(tl.load(beta + c))
        k = 1.0 / (e + 1e-9)
        v = tl.load(x + b.to(tl.int64) * x_row + c.to(tl.int64) * x_channel + at, mask=inside, other=0.0)
        w = tl.load(g + b.to(tl.int64) * g_row + c.to(tl.int64) * g_channel + at + pad, mask=inside, other=0.0)
        s, t = tl.sin(v * a), tl.cos(v * a)
        slope = 2.0 * s * t * k * w  # d/d(x a)
        tl.store(dx + row.to(tl.int64) * T + at, w + slope * a, mask=inside)
        tl.atomic_add(da + c, tl.sum(slope * v, 0) * a)
        tl.atomic_add(db + c, -tl.sum(w * s * s, 0) * k * k * e)

    class Fused(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, alpha, beta, pad):
            if x.stride(2) != 1:
                x = x.contiguous()
            n, c, t = x.shape
            y = torch.empty(n, c, t + pad, device=x.device, dtype=x.dtype)
            grid = (n * c, triton.cdiv(t + pad, BLOCK))
            forward_kernel[grid](x, alpha, beta, y, c, t, x.stride(0), x.stride(1), pad, B=BLOCK)
            ctx.save_for_backward(x, alpha, beta)
            ctx.pad = pad
            return y

        @staticmethod
        def backward(ctx, g):
            x, alpha, beta = ctx.saved_tensors
            if g.stride(2) != 1:
                g = g.contiguous()
            n, c, t = x.shape
            dx = torch.empty(n, c, t, device=x.device, dtype=x.dtype)
            da, db = torch.zeros_like(alpha), torch.zeros_like(beta)
            grid = (n * c, triton.cdiv(t, BLOCK))
            strides = (x.stride(0), x.stride(1), g.stride(0), g.stride(1))
            backward_kernel[grid](x, alpha, beta, g, dx, da, db, c, t, *strides, ctx.pad, B=BLOCK)
            return dx, da, db, None


def snake(x: torch.Tensor, alpha: torch.Tensor, beta: torch.Tensor, pad: int = 0) -> torch.Tensor:
    """x [batch, channels, time] -> the same with `pad` zero columns on the left."""
    if triton is not None and x.is_cuda:
        return Fused.apply(x, alpha, beta, pad)
    return plain(x, alpha, beta, pad)


def check(device: str) -> float:
    """Largest difference of values and gradients between the kernels and plain PyTorch."""
    torch.manual_seed(1)
    worst = 0.0
    for shape, pad, cut in (((2, 5, 37), 6, 0), ((3, 4, 2500), 54, 5), ((1, 20, 1024), 0, 3)):
        base = torch.randn(*shape, device=device)
        alpha, beta = (0.3 * torch.randn(2, shape[1], device=device)).unbind(0)
        got = []
        for f in (Fused.apply, plain):
            x, a, b = (t.clone().requires_grad_(True) for t in (base, alpha, beta))
            y = f(x[..., : shape[2] - cut], a, b, pad)
            (y * torch.linspace(-1, 1, y.shape[-1], device=device)).sum().backward()
            got.append([y.detach(), x.grad, a.grad, b.grad])
        for p, q in zip(*got):
            worst = max(worst, ((p - q).norm() / q.norm()).item())
    return worst


if __name__ == "__main__":  # on a CPU: TRITON_INTERPRET=1 python snake.py
    print(f"largest relative difference {check('cuda' if torch.cuda.is_available() else 'cpu'):.1e}")
