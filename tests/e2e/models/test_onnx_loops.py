"""Loops of ONNX models through the server: any length of their dims, against numpy in float64."""

from __future__ import annotations

import pathlib

import athanor
import numpy as np
import onnx
import onnx_models
import pytest
from onnx import helper
from onnx_models import FLOAT, INT64, value

UNITS, INPUTS, LONGEST = 12, 5, 5000
LENGTHS = (0, 1, 2, 3, 7, 31, 64, 257, 1000, LONGEST)


def _weights(directions: int, seed: int = 3) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)

    def normal(*shape: int) -> np.ndarray:
        return random.standard_normal(shape, np.float32) * np.float32(0.4)

    return {"w": normal(directions, 4 * UNITS, INPUTS), "r": normal(directions, 4 * UNITS, UNITS),
            "b": normal(directions, 8 * UNITS)}


def _lstm(direction: str) -> onnx.ModelProto:
    directions = 2 if direction == "bidirectional" else 1
    node = helper.make_node("LSTM", ["x", "w", "r", "b"], ["y", "h", "c"], hidden_size=UNITS,
                            direction=direction)
    return onnx_models.model(
        [node], [value("x", ["length", "batch", INPUTS])],
        [value("y", ["length", directions, "batch", UNITS]),
         value("h", [directions, "batch", UNITS]), value("c", [directions, "batch", UNITS])],
        _weights(directions))


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def _lstm_numpy(direction: str, x: np.ndarray) -> dict[str, np.ndarray]:
    """Computes an LSTM by ONNX's equations, with gates i, o, f, c."""
    directions = 2 if direction == "bidirectional" else 1
    weights = {name: array.astype(np.float64) for name, array in _weights(directions).items()}
    length, batch, _ = x.shape
    y = np.zeros((length, directions, batch, UNITS))
    last = np.zeros((2, directions, batch, UNITS))
    for d in range(directions):
        bias = weights["b"][d, :4 * UNITS] + weights["b"][d, 4 * UNITS:]
        backwards = direction == "reverse" or d == 1
        for t in reversed(range(length)) if backwards else range(length):
            h, c = last[:, d]
            gates = x[t] @ weights["w"][d].T + h @ weights["r"][d].T + bias
            i, o, f, fresh = np.split(gates, 4, axis=-1)
            c = _sigmoid(f) * c + _sigmoid(i) * np.tanh(fresh)
            last[:, d] = _sigmoid(o) * np.tanh(c), c
            y[t, d] = last[0, d]
    return {"y": y, "h": last[0], "c": last[1]}


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_lstm_of_any_length(client: athanor.Client, tmp_path: pathlib.Path,
                            direction: str) -> None:
    path = tmp_path / "lstm.onnx"
    onnx.save(_lstm(direction), path)
    served = client.upload(path, f"lstm-{direction}", budget="0",
                           dims={"length": (0, LONGEST), "batch": (1, 4)})
    try:
        served.wait("baseline", timeout=600)
        random = np.random.default_rng(1)
        for length in LENGTHS:
            batch = 1 + length % 4
            x = random.standard_normal((length, batch, INPUTS), np.float32)
            got = served.infer({"x": x}, timeout=120)
            for name, wanted in _lstm_numpy(direction, x).items():
                assert got[name].shape == wanted.shape
                np.testing.assert_allclose(got[name], wanted, atol=2e-5, rtol=0,
                                           err_msg=f"{name} at length {length}")
    finally:
        client.delete(f"lstm-{direction}")


def _powers() -> onnx.ModelProto:
    """y[i] = i * x + ... a Loop as often as `rows` has rows, over v' = v * x + i, stacked."""
    body = helper.make_graph(
        [helper.make_node("Mul", ["v", "x"], ["m"]),
         helper.make_node("Cast", ["i"], ["f"], to=FLOAT),
         helper.make_node("Add", ["m", "f"], ["next"]),
         helper.make_node("Identity", ["going"], ["on"]),
         helper.make_node("Identity", ["next"], ["element"])],
        "body",
        [value("i", [], INT64), value("going", [], onnx.TensorProto.BOOL), value("v", [3])],
        [value("on", [], onnx.TensorProto.BOOL), value("next", [3]), value("element", [3])])
    nodes = [helper.make_node("Shape", ["rows"], ["size"]),
             helper.make_node("Squeeze", ["size"], ["count"]),
             helper.make_node("Loop", ["count", "", "x"], ["last", "all"], body=body)]
    return onnx_models.model(nodes, [value("x", [3]), value("rows", ["n"])],
                             [value("last", [3]), value("all", ["n", 3])])


def test_a_loop_of_a_dim(client: athanor.Client, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "powers.onnx"
    onnx.save(_powers(), path)
    served = client.upload(path, "powers", budget="5s", dims={"n": (0, 3000)})
    try:
        served.wait("optimised", timeout=600)
        x = np.array([0.5, -0.25, 0.75], np.float32)
        for count in (0, 1, 2, 17, 3000):
            wanted, last = [], x.astype(np.float64)
            for i in range(count):
                last = last * x + i
                wanted.append(last)
            got = served.infer({"x": x, "rows": np.zeros(count, np.float32)}, timeout=120)
            np.testing.assert_allclose(got["last"], last, rtol=1e-5)
            np.testing.assert_allclose(got["all"], np.array(wanted).reshape(count, 3), rtol=1e-5)
    finally:
        client.delete("powers")
