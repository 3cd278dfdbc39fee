"""Nodes of a graph under construction, and what all operations share: operands, dtypes, shapes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Protocol, TypeVar

import numpy as np

from athanor.dtypes import DTYPES, DType, array_bytes, dtype_of
from athanor.errors import GraphError
from athanor.expr import Expr, expr, product, provably_different
from athanor.protos import graph_pb2

Attr = graph_pb2.AttrValue
Shape = tuple[Expr, ...]
Size = Expr | int | str  # a str is a dim
N = TypeVar("N", bound="Node")


class NodeGraph(Protocol):
    """Says what nodes need of the graph they belong to, which is an `athanor.Graph`."""

    name: str
    dims: dict[str, tuple[int, int]]

    def constant(self, array: object) -> Node:
        """Adds a literal of the array's own dtype."""

    def _constant(self, dtype: DType, values: np.ndarray) -> Node:
        """Adds a literal, or returns the node of an equal one."""

    def _add(self, op: str, inputs: Sequence[Node], attrs: dict[str, Attr], dtype: DType,
             shape: Iterable[Expr | int]) -> Node:
        """Adds a node; the caller has checked that types fit."""

    def _rename(self, node: Node, name: str) -> None:
        """Gives a node another name, which must be unique."""

    def _size(self, size: Size, what: str) -> Expr:
        """Converts a size whose dims must be declared; `what` names it in the error."""


class Node:
    """An op of a graph and its result. Users know it as `athanor.Value`."""

    __array_priority__ = 1000  # array + value calls our operator
    __array_ufunc__ = None

    def __init__(self, graph: NodeGraph, op: str, inputs: Sequence[Node], attrs: dict[str, Attr],
                 dtype: DType, shape: Iterable[Expr | int]) -> None:
        self.graph = graph
        self.op = op
        self.inputs = tuple(inputs)
        self.attrs = attrs
        self._dtype = dtype
        self._shape: Shape = tuple(expr(size) for size in shape)
        self._name = ""

    @property
    def name(self) -> str:
        """Unique name in the graph; the request parameter ``taps`` and error messages use it."""
        return self._name

    @property
    def dtype(self) -> str:
        """Such as ``"f32"``."""
        return self._dtype.name

    @property
    def shape(self) -> tuple[Expr | int, ...]:
        """Sizes; an int where it is fixed."""
        return tuple(s if s.constant is None else s.constant for s in self._shape)

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self._shape)

    def named(self: N, name: str) -> N:
        """Gives the node another name and returns it."""
        self.graph._rename(self, name)
        return self

    def __repr__(self) -> str:
        return f"<{self._name}: {type_text(self)}>"


def type_text(node: Node) -> str:
    """Formats a type: ``f32[b, 64]``."""
    return f"{node.dtype}{shape_text(node._shape)}"


def shape_text(shape: Iterable[Expr]) -> str:
    """Formats a shape: ``[b, 64]``."""
    return f"[{', '.join(map(repr, shape))}]"


def fail(op: str, nodes: Sequence[Node], message: str) -> GraphError:
    """Returns an operation's error: its name, its operands, what is wrong and what would be
    right."""
    operands = ", ".join(f"{n.name}: {type_text(n)}" for n in nodes)
    return GraphError(f"{op}({operands}): {message}")


def attr_int(value: int) -> Attr:
    """Makes an integer attribute."""
    return Attr(i=value)


def attr_ints(values: Iterable[int]) -> Attr:
    """Makes an attribute with a list of integers."""
    return Attr(ints=graph_pb2.IntsAttr(values=values))


def attr_shape(shape: Iterable[Expr]) -> Attr:
    """Makes an attribute with sizes."""
    return Attr(shape=graph_pb2.ShapeAttr(sizes=[size.proto() for size in shape]))


def attr_tensor(dtype: DType, array: np.ndarray) -> Attr:
    """Makes an attribute with a literal."""
    return Attr(tensor=graph_pb2.TensorLiteral(dtype=dtype.name, shape=array.shape,
                                               data=array_bytes(array)))


def add(op: str, inputs: Sequence[Node], dtype: DType | str, shape: Iterable[Expr | int], /,
        **attrs: Attr) -> Node:
    """Adds a node; the caller has checked that types fit."""
    return inputs[0].graph._add(op, inputs, attrs, dtype_of(dtype), shape)


def index_map(x: Node, shape: Sequence[Expr | int], coordinates: Sequence[Expr | int],
              fill: float | None = None) -> Node:
    """Adds any movement: result element ($0, $1, ...) is the operand's at `coordinates`."""
    sizes = tuple(expr(size) for size in shape)
    where = tuple(expr(coordinate) for coordinate in coordinates)
    same = sizes == x._shape and where == tuple(Expr.axis(i) for i in range(x.ndim))
    if same and fill is None:
        return x
    message = graph_pb2.IndexMapAttr(shape=[s.proto() for s in sizes],
                                     coordinates=[c.proto() for c in where])
    attrs = {"map": Attr(index_map=message)}
    if fill is not None:
        attrs["fill"] = attr_tensor(x._dtype, scalar_array(x, fill, "fill"))
    return x.graph._add("IndexMap", [x], attrs, x._dtype, sizes)


def scalar_array(x: Node, value: object, op: str) -> np.ndarray:
    """Converts a Python number to a rank 0 array of the dtype of `x`, which must be able to hold
    it."""
    dtype = x._dtype
    is_bool = isinstance(value, bool | np.bool_)
    whole = is_bool or isinstance(value, int | np.integer)
    if (dtype.kind == "bool") != is_bool:
        right = "a bool" if dtype.kind == "bool" else "a number"
        raise fail(op, [x], f"{value!r} beside {dtype.name}; it must be {right}")
    if dtype.kind in ("signed", "unsigned"):
        if not whole:
            raise fail(op, [x], f"{value!r} is not an integer, and {x.name} is {dtype.name}; "
                       'convert the tensor first: .cast("f32")')
        info = np.iinfo(dtype.numpy)
        if not info.min <= int(value) <= info.max:
            raise fail(op, [x], f"{value} does not fit in {dtype.name}, [{info.min}, {info.max}]")
    return number_array(dtype, value)


def number_array(dtype: DType, value: float | int | bool) -> np.ndarray:
    """Converts a number to a rank 0 array of any computing dtype, rounded to nearest even."""
    if dtype.name == "bf16" and dtype.numpy == np.dtype(np.uint16):
        bits = int(np.float32(value).view(np.uint32))
        rounded = bits + 0x7FFF + (bits >> 16 & 1) if np.isfinite(value) else bits
        return np.asarray(rounded >> 16 & 0xFFFF, np.uint16)
    return np.asarray(value).astype(dtype.numpy)


def scalar_like(x: Node, value: float | int | bool, shape: Sequence[Expr] | None = None) -> Node:
    """Returns `value` in the dtype of `x`, repeated to its shape (or to `shape`)."""
    constant = x.graph._constant(x._dtype, scalar_array(x, value, "constant"))
    return index_map(constant, x._shape if shape is None else shape, [])


def operands(op: str, *values: object) -> list[Node]:
    """Converts operands to nodes of one graph; numbers and arrays become constants of it.

    A Python number takes the dtype of the first node; an array keeps its own.
    """
    nodes = [v for v in values if isinstance(v, Node)]
    if not nodes:
        raise GraphError(f"{op}: at least one operand must be a Value of a graph, got "
                         f"{', '.join(type(v).__name__ for v in values)}")
    graph = nodes[0].graph
    for node in nodes:
        if node.graph is not graph:
            raise fail(op, [nodes[0], node], f"the operands are of two graphs, {graph.name!r} and "
                       f"{node.graph.name!r}; build both in one")
    like = next((n for n in nodes if n.dtype != "bool"), nodes[0])
    result = []
    for value in values:
        if isinstance(value, Node):
            result.append(value)
        elif isinstance(value, np.ndarray | np.generic):
            result.append(graph.constant(np.asarray(value)))
        elif isinstance(value, bool | int | float):
            result.append(graph._constant(like._dtype, scalar_array(like, value, op)))
        else:
            raise fail(op, nodes, f"operand of type {type(value).__name__}; it must be a Value, an "
                       "array or a number")
    return result


def same_dtype(op: str, nodes: Sequence[Node]) -> DType:
    """Returns the dtype of all `nodes`; converts nothing."""
    first = nodes[0]
    for other in nodes[1:]:
        if other.dtype != first.dtype:
            raise fail(op, nodes, f"dtypes differ: {first.dtype} and {other.dtype}; convert one, "
                       f'as in {other.name}.cast("{first.dtype}")')
    return first._dtype


KINDS = {
    "floats": ("float",),
    "integers": ("signed", "unsigned"),
    "numeric": ("float", "signed", "unsigned"),
    "logical": ("bool", "signed", "unsigned"),
    "computing": ("bool", "signed", "unsigned", "float"),
}


def check_kind(op: str, nodes: Sequence[Node], kind: str) -> None:
    """Refuses the dtype of the first node if the op does not take it, naming the cast."""
    dtype = nodes[0]._dtype
    if dtype.kind in KINDS[kind]:
        return
    allowed = [name for name, row in DTYPES.items() if row.kind in KINDS[kind]]
    cast = {"floats": "f32", "numeric": "i32", "logical": "bool"}.get(kind, "i64")
    cast = "f32" if dtype.kind == "storage" and kind != "logical" else cast
    raise fail(op, nodes, f"does not take {dtype.name}, only {', '.join(allowed)}; convert with "
               f'.cast("{cast}")')


def check_size(op: str, nodes: Sequence[Node], what: str, a: Expr, b: Expr) -> None:
    """Refuses two sizes that are provably different; undecided ones are left to the server."""
    if provably_different(a, b):
        raise fail(op, nodes, f"{what}: sizes {a} and {b} differ; they must be equal")


def check_axis(op: str, x: Node, axis: int, rank: int | None = None) -> int:
    """Returns the axis counted from the front."""
    rank = x.ndim if rank is None else rank
    if not isinstance(axis, int | np.integer) or not -rank <= axis < rank:
        raise fail(op, [x], f"axis {axis!r} must be an integer in [{-rank}, {rank})")
    return int(axis) % rank


def check_axes(op: str, x: Node, axes: int | Sequence[int] | None) -> list[int]:
    """Returns ascending axes counted from the front; all of them for None."""
    if axes is None:
        return list(range(x.ndim))
    listed = [axes] if isinstance(axes, int | np.integer) else list(axes)
    result = sorted(check_axis(op, x, axis) for axis in listed)
    if len(set(result)) != len(result):
        raise fail(op, [x], f"axes {listed} name an axis twice")
    return result


def broadcast_shape(op: str, nodes: Sequence[Node]) -> Shape:
    """Broadcasts by numpy's rule: shapes align at the last axis; only the constant 1 repeats."""
    rank = max(node.ndim for node in nodes)
    result = []
    for i in range(rank):
        size = Expr(1)
        for node in nodes:
            own = i - (rank - node.ndim)
            if own < 0 or node._shape[own] == 1:
                continue
            if size == 1:
                size = node._shape[own]
            check_size(op, nodes, f"axis {i - rank}", size, node._shape[own])
        result.append(size)
    return tuple(result)


def expand_to(x: Node, shape: Sequence[Expr]) -> Node:
    """Repeats axes of size 1 and missing leading axes."""
    lead = len(shape) - x.ndim
    coordinates = [Expr(0) if own == 1 and shape[lead + i] != 1 else Expr.axis(lead + i)
                   for i, own in enumerate(x._shape)]
    return index_map(x, shape, coordinates)


def broadcast(op: str, *values: object) -> list[Node]:
    """Broadcasts operands to one shape."""
    nodes = operands(op, *values)
    shape = broadcast_shape(op, nodes)
    return [expand_to(node, shape) for node in nodes]


def size_value(x: Node, size: Expr, dtype: str) -> Node:
    """Returns a size as a rank 0 value: a constant, or element `size` of 0, 1, 2, ..."""
    row = dtype_of(dtype)
    if size.constant is not None:
        return x.graph._constant(row, number_array(row, size.constant))
    count = x.graph._add("Iota", [], {"shape": attr_shape([size + 1]), "axis": attr_int(0),
                                      "dtype": Attr(dtype=row.name)}, row, [size + 1])
    return index_map(count, [], [size])


def content_hash(data: bytes) -> bytes:
    """Returns the SHA-256 by which the server identifies tensors."""
    return hashlib.sha256(data).digest()


def possession_proof(nonce: bytes, key: bytes, data: bytes) -> bytes:
    """Proves that the sender has the bytes `data` of the tensor `key`; see athanor.v1.TensorProof.
    """
    seal = hashlib.sha256(data)
    seal.update(b"athanor possession")
    return hashlib.sha256(nonce + key + seal.digest()).digest()


def element_count(shape: Iterable[Expr]) -> Expr:
    """Returns the number of elements."""
    return product(shape)
