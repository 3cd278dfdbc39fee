"""Parts of values: slices, cuts, and elements at positions that are values themselves.

Each raises `athanor.GraphError` with its name, its operands and what would be right.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from athanor.arithmetic import cast
from athanor.checks import is_int
from athanor.core import (
    attr_int,
    check_axes,
    check_axis,
    check_kind,
    check_size,
    element_count,
    expand_to,
    fail,
    index_map,
    make,
    operands,
    same_dtype,
    scalar_like,
    size_value,
)
from athanor.expr import Expr, exact_div, expr, floor_div
from athanor.logic import bitwise_and, invert, less, where
from athanor.movement import flatten, iota_like, moveaxis, reshape
from athanor.value import Attr, Axes, Operand, Value, shape_text


def _slice_bound(x: Value, axis: int, value: object, size: Expr, default: Expr) -> Expr:
    """Returns a start or stop of a forward slice, counted from the front, inside [0, size] for
    every dim."""
    if value is None:
        return default
    if not isinstance(value, int | Expr | np.integer):
        raise fail("slice", [x], f"axis {axis}: {value!r} must be an integer, a size or None")
    bound = expr(value)
    if not isinstance(value, Expr) and value < 0:
        bound = size + bound
    if size.constant is not None and bound.constant is not None:
        return Expr(min(max(bound.constant, 0), size.constant))
    if bound.bounds(x.graph.dims)[0] < 0 or (size - bound).bounds(x.graph.dims)[0] < 0:
        raise fail("slice", [x], f"axis {axis} of size {size}: position {value!r} is not inside it "
                   "for every size of the dims; tighten the dims' bounds")
    return bound


def _slice(x: Value, axis: int, part: slice, size: Expr) -> tuple[Expr, Expr, int]:
    """Returns first position, length and step."""
    step = 1 if part.step is None else part.step
    if not is_int(step) or step == 0:
        raise fail("slice", [x], f"axis {axis}: step {step!r} must be an integer other than 0")
    if step < 0:
        if size.constant is not None:
            chosen = range(*part.indices(size.constant))
            return Expr(chosen.start), Expr(len(chosen)), step
        if part.start is not None or part.stop is not None:
            raise fail("slice", [x], f"axis {axis} of size {size}: a negative step with a start or "
                       "stop needs a fixed size; slice forwards first, then reverse with [::-1]")
        return size - 1, -floor_div(-size, Expr(-step)), step
    start = _slice_bound(x, axis, part.start, size, Expr(0))
    stop = _slice_bound(x, axis, part.stop, size, size)
    length = stop - start
    low, high = length.bounds(x.graph.dims)
    if high <= 0:
        return Expr(0), Expr(0), 1
    if low < 0:
        raise fail("slice", [x], f"axis {axis}: length {length} is negative for some sizes of the "
                   "dims; tighten the dims' bounds")
    return start, length if step == 1 else -floor_div(-length, Expr(step)), step


def index(x: Value, key: object) -> Value:
    """``x[key]``: integers, slices, None, ``...``, or one integer Value (a gather of axis 0)."""
    (x,) = operands("index", x)
    if getattr(key, "dtype", None) == "bool":
        raise fail("index", [x], "a bool mask would give a size that is known only when it runs; "
                   "use athanor.where(mask, x, other)")
    if isinstance(key, Value):
        return gather(x, key, 0)
    keys = list(key) if isinstance(key, tuple) else [key]
    used = sum(1 for k in keys if k is not None and k is not Ellipsis)
    dots = [i for i, k in enumerate(keys) if k is Ellipsis]
    if used > x.ndim or len(dots) > 1:
        raise fail("index", [x], f"{used} positions and {len(dots)} ellipses; at most {x.ndim} and "
                   "1")
    at = dots[0] if dots else len(keys)
    keys[at:at + 1] = [slice(None)] * (x.ndim - used)
    shape: list[Expr] = []
    coordinates: list[Expr] = []
    for k in keys:
        if k is None:
            shape.append(Expr(1))
            continue
        axis = len(coordinates)
        size = x._shape[axis]
        if isinstance(k, slice):
            start, length, step = _slice(x, axis, k, size)
            coordinates.append(start + Expr.axis(len(shape)) * step)
            shape.append(length)
        elif is_int(k):
            position = expr(k) if k >= 0 else size + k
            if position.bounds(x.graph.dims)[0] < 0 or (
                    size - 1 - position).bounds(x.graph.dims)[0] < 0:
                raise fail("index", [x], f"position {k} is outside axis {axis} of size {size} for "
                           "some size of the dims")
            coordinates.append(position)
        else:
            raise fail("index", [x], f"{k!r} is not an index; use integers, slices, None or ..., "
                       "or athanor.gather for an array of positions")
    return index_map(x, shape, coordinates)


def flip(x: Value, axis: Axes = None) -> Value:
    """Reverses `x` along `axis`, or along all; any dtype."""
    (x,) = operands("flip", x)
    chosen = check_axes("flip", x, axis)
    return index(x, tuple(slice(None, None, -1) if i in chosen else slice(None)
                          for i in range(x.ndim)))


def split(x: Value, sections: int | Sequence[int | Expr], axis: int = 0) -> list[Value]:
    """Cuts `x` along `axis` into parts, as numpy.split; any dtype.

    Parameters
    ----------
    sections : int or sequence of sizes
        The number of equal parts, which must divide the axis for every size of its dims; or the
        positions at which it is cut.

    Raises
    ------
    GraphError
        If the axis cannot be cut so.
    """
    (x,) = operands("split", x)
    axis = check_axis("split", x, axis)
    size = x._shape[axis]
    if isinstance(sections, int | np.integer):
        part = exact_div(size, Expr(int(sections))) if sections > 0 else None
        if part is None:
            raise fail("split", [x], f"axis {axis} of size {size} does not have {sections} equal "
                       "parts for every size of the dims")
        cuts = [part * i for i in range(1, int(sections))]
    else:
        cuts = list(map(expr, sections))
    edges = [None, *cuts, None]
    around = (slice(None),) * axis
    return [index(x, (*around, slice(*edges[i:i + 2]))) for i in range(len(cuts) + 1)]


def take_rows(x: Value, indices: Value, axis: int) -> Value:
    """Takes elements along `axis`, for each row other ones; every index must be inside."""
    last = x.ndim - 1
    x, indices = moveaxis(x, axis, last), moveaxis(indices, axis, last)
    rows, width = element_count(x._shape[:last]), x._shape[last]
    start = iota_like(x, [rows, Expr(1)]) * size_value(x, width, "i64")
    flat = reshape(indices, [rows, indices._shape[last]]) + expand_to(
        start, [rows, indices._shape[last]])
    taken = reshape(gather(flatten(x), flat), indices._shape)
    return moveaxis(taken, last, axis)


def take_along_axis(x: Value, indices: Operand, axis: int | None = -1) -> Value:
    """numpy.take_along_axis: for each row along `axis` the elements that its own indices name.

    Parameters
    ----------
    x : Value
        Of any dtype.
    indices : Value or array
        Integers from 0, of x's rank and sizes but for `axis`; one outside is an error of the call.
    axis : int, optional
        None: of all elements, flattened; `indices` has one axis then.

    Raises
    ------
    GraphError
        If shapes do not fit, or indices are no integers.
    """
    x, indices = nodes = operands("take_along_axis", x, indices)
    check_kind("take_along_axis", [indices], "integers")
    if axis is None:
        x, axis = flatten(x), 0
    axis = check_axis("take_along_axis", x, axis)
    if indices.ndim != x.ndim:
        raise fail("take_along_axis", nodes, f"indices must have {x.ndim} axes")
    for i, (own, other) in enumerate(zip(x._shape, indices._shape, strict=True)):
        if i != axis:
            check_size("take_along_axis", nodes, f"axis {i}", own, other)
    width = size_value(x, x._shape[axis], "i64")
    place = cast(indices, "i64")
    # An index outside its row must not reach the next one.
    inside = bitwise_and(less(place, width), invert(less(place, 0)))
    return take_rows(x, where(inside, place, scalar_like(place, -2**62)), axis)


def gather(data: Value, indices: Operand, axis: int = 0) -> Value:
    """``numpy.take(data, indices, axis)``; data of any dtype, indices integers from 0.

    The axes of `indices` stand in place of `axis`. An index outside is an error of the call.
    """
    nodes = operands("Gather", data, indices)
    data, indices = nodes
    axis = check_axis("Gather", data, axis)
    check_kind("Gather", [indices], "integers")
    shape = [*data._shape[:axis], *indices._shape, *data._shape[axis + 1:]]
    return make("Gather", nodes, data._dtype, shape, axis=attr_int(axis))


def scatter(data: Value, indices: Operand, updates: Operand, axis: int = 0,
            mode: str = "set") -> Value:
    """`data` with `updates` put at `indices` of `axis`; `mode` is set, add, mul, max or min.

    `updates` has the dtype of `data`, and its shape with the axes of `indices`, integers, in place
    of `axis`. Of equal indices the last one counts, or all are combined.
    """
    nodes = operands("Scatter", data, indices, updates)
    data, indices, updates = nodes
    axis = check_axis("Scatter", data, axis)
    if mode not in ("set", "add", "mul", "max", "min"):
        raise fail("Scatter", nodes,
                   f'mode={mode!r} must be "set", "add", "mul", "max" or "min"')
    check_kind("Scatter", [data], "numeric" if mode in ("add", "mul") else "computing")
    check_kind("Scatter", [indices], "integers")
    same_dtype("Scatter", [data, updates])
    place = [*data._shape[:axis], *indices._shape, *data._shape[axis + 1:]]
    if updates.ndim == 0 and place:
        nodes[2] = updates = index_map(updates, place, [])
    if len(place) != updates.ndim:
        raise fail("Scatter", nodes, f"updates must have the shape {shape_text(place)}")
    for i, (want, got) in enumerate(zip(place, updates._shape, strict=True)):
        check_size("Scatter", nodes, f"axis {i} of updates", want, got)
    return make("Scatter", nodes, data._dtype, data._shape, axis=attr_int(axis), mode=Attr(s=mode))
