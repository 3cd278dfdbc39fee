"""Reductions over axes, orders along an axis, running sums.

Each raises `athanor.GraphError` with its name, its operand and what would be right: for an axis
that is not there or comes twice, or a dtype that it does not take.
"""

from __future__ import annotations

import math

from athanor.arithmetic import absolute, add, cast, divide, maximum, negative, subtract, widened
from athanor.core import (
    attr_int,
    attr_ints,
    attr_shape,
    check_axes,
    check_axis,
    check_kind,
    element_count,
    fail,
    make,
    operands,
    scalar_like,
    size_value,
)
from athanor.elementwise import exp, log, sqrt
from athanor.expr import Expr
from athanor.indexing import take_rows
from athanor.logic import bitwise_or, invert, isnan, less, where
from athanor.movement import flatten, iota_like, reshape
from athanor.value import Attr, Axes, Value


def _reduce(op: str, x: Value, axes: Axes, keepdims: bool, kind: str) -> Value:
    (x,) = operands(op, x)
    check_kind(op, [x], kind)
    chosen = check_axes(op, x, axes)
    kept = [size for i, size in enumerate(x._shape) if i not in chosen]
    result = make(op, [x], x._dtype, kept, axes=attr_ints(chosen)) if chosen else x
    if not keepdims:
        return result
    return reshape(result, [Expr(1) if i in chosen else s for i, s in enumerate(x._shape)])


def sum(x: Value, axis: Axes = None, *, keepdims: bool = False) -> Value:  # noqa: A001
    """The sum over `axis` (None: all) in the dtype of `x`; f16 and bf16 accumulate in f32."""
    return _reduce("SumReduce", x, axis, keepdims, "numeric")


def max(x: Value, axis: Axes = None, *, keepdims: bool = False) -> Value:  # noqa: A001
    """The maximum over `axis`; NaN if any is NaN; of nothing -inf, the least integer or False."""
    return _reduce("MaxReduce", x, axis, keepdims, "computing")


def min(x: Value, axis: Axes = None, *, keepdims: bool = False) -> Value:  # noqa: A001
    """The minimum over `axis`; NaN if any is NaN; of nothing +inf, the largest integer or True."""
    (x,) = operands("min", x)
    # Flipping every bit reverses the order of integers and bools without an overflow.
    turn = negative if x._dtype.kind == "float" else invert
    return turn(max(turn(x), axis, keepdims=keepdims))


def prod(x: Value, axis: Axes = None, *, keepdims: bool = False) -> Value:
    """The product over `axis` (None: all) in the dtype of `x`; f16 and bf16 accumulate in f32."""
    return _reduce("MulReduce", x, axis, keepdims, "numeric")


def any(x: Value, axis: Axes = None, *, keepdims: bool = False) -> Value:  # noqa: A001
    """Whether any element over `axis` (None: all) is not 0, as bool; NaN is; of nothing False."""
    (x,) = operands("any", x)
    check_kind("any", [x], "computing")
    return max(cast(x, "bool"), axis, keepdims=keepdims)


def all(x: Value, axis: Axes = None, *, keepdims: bool = False) -> Value:  # noqa: A001
    """Whether no element over `axis` (None: all) is 0, as bool; NaN is not; of nothing True."""
    (x,) = operands("all", x)
    check_kind("all", [x], "computing")
    return min(cast(x, "bool"), axis, keepdims=keepdims)


def mean(x: Value, axis: Axes = None, *, keepdims: bool = False) -> Value:
    """The mean over `axis`; floats. f16 and bf16 compute in f32 and round once; of nothing NaN."""
    (x,) = operands("mean", x)
    check_kind("mean", [x], "floats")
    wide = widened(x)
    count = element_count(x._shape[i] for i in check_axes("mean", x, axis))
    total = sum(wide, axis, keepdims=keepdims)
    return cast(divide(total, size_value(wide, count, wide.dtype)), x._dtype)


def _variance(op: str, x: Value, axis: Axes, ddof: float, keepdims: bool) -> Value:
    """Returns the variance in the dtype that f16 and bf16 compute in."""
    check_kind(op, [x], "floats")
    if isinstance(ddof, bool) or not isinstance(ddof, int | float) or not math.isfinite(ddof):
        raise fail(op, [x], f"ddof={ddof!r} must be a finite number")
    wide = widened(x)
    centred = subtract(wide, mean(wide, axis, keepdims=True))
    total = sum(centred * centred, axis, keepdims=keepdims)
    count = size_value(wide, element_count(x._shape[i] for i in check_axes(op, x, axis)),
                       wide.dtype)
    return divide(total, maximum(subtract(count, float(ddof)), 0.0) if ddof else count)


def var(x: Value, axis: Axes = None, *, ddof: float = 0, keepdims: bool = False) -> Value:
    """The sum of squared differences from the mean, over the number of elements along
    `axis` less `ddof`; floats. f16 and bf16 compute in f32 and round once."""
    (x,) = operands("var", x)
    return cast(_variance("var", x, axis, ddof, keepdims), x._dtype)


def std(x: Value, axis: Axes = None, *, ddof: float = 0, keepdims: bool = False) -> Value:
    """The square root of `var` over `axis`; floats."""
    (x,) = operands("std", x)
    return cast(sqrt(_variance("std", x, axis, ddof, keepdims)), x._dtype)


def logsumexp(x: Value, axis: Axes = None, *, keepdims: bool = False) -> Value:
    """log(sum(exp(x))) over `axis` without overflow; floats; of nothing -inf.

    f16 and bf16 compute in f32 and round once.
    """
    (x,) = operands("logsumexp", x)
    check_kind("logsumexp", [x], "floats")
    wide = widened(x)
    peak = max(wide, axis, keepdims=True)
    # An infinite peak is not subtracted from itself.
    peak = where(less(absolute(peak), math.inf), peak, scalar_like(peak, 0.0))
    total = log(sum(exp(subtract(wide, peak)), axis, keepdims=True))
    result = add(total, peak)
    if not keepdims:
        dropped = check_axes("logsumexp", x, axis)
        result = reshape(result, [s for i, s in enumerate(x._shape) if i not in dropped])
    return cast(result, x._dtype)


def _along(op: str, x: Value, axis: int | None) -> tuple[Value, int]:
    """Returns an operand and its axis; for None the flattened operand, as numpy does."""
    (x,) = operands(op, x)
    return (flatten(x), 0) if axis is None else (x, check_axis(op, x, axis))


def argmax(x: Value, axis: int | None = None, *, keepdims: bool = False) -> Value:
    """Position of the maximum along `axis`, i64; the lowest among equals, the first NaN if any.

    Floats, integers and bools. None: the position among all elements in row-major order.
    """
    (x,) = operands("argmax", x)
    if axis is None:
        found = argmax(flatten(x), 0)
        return reshape(found, [1] * x.ndim) if keepdims else found
    peak = max(x, axis, keepdims=True)
    hit = invert(less(x, peak))
    if x._dtype.kind == "float":
        unordered = isnan(peak)
        hit = where(unordered, isnan(x), bitwise_or(hit, unordered))
    axis = check_axis("argmax", x, axis)
    position = iota_like(x, x._shape, axis)
    return min(where(hit, position, size_value(x, x._shape[axis], "i64")), axis, keepdims=keepdims)


def argmin(x: Value, axis: int | None = None, *, keepdims: bool = False) -> Value:
    """Position of the minimum along `axis`, i64; floats, integers and bools; otherwise as
    `argmax`."""
    (x,) = operands("argmin", x)
    turned = negative(x) if x._dtype.kind == "float" else invert(x)
    return argmax(turned, axis, keepdims=keepdims)


def argsort(x: Value, axis: int | None = -1, *, descending: bool = False) -> Value:
    """Positions in the order of the elements along `axis`, i64; equal ones stay in their order.

    Floats, integers and bools. NaN is above all numbers, as in numpy: last, or first if
    `descending`. None sorts all elements.
    """
    x, axis = _along("Sort", x, axis)
    check_kind("Sort", [x], "computing")
    return make("Sort", [x], "i64", x._shape, axis=attr_int(axis),
                descending=Attr(b=bool(descending)))


def sort(x: Value, axis: int | None = -1, *, descending: bool = False) -> Value:
    """The elements in order along `axis`, in their dtype; see `argsort`."""
    x, axis = _along("Sort", x, axis)
    return take_rows(x, argsort(x, axis, descending=descending), axis)


def top_k(x: Value, k: int, axis: int = -1, largest: bool = True) -> Value:
    """Positions of the `k` largest or smallest elements along `axis`, in order, i64.

    Floats, integers and bools. Of equal elements those of the lowest positions; NaN is above all
    numbers. `k` must be at most the size of the axis for every size of its dims.
    """
    (x,) = operands("TopK", x)
    check_kind("TopK", [x], "computing")
    axis = check_axis("TopK", x, axis)
    shape = [Expr(k) if i == axis else size for i, size in enumerate(x._shape)]
    return make("TopK", [x], "i64", shape, axis=attr_int(axis), k=attr_shape([Expr(k)]),
               largest=Attr(b=bool(largest)))


def _cumulate(op: str, x: Value, axis: int | None, exclusive: bool, reverse: bool) -> Value:
    x, axis = _along("Cumulate", x, axis)
    check_kind("Cumulate", [x], "numeric")
    return make("Cumulate", [x], x._dtype, x._shape, axis=attr_int(axis), op=Attr(s=op),
                exclusive=Attr(b=bool(exclusive)), reverse=Attr(b=bool(reverse)))


def cumsum(x: Value, axis: int | None = None, *, exclusive: bool = False,
           reverse: bool = False) -> Value:
    """Running sums along `axis`, None: of all elements in row-major order; floats and integers.

    `exclusive` leaves out the element itself, `reverse` starts from the last. f16 and bf16
    accumulate in f32.
    """
    return _cumulate("add", x, axis, exclusive, reverse)


def cumprod(x: Value, axis: int | None = None, *, exclusive: bool = False,
            reverse: bool = False) -> Value:
    """Running products along `axis`, otherwise like `cumsum`; floats and integers."""
    return _cumulate("mul", x, axis, exclusive, reverse)
