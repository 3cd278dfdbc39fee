"""Resizing of spatial axes by nearest elements or linear interpolation.

Element i of a result lies at i * a / b of the operand's axis, for a ratio a / b of their sizes. All
positions are integers over integers, so no rounding moves an element.
"""

from __future__ import annotations

import fractions
from collections.abc import Sequence

import numpy as np

from athanor.arithmetic import add, cast, divide, maximum, mod, multiply, subtract, widened
from athanor.core import check_kind, expand_to, fail, index_map, operands, size_value
from athanor.expr import Expr, floor_div, maximum_of, minimum_of
from athanor.logic import equal, where
from athanor.movement import iota_like, reshape
from athanor.value import Size, Value

MODES = {"nearest": 0, "linear": 1, "bilinear": 2, "trilinear": 3}
# Largest part of a scale factor's fraction: positions stay far inside 64 bits.
MOST = 1 << 20


def _given(x: Value, what: str, value: object) -> list[object]:
    """Returns one entry per spatial axis."""
    rank = x.ndim - 2
    single = isinstance(value, int | float | str | Expr)
    listed: list[object] = [value] * rank if single else list(value)  # type: ignore[call-overload]
    if len(listed) != rank:
        raise fail("interpolate", [x], f"{what} has {len(listed)} entries; x has {rank} spatial "
                   "axes")
    return listed


def _factor(x: Value, value: object) -> fractions.Fraction:
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0 or (
            value > MOST):
        raise fail("interpolate", [x], f"scale_factor={value!r} must be a number above 0, at most "
                   f"{MOST}")
    ratio = fractions.Fraction(repr(value))
    if max(ratio.numerator, ratio.denominator) > MOST:
        ratio = fractions.Fraction(value).limit_denominator(MOST)
    if not 0 < ratio.numerator <= MOST:
        raise fail("interpolate", [x], f"scale_factor={value!r} is no fraction of numbers up to "
                   f"{MOST}; give size instead")
    return ratio


def _ratios(x: Value, size: object, scale_factor: object) -> list[tuple[Expr, Expr, Expr]]:
    """Returns per spatial axis the result's size, and the ratio of the operand's size to it."""
    if (size is None) == (scale_factor is None):
        raise fail("interpolate", [x], "give either size or scale_factor")
    result = []
    if size is not None:
        for own, value in zip(x._shape[2:], _given(x, "size", size), strict=True):
            out = x.graph._size(value, "interpolate")  # type: ignore[arg-type]
            if out.constant is not None and out.constant < 0:
                raise fail("interpolate", [x], f"size {out} must not be negative")
            result.append((out, own, out))
        return result
    for own, value in zip(x._shape[2:], _given(x, "scale_factor", scale_factor), strict=True):
        ratio = _factor(x, value)
        out = floor_div(own * ratio.numerator, Expr(ratio.denominator))
        result.append((out, Expr(ratio.denominator), Expr(ratio.numerator)))
    return result


def _taken(x: Value, axis: int, out: Expr, place: Expr) -> Value:
    """Returns elements of one axis, at `place` of the result's coordinate."""
    shape = [out if i == axis else size for i, size in enumerate(x._shape)]
    coordinates = [place if i == axis else Expr.axis(i) for i in range(x.ndim)]
    settled = out.constant is not None and x._shape[axis].constant is not None
    # The server need not prove that positions over dims are inside.
    fill = None if settled else False if x.dtype == "bool" else 0
    return index_map(x, shape, coordinates, fill=fill)


def _linear(x: Value, axis: int, out: Expr, a: Expr, b: Expr, align_corners: bool) -> Value:
    """Interpolates one axis: between two neighbours, each by its distance to the other."""
    size, at = x._shape[axis], Expr.axis(axis)
    if align_corners:
        step, start, parts = maximum_of(size - 1, 0), Expr(0), maximum_of(out - 1, 1)
    else:
        step, start, parts = 2 * a, a - b, 2 * b
    known = [e.constant for e in (out, step, start, parts) if e.constant is not None]
    place = maximum_of(at * step + start, 0) if not align_corners else at * step
    left = minimum_of(floor_div(place, parts), size - 1)
    low = _taken(x, axis, out, left)
    high = _taken(x, axis, out, minimum_of(left + 1, size - 1))
    if len(known) == 4:
        count, by, first, whole = known
        share = np.maximum(np.arange(count) * by + first, 0) % whole / whole
        weight = x.graph.constant(share.astype(x._dtype.numpy))
    else:
        values = [size_value(x, e, "i64") for e in (step, a, b, parts)]
        position = iota_like(x, [out]) * values[0]
        if not align_corners:
            position = maximum(add(position, subtract(values[1], values[2])), 0)
        weight = divide(cast(mod(position, values[3]), x.dtype), cast(values[3], x.dtype))
    shape = [out if i == axis else Expr(1) for i in range(x.ndim)]
    weight = expand_to(reshape(weight, shape), low._shape)
    return add(low, multiply(subtract(high, low), weight))


def _unless_it_stays(x: Value, axis: int, out: Expr, result: Value) -> Value:
    """Returns `x` where a request makes `out` the size that the axis has, else `result`."""
    size = x._shape[axis]
    filled = {name: (max(low, 1), max(high, 1)) for name, (low, high) in x.graph.dims.items()}
    low, high = (out - size).bounds(filled)
    if not low <= 0 <= high:
        return result
    stays = equal(size_value(x, size, "i64"), size_value(x, out, "i64"))
    return where(stays, _taken(x, axis, out, Expr.axis(axis)), result)


def interpolate(x: Value, size: Size | Sequence[Size] | None = None,
                scale_factor: float | Sequence[float] | None = None, mode: str = "nearest",
                *, align_corners: bool = False) -> Value:
    """Resizes the spatial axes of `x` ``[N, C, D1, ...]``, as torch.nn.functional.interpolate.

    Parameters
    ----------
    x : Value
        Of any computing dtype for ``"nearest"``, else floats; f16 and bf16 compute in f32 and round
        once.
    size : size or sequence of sizes
        Of the result, one for all spatial axes or one each; a size may be an expression. An axis
        that has no elements in a call gives zeros.
    scale_factor : float or sequence of float
        Instead of `size`: sizes grow by it, rounded down. It is taken as a fraction, 0.1 as 1/10.
        An axis that keeps its size, as 2 elements by 1.25 do, stays as it is.
    mode : str
        ``"nearest"``: the element at floor(i * old / new), exactly, where torch rounds the position
        to f32. ``"linear"``, ``"bilinear"`` or ``"trilinear"`` for 1, 2 or 3 spatial axes.
    align_corners : bool
        Linear modes: the first and last elements keep their places; by default elements are areas,
        whose edges align.

    Raises
    ------
    GraphError
        If sizes, mode and axes do not fit.
    """
    (x,) = operands("interpolate", x)
    if x.ndim < 3:
        raise fail("interpolate", [x], "x must have the axes [N, C] and spatial ones behind them")
    if mode not in MODES or MODES[mode] not in (0, x.ndim - 2):
        right = {3: '"linear"', 4: '"bilinear"', 5: '"trilinear"'}.get(x.ndim)
        raise fail("interpolate", [x], f"mode={mode!r} must be \"nearest\""
                   + (f" or {right}" if right else "") + f" for {x.ndim - 2} spatial axes")
    if mode == "nearest" and align_corners:
        raise fail("interpolate", [x], 'align_corners is for linear modes, not for "nearest"')
    check_kind("interpolate", [x], "computing" if mode == "nearest" else "floats")
    ratios = _ratios(x, size, scale_factor)
    result = x if mode == "nearest" else widened(x)
    for axis, (out, a, b) in enumerate(ratios, start=2):
        own = x._shape[axis]
        if own.constant == 0 and out != 0:
            raise fail("interpolate", [x], f"axis {axis} has no elements to make {out} of")
        if out == own:
            continue
        if mode == "nearest":
            made = _taken(result, axis, out, floor_div(Expr.axis(axis) * a, b))
        else:
            made = _linear(result, axis, out, a, b, align_corners)
        # Positions by a ratio of sizes, or by corners, leave such an axis as it is anyway.
        by_factor = size is None and not align_corners
        result = _unless_it_stays(result, axis, out, made) if by_factor else made
    return cast(result, x._dtype)
