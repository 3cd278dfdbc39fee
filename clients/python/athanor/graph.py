"""Graphs: built here with Python operators, checked and compiled by the server."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from athanor import bundle
from athanor.arithmetic import cast
from athanor.arrays import host_array
from athanor.core import (
    attr_int,
    attr_shape,
    attr_tensor,
    content_hash,
    index_map,
    misfit,
    number_array,
    size_list,
    size_value,
)
from athanor.dtypes import DType, array_bytes, dtype_of
from athanor.errors import GraphError
from athanor.expr import Expr, expr, floor_div
from athanor.functions import FUNCTIONS
from athanor.notebook import bytes_text, table
from athanor.protos import graph_pb2
from athanor.value import Attr, Size, Value, type_text

# Bounds of an undeclared dim that first appears in the shape of an input.
DEFAULT_DIM_BOUNDS = (1, 4096)


class Graph:
    """A model: inputs, parameters, operations, outputs.

    Parameters
    ----------
    name : str
        Name for people; an upload gives the model's name.
    dims : mapping of str to (int, int), optional
        Symbolic sizes with the least and largest value each may have.

    Examples
    --------
    >>> g = athanor.Graph("linear", dims={"b": (1, 64)})
    >>> x = g.input("x", ("b", 16), "f32")
    >>> w = g.parameter("w", np.zeros((16, 4), np.float32))
    >>> g.output("y", athanor.relu(x @ w))
    """

    def __init__(self, name: str, dims: Mapping[str, tuple[int, int]] | None = None) -> None:
        self.name = name
        self.dims: dict[str, tuple[int, int]] = {}
        self._nodes: list[Value] = []
        self._names: dict[str, Value] = {}
        self._constants: dict[tuple[object, ...], Value] = {}
        self._outputs: list[tuple[str, Value]] = []
        self._tensors: dict[bytes, bytes] = {}
        self._hashes: dict[Value, bytes] = {}
        self._weights: dict[object, tuple[np.ndarray, Value]] = {}  # by parameter of a module
        self._depth = 0
        for dim, (low, high) in (dims or {}).items():
            self.dim(dim, low, high)

    def dim(self, name: str, minimum: int, maximum: int) -> Expr:
        """Declares a symbolic size and returns it, for shapes such as ``(2 * b, 16)``.

        Raises
        ------
        GraphError
            If the bounds are not 0 <= minimum <= maximum, or differ from those declared before.
        """
        if not 0 <= minimum <= maximum:
            raise GraphError(f"dim {name!r}: bounds ({minimum}, {maximum}) must be 0 <= min <= max")
        if self.dims.setdefault(name, (minimum, maximum)) != (minimum, maximum):
            raise GraphError(f"dim {name!r} is already declared with bounds {self.dims[name]}")
        return Expr.symbol(name)

    def input(self, name: str, shape: Size | Sequence[Size], dtype: str | DType) -> Value:
        """Adds an input: a tensor of the request.

        A string in `shape` is a dim; an undeclared one has `DEFAULT_DIM_BOUNDS`, (1, 4096).
        """
        for size in size_list(shape):
            if isinstance(size, str) and size not in self.dims:
                self.dim(size, *DEFAULT_DIM_BOUNDS)
        sizes = self._sizes(shape, f"input {name!r}")
        return self._add("Input", [], {}, dtype_of(dtype), sizes, name)

    def parameter(self, name: str, array: object, dtype: str | DType | None = None) -> Value:
        """Adds a weight: stored once by content, known to the compiler by shape and dtype only.

        Parameters
        ----------
        array : array or DLPack tensor
            Its dtype is the parameter's; nothing is converted.
        dtype : optional
            Reads the same bits as another dtype of equal width, such as bf16 held in uint16.
        """
        values, row = self._literal(array, f"parameter {name!r}", dtype)
        node = self._add("Parameter", [], {}, row, values.shape, name)
        data = array_bytes(values)
        self._hashes[node] = content_hash(data)
        self._tensors[self._hashes[node]] = data
        return node

    def constant(self, array: object, dtype: str | DType | None = None) -> Value:
        """Adds a literal, known to the compiler by content; `array` and `dtype` as in `parameter`.

        A Python number needs a `dtype`, to which it is rounded.
        """
        if isinstance(array, bool | int | float) and dtype is not None:
            array = np.asarray(array).astype(dtype_of(dtype).numpy)
        values, row = self._literal(array, "constant", dtype)
        return self._constant(row, values)

    def full(self, shape: Size | Sequence[Size], value: float | int | bool,
             dtype: str | DType = "f32") -> Value:
        """A tensor of one number, which must fit `dtype`; any dtype that computes.

        Raises
        ------
        GraphError
            If the number does not fit, or a size is wrong.
        """
        row = dtype_of(dtype)
        text = misfit(row, value)
        if text:
            raise GraphError(f"full: {text}")
        return index_map(self._constant(row, number_array(row, value)), self._sizes(shape, "full"),
                         [])

    def zeros(self, shape: Size | Sequence[Size], dtype: str | DType = "f32") -> Value:
        """A tensor of zeros, or of False."""
        return self.full(shape, False if dtype_of(dtype).kind == "bool" else 0, dtype)

    def ones(self, shape: Size | Sequence[Size], dtype: str | DType = "f32") -> Value:
        """A tensor of ones, or of True."""
        return self.full(shape, True if dtype_of(dtype).kind == "bool" else 1, dtype)

    def arange(self, start: Size | float, stop: Size | float | None = None, step: int | float = 1,
               dtype: str | DType | None = None) -> Value:
        """start, start + step, ... below `stop`, as numpy.arange; with one argument from 0.

        Parameters
        ----------
        start, stop : size or number
            A size may be a dim or an expression.
        step : int or float
            Not 0; between sizes over dims an int.
        dtype : str, optional
            i64 if all are whole; other numbers need it named, and must be numbers, not dims.

        Returns
        -------
        Value
            One axis, of max(ceil((stop - start) / step), 0) elements.

        Raises
        ------
        GraphError
            If the length is not known to be 0 or more for all sizes of the dims, or the dtype is
            missing.
        """
        start, stop = (0, start) if stop is None else (start, stop)
        if isinstance(step, bool) or not isinstance(step, int | float) or step == 0:
            raise GraphError(f"arange: step={step!r} must be a number other than 0")
        if any(isinstance(value, float) for value in (start, stop, step)):
            if dtype is None or dtype_of(dtype).kind != "float" or not (
                    isinstance(start, int | float) and isinstance(stop, int | float)):
                raise GraphError(f"arange({start!r}, {stop!r}, {step!r}): numbers that are not "
                                 'whole need a float dtype, such as dtype="f32", and no dims')
            row = dtype_of(dtype)
            values = np.arange(float(start), float(stop), float(step))
            return self._constant(row, values.astype(row.numpy))
        assert not isinstance(start, float) and not isinstance(stop, float)
        first, end = self._size(start, "arange"), self._size(stop, "arange")
        difference = (end - first) * (1 if step > 0 else -1)
        count = -floor_div(-difference, expr(int(abs(step))))
        if count.constant is not None:
            count = expr(max(count.constant, 0))
        elif difference.bounds(self.dims)[0] < 0:
            raise GraphError(f"arange: from {first} to {end} by {step} has a negative length for "
                             "some size of the dims; tighten the dims' bounds")
        row = dtype_of(dtype or "i64")
        if row.kind not in ("signed", "unsigned", "float"):
            raise GraphError(f"arange: dtype {row.name} must be an integer or a float")
        counted = self.iota([count], 0, "i64") * step
        return cast(counted + size_value(counted, first, "i64"), row)

    def iota(self, shape: Size | Sequence[Size], axis: int = 0,
             dtype: str | DType = "i64") -> Value:
        """0, 1, 2, ... along `axis` of `shape`."""
        sizes = self._sizes(shape, "iota")
        row = dtype_of(dtype)
        if not 0 <= axis < len(sizes) or row.kind in ("bool", "storage"):
            raise GraphError(f"iota: axis {axis} of {len(sizes)} axes, dtype {row.name}; the axis "
                             "must exist and the dtype be an integer or a float")
        return self._add("Iota", [], {"shape": attr_shape(sizes), "axis": attr_int(axis),
                                      "dtype": Attr(dtype=row.name)}, row, sizes)

    def random_bits(self, seed: Value, shape: Size | Sequence[Size]) -> Value:
        """Random u32 values from a u64 scalar; equal seeds and shapes give equal bits anywhere."""
        if seed.dtype != "u64" or seed.ndim:
            raise GraphError(f"RandomBits({seed!r}): the seed must be u64[]")
        sizes = self._sizes(shape, "random_bits")
        return self._add("RandomBits", [seed], {"shape": attr_shape(sizes)}, dtype_of("u32"), sizes)

    def output(self, name: str, value: Value) -> None:
        """Names a result. Inputs, constants and the same value twice are fine; order is kept."""
        if not isinstance(value, Value) or value.graph is not self:
            raise GraphError(f"output {name!r} must be a Value of graph {self.name!r}, not "
                             f"{value!r}")
        if any(name == other for other, _ in self._outputs):
            raise GraphError(f"output {name!r} exists already")
        self._outputs.append((name, value))

    @property
    def tensors(self) -> dict[bytes, bytes]:
        """Returns the bytes of the parameters by their SHA-256."""
        return dict(self._tensors)

    def proto(self) -> graph_pb2.Graph:
        """Returns the message for the server; parameters are in it by content hash."""
        message = graph_pb2.Graph(name=self.name)
        for name, (low, high) in ({} if self._depth else self.dims).items():
            message.dims.add(name=name, min=low, max=high)
        for node in self._needed():
            entry = message.nodes.add(name=node.name, op=node.op,
                                      inputs=[operand.name for operand in node.inputs])
            for key, value in node.attrs.items():
                entry.attrs[key].CopyFrom(value)
            if self._depth or node.op in ("Input", "Parameter"):
                entry.dtype = node.dtype
                entry.shape.extend(size.proto() for size in node._shape)
                entry.has_type = True
            if node in self._hashes:
                entry.content_hash = self._hashes[node]
        for name, node in self._outputs:
            message.outputs.add(name=name, node=node.name)
        return message

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes graph and parameters to one file for the CLI, usually named ``*.athanor``."""
        message = self.proto()
        used = {node.content_hash for node in message.nodes if node.content_hash}
        bundle.save(path, message.SerializeToString(deterministic=True),
                    {key: data for key, data in self._tensors.items() if key in used})

    def __repr__(self) -> str:
        return f"<athanor.Graph {self.name!r}: {len(self._nodes)} nodes>"

    def _repr_html_(self) -> str:
        needed = self._needed()
        inputs = [node for node in needed if node.op == "Input"]
        weights = [node for node in needed if node in self._hashes]
        held = sum(len(self._tensors[self._hashes[node]]) for node in weights)
        rows = [*((f"dim {name}", f"{low} to {high}") for name, (low, high) in self.dims.items()),
                *((f"input {node.name}", type_text(node)) for node in inputs),
                *((f"output {name}", type_text(node)) for name, node in self._outputs),
                ("nodes", len(needed)), ("parameters", f"{len(weights)} of {bytes_text(held)}"),
                *((f"parameter {node.name}", type_text(node)) for node in weights)]
        return table(f"Graph {self.name!r}", rows)

    def _needed(self) -> list[Value]:
        """Returns the inputs and the nodes that outputs depend on, in the order of building."""
        needed = {node for node in self._nodes if node.op == "Input"}
        pending = [node for _, node in self._outputs]
        while pending:
            node = pending.pop()
            if node not in needed:
                needed.add(node)
                pending.extend(node.inputs)
        return [node for node in self._nodes if node in needed]

    def _sizes(self, shape: Size | Sequence[Size], what: str) -> list[Expr]:
        sizes = [self._size(size, what) for size in size_list(shape)]
        for size in sizes:
            if size.constant is not None and size.constant < 0:
                raise GraphError(f"{what}: size {size} must not be negative")
        return sizes

    def _size(self, size: Size, what: str) -> Expr:
        value = Expr.symbol(size) if isinstance(size, str) else expr(size)
        unknown = value.symbols() - self.dims.keys()
        if unknown:
            raise GraphError(f"{what}: dim {', '.join(sorted(unknown))} is not declared; declare "
                             "it with graph.dim(name, minimum, maximum)")
        return value

    def _input(self, name: str, shape: Iterable[Expr], dtype: str | DType) -> Value:
        return self._add("Input", [], {}, dtype_of(dtype), shape, name)

    def _apply(self, function: str, /, *args: object, **options: object) -> Value:
        return FUNCTIONS[function](*args, **options)  # type: ignore[no-any-return]

    def _has(self, function: str) -> bool:
        return function in FUNCTIONS

    def _own(self, node: Value) -> Value | None:
        return node if node.graph is self else None

    def _weight(self, key: object, name: str, array: np.ndarray) -> Value:
        known = self._weights.get(key)
        if known is None or known[0] is not array:
            free, number = name, 1
            while free in self._names:
                free, number = f"{name}_{number}", number + 1
            known = self._weights[key] = (array, self.parameter(free, array))
        return known[1]

    def _body(self, name: str) -> Body:
        return Body(self, name)

    def _literal(self, array: object, what: str,
                 dtype: str | DType | None) -> tuple[np.ndarray, DType]:
        values = host_array(array, what)
        row = dtype_of(values.dtype if dtype is None else dtype)
        if values.dtype != row.numpy:
            bits = values.dtype.kind in "ui" and row.kind in ("float", "storage")
            if not bits or values.dtype.itemsize != row.numpy.itemsize:
                raise GraphError(f"{what} is an array of {values.dtype}, not of {row.name}; "
                                 f"convert it with {row.cast}")
            values = values.view(row.numpy)
        return values, row

    def _constant(self, dtype: DType, values: np.ndarray) -> Value:
        key = (dtype.name, values.shape, array_bytes(values))
        if key not in self._constants:
            self._constants[key] = self._add("Constant", [], {"value": attr_tensor(dtype, values)},
                                             dtype, values.shape)
        return self._constants[key]

    def _add(self, op: str, inputs: Sequence[Value], attrs: dict[str, Attr], dtype: DType,
             shape: Iterable[Expr | int], name: str = "") -> Value:
        node = Value(self, op, inputs, attrs, dtype, shape)
        if not name:
            number = len(self._nodes)
            while (name := f"{op.lower()}_{number}") in self._names:
                number += 1
        self._rename(node, name)
        self._nodes.append(node)
        return node

    def _rename(self, node: Value, name: str) -> None:
        if not name or self._names.get(name, node) is not node:
            raise GraphError(f"node name {name!r} is {'taken' if name else 'empty'}; names must be "
                             "unique and not empty")
        self._names.pop(node._name, None)
        self._names[name] = node
        node._name = name


class Body(Graph):
    """What a step of a loop computes: a graph inside a graph, over the dims of that.

    Values of the graphs around it that its nodes use become inputs, which the loop's node passes.
    """

    def __init__(self, around: Graph, name: str) -> None:
        super().__init__(name)
        self.dims = around.dims
        self._around = around
        self._depth = around._depth + 1
        self._captured: dict[Value, Value] = {}  # values around by which inputs stand for them

    def input(self, name: str, shape: Size | Sequence[Size], dtype: str | DType) -> Value:
        """Refused: a body gets its inputs from the loop."""
        raise GraphError(f"input {name!r} inside a loop: add it before, and use it in the step")

    def parameter(self, name: str, array: object, dtype: str | DType | None = None) -> Value:
        """Adds a weight to the graph around, and takes it in."""
        return self._taken(self._around.parameter(name, array, dtype))

    def _weight(self, key: object, name: str, array: np.ndarray) -> Value:
        return self._taken(self._around._weight(key, name, array))

    def _own(self, node: Value) -> Value | None:
        if node.graph is self:
            return node
        outer = self._around._own(node)
        return None if outer is None else self._taken(outer)

    def _taken(self, outer: Value) -> Value:
        """Returns the input that stands for a value of the graph around."""
        if outer not in self._captured:
            self._captured[outer] = self._input(f"captured_{len(self._captured)}", outer._shape,
                                                outer.dtype)
        return self._captured[outer]
