"""The teacher's int8 ONNX file as float32: quantised weights become constants, the dynamic quantisation of activations goes.

usage: dequantize.py IN.onnx[.xz] OUT.onnx
"""

from __future__ import annotations

import lzma
import sys
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper


class Rewriter:
    """One pass over the graph; see main() for the order."""

    def __init__(self, graph: onnx.GraphProto) -> None:
        self.graph = graph
        self.weights = {t.name: t for t in graph.initializer}
        self.producer = {o: n for n in graph.node for o in n.output}
        self.users: dict[str, list[onnx.NodeProto]] = {}
        for node in graph.node:
            for name in node.input:
                self.users.setdefault(name, []).append(node)
        self.source = {n.output[0]: n.input[0] for n in graph.node if n.op_type == "DynamicQuantizeLinear"}
        self.added: dict[str, onnx.TensorProto] = {}
        self.identity: dict[str, onnx.NodeProto] = {}  # by output name

    def array(self, name: str) -> np.ndarray:
        return numpy_helper.to_array(self.weights[name])

    def add(self, name: str, value: np.ndarray) -> str:
        name += "_f32"
        self.added[name] = numpy_helper.from_array(np.ascontiguousarray(value.astype(np.float32)), name)
        return name

    def product(self, node: onnx.NodeProto) -> None:
        """ConvInteger or MatMulInteger with a constant weight -> Conv or MatMul, and the rescaling behind it removed."""
        x, w = node.input[:2]
        scale = self.array(w.replace("_quantized", "_scale"))
        zero = self.array(node.input[3]).astype(np.float32) if len(node.input) > 3 and node.input[3] else np.zeros(1, np.float32)
        weight, conv = self.array(w).astype(np.float32), node.op_type == "ConvInteger"

        def spread(v: np.ndarray) -> np.ndarray:  # one value, or one per output channel
            return v.reshape(()) if v.size == 1 else v.reshape(-1, *[1] * (weight.ndim - 1)) if conv else v.reshape(-1)

        name = self.add(w, (weight - spread(zero)) * spread(scale))
        fresh = helper.make_node("Conv" if conv else "MatMul", [self.source.get(x, x), name], list(node.output), name=node.name + "_f")
        fresh.attribute.extend(node.attribute)
        node.CopyFrom(fresh)
        self.drop_rescaling(node.output[0])

    def drop_rescaling(self, value: str) -> None:
        while True:
            (user,) = self.users[value]
            if user.op_type == "Cast":
                self.pass_through(user.input[0], user.output[0])
            elif user.op_type == "Add":  # a bias, quantised in the graph: Reshape <- Cast <- Floor <- Div(bias, scale)
                (bias,) = (i for i in user.input if i != value)
                reshape = self.producer[bias]
                step = self.producer[reshape.input[0]]
                while step.op_type != "Div":
                    step = self.producer[step.input[0]]
                reshape.input[0] = step.input[0]
            elif user.op_type == "Mul":
                self.pass_through(value, user.output[0])
                return
            else:
                raise ValueError(f"unexpected {user.op_type} behind an integer product")
            value = user.output[0]

    def pass_through(self, value: str, name: str) -> None:
        self.identity[name] = helper.make_node("Identity", [value], [name])

    def lstm(self, node: onnx.NodeProto) -> None:
        x, w, r, bias, lengths, h, c, _, w_scale, w_zero, r_scale, r_zero = list(node.input)[:12]

        def weight(name: str, scale: str, zero: str) -> str:
            s, z = (self.array(n).astype(np.float32) for n in (scale, zero))
            s, z = (v.reshape(v.shape[0], 1, -1) if v.ndim else v for v in (s, z))
            return self.add(name, ((self.array(name).astype(np.float32) - z) * s).transpose(0, 2, 1))

        inputs = [x, weight(w, w_scale, w_zero), weight(r, r_scale, r_zero), bias, lengths, h, c]
        fresh = helper.make_node("LSTM", inputs, list(node.output), name=node.name + "_f")
        fresh.attribute.extend(a for a in node.attribute if a.name in ("direction", "hidden_size"))
        node.CopyFrom(fresh)

    def run(self) -> None:
        for node in list(self.graph.node):
            if node.op_type in ("ConvInteger", "MatMulInteger") and node.input[1] in self.weights:
                self.product(node)
            elif node.op_type == "DynamicQuantizeLSTM":
                self.lstm(node)
        for node in self.graph.node:
            if node.output and node.output[0] in self.identity:
                node.CopyFrom(self.identity[node.output[0]])
        self.drop_dead()

    def drop_dead(self) -> None:
        while True:
            used = {i for n in self.graph.node for i in n.input} | {o.name for o in self.graph.output}
            dead = [n for n in self.graph.node if not any(o in used for o in n.output)]
            if not dead:
                break
            for node in dead:
                self.graph.node.remove(node)
        self.graph.initializer.extend(self.added.values())
        for tensor in list(self.graph.initializer):
            if tensor.name not in used:
                self.graph.initializer.remove(tensor)
        del self.graph.value_info[:]


def main() -> None:
    source, target = Path(sys.argv[1]), Path(sys.argv[2])
    data = source.read_bytes()
    model = onnx.load_from_string(lzma.decompress(data) if source.suffix == ".xz" else data)
    Rewriter(model.graph).run()
    onnx.save(model, target)


if __name__ == "__main__":
    main()
