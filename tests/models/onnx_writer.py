"""ONNX graphs written node by node, without an exporter.

    w = OnnxWriter()
    w.node("Relu", w.node("MatMul", "x", w.tensor("w", array)), name="y")
    w.save("model.onnx", "model", {"x": (np.float32, ["b", 16])}, {"y": (np.float32, ["b", 4])})

Opset 17 unless another is given. Bodies of `Loop` and the like are writers of their own:

    body = w.body()
    ...
    w.node("Loop", count, true, body=body.graph("body", inputs, outputs))
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import onnx

# Inputs or outputs by name: dtype and shape; a string in a shape is a dynamic size.
Types = Mapping[str, tuple[type[np.generic], list[int | str]]]
MICROSOFT = "com.microsoft"


class OnnxWriter:
    """Nodes and initialisers of an ONNX graph, with names counted up."""

    def __init__(self, opset: int = 17, names: list[int] | None = None) -> None:
        self.opset = opset
        self.nodes: list = []
        self.initializers: list = []
        self._names = [0] if names is None else names
        self._domains = {""}

    def body(self) -> OnnxWriter:
        """A writer of a sub-graph; its names differ from this one's."""
        return OnnxWriter(self.opset, self._names)

    def tensor(self, name: str, array: np.ndarray) -> str:
        """An initialiser; its name."""
        from onnx import numpy_helper

        self.initializers.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def external(self, name: str, dtype: type[np.generic], shape: Sequence[int], location: str,
                 offset: int) -> str:
        """An initialiser whose bytes are, or will be, in a file beside the model's; its name."""
        from onnx import TensorProto, helper

        tensor = TensorProto(name=name, dims=shape,
                             data_type=helper.np_dtype_to_tensor_dtype(np.dtype(dtype)),
                             data_location=TensorProto.EXTERNAL)
        length = math.prod(shape) * np.dtype(dtype).itemsize
        for key, value in (("location", location), ("offset", offset), ("length", length)):
            tensor.external_data.add(key=key, value=str(value))
        self.initializers.append(tensor)
        return name

    def constant(self, array: np.ndarray) -> str:
        """The result of a Constant node."""
        return self.node("Constant", value=np.asarray(array))

    def ints(self, *values: int) -> str:
        """A constant i64[len(values)]."""
        return self.constant(np.array(values, np.int64))

    def node(self, op: str, *inputs: str, name: str = "", **attributes: object) -> str:
        """A node with one result; the name of that."""
        return self.node_of([name], op, *inputs, **attributes)[0]

    def node_of(self, results: Sequence[str | None], op: str, *inputs: str, domain: str = "",
                **attributes: object) -> list[str]:
        """A node with several results; their names: those given, new ones for empty ones. None: an
        optional result that is left out."""
        from onnx import helper, numpy_helper

        for key, value in attributes.items():
            if isinstance(value, np.ndarray):
                attributes[key] = numpy_helper.from_array(value)
        names = ["" if name is None else name or f"{op.lower()}_{self._names[0] + i}"
                 for i, name in enumerate(results)]
        self._names[0] += len(names)
        self._domains.add(domain)
        self.nodes.append(helper.make_node(op, list(inputs), names, names[0],
                                           domain=domain or None, **attributes))
        return names

    def linear(self, x: str, name: str) -> str:
        """``x @ {name}.weight + {name}.bias`` of initialisers that are there."""
        return self.node("Add", self.node("MatMul", x, f"{name}.weight"), f"{name}.bias")

    def size(self, x: str, axis: int, vector: bool = True) -> str:
        """The size of an axis as exporters ask for it: i64[1], or i64[] if not `vector`."""
        size = self.node("Gather", self.node("Shape", x), self.constant(np.int64(axis)), axis=0)
        return self.node("Unsqueeze", size, self.ints(0)) if vector else size

    def reshape(self, x: str, *shape: int | str, name: str = "") -> str:
        """A Reshape to fixed sizes and sizes that are values i64[1]."""
        if all(isinstance(size, int) for size in shape):
            return self.node("Reshape", x, self.ints(*shape), name=name)
        sizes = [self.ints(size) if isinstance(size, int) else size for size in shape]
        return self.node("Reshape", x, self.node("Concat", *sizes, axis=0), name=name)

    def graph(self, name: str, inputs: Types, outputs: Types) -> onnx.GraphProto:
        """Returns the graph that was written."""
        from onnx import helper

        def infos(types: Types) -> list:
            return [helper.make_tensor_value_info(
                key, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), shape)
                for key, (dtype, shape) in types.items()]

        return helper.make_graph(self.nodes, name, infos(inputs), infos(outputs),
                                 self.initializers)

    def save(self, path: str | os.PathLike[str], name: str, inputs: Types,
             outputs: Types) -> None:
        """Writes the model and checks it; a string in a shape is a dynamic size.

        Opsets before 9 are of IR version 3, in which initialisers are inputs too.
        """
        import onnx
        from onnx import helper

        opsets = [helper.make_opsetid(domain, self.opset if domain == "" else 1)
                  for domain in sorted(self._domains)]
        version = helper.find_min_ir_version_for(opsets, ignore_unknown=True)
        graph = self.graph(name, inputs, outputs)
        if version < 4:
            graph.input.extend(helper.make_tensor_value_info(t.name, t.data_type, t.dims)
                               for t in self.initializers)
        model = helper.make_model(graph, opset_imports=opsets, ir_version=version)
        onnx.save(model, os.fspath(path))
        onnx.checker.check_model(os.fspath(path)) # checks the file, which may name others beside it
