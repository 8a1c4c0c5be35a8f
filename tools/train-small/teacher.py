"""The teacher's ONNX graph (float32, from dequantize.py) in PyTorch, node by node, on the CPU or a GPU.

An interpreter for the 54 operators of that one graph. Shape arithmetic (integers and booleans) stays on the host.
usage: teacher.py MODEL.onnx --check N   compares N random inputs with ONNX Runtime and prints the speed of both
"""
import argparse
import math
import time

import numpy as np
import onnx
import torch
import torch.nn.functional as F
from onnx import helper, numpy_helper

TYPES = {1: torch.float32, 6: torch.int32, 7: torch.int64, 9: torch.bool}


def ints(t):
    return [int(v) for v in t.reshape(-1).tolist()]


def resize(x, scales, mode):
    size = [int(math.floor(n * s)) for n, s in zip(x.shape[2:], scales[2:])]
    if mode == "nearest":                                   # asymmetric, floor
        for d, (n, s) in enumerate(zip(size, scales[2:]), start=2):
            at = torch.arange(n, device=x.device).div(s, rounding_mode="floor").long().clamp_(max=x.shape[d] - 1)
            x = x.index_select(d, at)
        return x
    at = ((torch.arange(size[0], device=x.device, dtype=torch.float32) + 0.5) / scales[2] - 0.5).clamp(0, x.shape[2] - 1)
    lo = at.floor().long()                                  # half_pixel, linear
    hi = (lo + 1).clamp(max=x.shape[2] - 1)
    return torch.lerp(x[:, :, lo], x[:, :, hi], (at - lo).to(x.dtype))


class Teacher:
    """Callable: tokens int64 [1, n], style float32 [1, 256], speed float32 [1] -> audio float32 [samples], 24 kHz."""

    def __init__(self, path, device="cpu"):
        graph = onnx.load(path).graph
        self.device, self.graph, self.lstms = torch.empty(0, device=device).device, graph, {}
        self.const = {}
        for t in graph.initializer:
            v = torch.from_numpy(np.array(numpy_helper.to_array(t)))
            self.const[t.name] = v.to(self.device) if v.is_floating_point() and (v.dim() > 1 or v.numel() > 8) else v
        self.nodes = [(n.op_type, list(n.input), list(n.output),
                       {a.name: helper.get_attribute_value(a) for a in n.attribute}) for n in graph.node]
        self.outputs = [o.name for o in graph.output]
        last = {}
        for k, (_, i, _, _) in enumerate(self.nodes):
            last.update(dict.fromkeys(i, k))
        self.drop = [[] for _ in self.nodes]                # values that are not needed after node k
        for name, k in last.items():
            if name and name not in self.const and name not in self.outputs:
                self.drop[k].append(name)

    @torch.inference_mode()
    def __call__(self, tokens, style, speed, want=()):
        v = dict(self.const, tokens=tokens, style=style.to(self.device), speed=speed.to(self.device))
        got = {}
        for k, (op, ins, outs, a) in enumerate(self.nodes):
            y = getattr(self, op)(a, *(v[i] if i else None for i in ins))
            for name, t in zip(outs, y if isinstance(y, (list, tuple)) else (y,)):
                v[name] = t
                if name in want:
                    got[name] = t
            for name in self.drop[k]:
                v.pop(name, None)
        out = v[self.outputs[0]].reshape(-1)
        return (out, got) if want else out

    def same(self, *x):                                     # operands on one device; a single host value stays a scalar
        if all(t.device == x[0].device for t in x):
            return x
        rank = max(t.dim() for t in x if t.device == self.device)
        return [t if t.device == self.device else t.reshape(()) if t.numel() == 1 and t.dim() <= rank else t.to(self.device) for t in x]

    def two(op):
        def f(self, a, x, y):
            return op(*self.same(x, y))
        return f

    Add, Sub, Mul = two(torch.add), two(torch.sub), two(torch.mul)
    Equal, Greater, Less, GreaterOrEqual, And = two(torch.eq), two(torch.gt), two(torch.lt), two(torch.ge), two(torch.logical_and)
    MatMul = two(torch.matmul)

    def one(op):
        def f(self, a, x):
            return op(x)
        return f

    Sqrt, Sin, Cos, Exp, Tanh, Sigmoid = one(torch.sqrt), one(torch.sin), one(torch.cos), one(torch.exp), one(torch.tanh), one(torch.sigmoid)
    Floor, Round, Identity = one(torch.floor), one(torch.round), one(lambda x: x)
    Atan = one(lambda x: torch.atan(torch.nan_to_num(x)))    # 0 / 0: the phase of a bin without signal
    del two, one

    def Div(self, a, x, y):
        x, y = self.same(x, y)
        return x / y if x.is_floating_point() else torch.div(x, y, rounding_mode="trunc")

    def Pow(self, a, x, y):
        return torch.pow(x, y.item() if y.numel() == 1 else y)

    def Shape(self, a, x):
        return torch.tensor(x.shape)

    def Cast(self, a, x):
        return x.to(TYPES[a["to"]])

    def Reshape(self, a, x, s):
        s = [x.shape[i] if n == 0 else n for i, n in enumerate(ints(s))]
        return x.reshape(s)

    def Unsqueeze(self, a, x, axes):
        for d in sorted(ints(axes)):
            x = x.unsqueeze(d)
        return x

    def Squeeze(self, a, x, axes):
        for d in sorted(ints(axes), reverse=True):
            x = x.squeeze(d)
        return x

    def Transpose(self, a, x):
        return x.permute(a["perm"])

    def Expand(self, a, x, s):
        return x.expand(torch.broadcast_shapes(x.shape, ints(s)))

    def Concat(self, a, *x):
        return torch.cat([t.to(x[0].device if not any(t.is_floating_point() for t in x) else self.device) for t in x], a["axis"])

    def Split(self, a, x, s=None):
        return torch.split(x, ints(s), a["axis"])

    def Slice(self, a, x, start, end, axes=None, step=None):
        n = len(ints(start))
        for s, e, d, k in zip(ints(start), ints(end), ints(axes) if axes is not None else range(n), ints(step) if step is not None else [1] * n):
            i = range(x.shape[d])[slice(s, e if abs(e) < 2 ** 40 else None, k)]
            x = x.narrow(d, i.start, len(i)) if k == 1 else x.index_select(d, torch.tensor(list(i), device=x.device))
        return x

    def Gather(self, a, x, i):
        d = a.get("axis", 0)
        if i.dim() == 0:
            return x.select(d, int(i))
        i = i.to(x.device)
        i = torch.where(i < 0, i + x.shape[d], i)
        return x.index_select(d, i.reshape(-1)).reshape(x.shape[:d] + i.shape + x.shape[d + 1:])

    def Where(self, a, c, x, y):
        c, x, y = (t.to(self.device) for t in (c, x, y))
        return torch.where(c, x, y)

    def ConstantOfShape(self, a, s):
        t = numpy_helper.to_array(a["value"]) if "value" in a else np.zeros(1, np.float32)
        x = torch.full(ints(s), t.reshape(-1)[0].item(), dtype=torch.from_numpy(np.array(t)).dtype)
        return x.to(self.device) if x.is_floating_point() else x

    def Range(self, a, s, e, d):
        return torch.arange(s.item(), e.item(), d.item(), dtype=s.dtype)

    def NonZero(self, a, x):
        return torch.nonzero(x).T

    def ScatterND(self, a, x, i, u):
        x = x.clone()
        i = i.to(x.device)
        x[tuple(i.unbind(-1))] = u.to(x.device)
        return x

    def CumSum(self, a, x, axis):
        return torch.cumsum(x, int(axis))

    def Clip(self, a, x, lo=None, hi=None):
        return torch.clamp(x, None if lo is None else lo.item(), None if hi is None else hi.item())

    def ReduceMean(self, a, x, axes):
        return x.mean(ints(axes), keepdim=bool(a.get("keepdims", 1)))

    def ReduceSum(self, a, x, axes):
        return x.sum(ints(axes), keepdim=bool(a.get("keepdims", 1)))

    def Softmax(self, a, x):
        return torch.softmax(x, a.get("axis", -1))

    def LeakyRelu(self, a, x):
        return F.leaky_relu(x, a.get("alpha", 0.01))

    def FastGelu(self, a, x, b=None):
        return F.gelu(x if b is None else x + b, approximate="tanh")

    def LayerNormalization(self, a, x, w, b):
        return F.layer_norm(x, x.shape[-1:], w, b, a["epsilon"])

    def SkipLayerNormalization(self, a, x, skip, w, b=None, bias=None):
        x = x + skip if bias is None else x + skip + bias
        return F.layer_norm(x, x.shape[-1:], w, b, a["epsilon"])

    def FusedMatMul(self, a, x, y):
        return torch.matmul(x.transpose(-1, -2) if a["transA"] else x, y.transpose(-1, -2) if a["transB"] else y) * a["alpha"]

    def DequantizeLinear(self, a, x, s, z):
        return ((x.to(torch.float32) - z.to(torch.float32)) * s.to(x.device)).to(self.device)

    def Pad(self, a, x, pads, value=None, axes=None):
        p, n = ints(pads), x.dim()
        mode = a.get("mode", b"constant").decode()
        flat = [q for d in reversed(range(n)) for q in (p[d], p[d + n])]
        while len(flat) > 2 and flat[-2:] == [0, 0]:
            flat = flat[:-2]
        if mode != "constant" and n == 2:
            return F.pad(x[None], flat, mode)[0]
        return F.pad(x, flat, mode)

    def Resize(self, a, x, roi, scales):
        return resize(x, scales.reshape(-1).tolist(), a["mode"].decode())

    def Conv(self, a, x, w, b=None):
        w, b = w.to(x.device), None if b is None else b.to(x.device)
        lo, hi = a["pads"]
        return F.conv1d(x if lo == hi else F.pad(x, (lo, hi)), w, b, a["strides"], lo if lo == hi else 0, a["dilations"], a["group"])

    def ConvTranspose(self, a, x, w, b=None):
        w, b = w.to(x.device), None if b is None else b.to(x.device)
        return F.conv_transpose1d(x, w, b, a["strides"], a["pads"][0], a.get("output_padding", [0]), a["group"], a["dilations"])

    def STFT(self, a, x, step, window, length):
        n, s = int(length), int(step)
        frames = x.reshape(x.shape[0], -1).unfold(1, n, s) * window.to(x.device)
        return torch.view_as_real(torch.fft.rfft(frames))

    def LSTM(self, a, x, w, r, b, lens, h0, c0):
        key = id(w)
        if key not in self.lstms:                           # ONNX gates i o f c, PyTorch i f g o
            m = torch.nn.LSTM(x.shape[-1], a["hidden_size"], bidirectional=True).to(self.device).eval()
            h = a["hidden_size"]

            def order(t):
                i, o, f, c = t.split(h)
                return torch.cat([i, f, c, o])

            for d, end in enumerate(("", "_reverse")):
                getattr(m, "weight_ih_l0" + end).data.copy_(order(w[d]))
                getattr(m, "weight_hh_l0" + end).data.copy_(order(r[d]))
                getattr(m, "bias_ih_l0" + end).data.copy_(order(b[d][:4 * h]))
                getattr(m, "bias_hh_l0" + end).data.copy_(order(b[d][4 * h:]))
            self.lstms[key] = m
        y, (hn, cn) = self.lstms[key](x, (h0.to(self.device).contiguous(), c0.to(self.device).contiguous()))
        return y.reshape(y.shape[0], y.shape[1], 2, -1).transpose(1, 2), hn, cn


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("model")
    p.add_argument("--check", type=int, default=3)
    p.add_argument("--device", default="cpu")
    p.add_argument("--tokens", help="lines of token ids; default random")
    p.add_argument("--voice", help="a .bin of 510 x 256 float32")
    a = p.parse_args()
    import onnxruntime as ort
    o = ort.SessionOptions()
    o.intra_op_num_threads = 1
    ref, mine, rng = ort.InferenceSession(a.model, o, providers=["CPUExecutionProvider"]), Teacher(a.model, a.device), np.random.default_rng(1)
    lines = open(a.tokens).read().split("\n") if a.tokens else None
    voice = np.fromfile(a.voice, "<f4").reshape(510, 256) if a.voice else rng.standard_normal((510, 256)).astype(np.float32) * 0.1
    for k in range(a.check):
        t = [int(x) for x in lines[k].split()] if lines else rng.integers(40, 150, 40).tolist()
        feed = {"tokens": np.array([[0, *t, 0]], np.int64), "style": voice[len(t)][None], "speed": np.ones(1, np.float32)}
        t0 = time.time()
        want = ref.run(None, feed)[0].ravel()
        t1 = time.time()
        got = mine(*(torch.from_numpy(np.ascontiguousarray(x)) for x in feed.values())).cpu().numpy()
        t2 = time.time()
        n = min(len(want), len(got))
        err = np.sqrt(np.mean((want[:n] - got[:n]) ** 2) / np.mean(want[:n] ** 2))
        print(f"{len(want)} / {len(got)} samples, relative error {err:.2e}, ONNX Runtime {t1 - t0:.2f} s, PyTorch {t2 - t1:.2f} s", flush=True)


if __name__ == "__main__":
    main()
