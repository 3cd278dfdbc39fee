"""A transformer encoder with seeded weights: as graphs, in numpy, as ONNX and for PyTorch.

    graph = encoder_graph(composite=True)     # ids i64[b, s] -> hidden f32[b, s, 384]
    hidden = encoder_numpy(ids)               # the same in float64
    encoder_onnx("encoder.onnx")              # the same for ONNX Runtime

Post-norm like BERT: token and position embeddings, a norm, then six layers of attention (12 heads)
and a feed-forward network of width 1536, each with a residual and a norm. b is in [1, 8], s in
[1, 512]. The two graphs, in composites and in primitives only, have identical weights.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import os
from typing import TYPE_CHECKING

import athanor
import numpy as np
import primitives
from onnx_writer import OnnxWriter

if TYPE_CHECKING:
    import torch


@dataclasses.dataclass(frozen=True)
class Config:
    """Sizes of the encoder; the default is the model of tests and figures."""

    layers: int = 6
    width: int = 384
    heads: int = 12
    hidden: int = 1536
    vocabulary: int = 30_522
    positions: int = 512
    batch: int = 8
    epsilon: float = 1e-12
    seed: int = 7

    @property
    def head(self) -> int:
        """Width of one head."""
        return self.width // self.heads


DEFAULT = Config()


@functools.cache
def encoder_weights(config: Config = DEFAULT) -> dict[str, np.ndarray]:
    """Returns all weights by name, f32, the same for the same config."""
    random = np.random.default_rng(config.seed)

    def normal(*shape: int, deviation: float = 0.02, mean: float = 0.0) -> np.ndarray:
        values = random.standard_normal(shape, np.float32)
        return values * np.float32(deviation) + np.float32(mean)

    def norm(name: str) -> dict[str, np.ndarray]:
        return {f"{name}.scale": normal(config.width, deviation=0.1, mean=1.0),
                f"{name}.bias": normal(config.width, deviation=0.1)}

    d, h = config.width, config.hidden
    weights = {"tokens": normal(config.vocabulary, d), "positions": normal(config.positions, d)}
    weights |= norm("embedding.norm")
    for i in range(config.layers):
        for part, (rows, columns) in {"query": (d, d), "key": (d, d), "value": (d, d),
                                      "out": (d, d), "up": (d, h), "down": (h, d)}.items():
            # Larger than BERT's 0.02, so that scores differ and softmax is not flat.
            weights[f"{i}.{part}.weight"] = normal(rows, columns, deviation=1 / math.sqrt(rows))
            weights[f"{i}.{part}.bias"] = normal(columns, deviation=0.1)
        weights |= norm(f"{i}.norm1") | norm(f"{i}.norm2")
    return weights


class _Composites:
    """The encoder's steps as composite ops."""

    contract = staticmethod(athanor.contract)
    gelu = staticmethod(athanor.gelu)
    layer_norm = staticmethod(athanor.layer_norm)

    @staticmethod
    def attention(q: athanor.Value, k: athanor.Value, v: athanor.Value,
                  scale: float) -> athanor.Value:
        return athanor.attention(q, k, v, scale=scale)


class _Primitives:
    """The same steps as a user writes them without any composite op."""

    contract = staticmethod(primitives.contract)

    @staticmethod
    def gelu(x: athanor.Value) -> athanor.Value:
        # Gelu of -inf is -0, not the NaN of -inf * 0.
        finite = athanor.maximum(x, float(np.finfo(np.float32).min))
        return finite * 0.5 * (athanor.erf(x * math.sqrt(0.5)) + 1.0)

    @staticmethod
    def layer_norm(x: athanor.Value, scale: athanor.Value, bias: athanor.Value,
                   epsilon: float) -> athanor.Value:
        centred = x - x.mean(-1, keepdims=True)
        variance = (centred * centred).mean(-1, keepdims=True)
        return centred * athanor.reciprocal(athanor.sqrt(variance + epsilon)) * scale + bias

    @classmethod
    def attention(cls, q: athanor.Value, k: athanor.Value, v: athanor.Value,
                  scale: float) -> athanor.Value:
        scores = cls.contract("bhqd,bhkd->bhqk", q, k) * scale
        weights = athanor.exp(scores - scores.max(-1, keepdims=True))
        weights = weights / weights.sum(-1, keepdims=True)
        return cls.contract("bhqk,bhkd->bhqd", weights, v)


def encoder_graph(composite: bool = True, config: Config = DEFAULT) -> athanor.Graph:
    """The encoder as a graph; input ``ids`` i64[b, s], output ``hidden`` f32[b, s, width]."""
    g = athanor.Graph("encoder")
    b, s = g.dim("b", 1, config.batch), g.dim("s", 1, config.positions)
    weights = {name: g.parameter(name, array) for name, array in encoder_weights(config).items()}
    ops = _Composites if composite else _Primitives

    def norm(x: athanor.Value, name: str) -> athanor.Value:
        return ops.layer_norm(x, weights[f"{name}.scale"], weights[f"{name}.bias"], config.epsilon)

    def linear(x: athanor.Value, name: str) -> athanor.Value:
        return ops.contract("bsi,io->bso", x, weights[f"{name}.weight"]) + weights[f"{name}.bias"]

    def heads(x: athanor.Value) -> athanor.Value:
        return x.reshape(b, s, config.heads, config.head).permute(0, 2, 1, 3)

    ids = g.input("ids", (b, s), "i64")
    x = athanor.embedding(weights["tokens"], ids) + weights["positions"][:s]
    x = norm(x, "embedding.norm")
    for i in range(config.layers):
        q, k, v = (heads(linear(x, f"{i}.{part}")) for part in ("query", "key", "value"))
        mixed = ops.attention(q, k, v, 1 / math.sqrt(config.head))
        mixed = mixed.permute(0, 2, 1, 3).reshape(b, s, config.width)
        x = norm(x + linear(mixed, f"{i}.out"), f"{i}.norm1")
        x = norm(x + linear(ops.gelu(linear(x, f"{i}.up")), f"{i}.down"), f"{i}.norm2")
    g.output("hidden", x)
    return g


def _erf(x: np.ndarray) -> np.ndarray:
    from scipy.special import erf

    return erf(x)


def encoder_numpy(ids: np.ndarray, config: Config = DEFAULT) -> np.ndarray:
    """The encoder in float64: ids [b, s] to hidden [b, s, width]."""
    w = encoder_weights(config)

    def norm(x: np.ndarray, name: str) -> np.ndarray:
        centred = x - x.mean(-1, keepdims=True)
        root = np.sqrt((centred**2).mean(-1, keepdims=True) + config.epsilon)
        return centred / root * w[f"{name}.scale"] + w[f"{name}.bias"]

    def linear(x: np.ndarray, name: str) -> np.ndarray:
        return x @ w[f"{name}.weight"].astype(np.float64) + w[f"{name}.bias"]

    b, s = ids.shape
    x = w["tokens"][ids].astype(np.float64) + w["positions"][:s]
    x = norm(x, "embedding.norm")
    for i in range(config.layers):
        q, k, v = (linear(x, f"{i}.{part}").reshape(b, s, config.heads, config.head)
                   .transpose(0, 2, 1, 3) for part in ("query", "key", "value"))
        scores = q @ k.swapaxes(-1, -2) / math.sqrt(config.head)
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        mixed = (scores / scores.sum(-1, keepdims=True)) @ v
        mixed = mixed.transpose(0, 2, 1, 3).reshape(b, s, config.width)
        x = norm(x + linear(mixed, f"{i}.out"), f"{i}.norm1")
        up = linear(x, f"{i}.up")
        up = up * (1 + _erf(up * math.sqrt(0.5))) / 2
        x = norm(x + linear(up, f"{i}.down"), f"{i}.norm2")
    return x


def encoder_onnx(path: str | os.PathLike[str], config: Config = DEFAULT) -> None:
    """Writes the encoder as ONNX opset 17 with dynamic b and s, in the form exporters give it."""
    w = OnnxWriter()
    for name, array in encoder_weights(config).items():
        w.tensor(name, array)
    w.tensor("scale", np.float32(1 / math.sqrt(config.head)))
    w.tensor("half", np.float32(0.5))
    w.tensor("one", np.float32(1))
    w.tensor("root2", np.float32(math.sqrt(2)))
    w.tensor("split", np.array([0, 0, config.heads, config.head], np.int64))
    w.tensor("merge", np.array([0, 0, config.width], np.int64))
    w.tensor("zero_index", np.array([0], np.int64))

    def norm(x: str, name: str, result: str = "") -> str:
        return w.node("LayerNormalization", x, f"{name}.scale", f"{name}.bias", name=result,
                      axis=-1, epsilon=config.epsilon)

    def heads(x: str, order: list[int]) -> str:
        return w.node("Transpose", w.node("Reshape", x, "split"), perm=order)

    length = w.node("Shape", "ids", start=1, end=2)
    positions = w.node("Slice", "positions", "zero_index", length, "zero_index")
    x = norm(w.node("Add", w.node("Gather", "tokens", "ids"), positions), "embedding.norm")
    for i in range(config.layers):
        q = heads(w.linear(x, f"{i}.query"), [0, 2, 1, 3])
        k = heads(w.linear(x, f"{i}.key"), [0, 2, 3, 1])
        v = heads(w.linear(x, f"{i}.value"), [0, 2, 1, 3])
        scores = w.node("Softmax", w.node("Mul", w.node("MatMul", q, k), "scale"), axis=-1)
        mixed = w.node("Transpose", w.node("MatMul", scores, v), perm=[0, 2, 1, 3])
        mixed = w.node("Reshape", mixed, "merge")
        x = norm(w.node("Add", x, w.linear(mixed, f"{i}.out")), f"{i}.norm1")
        up = w.linear(x, f"{i}.up")
        gate = w.node("Add", w.node("Erf", w.node("Div", up, "root2")), "one")
        up = w.node("Mul", w.node("Mul", up, gate), "half")
        last = "hidden" if i + 1 == config.layers else ""
        x = norm(w.node("Add", x, w.linear(up, f"{i}.down")), f"{i}.norm2", last)
    w.save(path, "encoder", {"ids": (np.int64, ["b", "s"])},
           {"hidden": (np.float32, ["b", "s", config.width])})


def encoder_torch(config: Config = DEFAULT) -> torch.nn.Module:
    """The encoder for PyTorch, to be called with ids i64[b, s]."""
    import torch
    from torch.nn import functional

    arrays = encoder_weights(config)

    class Encoder(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            # Parameters' names may hold no dot.
            for name, array in arrays.items():
                values = torch.from_numpy(array.T if array.ndim == 2 and name[0].isdigit()
                                          else array).contiguous()
                self.register_parameter(name.replace(".", "_"),
                                        torch.nn.Parameter(values, requires_grad=False))

        def weight(self, name: str) -> torch.Tensor:
            return getattr(self, name.replace(".", "_"))

        def norm(self, x: torch.Tensor, name: str) -> torch.Tensor:
            return functional.layer_norm(x, (config.width,), self.weight(f"{name}.scale"),
                                         self.weight(f"{name}.bias"), config.epsilon)

        def linear(self, x: torch.Tensor, name: str) -> torch.Tensor:
            return functional.linear(x, self.weight(f"{name}.weight"), self.weight(f"{name}.bias"))

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            b, s = ids.shape
            x = functional.embedding(ids, self.tokens) + self.positions[:s]
            x = self.norm(x, "embedding.norm")
            for i in range(config.layers):
                q, k, v = (self.linear(x, f"{i}.{part}").view(b, s, config.heads, config.head)
                           .transpose(1, 2) for part in ("query", "key", "value"))
                mixed = functional.scaled_dot_product_attention(q, k, v)
                mixed = mixed.transpose(1, 2).reshape(b, s, config.width)
                x = self.norm(x + self.linear(mixed, f"{i}.out"), f"{i}.norm1")
                up = functional.gelu(self.linear(x, f"{i}.up"))
                x = self.norm(x + self.linear(up, f"{i}.down"), f"{i}.norm2")
            return x

    return Encoder().eval()
