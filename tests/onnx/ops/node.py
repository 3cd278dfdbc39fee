"""A drawn node as a model, and what ONNX Runtime makes of it."""

from __future__ import annotations

import dataclasses

import numpy as np
import onnx
import onnxruntime
from draw import NATIVE, Draw, Elem
from onnx import helper, numpy_helper

onnxruntime.set_default_logger_severity(4)


class NotTaken(Exception):
    """ONNX Runtime refuses the model; the message says why."""

    @property
    def lacking(self) -> bool:
        """It has no kernel of these types."""
        return "NOT_IMPLEMENTED" in str(self) or "Could not find an implementation" in str(self)


@dataclasses.dataclass
class Case:
    """A model of one node, its inputs in order and the expected results."""

    draw: Draw
    model: onnx.ModelProto
    inputs: list[np.ndarray]
    expected: list[np.ndarray]
    dims: dict[str, int]

    @property
    def name(self) -> str:
        """The case's name: op, opset and seed."""
        d = self.draw
        domain = f"{d.domain}." if d.domain else ""
        return f"{domain}{d.op}-{d.opset}-{d.seed}{'-dims' if self.dims else ''}"

    def tolerances(self) -> tuple[float, float]:
        """rtol, and atol in units of the largest value that is expected."""
        rtol, atol = self.draw.tolerance()
        if not self.draw.steps:
            atol *= max([1.0] + [float(np.abs(v[np.isfinite(v)]).max(initial=0))
                                 for v in self.expected if np.issubdtype(v.dtype, np.floating)])
        return rtol, atol

    def bounds(self) -> dict[str, tuple[int, int]]:
        """Bounds of the model's dims."""
        return {dim: (min(size, 1), size + 3) for dim, size in self.dims.items()}


def _session(model: onnx.ModelProto) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        return onnxruntime.InferenceSession(model.SerializeToString(), options,
                                            providers=["CPUExecutionProvider"])
    except Exception as error:
        raise NotTaken(" ".join(str(error).split())) from error


ELEMS = {f"tensor({name.lower()})": number for name, number in Elem.DataType.items()}


class _Graph:
    """Parts of the model of a draw."""

    def __init__(self, draw: Draw) -> None:
        self.draw = draw
        self.nodes: list[onnx.NodeProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.feed: list[np.ndarray] = []
        self.dims: dict[str, int] = {}
        names = [self._operand(i, o) for i, o in enumerate(draw.operands)]
        wanted = draw.wanted or [True] * draw.results
        self.results = [f"y{i}" if want else "" for i, want in enumerate(wanted)]
        self.nodes.append(helper.make_node(draw.op, names, self.results, name="node",
                                           domain=draw.domain, **draw.attributes))

    def _operand(self, i: int, operand: object) -> str:
        if operand is None:
            return ""
        name = f"x{i}"
        if operand.known:
            tensor = numpy_helper.from_array(operand.value, name)
            tensor.data_type = operand.elem
            self.weights.append(tensor)
            return name
        shape: list[int | str] = list(operand.value.shape)
        dim = self.draw.dim
        # A size of 1 broadcasts, which a dim could not be proved to.
        if dim > 1 and dim in shape and not operand.structure:
            shape = ["n" if size == dim else size for size in shape]
            self.dims["n"] = dim
        native = operand.elem in NATIVE
        self.feed.append(operand.value if native else operand.value.astype(np.float32))
        if not native:
            self.nodes.append(helper.make_node("Cast", [f"{name}_f32"], [name], to=operand.elem))
            name += "_f32"
        elem = operand.elem if native else Elem.FLOAT
        self.inputs.append(helper.make_tensor_value_info(name, elem, shape))
        return f"x{i}"

    def model(self, elems: list[int]) -> onnx.ModelProto:
        """`elems`: of the results, 0 where they are not known yet."""
        nodes, outputs = list(self.nodes), []
        for name, elem in zip([name for name in self.results if name], elems, strict=True):
            if elem and elem not in NATIVE:
                nodes.append(helper.make_node("Cast", [name], [f"{name}_f32"], to=Elem.FLOAT))
                name, elem = f"{name}_f32", Elem.FLOAT
            if name == "y0" and elem == Elem.FLOAT and self.draw.partner:
                nodes.append(helper.make_node(self.draw.partner, [name], ["z0"]))
                name = "z0"
            info = onnx.ValueInfoProto(name=name)
            if elem:
                info.type.tensor_type.elem_type = elem
            outputs.append(info)
        graph = helper.make_graph(nodes, "g", self.inputs, outputs, self.weights)
        opsets = [helper.make_opsetid("", self.draw.opset)]
        if self.draw.domain:
            opsets.append(helper.make_opsetid(self.draw.domain, 1))
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def case_of(draw: Draw) -> Case:
    """The draw as a model and ONNX Runtime's results.

    Raises
    ------
    NotTaken
    """
    graph = _Graph(draw)
    session = _session(graph.model([draw.kinds.get(i, 0) for i, name in enumerate(graph.results)
                                    if name]))
    elems = [ELEMS.get(output.type, 0) for output in session.get_outputs()]
    if not all(elems):
        raise NotTaken(f"results of type {[o.type for o in session.get_outputs()]}")
    model = graph.model(elems)
    if draw.partner or any(elem not in NATIVE for elem in elems):
        session = _session(model)
    feed = {info.name: value for info, value in zip(graph.inputs, graph.feed, strict=True)}
    try:
        expected = session.run(None, feed)
    except Exception as error:
        raise NotTaken(" ".join(str(error).split())) from error
    return Case(draw, model, graph.feed, expected, graph.dims)
