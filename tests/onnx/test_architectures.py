"""Architectures as torch exports them, through the server against ONNX Runtime: the short list."""

from __future__ import annotations

import pathlib
import sys
from collections.abc import Iterator

import athanor
import numpy as np
import onnx
import onnxruntime
import pytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE / "architectures")]

import short  # noqa: E402
import suite  # noqa: E402

# Bounds of each dim, by name, and its sizes in the calls.
SIZES = {
    "batch": ((1, 4), (2, 1, 3)), "sequence": ((2, 32), (7, 12, 9)), "target": ((2, 32), (5, 3, 6)),
    "height": ((32, 96), (64, 64, 80)), "width": ((32, 96), (64, 96, 72)),
    "samples": ((200, 800), (400, 523, 301)),
}
TOKENS = 61


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[athanor.Client]:
    """Yields a client of one server for all architectures."""
    server = suite.Server(tmp_path_factory.mktemp("architectures") / "state",
                          "--compile_workers=2").start()
    try:
        with server.client() as made:
            yield made
        assert server.stop() == 0, server.log.read_text()
    finally:
        server.kill()


def inputs(model: onnx.ModelProto, call: int) -> list[np.ndarray]:
    """Tokens, masks, images and sounds of one call, by what the model's inputs are called."""
    random = np.random.default_rng(call)
    arrays = []
    for info in model.graph.input:
        shape = [SIZES[dim.dim_param][1][call] if dim.dim_param else dim.dim_value
                 for dim in info.type.tensor_type.shape.dim]
        if info.name == "attention_mask":
            shorter = np.minimum(np.arange(shape[0]), shape[1] - 1)[:, None]
            arrays.append((np.arange(shape[1]) < shape[1] - shorter).astype(np.int64))
        elif info.name.endswith("input_ids"):
            arrays.append(random.integers(5, TOKENS, shape))
        else:
            arrays.append(random.standard_normal(shape, np.float32))
    return arrays


@pytest.mark.parametrize("name", short.NAMES)
def test_architecture(client: athanor.Client, name: str) -> None:
    """At three sizes."""
    model = short.read(name)
    session = onnxruntime.InferenceSession(model.SerializeToString(),
                                           providers=["CPUExecutionProvider"])
    names = [info.name for info in model.graph.input]
    sets = []
    for call in range(3):
        arrays = inputs(model, call)
        sets.append((arrays, session.run(None, dict(zip(names, arrays, strict=True)))))
    dims = {dim: SIZES[dim][0] for dim in short.dims_of(model)}
    outcome = suite.run(client, suite.Case(f"architectures/{name}", model, sets, 2e-3, 5e-4, dims))
    assert (outcome.kind, outcome.why) == ("right", "")


def test_a_later_list_of_results_counts_where_the_first_does_not(client: athanor.Client) -> None:
    """Outputs that match one of a set's lists are right, and the outcome says which."""
    info = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [2]) for name in "xy"]
    graph = onnx.helper.make_graph([onnx.helper.make_node("Relu", ["x"], ["y"])], "relu",
                                   info[:1], info[1:])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)])
    x, y = np.float32([-1, 2]), np.float32([0, 2])
    for results, kind, wanted in [
            ([[y]], "right", 0), ([[y], [x]], "right", 0), ([[x], [y]], "right", 1),
            ([[x]], "wrong", 0), ([[x], [x]], "wrong", 0)]:
        outcome = suite.run(client, suite.Case("lists", model, [([x], *results)], 1e-3, 1e-3))
        assert (outcome.kind, outcome.wanted) == (kind, wanted), outcome
