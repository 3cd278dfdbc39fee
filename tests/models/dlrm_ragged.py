"""The recommendation model of `dlrm` with bags of any length, empty ones too: as ONNX and in numpy.

    ragged_onnx("dlrm_ragged.onnx")      # dense f32[batch, 13], ids0 i64[ids0],
    found = ragged_numpy(feed)           # offsets0 i64[batch], ... -> click f32[batch, 1], logit

Weights are those of `dlrm`, some of them larger; the bags of a table come in one of two forms:

`DEFAULT`: all ids of the table in one row, and where each bag starts in it. PyTorch exports an
EmbeddingBag over these as a Loop over bags, which slices the ids of one, gathers their rows and
sums them.

`PADDED`: ids i64[batch, bag0], and how many of each row count, lengths0 i64[batch]: a mask from a
Range, as models from TensorFlow have it.

The logit, which long bags take far from zero, tells apart what the click's sigmoid does not.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import os
from collections.abc import Mapping

import dlrm
import numpy as np
import numpy_ops as ops
from onnx_writer import OnnxWriter


@dataclasses.dataclass(frozen=True)
class Config:
    """`model`: sizes, its bags as the longest on average, and the largest batch; the form."""

    name: str = "dlrm_ragged"
    model: dlrm.Config = dataclasses.replace(dlrm.DEFAULT, batch=256)
    padded: bool = False

    @property
    def tables(self) -> range:
        """Numbers of the tables."""
        return range(len(self.model.tables))

    @property
    def dims(self) -> dict[str, tuple[int, int]]:
        """Bounds of the dynamic dims."""
        longest = 1 if self.padded else self.model.batch
        kind = "bag" if self.padded else "ids"
        return {"batch": (1, self.model.batch)} | {
            f"{kind}{t}": (0, longest * self.model.bags[t]) for t in self.tables}


DEFAULT = Config()
PADDED = Config("dlrm_padded", padded=True)
_SMALL = dataclasses.replace(dlrm.MINI, bags=(1, 3, 5), batch=6)
TINY = dataclasses.replace(DEFAULT, model=_SMALL)
TINY_PADDED = dataclasses.replace(PADDED, model=_SMALL)


@functools.cache
def ragged_weights(config: Config = DEFAULT) -> dict[str, np.ndarray]:
    """The weights of `dlrm`, enlarged in its networks: over such bags its clicks would hardly
    differ."""
    model = config.model
    weights = dict(dlrm.dlrm_weights(model))
    for name, array in weights.items():
        if name.endswith(".weight"):
            weights[name] = array * np.float32(math.sqrt(2))
    # Without its mean, as relu leaves the values before it positive.
    last = f"top{len(model.top) - 1}.weight"
    weights[last] = (weights[last] - weights[last].mean()) * np.float32(2)
    return weights


def ragged_inputs(sizes: Mapping[str, int], config: Config = DEFAULT,
                  seed: int = 0) -> dict[str, np.ndarray]:
    """Random inputs; cuts between bags fall anywhere, so that some bags are empty."""
    random = np.random.default_rng(seed)
    b = sizes["batch"]
    feed = {"dense": random.standard_normal((b, config.model.bottom[0]), np.float32)}
    for t, rows in enumerate(config.model.tables):
        if config.padded:
            longest = sizes[f"bag{t}"]
            feed[f"ids{t}"] = random.integers(0, rows, (b, longest))
            feed[f"lengths{t}"] = random.integers(0, longest + 1, b)
        else:
            count = sizes[f"ids{t}"]
            feed[f"ids{t}"] = random.integers(0, rows, count)
            cuts = np.sort(random.integers(0, count + 1, b - 1))
            feed[f"offsets{t}"] = np.concatenate([[0], cuts]).astype(np.int64)
    return feed


def ragged_numpy(feed: Mapping[str, np.ndarray],
                 config: Config = DEFAULT) -> dict[str, np.ndarray]:
    """The model in float64, bag by bag: ``click`` [batch, 1] and its ``logit``."""
    weights = {name: ops.wide(array) for name, array in ragged_weights(config).items()}

    def network(x: np.ndarray, name: str) -> np.ndarray:
        for i in range(len(config.model.networks[name]) - 1):
            x = np.maximum(x, 0) if i else x
            x = x @ weights[f"{name}{i}.weight"] + weights[f"{name}{i}.bias"]
        return x

    def bags(t: int) -> list[np.ndarray]:
        if config.padded:
            return [ids[:count] for ids, count in zip(feed[f"ids{t}"], feed[f"lengths{t}"],
                                                      strict=True)]
        return np.split(feed[f"ids{t}"], feed[f"offsets{t}"][1:])

    dense = np.maximum(network(ops.wide(feed["dense"]), "bottom"), 0)
    vectors = [dense] + [np.stack([weights[f"table{t}"][bag].sum(0) for bag in bags(t)])
                         for t in config.tables]
    kept = [(vectors[i] * vectors[j]).sum(1, keepdims=True) for i, j in config.model.pairs]
    logit = network(np.concatenate([dense, *kept], 1), "top")
    return {"click": ops.sigmoid(logit), "logit": logit}


def _loop_over_bags(w: OnnxWriter, t: int) -> str:
    """The sum of each bag's rows, by offsets."""
    end = w.size(f"ids{t}", 0)
    bounds = w.node("Concat", f"offsets{t}", end, axis=0)
    last = np.iinfo(np.int64).max
    starts, ends = (w.node("Slice", bounds, w.ints(first), w.ints(last), w.ints(0), w.ints(1))
                    for first in (0, 1))
    count = w.size(ends, 0, vector=False)
    always = w.node("Cast", w.constant(np.int64(1)), to=9)
    body = w.body()
    i, going, same, total = (f"{name}{t}" for name in ("i", "going", "same", "total"))
    cuts = [body.node("Unsqueeze", body.node("Gather", cut, i, axis=0), body.ints(0))
            for cut in (starts, ends)]
    ids = body.node("Slice", f"ids{t}", *cuts, body.ints(0))
    body.node("ReduceSum", body.node("Gather", f"table{t}", ids, axis=0), body.ints(0),
              name=total, keepdims=0)
    body.node("Cast", always, name=same, to=9)
    graph = body.graph(f"bag{t}", {i: (np.int64, []), going: (np.bool_, [])},
                       {same: (np.bool_, []), total: (np.float32, ["width"])})
    return w.node("Loop", count, always, body=graph)


def _masked_sum(w: OnnxWriter, t: int) -> str:
    """The sum of each bag's rows, by lengths."""
    ids = f"ids{t}"
    places = w.node("Range", w.constant(np.int64(0)), w.size(ids, 1, vector=False),
                    w.constant(np.int64(1)))
    counts = w.node("Less", w.node("Unsqueeze", places, w.ints(0)),
                    w.node("Unsqueeze", f"lengths{t}", w.ints(1)))
    mask = w.node("Unsqueeze", w.node("Cast", counts, to=1), w.ints(2))
    rows = w.node("Mul", w.node("Gather", f"table{t}", ids, axis=0), mask)
    return w.node("ReduceSum", rows, w.ints(1), keepdims=0)


def ragged_onnx(path: str | os.PathLike[str], config: Config = DEFAULT) -> None:
    """Writes the model as ONNX opset 17 with dynamic batch and numbers of ids."""
    w = OnnxWriter()
    for name, array in ragged_weights(config).items():
        w.tensor(name, array)
    width = config.model.width

    def network(x: str, name: str) -> str:
        layers = len(config.model.networks[name]) - 1
        for i in range(layers):
            last = name == "top" and i + 1 == layers
            x = w.node("Add", w.node("MatMul", x, f"{name}{i}.weight"), f"{name}{i}.bias",
                       name="logit" if last else "")
            x = w.node("Sigmoid", x, name="click") if last else w.node("Relu", x)
        return x

    dense = network("dense", "bottom")
    sums = [(_masked_sum if config.padded else _loop_over_bags)(w, t) for t in config.tables]
    joined = w.reshape(w.node("Concat", dense, *sums, axis=1), w.size("dense", 0), -1, width)
    products = w.node("MatMul", joined, w.node("Transpose", joined, perm=[0, 2, 1]))
    pairs = w.tensor("pairs", np.array(config.model.pairs, np.int64))
    products = w.node("GatherND", w.node("Transpose", products, perm=[1, 2, 0]), pairs)
    products = w.node("Transpose", products, perm=[1, 0])
    network(w.node("Concat", dense, products, axis=1), "top")
    inputs = {"dense": (np.float32, ["batch", config.model.bottom[0]])}
    for t in config.tables:
        if config.padded:
            inputs[f"ids{t}"] = (np.int64, ["batch", f"bag{t}"])
            inputs[f"lengths{t}"] = (np.int64, ["batch"])
        else:
            inputs[f"ids{t}"] = (np.int64, [f"ids{t}"])
            inputs[f"offsets{t}"] = (np.int64, ["batch"])
    outputs = {name: (np.float32, ["batch", 1]) for name in ("click", "logit")}
    w.save(path, config.name, inputs, outputs)
