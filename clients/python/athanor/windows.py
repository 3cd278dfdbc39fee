"""Convolutions and pools: windows that slide over the spatial axes behind ``[N, C]``.

Each raises `athanor.GraphError` with its name, its operands and what would be right.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from athanor.checks import is_int
from athanor.core import (
    attr_int,
    attr_ints,
    attr_shape,
    check_kind,
    check_size,
    fail,
    index_map,
    make,
    operands,
    same_dtype,
)
from athanor.expr import Expr, expr, floor_div
from athanor.value import Attr, Shape, Value

Steps = int | Sequence[int]
Size = int | Expr
Padding = Size | Sequence[Size | tuple[Size, Size]]


def _rank(op: str, nodes: Sequence[Value]) -> int:
    rank = nodes[0].ndim - 2
    if not 1 <= rank <= 6:
        raise fail(op, nodes, "the first operand must have the axes [N, C] and 1 to 6 spatial ones "
                   "behind them")
    return rank


def _per_axis(value: Any, count: int) -> list[Any]:
    """Returns one entry for each of `count` axes: one size stands for all."""
    return [value] * count if isinstance(value, Expr) or is_int(value) else list(value)


def _steps(op: str, nodes: Sequence[Value], what: str, steps: Steps) -> list[int]:
    """Returns one number per spatial axis, each at least 1."""
    rank = _rank(op, nodes)
    listed = _per_axis(steps, rank)
    if len(listed) != rank or not all(is_int(step, range(1, 1 << 63)) for step in listed):
        raise fail(op, nodes, f"{what}={steps!r} must be an integer of 1 or more, or {rank} of "
                   "them, one per spatial axis")
    return listed


class _Window:
    """Positions of windows: the attributes, and the sizes that follow from them."""

    def __init__(self, op: str, nodes: Sequence[Value], kernel: Shape, strides: Steps,
                 padding: Padding, dilations: Steps) -> None:
        rank = _rank(op, nodes)
        self.strides = _steps(op, nodes, "strides", strides)
        self.dilations = _steps(op, nodes, "dilations", dilations)
        pairs = [_per_axis(p, 2) for p in _per_axis(padding, rank)]
        if len(pairs) != rank or any(len(pair) != 2 for pair in pairs):
            raise fail(op, nodes, f"padding={padding!r} must be a size, or {rank} of them, one per "
                       "spatial axis, or pairs (before, after)")
        self.begin = [expr(before) for before, _ in pairs]
        self.padded = [size + before + after for size, (before, after)
                       in zip(nodes[0]._shape[2:], pairs, strict=True)]
        self.out = []
        for i, size in enumerate(self.padded):
            reach = (kernel[i] - 1) * self.dilations[i] + 1
            room = size - reach
            if room.constant is not None and room.constant < 0:
                raise fail(op, nodes, f"spatial axis {i} has {size} elements with its padding, a "
                           f"window reaches over {reach}; it must fit")
            self.out.append(floor_div(room, Expr(self.strides[i])) + 1)

    def attrs(self) -> dict[str, Attr]:
        return {"strides": attr_ints(self.strides), "dilations": attr_ints(self.dilations),
                "begin": attr_shape(self.begin), "out": attr_shape(self.out)}


def conv(x: Value, w: object, *, strides: Steps = 1, padding: Padding = 0, dilations: Steps = 1,
         groups: int = 1) -> Value:
    """The convolution of `x` by `w` (the kernel is not flipped); floats and integers.

    Parameters
    ----------
    x : Value
        ``[N, C, D1, ...]`` with 1 to 6 spatial axes of any sizes.
    w : Value
        ``[M, C // groups, K1, ...]``; the result is ``[N, M, O1, ...]``.
    strides, dilations : int or sequence of int
        Steps of the window, and steps between its elements.
    padding : size, or sequence of sizes or (before, after)
        Zeros around `x` per spatial axis; negative ones crop. A size may be an expression.
    groups : int
        Groups of channels, each convolved on its own; `C` groups of one are a depthwise one.

    Raises
    ------
    GraphError
        If channels do not fit the groups, or a window is larger than the padded input.
    """
    nodes = operands("Conv", x, w)
    dtype = same_dtype("Conv", nodes)
    check_kind("Conv", nodes, "numeric")
    _rank("Conv", nodes)
    if nodes[1].ndim != nodes[0].ndim:
        raise fail("Conv", nodes, f"w must have {nodes[0].ndim} axes, [M, C // groups, ...kernel]")
    if not is_int(groups, range(1, 1 << 63)):
        raise fail("Conv", nodes, f"groups={groups!r} must be an integer of 1 or more")
    check_size("Conv", nodes, "channels of x, and groups times those of w", nodes[0]._shape[1],
               nodes[1]._shape[1] * groups)
    maps = nodes[1]._shape[0]
    if maps.constant is not None and maps.constant % groups:
        raise fail("Conv", nodes, f"groups={groups} does not divide the {maps} results of w")
    window = _Window("Conv", nodes, nodes[1]._shape[2:], strides, padding, dilations)
    return make("Conv", nodes, dtype, [nodes[0]._shape[0], maps, *window.out], **window.attrs(),
               group=attr_int(groups))


def _spread(x: Value, strides: Sequence[int]) -> Value:
    """Returns the elements of `x` `strides` apart on each spatial axis, with zeros between."""
    shape, at = list(x._shape[:2]), [Expr.axis(0), Expr.axis(1)]
    for i, stride in enumerate(strides, start=2):
        shape.append((x._shape[i] - 1) * stride + 1)
        # Positions that are no multiple of the stride are taken from beyond the axis' end.
        at.append(Expr.axis(i) // stride + x._shape[i] * (Expr.axis(i) % stride))
    return index_map(x, shape, at, fill=0)


def _phases(w: Value, groups: int, strides: Sequence[int], kernel: Sequence[int]) -> Value:
    """Returns ``[C, M // groups, K1, ...]`` as ``[M * phases, C // groups, ...]``, turned round:
    the kernel of each position between two elements that are `strides` apart."""
    maps, inside = w._shape[1], floor_div(w._shape[0], Expr(groups))
    phases = math.prod(strides)
    flat, phase = Expr.axis(0), Expr.axis(0) % phases
    at = [flat // (maps * phases) * inside + Expr.axis(1), flat // phases % maps]
    for i, stride in enumerate(strides):
        own = phase // math.prod(strides[i + 1:]) % stride
        at.append(own + (kernel[i] - 1 - Expr.axis(i + 2)) * stride)
    return index_map(w, [maps * groups * phases, inside, *kernel], at, fill=0)


def _cuts(op: str, nodes: Sequence[Value], padding: int | Sequence[int | tuple[int, int]],
          rank: int) -> list[tuple[int, int]]:
    """Returns what is cut before and behind each spatial axis."""
    pairs = [_per_axis(p, 2) for p in _per_axis(padding, rank)]
    if len(pairs) != rank or not all(len(pair) == 2 and all(is_int(p, range(1 << 63)) for p in pair)
                                     for pair in pairs):
        raise fail(op, nodes, f"padding={padding!r} must be an integer of 0 or more, or {rank} of "
                   "them, one per spatial axis, or pairs (before, after)")
    return [(pair[0], pair[1]) for pair in pairs]


def conv_transpose(x: Value, w: object, *, strides: Steps = 1,
                   padding: int | Sequence[int | tuple[int, int]] = 0, output_padding: Steps = 0,
                   dilations: Steps = 1, groups: int = 1) -> Value:
    """The transposed convolution of `x` by `w`: each element adds a multiple of the kernel to the
    result; floats and integers.

    Parameters
    ----------
    x : Value
        ``[N, C, D1, ...]`` with 1 to 6 spatial axes of any sizes.
    w : Value
        ``[C, M // groups, K1, ...]`` of constant sizes, as torch and ONNX have it; the result is
        ``[N, M, O1, ...]`` with O = (D - 1) * stride + dilation * (K - 1) + 1 + output_padding,
        less the padding.
    strides, dilations : int or sequence of int
        Steps between the places of two elements, and between those of two of the kernel's.
    padding : int, or sequence of int or (before, after)
        What is cut from the result's sides, per spatial axis.
    output_padding : int or sequence of int
        What the result is longer behind, per spatial axis.
    groups : int
        Groups of channels, each convolved on its own.

    Raises
    ------
    GraphError
        If channels do not fit the groups, or more is cut than there is.
    """
    op = "conv_transpose"
    nodes = operands(op, x, w)
    same_dtype(op, nodes)
    check_kind(op, nodes, "numeric")
    rank = _rank(op, nodes)
    x, kernels = nodes
    sizes = [size.constant for size in kernels._shape if size.constant is not None]
    if kernels.ndim != x.ndim or len(sizes) != x.ndim:
        raise fail(op, nodes, f"w must have {x.ndim} axes of constant sizes, [C, M // groups, "
                   "...kernel]")
    if not is_int(groups, range(1, 1 << 63)) or sizes[0] % groups:
        raise fail(op, nodes, f"groups={groups!r} must divide the {sizes[0]} channels of w")
    check_size(op, nodes, "channels of x and axis 0 of w", x._shape[1], kernels._shape[0])
    steps, gaps = _steps(op, nodes, "strides", strides), _steps(op, nodes, "dilations", dilations)
    added = _per_axis(output_padding, rank)
    cut = _cuts(op, nodes, padding, rank)
    if len(added) != rank or not all(is_int(more, range(1 << 63)) for more in added):
        raise fail(op, nodes, f"output_padding={output_padding!r} must be an integer of 0 or more, "
                   f"or {rank} of them, one per spatial axis")
    out = [(x._shape[i + 2] - 1) * steps[i] + gaps[i] * (sizes[i + 2] - 1) + 1 + added[i]
           - sum(cut[i]) for i in range(rank)]
    for i, size in enumerate(out):
        if size.constant is not None and size.constant < 0:
            raise fail(op, nodes, f"padding={padding!r} cuts more than spatial axis {i} of the "
                       "result has")
    if max(steps) > 1 and max(gaps) > 1:
        x, steps = _spread(x, steps), [1] * rank
    # Positions of the result that lie between the same two elements take one kernel.
    reach = [-(-sizes[i + 2] // steps[i]) for i in range(rank)]
    pads: list[tuple[Size, Size]] = []
    at = [Expr.axis(0), Expr.axis(1)]
    for i, step in enumerate(steps):
        skipped, lead = divmod(cut[i][0], step)
        count, wide = floor_div(out[i] + (lead + step - 1), Expr(step)), (reach[i] - 1) * gaps[i]
        pads.append((wide - skipped, count + skipped - x._shape[i + 2]))
        place = Expr.axis(i + 2) + lead
        at[1] = at[1] * step + place % step
        at.append(place // step)
    made = conv(x, _phases(kernels, groups, steps, reach), padding=pads, dilations=gaps,
                groups=groups)
    return index_map(made, [*made._shape[:1], kernels._shape[1] * groups, *out], at)


def _pool(op: str, mode: str, kind: str, x: Value, kernel: Steps, strides: Steps | None,
          padding: Padding, dilations: Steps, count_padding: bool = False) -> Value:
    (x,) = operands(op, x)
    check_kind(op, [x], kind)
    sizes = _steps(op, [x], "kernel", kernel)
    window = _Window(op, [x], tuple(map(Expr, sizes)), sizes if strides is None else strides,
                     padding, dilations)
    attrs = {**window.attrs(), "kernel": attr_ints(sizes), "mode": Attr(s=mode)}
    if count_padding:
        attrs["counted"] = attr_shape(window.padded)
    return make("Pool", [x], x._dtype, [*x._shape[:2], *window.out], **attrs)


def max_pool(x: Value, kernel: Steps, *, strides: Steps | None = None, padding: Padding = 0,
             dilations: Steps = 1) -> Value:
    """The maximum of each window of `x` ``[N, C, D1, ...]``; NaN if any is NaN.

    `strides` are the kernel's sizes if not given. Elements added by `padding` are never the
    maximum: a window of nothing else gives -inf, the least integer or False.
    """
    return _pool("max_pool", "max", "computing", x, kernel, strides, padding, dilations)


def sum_pool(x: Value, kernel: Steps, *, strides: Steps | None = None, padding: Padding = 0,
             dilations: Steps = 1) -> Value:
    """The sum of each window of `x` ``[N, C, D1, ...]``, as `max_pool`; floats and integers."""
    return _pool("sum_pool", "sum", "numeric", x, kernel, strides, padding, dilations)


def average_pool(x: Value, kernel: Steps, *, strides: Steps | None = None, padding: Padding = 0,
                 dilations: Steps = 1, count_padding: bool = False) -> Value:
    """The mean of each window of `x` ``[N, C, D1, ...]``, as `max_pool`; floats. Of nothing NaN.

    With `count_padding` the zeros that `padding` adds count as elements.
    """
    return _pool("average_pool", "mean", "floats", x, kernel, strides, padding, dilations,
                 count_padding)
