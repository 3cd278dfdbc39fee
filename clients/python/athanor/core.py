"""What all operations share: operands, dtypes, shapes, attributes, nodes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

import numpy as np

from athanor.dtypes import DTYPES, DType, array_bytes, dtype_of
from athanor.errors import GraphError
from athanor.expr import Expr, expr, product, provably_different
from athanor.protos import graph_pb2
from athanor.value import Attr, Axes, Operand, Shape, Size, Value, type_text


def fail(op: str, nodes: Sequence[Value], message: str) -> GraphError:
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


def make(op: str, inputs: Sequence[Value], dtype: DType | str, shape: Iterable[Expr | int], /,
        **attrs: Attr) -> Value:
    """Adds a node; the caller has checked that types fit."""
    return inputs[0].graph._add(op, inputs, attrs, dtype_of(dtype), shape)


def index_map(x: Value, shape: Sequence[Expr | int], coordinates: Sequence[Expr | int],
              fill: float | None = None) -> Value:
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


def misfit(dtype: DType, value: object) -> str:
    """Says why a Python number cannot be of a dtype, and what would be right; empty if it can."""
    is_bool = isinstance(value, bool | np.bool_)
    if not is_bool and not isinstance(value, int | float | np.integer | np.floating):
        return f"{value!r} is a {type(value).__name__}; it must be a number"
    if (dtype.kind == "bool") != is_bool:
        right = "a bool" if dtype.kind == "bool" else "a number"
        return f"{value!r} beside {dtype.name}; it must be {right}"
    if dtype.kind not in ("signed", "unsigned"):
        return ""
    if not isinstance(value, int | np.integer):
        return f"{value!r} is not an integer, which {dtype.name} holds"
    info = np.iinfo(dtype.numpy)
    if info.min <= int(value) <= info.max:
        return ""
    return f"{value} does not fit in {dtype.name}, [{info.min}, {info.max}]"


def scalar_array(x: Value, value: float | int | bool, op: str) -> np.ndarray:
    """Converts a Python number to a rank 0 array of the dtype of `x`, which must be able to hold
    it."""
    text = misfit(x._dtype, value)
    if text:
        whole = isinstance(value, int | np.integer)
        way = "" if whole else '; convert the tensor first: .cast("f32")'
        raise fail(op, [x], text + way)
    return number_array(x._dtype, value)


def number_array(dtype: DType, value: float | int | bool) -> np.ndarray:
    """Converts a number to a rank 0 array of any computing dtype, rounded to nearest even."""
    if dtype.name == "bf16" and dtype.numpy == np.dtype(np.uint16):
        bits = int(np.float32(value).view(np.uint32))
        rounded = bits + 0x7FFF + (bits >> 16 & 1) if np.isfinite(value) else bits
        return np.asarray(rounded >> 16 & 0xFFFF, np.uint16)
    return np.asarray(value).astype(dtype.numpy)


def scalar_like(x: Value, value: float | int | bool, shape: Sequence[Expr] | None = None) -> Value:
    """Returns `value` in the dtype of `x`, repeated to its shape (or to `shape`)."""
    constant = x.graph._constant(x._dtype, scalar_array(x, value, "constant"))
    return index_map(constant, x._shape if shape is None else shape, [])


def operands(op: str, *values: object) -> list[Value]:
    """Converts operands to nodes of one graph; numbers and arrays become constants of it.

    A Python number takes the dtype of the first node; an array keeps its own.
    """
    nodes = [v for v in values if isinstance(v, Value)]
    if not nodes:
        raise GraphError(f"{op}: at least one operand must be a Value of a graph, got "
                         f"{', '.join(type(v).__name__ for v in values)}")
    # Inside the body of a loop, values from around it are taken in.
    graph = max((node.graph for node in nodes), key=lambda one: one._depth)
    like = next((n for n in nodes if n.dtype != "bool"), nodes[0])
    result = []
    for value in values:
        if isinstance(value, Value):
            own = graph._own(value)
            if own is None:
                raise fail(op, [nodes[0], value], "the operands are of two graphs, "
                           f"{graph.name!r} and {value.graph.name!r}; build both in one")
            result.append(own)
        elif isinstance(value, np.ndarray | np.generic):
            result.append(graph.constant(np.asarray(value)))
        elif isinstance(value, bool | int | float):
            result.append(graph._constant(like._dtype, scalar_array(like, value, op)))
        else:
            raise fail(op, nodes, f"operand of type {type(value).__name__}; it must be a Value, an "
                       "array or a number")
    return result


def same_dtype(op: str, nodes: Sequence[Value]) -> DType:
    """Returns the dtype of all `nodes`; converts nothing."""
    first = nodes[0]
    for other in nodes[1:]:
        if other.dtype != first.dtype:
            way = (f"convert the array, as in array.astype(np.{first._dtype.numpy})"
                   if other.op == "Constant" and first._dtype.numpy.kind in "biuf"
                   and first.dtype != "bf16" else
                   f'convert one, as in {other.name}.cast("{first.dtype}")')
            raise fail(op, nodes, f"dtypes differ: {first.dtype} and {other.dtype}; {way}")
    return first._dtype


KINDS = {
    "floats": ("float",),
    "integers": ("signed", "unsigned"),
    "numeric": ("float", "signed", "unsigned"),
    "logical": ("bool", "signed", "unsigned"),
    "computing": ("bool", "signed", "unsigned", "float"),
}


def check_kind(op: str, nodes: Sequence[Value], kind: str) -> None:
    """Refuses the dtype of the first node if the op does not take it, naming the cast."""
    dtype = nodes[0]._dtype
    if dtype.kind in KINDS[kind]:
        return
    allowed = [name for name, row in DTYPES.items() if row.kind in KINDS[kind]]
    cast = {"floats": "f32", "numeric": "i32", "logical": "bool"}.get(kind, "i64")
    cast = "f32" if dtype.kind == "storage" and kind != "logical" else cast
    raise fail(op, nodes, f"does not take {dtype.name}, only {', '.join(allowed)}; convert with "
               f'.cast("{cast}")')


def check_size(op: str, nodes: Sequence[Value], what: str, a: Expr, b: Expr) -> None:
    """Refuses two sizes that are provably different; undecided ones are left to the server."""
    if provably_different(a, b):
        raise fail(op, nodes, f"{what}: sizes {a} and {b} differ; they must be equal")


def size_list(shape: Size | Sequence[Size]) -> list[Size]:
    """Returns the sizes of a shape, which may be one size alone."""
    return [shape] if isinstance(shape, str | Expr | int | np.integer) else list(shape)


def check_axis(op: str, x: Value, axis: int, rank: int | None = None) -> int:
    """Returns the axis counted from the front."""
    rank = x.ndim if rank is None else rank
    if not isinstance(axis, int | np.integer) or not -rank <= axis < rank:
        raise fail(op, [x], f"axis {axis!r} must be an integer in [{-rank}, {rank})")
    return int(axis) % rank


def check_axes(op: str, x: Value, axes: Axes) -> list[int]:
    """Returns ascending axes counted from the front; all of them for None."""
    if axes is None:
        return list(range(x.ndim))
    listed = [axes] if isinstance(axes, int | np.integer) else list(axes)
    result = sorted(check_axis(op, x, axis) for axis in listed)
    if len(set(result)) != len(result):
        raise fail(op, [x], f"axes {listed} name an axis twice")
    return result


def broadcast_shape(op: str, nodes: Sequence[Value]) -> Shape:
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


def expand_to(x: Value, shape: Sequence[Expr]) -> Value:
    """Repeats axes of size 1 and missing leading axes."""
    lead = len(shape) - x.ndim
    coordinates = [Expr(0) if own == 1 and shape[lead + i] != 1 else Expr.axis(lead + i)
                   for i, own in enumerate(x._shape)]
    return index_map(x, shape, coordinates)


def broadcast(op: str, *values: object) -> list[Value]:
    """Broadcasts operands to one shape."""
    nodes = operands(op, *values)
    shape = broadcast_shape(op, nodes)
    return [expand_to(node, shape) for node in nodes]


def unary(op: str, x: Value, kind: str = "floats", **attrs: Attr) -> Value:
    """Adds a node with one operand, of a dtype of `kind`, that keeps its type."""
    (x,) = operands(op, x)
    check_kind(op, [x], kind)
    return make(op, [x], x._dtype, x._shape, **attrs)


def binary(op: str, a: Operand, b: Operand, kind: str, **attrs: Attr) -> Value:
    """Adds a node with two operands, broadcast, of one dtype of `kind`, which it keeps."""
    a, b = operands(op, a, b)
    dtype = same_dtype(op, [a, b])
    check_kind(op, [a], kind)
    nodes = broadcast(op, a, b)
    return make(op, nodes, dtype, nodes[0]._shape, **attrs)


def is_float(x: Value) -> bool:
    """Reports whether `x` holds numbers of f16, bf16, f32 or f64."""
    return x._dtype.kind == "float"


def size_value(x: Value, size: Expr, dtype: str) -> Value:
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
