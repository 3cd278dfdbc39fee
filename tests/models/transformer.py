"""Shared by transformers that exist only as ONNX: weights, and layers as exporters write them.

    weights = Weights(seed)
    weights.linear("fc1", 1536, 384); weights.norm("norm1", 384)
    x = linear(w, layer_norm(w, x, weights.arrays, "norm1", 1e-5), weights.arrays, "fc1")

Weights are named, and shaped, as in PyTorch: a linear layer's is [out, in].
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import numpy_ops as ops
from onnx_writer import OnnxWriter
from weights import SeededArrays

Arrays = Mapping[str, np.ndarray]


class Weights(SeededArrays):
    """Weights by name, f32, drawn from one seed."""

    def linear(self, name: str, outputs: int, inputs: int, bias: bool = True,
               gain: float = 1.0) -> None:
        """``{name}.weight`` [outputs, inputs], which keeps values' size up to `gain`."""
        self.arrays[f"{name}.weight"] = self.normal(outputs, inputs,
                                                    deviation=gain / math.sqrt(inputs))
        if bias:
            self.arrays[f"{name}.bias"] = self.normal(outputs)

    def norm(self, name: str, width: int, bias: bool = True) -> None:
        """``{name}.weight`` near one and its bias."""
        self.arrays[f"{name}.weight"] = self.normal(width, mean=1.0)
        if bias:
            self.arrays[f"{name}.bias"] = self.normal(width)


def linear(w: OnnxWriter, x: str, arrays: Arrays, name: str, result: str = "") -> str:
    """A linear layer over the last axis: a MatMul, its weight turned, and an Add."""
    bias = arrays.get(f"{name}.bias")
    x = w.node("MatMul", x, w.tensor(f"{name}.weight", arrays[f"{name}.weight"].T),
               name=result if bias is None else "")
    return x if bias is None else w.node("Add", w.tensor(f"{name}.bias", bias), x, name=result)


def gelu(w: OnnxWriter, x: str) -> str:
    """Writes Gelu by Erf, for opsets without Gelu."""
    gate = w.node("Erf", w.node("Div", x, w.constant(np.float32(math.sqrt(2)))))
    gate = w.node("Add", gate, w.constant(np.float32(1)))
    return w.node("Mul", w.node("Mul", x, gate), w.constant(np.float32(0.5)))


def layer_norm(w: OnnxWriter, x: str, arrays: Arrays, name: str, epsilon: float,
               result: str = "") -> str:
    """Writes LayerNorm: one node from opset 17 on, nine before."""
    scale, bias = (w.tensor(f"{name}.{part}", arrays[f"{name}.{part}"])
                   for part in ("weight", "bias"))
    if w.opset >= 17:
        return w.node("LayerNormalization", x, scale, bias, name=result, axis=-1, epsilon=epsilon)
    centred = w.node("Sub", x, w.node("ReduceMean", x, axes=[-1]))
    square = w.node("Pow", centred, w.constant(np.float32(2)))
    variance = w.node("Add", w.node("ReduceMean", square, axes=[-1]),
                      w.constant(np.float32(epsilon)))
    x = w.node("Div", centred, w.node("Sqrt", variance))
    return w.node("Add", w.node("Mul", x, scale), bias, name=result)


def layer_norm_numpy(x: np.ndarray, arrays: Arrays, name: str, epsilon: float) -> np.ndarray:
    """The same in float64."""
    return ops.layer_norm(x, arrays[f"{name}.weight"], arrays[f"{name}.bias"], epsilon)


def linear_numpy(x: np.ndarray, arrays: Arrays, name: str) -> np.ndarray:
    """A linear layer in float64."""
    return ops.linear(x, arrays[f"{name}.weight"], arrays.get(f"{name}.bias"))


def attention_numpy(q: np.ndarray, k: np.ndarray, v: np.ndarray,
                    allowed: np.ndarray | None = None) -> np.ndarray:
    """Attention of [..., length, head] in float64, over the keys that are `allowed`."""
    scores = q @ k.swapaxes(-1, -2) / math.sqrt(q.shape[-1])
    if allowed is not None:
        scores = np.where(allowed, scores, -np.inf)
    return ops.softmax(scores) @ v
