"""ONNX models in a few lines, for tests of how they come in."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
Shape = Sequence[int | str]


def value(name: str, shape: Shape, elem: int = FLOAT) -> onnx.ValueInfoProto:
    """An input or output."""
    return helper.make_tensor_value_info(name, elem, shape)


def model(nodes: Sequence[onnx.NodeProto], inputs: Sequence[onnx.ValueInfoProto],
          outputs: Sequence[onnx.ValueInfoProto], weights: dict[str, np.ndarray] | None = None,
          opset: int = 17) -> onnx.ModelProto:
    """Makes a model without any check: tests want broken ones too."""
    graph = helper.make_graph(nodes, "g", inputs, outputs)
    for name, array in (weights or {}).items():
        graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    made.ir_version = 9
    return made


def linear(seed: int = 0, rows: int = 16, columns: int = 8) -> onnx.ModelProto:
    """y = relu(x @ w + bias), x f32 [batch, rows]."""
    random = np.random.default_rng(seed)
    return model(
        [helper.make_node("MatMul", ["x", "w"], ["m"], name="product"),
         helper.make_node("Add", ["m", "bias"], ["s"], name="sum"),
         helper.make_node("Relu", ["s"], ["y"], name="clamp")],
        [value("x", ["batch", rows])], [value("y", ["batch", columns])],
        {"w": random.standard_normal((rows, columns), np.float32),
         "bias": random.standard_normal(columns, np.float32)})


def linear_numpy(made: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    """Computes `linear` in float64."""
    w, bias = map(onnx.numpy_helper.to_array, made.graph.initializer)
    return np.maximum(x.astype(np.float64) @ w + bias, 0)
