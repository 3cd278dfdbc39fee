"""A tagger of sentences: bidirectional LSTM layers with seeded weights, as ONNX and in numpy.

    lstm_onnx("lstm.onnx")               # ids i64[batch, sequence], lengths i32[batch]
    found = lstm_numpy(feed)             # ... -> logits f32[batch, sequence, tags], state

After Huang et al., "Bidirectional LSTM-CRF Models for Sequence Tagging", 2015, without the CRF:
embeddings, two layers read in both directions, a linear layer. Sentences shorter than `sequence`
end where `lengths` says; the backward direction starts there, and what follows is zero. state
f32[4, batch, hidden] is the last hidden state of each layer and direction. Opset 17, one LSTM node
a layer, as PyTorch exports a packed sequence.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import os
from collections.abc import Mapping

import numpy as np
import numpy_ops as ops
from onnx_writer import OnnxWriter

DIRECTIONS = ("", "_reverse")


@dataclasses.dataclass(frozen=True)
class Config:
    """Sizes; `hidden` is of one direction."""

    vocabulary: int = 10_000
    embedding: int = 256
    hidden: int = 256
    layers: int = 2
    tags: int = 17
    longest: int = 128
    batch: int = 16
    seed: int = 47

    @property
    def dims(self) -> dict[str, tuple[int, int]]:
        """Bounds of the dynamic dims."""
        return {"batch": (1, self.batch), "sequence": (1, self.longest)}


DEFAULT = Config()
TINY = Config(vocabulary=30, embedding=6, hidden=5, tags=4, longest=9, batch=4)


@functools.cache
def lstm_weights(config: Config = DEFAULT) -> dict[str, np.ndarray]:
    """Returns all weights by PyTorch's names, f32; gates in its order: input, forget, cell,
    output."""
    random = np.random.default_rng(config.seed)

    def normal(*shape: int, deviation: float) -> np.ndarray:
        return random.standard_normal(shape, np.float32) * np.float32(deviation)

    h = config.hidden
    weights = {"embedding.weight": normal(config.vocabulary, config.embedding, deviation=1.0)}
    for layer in range(config.layers):
        # States are of about a third of an embedding's size.
        inputs, gain = (2 * h, 3.0) if layer else (config.embedding, 1.5)
        for direction in DIRECTIONS:
            end = f"l{layer}{direction}"
            weights |= {
                f"lstm.weight_ih_{end}": normal(4 * h, inputs, deviation=gain / math.sqrt(inputs)),
                f"lstm.weight_hh_{end}": normal(4 * h, h, deviation=1.5 / math.sqrt(h)),
                f"lstm.bias_ih_{end}": normal(4 * h, deviation=0.1),
                f"lstm.bias_hh_{end}": normal(4 * h, deviation=0.1)}
    weights["linear.weight"] = normal(config.tags, 2 * h, deviation=3 / math.sqrt(2 * h))
    weights["linear.bias"] = normal(config.tags, deviation=0.1)
    return weights


def lstm_inputs(sizes: Mapping[str, int], config: Config = DEFAULT,
                seed: int = 0) -> dict[str, np.ndarray]:
    """Random sentences of random lengths, the longest as long as `sequence`."""
    random = np.random.default_rng(seed)
    b, length = sizes["batch"], sizes["sequence"]
    lengths = random.integers(1, length + 1, b, np.int32)
    lengths[random.integers(b)] = length
    return {"ids": random.integers(0, config.vocabulary, (b, length)), "lengths": lengths}


def _read(x: np.ndarray, weights: Mapping[str, np.ndarray], end: str) -> np.ndarray:
    """Computes a layer in one direction over a sentence: x [length, in] to states [length,
    hidden]."""
    wide = {part: ops.wide(weights[f"lstm.{part}_{end}"])
            for part in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")}
    state = cell = np.zeros(wide["weight_hh"].shape[1])
    states = []
    for step in x:
        gates = wide["weight_ih"] @ step + wide["bias_ih"]
        gates += wide["weight_hh"] @ state + wide["bias_hh"]
        take, keep, new, give = np.split(gates, 4)
        cell = ops.sigmoid(keep) * cell + ops.sigmoid(take) * np.tanh(new)
        state = ops.sigmoid(give) * np.tanh(cell)
        states.append(state)
    return np.stack(states)


def lstm_numpy(feed: Mapping[str, np.ndarray], config: Config = DEFAULT) -> dict[str, np.ndarray]:
    """The tagger in float64, sentence by sentence: ``logits`` and ``state``."""
    weights = lstm_weights(config)
    b, length = feed["ids"].shape
    hidden = np.zeros((b, length, 2 * config.hidden))
    last = np.zeros((2 * config.layers, b, config.hidden))
    for i, (ids, count) in enumerate(zip(feed["ids"], feed["lengths"], strict=True)):
        x = ops.wide(weights["embedding.weight"][ids[:count]])
        for layer in range(config.layers):
            forward = _read(x, weights, f"l{layer}")
            backward = _read(x[::-1], weights, f"l{layer}_reverse")
            last[2 * layer, i], last[2 * layer + 1, i] = forward[-1], backward[-1]
            x = np.concatenate([forward, backward[::-1]], 1)
        hidden[i, :count] = x
    logits = ops.linear(hidden, weights["linear.weight"], weights["linear.bias"])
    return {"logits": logits, "state": last}


def _gates(array: np.ndarray) -> np.ndarray:
    """Converts PyTorch's order of gates to that of ONNX: input, output, forget, cell."""
    take, keep, new, give = np.split(array, 4)
    return np.concatenate([take, give, keep, new])


def lstm_onnx(path: str | os.PathLike[str], config: Config = DEFAULT) -> None:
    """Writes the tagger as ONNX opset 17 with dynamic batch and sequence."""
    w = OnnxWriter()
    weights = lstm_weights(config)
    h, layers = config.hidden, config.layers

    def stacked(layer: int, *parts: str) -> np.ndarray:
        return np.stack([np.concatenate([_gates(weights[f"lstm.{part}_l{layer}{direction}"])
                                         for part in parts]) for direction in DIRECTIONS])

    x = w.node("Gather", w.tensor("embedding.weight", weights["embedding.weight"]), "ids")
    x = w.node("Transpose", x, perm=[1, 0, 2])
    shape = w.node("Concat", w.ints(2 * layers), w.size("ids", 0), w.ints(h), axis=0)
    start = w.node("ConstantOfShape", shape, value=np.zeros(1, np.float32))
    states = []
    for layer in range(layers):
        first = w.node("Slice", start, w.ints(2 * layer), w.ints(2 * layer + 2), w.ints(0))
        arrays = {"W": stacked(layer, "weight_ih"), "R": stacked(layer, "weight_hh"),
                  "B": stacked(layer, "bias_ih", "bias_hh")}
        names = [w.tensor(f"lstm.{part}{layer}", array) for part, array in arrays.items()]
        y, state, _ = w.node_of([""] * 3, "LSTM", x, *names, "lengths", first, first,
                                direction="bidirectional", hidden_size=h)
        x = w.reshape(w.node("Transpose", y, perm=[0, 2, 1, 3]), 0, 0, -1)
        states.append(state)
    w.node("Concat", *states, name="state", axis=0)
    x = w.node("Transpose", x, perm=[1, 0, 2])
    w.tensor("linear.weight", weights["linear.weight"].T)
    w.tensor("linear.bias", weights["linear.bias"])
    w.node("Add", w.node("MatMul", x, "linear.weight"), "linear.bias", name="logits")
    w.save(path, "lstm",
           {"ids": (np.int64, ["batch", "sequence"]), "lengths": (np.int32, ["batch"])},
           {"logits": (np.float32, ["batch", "sequence", config.tags]),
            "state": (np.float32, [2 * layers, "batch", h])})
