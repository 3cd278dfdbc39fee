"""ONNX graphs written node by node, without an exporter.

    w = OnnxWriter()
    w.node("Relu", w.node("MatMul", "x", w.tensor("w", array)), name="y")
    w.save("model.onnx", "model", {"x": (np.float32, ["b", 16])}, {"y": (np.float32, ["b", 4])})
"""

from __future__ import annotations

import os
from collections.abc import Mapping

import numpy as np

Types = Mapping[str, tuple[type[np.generic], list[int | str]]]


class OnnxWriter:
    """Nodes and initialisers of an ONNX graph, with names counted up."""

    def __init__(self) -> None:
        self.nodes: list = []
        self.initializers: list = []

    def tensor(self, name: str, array: np.ndarray) -> str:
        """An initialiser; its name."""
        from onnx import numpy_helper

        self.initializers.append(numpy_helper.from_array(array, name))
        return name

    def node(self, op: str, *inputs: str, name: str = "", **attributes: object) -> str:
        """A node with one result; the name of that."""
        from onnx import helper

        result = name or f"{op.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [result], result, **attributes))
        return result

    def linear(self, x: str, name: str) -> str:
        """``x @ {name}.weight + {name}.bias`` of initialisers that are there."""
        return self.node("Add", self.node("MatMul", x, f"{name}.weight"), f"{name}.bias")

    def save(self, path: str | os.PathLike[str], name: str, inputs: Types,
             outputs: Types) -> None:
        """Checks the model and writes it as opset 17; a string in a shape is a dynamic size."""
        import onnx
        from onnx import helper

        def infos(types: Types) -> list:
            return [helper.make_tensor_value_info(
                key, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), shape)
                for key, (dtype, shape) in types.items()]

        graph = helper.make_graph(self.nodes, name, infos(inputs), infos(outputs),
                                  self.initializers)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
        onnx.checker.check_model(model)
        onnx.save(model, os.fspath(path))
