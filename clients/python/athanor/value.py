"""Value: a node of a graph under construction and its result, with operators and methods.

Each operator and method is a function of this package by name, which the graph knows
(`ValueGraph._apply`): the functions are made of values, so values cannot import them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, TypeAlias

import numpy as np

from athanor.dtypes import DType
from athanor.expr import Expr, expr
from athanor.notebook import table
from athanor.numpy_names import HINTS, METHOD_HINTS, arguments, function_name, ufunc_name
from athanor.protos import graph_pb2

Attr: TypeAlias = graph_pb2.AttrValue
Shape: TypeAlias = tuple[Expr, ...]
Size: TypeAlias = Expr | int | str  # a str is a dim
Axes: TypeAlias = int | Sequence[int] | None


class ValueGraph(Protocol):
    """Says what values need of the graph they belong to, which is an `athanor.Graph`."""

    name: str
    dims: dict[str, tuple[int, int]]
    _depth: int  # of the body of a loop: how many loops are around its nodes; else 0

    def constant(self, array: object) -> Value:
        """Adds a literal of the array's own dtype."""

    def _constant(self, dtype: DType, values: np.ndarray) -> Value:
        """Adds a literal, or returns the node of an equal one."""

    def _add(self, op: str, inputs: Sequence[Value], attrs: dict[str, Attr], dtype: DType,
             shape: Iterable[Expr | int]) -> Value:
        """Adds a node; the caller has checked that types fit."""

    def _apply(self, function: str, /, *args: object, **options: object) -> Value:
        """Calls a function of this package by its name."""

    def _has(self, function: str) -> bool:
        """Reports whether this package has a function of that name."""

    def _own(self, node: Value) -> Value | None:
        """Returns a node of this graph, taken in if it is of a graph around it; else None."""

    def full(self, shape: Size | Sequence[Size], value: float | int | bool,
             dtype: str | DType = "f32") -> Value:
        """Adds a tensor of one number."""

    def _weight(self, key: object, name: str, array: np.ndarray) -> Value:
        """Returns the parameter of a module's weight `key`; a taken name gets a number."""

    def _body(self, name: str) -> BodyGraph:
        """Makes the graph of a loop's body."""

    def _rename(self, node: Value, name: str) -> None:
        """Gives a node another name, which must be unique."""

    def _size(self, size: Size, what: str) -> Expr:
        """Converts a size whose dims must be declared; `what` names it in the error."""


class BodyGraph(ValueGraph, Protocol):
    """Says what a loop needs of its body."""

    _captured: dict[Value, Value]  # by value of the graph around: the input that stands for it

    def _input(self, name: str, shape: Iterable[Expr], dtype: str | DType) -> Value:
        """Adds an input."""

    def output(self, name: str, value: Value) -> None:
        """Names a result."""

    def proto(self) -> graph_pb2.Graph:
        """Returns its message."""


class Value:
    """The result of an op in a `Graph`; combines with other values, numbers and arrays.

    Operands are broadcast as in numpy. Dtypes are never converted silently: use `cast`. Comparison
    operators give bool values, so values are compared by identity only in sets and dicts. numpy's
    functions take values where this package has one of that name: ``np.exp(value)``.
    """

    __array_priority__ = 1000  # array + value calls our operator

    def __init__(self, graph: ValueGraph, op: str, inputs: Sequence[Value], attrs: dict[str, Attr],
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

    def named(self, name: str) -> Value:
        """Gives the node another name and returns it."""
        self.graph._rename(self, name)
        return self

    def __repr__(self) -> str:
        return f"<{self._name}: {type_text(self)}>"

    def _repr_html_(self) -> str:
        rows = [("type", type_text(self)), ("op", self.op),
                *((f"operand {i}", repr(node)) for i, node in enumerate(self.inputs))]
        return table(f"Value {self._name!r} of graph {self.graph.name!r}", rows)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Value:
        """``np.exp(value)``, ``np.add(array, value)`` and so on."""
        return self.graph._apply(ufunc_name(ufunc, method, options), *inputs)

    def __array_function__(self, function: Callable[..., Any], types: Iterable[type],
                           args: Iterable[Any], options: Mapping[str, Any]) -> Value:
        """``np.sum(value, axis=0)``, ``np.concatenate([a, b])`` and so on."""
        return self.graph._apply(function_name(function), *args, **arguments(function, options))

    def __array__(self, *_: object, **__: object) -> NoReturn:
        raise TypeError(f"{self!r} has no elements while the graph is built, so no array can hold "
                        "them; make it an output, upload the graph, and infer")

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> object:
            """Names the way for what numpy's arrays and torch's tensors have."""
            hint = METHOD_HINTS.get(name)
            graph = self.__dict__.get("graph")  # not there yet while a value is copied
            if hint is None and graph is not None and graph._has(name):
                hint = f"athanor.{name}(x)"
            hint = hint or HINTS.get(name)
            raise AttributeError(f"a Value has no attribute {name!r}"
                                 + (f"; use {hint}" if hint else ""))

    __hash__ = object.__hash__

    def __bool__(self) -> bool:
        raise TypeError(f"{self!r} has no value while the graph is built; use athanor.where")

    def __float__(self) -> float:
        raise TypeError(f"{self!r} has no value while the graph is built; make it an output, "
                        "upload the graph, and infer")

    def __int__(self) -> int:
        raise TypeError(f"{self!r} has no value while the graph is built; sizes are in .shape")

    def __len__(self) -> int:
        raise TypeError(f"{self!r} has no length of its own; use .shape")

    def __iter__(self) -> None:
        raise TypeError(f"{self!r} cannot be iterated; index it")

    def __add__(self, other: Operand) -> Value:
        return self.graph._apply("add", self, other)

    def __radd__(self, other: Operand) -> Value:
        return self.graph._apply("add", other, self)

    def __sub__(self, other: Operand) -> Value:
        return self.graph._apply("subtract", self, other)

    def __rsub__(self, other: Operand) -> Value:
        return self.graph._apply("subtract", other, self)

    def __mul__(self, other: Operand) -> Value:
        return self.graph._apply("multiply", self, other)

    def __rmul__(self, other: Operand) -> Value:
        return self.graph._apply("multiply", other, self)

    def __truediv__(self, other: Operand) -> Value:
        return self.graph._apply("divide", self, other)

    def __rtruediv__(self, other: Operand) -> Value:
        return self.graph._apply("divide", other, self)

    def __floordiv__(self, other: Operand) -> Value:
        return self.graph._apply("floor_divide", self, other)

    def __rfloordiv__(self, other: Operand) -> Value:
        return self.graph._apply("floor_divide", other, self)

    def __mod__(self, other: Operand) -> Value:
        return self.graph._apply("mod", self, other)

    def __rmod__(self, other: Operand) -> Value:
        return self.graph._apply("mod", other, self)

    def __pow__(self, other: Operand) -> Value:
        return self.graph._apply("power", self, other)

    def __rpow__(self, other: Operand) -> Value:
        return self.graph._apply("power", other, self)

    def __matmul__(self, other: Operand) -> Value:
        return self.graph._apply("matmul", self, other)

    def __rmatmul__(self, other: Operand) -> Value:
        return self.graph._apply("matmul", other, self)

    def __and__(self, other: Operand) -> Value:
        return self.graph._apply("bitwise_and", self, other)

    def __rand__(self, other: Operand) -> Value:
        return self.graph._apply("bitwise_and", other, self)

    def __or__(self, other: Operand) -> Value:
        return self.graph._apply("bitwise_or", self, other)

    def __ror__(self, other: Operand) -> Value:
        return self.graph._apply("bitwise_or", other, self)

    def __xor__(self, other: Operand) -> Value:
        return self.graph._apply("bitwise_xor", self, other)

    def __rxor__(self, other: Operand) -> Value:
        return self.graph._apply("bitwise_xor", other, self)

    def __lshift__(self, other: Operand) -> Value:
        return self.graph._apply("left_shift", self, other)

    def __rlshift__(self, other: Operand) -> Value:
        return self.graph._apply("left_shift", other, self)

    def __rshift__(self, other: Operand) -> Value:
        return self.graph._apply("right_shift", self, other)

    def __rrshift__(self, other: Operand) -> Value:
        return self.graph._apply("right_shift", other, self)

    def __invert__(self) -> Value:
        return self.graph._apply("invert", self)

    def __neg__(self) -> Value:
        return self.graph._apply("negative", self)

    def __pos__(self) -> Value:
        return self

    def __abs__(self) -> Value:
        return self.graph._apply("absolute", self)

    def __lt__(self, other: Operand) -> Value:
        return self.graph._apply("less", self, other)

    def __le__(self, other: Operand) -> Value:
        return self.graph._apply("less_equal", self, other)

    def __gt__(self, other: Operand) -> Value:
        return self.graph._apply("greater", self, other)

    def __ge__(self, other: Operand) -> Value:
        return self.graph._apply("greater_equal", self, other)

    def __eq__(self, other: Operand) -> Value:  # type: ignore[override]
        return self.graph._apply("equal", self, other)

    def __ne__(self, other: Operand) -> Value:  # type: ignore[override]
        return self.graph._apply("not_equal", self, other)

    def __getitem__(self, key: object) -> Value:
        return self.graph._apply("index", self, key)

    def cast(self, dtype: str | DType) -> Value:
        """Converts values to another dtype."""
        return self.graph._apply("cast", self, dtype)

    astype = cast

    def bitcast(self, dtype: str | DType) -> Value:
        """Reads the same bits as another dtype of equal width."""
        return self.graph._apply("bitcast", self, dtype)

    def reshape(self, *shape: Size | Sequence[Size]) -> Value:
        """Gives another shape with the same elements; one size may be -1."""
        return self.graph._apply("reshape", self, _listed(shape))

    def flatten(self, start: int = 0) -> Value:
        """Merges the axes from `start` on into one."""
        return self.graph._apply("flatten", self, start)

    def squeeze(self, axis: Axes = None) -> Value:
        """Removes axes of size 1; of any dtype."""
        return self.graph._apply("squeeze", self, axis)

    def unsqueeze(self, axis: int) -> Value:
        """Adds an axis of size 1."""
        return self.graph._apply("unsqueeze", self, axis)

    def transpose(self, *axes: int | Sequence[int]) -> Value:
        """Reorders the axes; without `axes` reverses them."""
        return self.graph._apply("transpose", self, _listed(axes) if axes else None)

    @property
    def T(self) -> Value:  # noqa: N802 - numpy's name
        """All axes reversed."""
        return self.graph._apply("transpose", self)

    def permute(self, *axes: int | Sequence[int]) -> Value:
        """Reorders the axes: axis i of the result is axis ``axes[i]``."""
        return self.graph._apply("permute", self, _listed(axes))

    def expand(self, *shape: Size | Sequence[Size]) -> Value:
        """Repeats axes of size 1 and adds leading axes."""
        return self.graph._apply("expand", self, _listed(shape))

    def sum(self, axis: Axes = None, *, keepdims: bool = False) -> Value:
        """The sum over `axis`, or all; see `athanor.sum`."""
        return self.graph._apply("sum", self, axis, keepdims=keepdims)

    def prod(self, axis: Axes = None, *, keepdims: bool = False) -> Value:
        """The product over `axis`, or all; see `athanor.prod`."""
        return self.graph._apply("prod", self, axis, keepdims=keepdims)

    def max(self, axis: Axes = None, *, keepdims: bool = False) -> Value:
        """The maximum over `axis`, or all; see `athanor.max`."""
        return self.graph._apply("max", self, axis, keepdims=keepdims)

    def min(self, axis: Axes = None, *, keepdims: bool = False) -> Value:
        """The minimum over `axis`, or all; see `athanor.min`."""
        return self.graph._apply("min", self, axis, keepdims=keepdims)

    def mean(self, axis: Axes = None, *, keepdims: bool = False) -> Value:
        """The mean over `axis`, or all; see `athanor.mean`."""
        return self.graph._apply("mean", self, axis, keepdims=keepdims)

    def any(self, axis: Axes = None, *, keepdims: bool = False) -> Value:
        """Whether any element over `axis` is not zero, as bool; see `athanor.any`."""
        return self.graph._apply("any", self, axis, keepdims=keepdims)

    def all(self, axis: Axes = None, *, keepdims: bool = False) -> Value:
        """Whether no element over `axis` is zero, as bool; see `athanor.all`."""
        return self.graph._apply("all", self, axis, keepdims=keepdims)

    def var(self, axis: Axes = None, *, ddof: float = 0, keepdims: bool = False) -> Value:
        """The variance over `axis`, or all; see `athanor.var`."""
        return self.graph._apply("var", self, axis, ddof=ddof, keepdims=keepdims)

    def std(self, axis: Axes = None, *, ddof: float = 0, keepdims: bool = False) -> Value:
        """The standard deviation over `axis`, or all; see `athanor.std`."""
        return self.graph._apply("std", self, axis, ddof=ddof, keepdims=keepdims)

    def argmax(self, axis: int | None = None, *, keepdims: bool = False) -> Value:
        """Position of the maximum, i64; see `athanor.argmax`."""
        return self.graph._apply("argmax", self, axis, keepdims=keepdims)

    def argmin(self, axis: int | None = None, *, keepdims: bool = False) -> Value:
        """Position of the minimum, i64; see `athanor.argmin`."""
        return self.graph._apply("argmin", self, axis, keepdims=keepdims)

    def clip(self, min: Operand | None = None, max: Operand | None = None) -> Value:
        """Elements held within [min, max]; see `athanor.clip`."""
        return self.graph._apply("clip", self, min, max)


Operand: TypeAlias = Value | np.ndarray | np.generic | bool | int | float


def _listed(arguments: tuple[Any, ...]) -> Sequence[Any]:
    """Accepts both ``f(2, 3)`` and ``f((2, 3))``."""
    one = arguments[0] if len(arguments) == 1 else None
    return one if isinstance(one, Sequence) and not isinstance(one, str) else arguments


def type_text(node: Value) -> str:
    """Formats a type: ``f32[b, 64]``."""
    return f"{node.dtype}{shape_text(node._shape)}"


def shape_text(shape: Iterable[Expr]) -> str:
    """Formats a shape: ``[b, 64]``."""
    return f"[{', '.join(map(repr, shape))}]"
