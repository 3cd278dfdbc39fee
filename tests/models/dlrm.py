"""A deep learning recommendation model with seeded weights: as graphs, in numpy, as ONNX and for
PyTorch.

    graph = dlrm_graph()             # dense f32[b, 13], bags0 i32[b, 1], ... -> click f32[b, 1]
    click = dlrm_numpy(feed)         # the same in float64; feed: inputs by name
    dlrm_onnx("dlrm.onnx")           # the same for ONNX Runtime

After Naumov et al., "Deep Learning Recommendation Model for Personalization and Recommendation
Systems", 2019: a bottom network over dense features; from each table the sum over a bag of rows;
the dot products of all pairs of these vectors (the strict lower triangle), joined to the bottom
network's result; a top network, and a sigmoid last. Bags of one table are equally long; b is in
[1, 4096].
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

import athanor
import numpy as np
import primitives
from onnx_writer import OnnxWriter

if TYPE_CHECKING:
    import torch


@dataclasses.dataclass(frozen=True)
class Config:
    """Sizes; `bottom` starts with the dense width and ends with the tables' width, `top` lists what
    follows the interaction."""

    name: str = "dlrm"
    tables: tuple[int, ...] = (1_000, 20_000, 200_000)
    bags: tuple[int, ...] = (1, 3, 10)
    bottom: tuple[int, ...] = (13, 512, 256, 64)
    top: tuple[int, ...] = (512, 256, 1)
    batch: int = 4096
    seed: int = 17

    @property
    def width(self) -> int:
        """Size of an embedding and of the bottom network's result."""
        return self.bottom[-1]

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """Row and column of each dot product that is kept."""
        return [(i, j) for i in range(1 + len(self.tables)) for j in range(i)]

    @property
    def networks(self) -> dict[str, tuple[int, ...]]:
        """Widths of the two networks, from input to output."""
        return {"bottom": self.bottom, "top": (self.width + len(self.pairs), *self.top)}


DEFAULT = Config()
# The sizes that published comparisons of fused kernels use: so small that calls cost most.
MINI = Config(name="dlrm_mini", tables=(10, 20, 30), bags=(1, 1, 1), bottom=(13, 8, 4), top=(8, 1))


@functools.cache
def dlrm_weights(config: Config = DEFAULT) -> dict[str, np.ndarray]:
    """``table{t}`` f32[rows, width], ``{network}{layer}.weight`` f32[in, out] and ``.bias``."""
    random = np.random.default_rng(config.seed)

    def normal(*shape: int, deviation: float) -> np.ndarray:
        return random.standard_normal(shape, np.float32) * np.float32(deviation)

    weights = {}
    for t, (rows, bag) in enumerate(zip(config.tables, config.bags, strict=True)):
        # Dot products of about unit size, so that the sigmoid is not saturated.
        weights[f"table{t}"] = normal(rows, config.width,
                                      deviation=1 / math.sqrt(bag * math.sqrt(config.width)))
    for network, widths in config.networks.items():
        for i, (rows, columns) in enumerate(itertools.pairwise(widths)):
            weights[f"{network}{i}.weight"] = normal(rows, columns, deviation=1 / math.sqrt(rows))
            weights[f"{network}{i}.bias"] = normal(columns, deviation=0.1)
    return weights


def dlrm_inputs(b: int, config: Config = DEFAULT, seed: int = 0) -> dict[str, np.ndarray]:
    """Random inputs by name, the first and the last row of each table among them."""
    random = np.random.default_rng(seed)
    feed = {"dense": random.standard_normal((b, config.bottom[0]), np.float32)}
    for t, (rows, bag) in enumerate(zip(config.tables, config.bags, strict=True)):
        ids = random.integers(0, rows, (b, bag), np.int32)
        ids[0, 0], ids[-1, -1] = 0, rows - 1
        feed[f"bags{t}"] = ids
    return feed


class _Composites:
    contract = staticmethod(athanor.contract)
    relu = staticmethod(athanor.relu)
    sigmoid = staticmethod(athanor.sigmoid)


class _Primitives:
    contract = staticmethod(primitives.contract)

    @staticmethod
    def relu(x: athanor.Value) -> athanor.Value:
        return athanor.maximum(x, 0.0)

    @staticmethod
    def sigmoid(x: athanor.Value) -> athanor.Value:
        return athanor.reciprocal(athanor.exp(-x) + 1.0)


def dlrm_graph(composite: bool = False, config: Config = DEFAULT) -> athanor.Graph:
    """The model as a graph; inputs as `dlrm_inputs` gives them, output ``click`` f32[b, 1]."""
    g = athanor.Graph(config.name, dims={"b": (1, config.batch)})
    weights = {name: g.parameter(name, array) for name, array in dlrm_weights(config).items()}
    ops = _Composites if composite else _Primitives

    def network(x: athanor.Value, name: str) -> athanor.Value:
        layers = len(config.networks[name]) - 1
        for i in range(layers):
            x = ops.contract("bi,io->bo", x, weights[f"{name}{i}.weight"])
            x = x + weights[f"{name}{i}.bias"]
            last = name == "top" and i + 1 == layers
            x = ops.sigmoid(x) if last else ops.relu(x)
        return x

    dense = network(g.input("dense", ("b", config.bottom[0]), "f32"), "bottom")
    vectors = [dense]
    for t, bag in enumerate(config.bags):
        ids = g.input(f"bags{t}", ("b", bag), "i32")
        vectors.append(athanor.gather(weights[f"table{t}"], ids).sum(1))
    joined = athanor.stack(vectors, 1)
    products = ops.contract("bid,bjd->bij", joined, joined).flatten(1)
    kept = np.array([i * len(vectors) + j for i, j in config.pairs], np.int32)
    products = athanor.gather(products, g.constant(kept), 1)
    g.output("click", network(athanor.concat([dense, products], 1), "top"))
    return g


def dlrm_numpy(feed: Mapping[str, np.ndarray], config: Config = DEFAULT) -> np.ndarray:
    """The model in float64: f64[b, 1]."""
    weights = {name: array.astype(np.float64) for name, array in dlrm_weights(config).items()}

    def network(x: np.ndarray, name: str) -> np.ndarray:
        for i in range(len(config.networks[name]) - 1):
            x = np.maximum(x, 0) if i else x
            x = x @ weights[f"{name}{i}.weight"] + weights[f"{name}{i}.bias"]
        return x

    dense = np.maximum(network(feed["dense"], "bottom"), 0)
    vectors = [dense] + [weights[f"table{t}"][feed[f"bags{t}"]].sum(1)
                         for t in range(len(config.tables))]
    kept = [(vectors[i] * vectors[j]).sum(1, keepdims=True) for i, j in config.pairs]
    return 1 / (1 + np.exp(-network(np.concatenate([dense, *kept], 1), "top")))


def dlrm_onnx(path: str | os.PathLike[str], config: Config = DEFAULT) -> None:
    """Writes the model as ONNX with dynamic b, in the form exporters give it."""
    w = OnnxWriter()
    for name, array in dlrm_weights(config).items():
        w.tensor(name, array)
    features = 1 + len(config.tables)
    w.tensor("bag_axis", np.array([1], np.int64))
    w.tensor("split", np.array([0, features, config.width], np.int64))
    w.tensor("flat", np.array([0, features * features], np.int64))
    w.tensor("kept", np.array([i * features + j for i, j in config.pairs], np.int64))

    def network(x: str, name: str) -> str:
        layers = len(config.networks[name]) - 1
        for i in range(layers):
            x = w.linear(x, f"{name}{i}")
            last = name == "top" and i + 1 == layers
            x = w.node("Sigmoid", x, name="click") if last else w.node("Relu", x)
        return x

    dense = network("dense", "bottom")
    vectors = [dense]
    for t in range(len(config.tables)):
        rows = w.node("Gather", f"table{t}", f"bags{t}")
        vectors.append(w.node("ReduceSum", rows, "bag_axis", keepdims=0))
    joined = w.node("Reshape", w.node("Concat", *vectors, axis=1), "split")
    products = w.node("MatMul", joined, w.node("Transpose", joined, perm=[0, 2, 1]))
    products = w.node("Gather", w.node("Reshape", products, "flat"), "kept", axis=1)
    network(w.node("Concat", dense, products, axis=1), "top")
    inputs = {"dense": (np.float32, ["b", config.bottom[0]])}
    inputs |= {f"bags{t}": (np.int32, ["b", bag]) for t, bag in enumerate(config.bags)}
    w.save(path, config.name, inputs, {"click": (np.float32, ["b", 1])})


def dlrm_torch(config: Config = DEFAULT) -> torch.nn.Module:
    """The model for PyTorch, to be called with the inputs in the graph's order."""
    import torch

    weights = {name: torch.from_numpy(array) for name, array in dlrm_weights(config).items()}

    def layers(name: str) -> torch.nn.Sequential:
        parts = []
        for i, (rows, columns) in enumerate(itertools.pairwise(config.networks[name])):
            linear = torch.nn.Linear(rows, columns)
            with torch.no_grad():
                linear.weight.copy_(weights[f"{name}{i}.weight"].T)
                linear.bias.copy_(weights[f"{name}{i}.bias"])
            parts += [linear, torch.nn.ReLU()]
        if name == "top":
            parts[-1] = torch.nn.Sigmoid()
        return torch.nn.Sequential(*parts)

    class Dlrm(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bottom, self.top = layers("bottom"), layers("top")
            self.tables = torch.nn.ModuleList(
                torch.nn.EmbeddingBag.from_pretrained(weights[f"table{t}"], mode="sum")
                for t in range(len(config.tables)))
            self.register_buffer("rows", torch.tensor([i for i, _ in config.pairs]))
            self.register_buffer("columns", torch.tensor([j for _, j in config.pairs]))

        def forward(self, dense: torch.Tensor, *bags: torch.Tensor) -> torch.Tensor:
            dense = self.bottom(dense)
            vectors = [dense] + [table(ids) for table, ids in zip(self.tables, bags, strict=True)]
            joined = torch.stack(vectors, 1)
            products = torch.bmm(joined, joined.transpose(1, 2))[:, self.rows, self.columns]
            return self.top(torch.cat([dense, products], 1))

    return Dlrm().eval()
