"""Reshaping, repeating, joining, filling: every movement is one IndexMap.

Each raises `athanor.GraphError` with its name, its operands and what would be right.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from athanor.checks import is_int
from athanor.core import (
    attr_int,
    attr_shape,
    check_axes,
    check_axis,
    check_kind,
    check_size,
    element_count,
    expand_to,
    fail,
    index_map,
    misfit,
    number_array,
    operands,
    same_dtype,
    size_list,
    size_value,
)
from athanor.dtypes import DType, dtype_of
from athanor.expr import Expr, exact_div, expr, floor_div, product, provably_different
from athanor.logic import less, where
from athanor.value import Attr, Axes, Shape, Size, Value, shape_text


def _sizes(op: str, x: Value, shape: Size | Sequence[Size]) -> list[Expr]:
    return [x.graph._size(size, f"{op}({x.name})") for size in size_list(shape)]


def permute(x: Value, axes: Sequence[int]) -> Value:
    """Axis i of the result is axis ``axes[i]`` of `x`, as numpy.transpose; any dtype."""
    (x,) = operands("permute", x)
    order = [check_axis("permute", x, axis) for axis in axes]
    if sorted(order) != list(range(x.ndim)):
        raise fail("permute", [x], f"axes {list(axes)} must name each of the {x.ndim} axes once")
    return index_map(x, [x._shape[axis] for axis in order],
                     [Expr.axis(order.index(axis)) for axis in range(x.ndim)])


def transpose(x: Value, axes: Sequence[int] | None = None) -> Value:
    """`permute`; without `axes` all axes in reverse order; any dtype."""
    (x,) = operands("transpose", x)
    return permute(x, range(x.ndim)[::-1] if axes is None else axes)


def swapaxes(x: Value, axis1: int, axis2: int) -> Value:
    """Exchanges two axes; any dtype."""
    (x,) = operands("swapaxes", x)
    first, second = (check_axis("swapaxes", x, axis) for axis in (axis1, axis2))
    order = list(range(x.ndim))
    order[first], order[second] = second, first
    return permute(x, order)


def moveaxis(x: Value, source: int | Sequence[int], destination: int | Sequence[int]) -> Value:
    """Moves axes to other positions; the others keep their order; any dtype."""
    (x,) = operands("moveaxis", x)
    start, end = ([check_axis("moveaxis", x, axis) for axis in (
        axes if isinstance(axes, Iterable) else [axes])] for axes in (source, destination))
    if len(start) != len(end) or len({*start}) != len(start) or len({*end}) != len(end):
        raise fail("moveaxis", [x], f"source {source} and destination {destination} must name "
                   "equally many axes, each once")
    order = [axis for axis in range(x.ndim) if axis not in start]
    for to, axis in sorted(zip(end, start, strict=True)):
        order.insert(to, axis)
    return permute(x, order)


def expand(x: Value, shape: Size | Sequence[Size]) -> Value:
    """Repeats axes of size 1 and adds leading ones, as numpy.broadcast_to; -1 keeps a size; any
    dtype."""
    (x,) = operands("expand", x)
    sizes = _sizes("expand", x, shape)
    lead = len(sizes) - x.ndim
    if lead < 0:
        raise fail("expand", [x], f"to {shape_text(sizes)}: it needs at least {x.ndim} axes")
    for i, own in enumerate(x._shape):
        if sizes[lead + i] == -1:
            sizes[lead + i] = own
        if own != 1:
            check_size("expand", [x], f"axis {i}", own, sizes[lead + i])
    return expand_to(x, sizes)


def _check_reshape(x: Value, sizes: list[Expr]) -> None:
    unknown = [i for i, size in enumerate(sizes) if size == -1]
    total = element_count(x._shape)
    if len(unknown) > 1:
        raise fail("reshape", [x], f"to {shape_text(sizes)}: only one size may be -1")
    if unknown:
        rest = product(size for size in sizes if size != -1)
        missing = exact_div(total, rest)
        if missing is None:
            raise fail("reshape", [x], f"to {shape_text(sizes)}: {total} elements do not divide by "
                       f"{rest} for every size of the dims")
        sizes[unknown[0]] = missing
    elif provably_different(total, product(sizes)):
        raise fail("reshape", [x], f"to {shape_text(sizes)}: {total} elements become "
                   f"{product(sizes)}; the numbers must be equal")


def _groups(a: Shape, b: Sequence[Expr]) -> list[tuple[list[int], list[int]]]:
    """Returns runs of axes of `a` and of `b` with equal products, leaving out sizes of 1."""
    left = [i for i, size in enumerate(a) if size != 1]
    right = [i for i, size in enumerate(b) if size != 1]
    groups = []
    while left or right:
        ours, theirs = left[:1], right[:1]
        del left[:1], right[:1]
        while True:
            p, q = product(a[i] for i in ours), product(b[i] for i in theirs)
            if p == q or not (left or right):
                break
            if right and (not left or exact_div(p, q) is not None):
                theirs.append(right.pop(0))
            elif left and (not right or exact_div(q, p) is not None):
                ours.append(left.pop(0))
            else:
                ours.append(left.pop(0))
                theirs.append(right.pop(0))
        groups.append((ours, theirs))
    return groups


def reshape(x: Value, shape: Size | Sequence[Size]) -> Value:
    """Gives `x` another shape with the same elements in row-major order; one size may be -1; any
    dtype."""
    (x,) = operands("reshape", x)
    sizes = _sizes("reshape", x, shape)
    _check_reshape(x, sizes)
    coordinates = [Expr(0)] * x.ndim
    if element_count(x._shape) == 0:
        return index_map(x, sizes, coordinates)
    # Within a group, the result's coordinates give the flat position, and that the operand's
    # digits.
    for ours, theirs in _groups(x._shape, sizes):
        flat = Expr(0)
        for i in theirs:
            flat = flat * sizes[i] + Expr.axis(i)
        if len(ours) == 1:
            coordinates[ours[0]] = flat
            continue
        for position, i in enumerate(ours):
            digit = floor_div(flat, product(x._shape[j] for j in ours[position + 1:]))
            if position > 0:
                above = floor_div(flat, product(x._shape[j] for j in ours[position:]))
                digit = digit - above * x._shape[i]
            coordinates[i] = digit
    return index_map(x, sizes, coordinates)


def flatten(x: Value, start: int = 0) -> Value:
    """Merges the axes from `start` on into one; any dtype."""
    (x,) = operands("flatten", x)
    start = check_axis("flatten", x, start) if x.ndim else 0
    return reshape(x, [*x._shape[:start], element_count(x._shape[start:])])


def squeeze(x: Value, axis: Axes = None) -> Value:
    """Removes axes of size 1: all of them, or those listed; any dtype."""
    (x,) = operands("squeeze", x)
    dropped = ([i for i, s in enumerate(x._shape) if s == 1] if axis is None
               else check_axes("squeeze", x, axis))
    for i in dropped:
        if x._shape[i] != 1:
            raise fail("squeeze", [x], f"axis {i} has size {x._shape[i]}, not 1")
    return reshape(x, [s for i, s in enumerate(x._shape) if i not in dropped])


def unsqueeze(x: Value, axis: int) -> Value:
    """Adds an axis of size 1 at `axis` of the result; any dtype."""
    (x,) = operands("unsqueeze", x)
    axis = check_axis("unsqueeze", x, axis, x.ndim + 1)
    return reshape(x, [*x._shape[:axis], Expr(1), *x._shape[axis:]])


def pad(x: Value, widths: int | Sequence[int] | Sequence[Sequence[int]],
        value: float | int | bool = 0) -> Value:
    """Adds elements of `value`, a number of x's dtype, to each axis, as numpy.pad.

    `widths` is ``(before, after)`` of each axis, one such pair for all, or one number.
    """
    (x,) = operands("pad", x)
    if isinstance(widths, Iterator):
        widths = list(widths)
    pairs = None
    with contextlib.suppress(ValueError):
        if all(is_int(n, range(1 << 63)) for n in np.asarray(widths).ravel().tolist()):
            pairs = np.broadcast_to(np.asarray(widths), (x.ndim, 2)).tolist()
    if pairs is None:
        raise fail("pad", [x], f"widths={widths!r} must be {x.ndim} pairs of sizes, none negative, "
                   "one pair or one size")
    shape = [size + before + after
             for size, (before, after) in zip(x._shape, pairs, strict=True)]
    coordinates = [Expr.axis(i) - before for i, (before, _) in enumerate(pairs)]
    if x.dtype == "bool":
        value = bool(value)
    return index_map(x, shape, coordinates, fill=value)


def tile(x: Value, reps: Size | Sequence[Size]) -> Value:
    """Repeats all of `x` along each axis, as numpy.tile; any dtype.

    More `reps` than axes add leading ones.
    """
    (x,) = operands("tile", x)
    times = _sizes("tile", x, reps)
    if any(count.constant is not None and count.constant < 0 for count in times):
        raise fail("tile", [x], f"reps {shape_text(times)} must not be negative")
    lead = len(times) - x.ndim
    times = [Expr(1)] * -lead + times
    own = (Expr(1),) * lead + x._shape
    coordinates = [Expr.axis(i) if count == 1 else Expr.axis(i) % size if size else Expr(0)
                   for i, (size, count) in enumerate(zip(own, times, strict=True))]
    shape = [size * count for size, count in zip(own, times, strict=True)]
    return index_map(x, shape, coordinates[max(lead, 0):])


def repeat(x: Value, repeats: Size, axis: int | None = None) -> Value:
    """Repeats each element along `axis`, as numpy.repeat; None repeats all, flattened; any
    dtype."""
    (x,) = operands("repeat", x)
    if axis is None:
        x, axis = flatten(x), 0
    axis = check_axis("repeat", x, axis)
    (count,) = _sizes("repeat", x, repeats)
    if count.constant is not None and count.constant < 0:
        raise fail("repeat", [x], f"repeats={count} must not be negative")
    coordinates = [Expr.axis(i) for i in range(x.ndim)]
    coordinates[axis] = floor_div(Expr.axis(axis), count) if count else Expr(0)
    return index_map(x, [size * count if i == axis else size for i, size in enumerate(x._shape)],
                     coordinates)


def concat(values: Sequence[Value], axis: int = 0) -> Value:
    """Joins values along an axis; dtypes and all other sizes must be equal."""
    if not values:
        raise fail("concat", [], "at least one value is needed")
    nodes = operands("concat", *values)
    same_dtype("concat", nodes)
    first = nodes[0]
    axis = check_axis("concat", first, axis)
    total = Expr(0)
    offsets = []
    for node in nodes:
        if node.ndim != first.ndim:
            raise fail("concat", nodes, "the operands must have equally many axes")
        for i in range(first.ndim):
            if i != axis:
                check_size("concat", nodes, f"axis {i}", first._shape[i], node._shape[i])
        offsets.append(total)
        total = total + node._shape[axis]
    if len(nodes) == 1:
        return first
    shape = [total if i == axis else size for i, size in enumerate(first._shape)]
    zero = False if first.dtype == "bool" else 0
    spread = [index_map(node, shape,
                        [Expr.axis(i) - (offset if i == axis else 0) for i in range(first.ndim)],
                        fill=zero)
              for node, offset in zip(nodes, offsets, strict=True)]
    position = iota_like(first, shape, axis)
    result = spread[-1]
    for node, end in zip(spread[-2::-1], offsets[:0:-1], strict=True):
        result = where(less(position, size_value(first, end, "i64")), node, result)
    return result


concatenate = concat  # numpy has both names


def stack(values: Sequence[Value], axis: int = 0) -> Value:
    """Joins values of one shape along a new axis; dtypes must be equal."""
    return concat([unsqueeze(value, axis) for value in values], axis)


def iota_like(x: Value, shape: Sequence[Expr | int], axis: int = 0, dtype: str = "i64") -> Value:
    """0, 1, 2, ... along one axis of `shape`, in the graph of `x`."""
    row = dtype_of(dtype)
    sizes = [expr(size) for size in shape]
    return x.graph._add("Iota", [], {"shape": attr_shape(sizes), "axis": attr_int(axis),
                                     "dtype": Attr(dtype=row.name)}, row, sizes)


def full_like(x: Value, value: float | int | bool, dtype: str | DType | None = None) -> Value:
    """`value` in the shape of `x`, and in its dtype if no other is given."""
    (x,) = operands("full_like", x)
    row = x._dtype if dtype is None else dtype_of(dtype)
    text = misfit(row, value)
    if text:
        raise fail("full_like", [x], text)
    return index_map(x.graph._constant(row, number_array(row, value)), x._shape, [])


def zeros_like(x: Value, dtype: str | DType | None = None) -> Value:
    """Zeros, or False, in the shape of `x`, and in its dtype if no other is given."""
    return full_like(x, False if dtype_of(dtype or x.dtype).kind == "bool" else 0, dtype)


def ones_like(x: Value, dtype: str | DType | None = None) -> Value:
    """Ones, or True, in the shape of `x`, and in its dtype if no other is given."""
    return full_like(x, True if dtype_of(dtype or x.dtype).kind == "bool" else 1, dtype)


def _triangle(op: str, x: Value, k: int, lower: bool) -> Value:
    (x,) = operands(op, x)
    check_kind(op, [x], "computing")
    if x.ndim < 2:
        raise fail(op, [x], "x must have at least 2 axes")
    if not is_int(k):
        raise fail(op, [x], f"k={k!r} must be an integer")
    matrix = x._shape[-2:]
    row, column = (iota_like(x, matrix, i) for i in (0, 1))
    # Of positions (row, column), those up to diagonal k are below its end.
    below = less(column, row + (int(k) + (1 if lower else 0)))
    below = expand_to(below, x._shape)
    zeros = zeros_like(x)
    return where(below, x, zeros) if lower else where(below, zeros, x)


def tril(x: Value, k: int = 0) -> Value:
    """The lower triangle of the last two axes up to diagonal `k`, zeros above it; floats, integers,
    bools."""
    return _triangle("tril", x, k, lower=True)


def triu(x: Value, k: int = 0) -> Value:
    """The upper triangle of the last two axes from diagonal `k` on, zeros below it; floats,
    integers, bools."""
    return _triangle("triu", x, k, lower=False)
