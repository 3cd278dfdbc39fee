"""Shapes and movement: what moves elements and computes none."""

from __future__ import annotations

import math

import numpy as np
from draw import Draw, Elem, Unfit


def _data(d: Draw, low: int = 0, high: int = 5, empty: bool = True) -> list[int]:
    shape = d.shape(low, high, empty)
    elem = d.elem(d.schema.inputs[0].name)
    d.operand(d.array(elem, shape, special=0.2), elem, known=0.1)
    return shape


def _structure(d: Draw, name: str, value: list[int], since: int) -> None:
    """An attribute before `since`, then an operand that is mostly known."""
    if d.opset < since:
        d.attribute(name, value)
    else:
        d.operand(value, known=0.8)


def shape(d: Draw) -> None:
    """Draws Shape of all axes, or from start to end since opset 15."""
    rank = len(_data(d))
    if d.opset >= 15:
        d.attribute("start", d.whole(-rank - 1, rank + 1), 0.5)
        d.attribute("end", d.whole(-rank - 1, rank + 1), 0.5)


def size(d: Draw) -> None:
    """The number of elements."""
    _data(d)


def transpose(d: Draw) -> None:
    """Axes reversed where none are given."""
    rank = len(_data(d))
    d.attribute("perm", [int(a) for a in d.random.permutation(rank)], 0.8 if rank else 0)


def reshape(d: Draw) -> None:
    """With 0 and -1."""
    old = _data(d)
    count = math.prod(old)
    new: list[int] = []
    rest = count
    while rest > 1 and len(new) < 4:
        factors = [f for f in range(1, rest + 1) if rest % f == 0]
        new.append(int(d.choose(factors)))
        rest //= new[-1]
    new.append(rest)
    if count == 0:
        new = list(d.random.permutation(old))
    zero = d.opset >= 14 and d.coin(0.3)
    if zero:
        d.attribute("allowzero", 1)
    else:
        new = [0 if i < len(old) and old[i] == size and d.coin() else int(size)
               for i, size in enumerate(new)]
        if any(size == 0 and (i >= len(old) or old[i] != 0) and count == 0
               for i, size in enumerate(new)):
            raise Unfit
    if count and d.coin():
        new[d.whole(0, len(new) - 1)] = -1
    d.operand([int(size) for size in new], known=0.8)


def squeeze(d: Draw) -> None:
    """Axes of size 1."""
    sizes = d.shape(0, 5)
    sizes = [1 if d.coin(0.4) else size for size in sizes]
    elem = d.elem("data")
    d.operand(d.array(elem, sizes), elem, known=0.1)
    ones = [i - (len(sizes) if d.opset >= 11 and d.coin(0.3) else 0)
            for i, size in enumerate(sizes) if size == 1 and d.coin(0.7)]
    if ones or d.coin():
        if ones:
            _structure(d, "axes", ones, 13)


def unsqueeze(d: Draw) -> None:
    """Axes are those of the result."""
    rank = len(_data(d, 0, 4))
    count = d.whole(1, 2)
    axes = [int(a) for a in d.random.permutation(rank + count)[:count]]
    if d.opset >= 11:
        axes = [a - rank - count if d.coin(0.3) else a for a in axes]
    else:
        axes.sort()
    _structure(d, "axes", axes, 13)


def flatten(d: Draw) -> None:
    """Into two axes; before 11 the axis counts from 0 and the rank is 1 at least."""
    rank = len(_data(d, 0 if d.opset >= 11 else 1))
    d.attribute("axis", d.whole(-rank if d.opset >= 11 else 0, rank), 0.8 if rank else 1)
    if rank == 0:
        d.attribute("axis", 0)


def concat(d: Draw) -> None:
    """Draws one to four parts, some of them empty."""
    shape = d.shape(1)
    axis = d.axis(len(shape))
    elem = d.elem(d.schema.inputs[0].name)
    for _ in range(d.whole(1, 4)):
        part = list(shape)
        part[axis] = d.whole(0, 5)
        d.operand(d.array(elem, part), elem)
    d.attribute("axis", axis)


def split(d: Draw) -> None:
    """Into equal parts, given ones, or since 18 a number of which the last may be smaller."""
    shape = d.shape(1, 4, empty=False)
    axis = d.axis(len(shape))
    count = d.whole(1, 4)
    parts = [d.whole(0, 4) for _ in range(count)]
    way = d.choose(["parts", "equal", "number"])
    if way == "number" and d.opset >= 18:
        size = int(math.ceil(max(shape[axis], count) / count))
        shape[axis] = size * (count - 1) + d.whole(1, size)
    elif way == "equal" or way == "number":
        shape[axis] = count * d.whole(1, 3)
    else:
        shape[axis] = sum(parts)
    elem = d.elem("input")
    d.operand(d.array(elem, shape), elem, known=0.1)
    d.attribute("axis", axis, 1 if axis else 0.5)
    if way == "parts":
        _structure(d, "split", parts, 13)
    elif d.opset >= 18:
        d.attribute("num_outputs", count)
    d.results = count


def slice_(d: Draw) -> None:
    """Bounds out of range and negative; steps since 10."""
    shape = _data(d, 1)
    axes = d.axes(len(shape), 1)
    starts, ends, steps = [], [], []
    for axis in axes:
        n = shape[axis]
        steps.append(int(d.choose([1, 1, 2, 3, -1, -2, 5])) if d.opset >= 10 else 1)
        starts.append(d.whole(-n - 2, n + 2))
        ends.append(int(d.choose([d.whole(-n - 2, n + 2), 2**31 - 1, 2**63 - 1, -2**31, -2**62])))
    if d.opset < 10:
        d.attribute("axes", axes, 1 if axes != list(range(len(axes))) else 0.5)
        d.attribute("starts", starts)
        d.attribute("ends", ends)
        return
    narrow = d.coin(0.3)

    def give(values: list[int]) -> None:
        dtype = np.int32 if narrow else np.int64
        info = np.iinfo(dtype)
        d.operand(np.clip(np.asarray(values, np.int64), info.min, info.max).astype(dtype),
                  known=0.9)

    give(starts)
    give(ends)
    if d.coin(0.8) or axes != list(range(len(axes))):
        give(axes)
    elif any(step != 1 for step in steps):
        d.omit()
    if any(step != 1 for step in steps):
        give(steps)


def pad(d: Draw) -> None:
    """All modes; negative pads crop."""
    if d.opset < 11 and d.elem("data") == Elem.FLOAT16:
        raise Unfit
    shape = d.shape(1, 4, empty=False)
    elem = d.elem("data")
    d.operand(d.array(elem, shape), elem, known=0.1)
    modes = ["constant", "edge", "reflect", *(["wrap"] if d.opset >= 19 else [])]
    mode = str(d.choose(modes))
    d.attribute("mode", mode, 1 if mode != "constant" else 0.5)
    axes = d.axes(len(shape), 1) if d.opset >= 18 and d.coin(0.4) else list(range(len(shape)))
    most = [shape[a] - 1 if mode == "reflect" else min(shape[a], 4) for a in axes]
    least = -1 if d.coin(0.2) and mode == "constant" else 0
    pads = [d.whole(max(least, -(shape[a] // 2)), m)
            for a, m in zip(axes * 2, most * 2, strict=True)]
    _structure(d, "pads", pads, 11)
    if d.opset < 11:
        d.attribute("value", d.real(-2, 2), 0.5)
        return
    named = axes != list(range(len(shape)))
    if mode == "constant" and d.coin(0.6):
        d.operand(d.array(elem, []), elem)
    elif named:
        d.omit()
    if named:
        d.operand(axes, known=0.9)


def tile(d: Draw) -> None:
    """Each axis 0 to 3 times."""
    rank = len(_data(d, 1, 4))
    d.operand([d.whole(0 if d.coin(0.05) else 1, 3) for _ in range(rank)], known=0.8)


def expand(d: Draw) -> None:
    """Either way: the operand may be larger than what it is expanded to."""
    shape = d.shape()
    elem = d.elem("input")
    d.operand(d.array(elem, d.below(shape)), elem, known=0.1)
    d.operand(d.below(shape) if d.coin(0.3) else shape, known=0.8)


def blocks(d: Draw) -> None:
    """DepthToSpace, SpaceToDepth."""
    block = d.whole(1, 3)
    n, c, h, w = d.whole(1, 2), d.whole(1, 3), d.whole(1, 4), d.whole(1, 4)
    elem = d.elem("input")
    down = d.op == "SpaceToDepth"
    sizes = [n, c, h * block, w * block] if down else [n, c * block**2, h, w]
    d.operand(d.array(elem, sizes), elem)
    d.attribute("blocksize", block)
    if not down and d.opset >= 11:
        d.attribute("mode", d.choose(["DCR", "CRD"]), 0.7)


def trilu(d: Draw) -> None:
    """k known or not."""
    _data(d, 2)
    if d.coin(0.7):
        d.operand(np.asarray(d.whole(-6, 6), np.int64), known=0.5)
    d.attribute("upper", d.whole(0, 1), 0.7)


def eye_like(d: Draw) -> None:
    """Draws an EyeLike whose result may have another type."""
    elem = d.elem("T1")
    d.operand(d.array(elem, d.shape(2, 2)), elem)
    d.attribute("k", d.whole(-4, 4), 0.6)
    d.attribute("dtype", int(d.choose([e for e in d.allowed("T2") if e != Elem.BFLOAT16])), 0.6)


def constant_of_shape(d: Draw) -> None:
    """Draws a value or 0."""
    from onnx import numpy_helper
    d.operand(d.shape(0, 4), known=0.8)
    if d.coin(0.8):
        elem = int(d.choose([e for e in d.allowed("T2") if e < Elem.BFLOAT16]))
        d.attribute("value", numpy_helper.from_array(d.array(elem, [1])))


def range_(d: Draw) -> None:
    """Up and down, with steps that do not divide, to nothing."""
    elem = d.elem("T")
    if elem in (Elem.FLOAT16, Elem.BFLOAT16):
        raise Unfit
    step = d.choose([1, 2, -1, -3]) if elem not in (Elem.FLOAT, Elem.DOUBLE) else \
        d.choose([0.5, -0.25, 1.5, 1])
    for value in (d.whole(-9, 9), d.whole(-9, 9), step):
        d.operand(d.array(elem, [], value, value), elem, known=0.9)


def one_hot(d: Draw) -> None:
    """Indices out of range give the off value, negative ones count from the end."""
    index, depth_elem, elem = d.elem("T1"), d.elem("T2"), d.elem("T3")
    depth = d.whole(1, 7)
    shape = d.shape(0, 3)
    d.operand(d.array(index, shape, -depth - 2, depth + 2), index)
    d.operand(d.array(depth_elem, [] if d.coin() else [1], depth, depth), depth_elem, known=0.9)
    d.operand(d.array(elem, [2]), elem)
    axis = d.whole(-len(shape) - 1, len(shape)) if d.opset >= 11 else d.whole(-1, len(shape))
    d.attribute("axis", axis, 0.7)


def center_crop_pad(d: Draw) -> None:
    """Crops some axes, pads others."""
    shape = _data(d, 1, 4, empty=False)
    axes = d.axes(len(shape), 1) if d.coin() else list(range(len(shape)))
    d.operand([d.whole(1, 9) for _ in axes], known=0.8)
    if axes != list(range(len(shape))):
        d.attribute("axes", axes)


def col2im(d: Draw) -> None:
    """Blocks summed into an image."""
    rank = d.whole(1, 2)
    image = [d.whole(3, 7) for _ in range(rank)]
    block = [d.whole(1, 3) for _ in range(rank)]
    dilations = [d.whole(1, 2) if d.coin(0.3) else 1 for _ in range(rank)]
    strides = [d.whole(1, 2) for _ in range(rank)]
    pads = [d.whole(0, 1) for _ in range(2 * rank)]
    places = 1
    for i in range(rank):
        spread = image[i] + pads[i] + pads[i + rank] - dilations[i] * (block[i] - 1) - 1
        if spread < 0:
            raise Unfit
        places *= spread // strides[i] + 1
    elem = d.elem("T")
    channels = d.whole(1, 3)
    d.operand(d.array(elem, [d.whole(1, 2), channels * math.prod(block), places]), elem)
    d.operand(image, known=0.9)
    d.operand(block, known=0.9)
    for name, value in (("dilations", dilations), ("strides", strides), ("pads", pads)):
        d.attribute(name, value)


def reverse_sequence(d: Draw) -> None:
    """Over either of the first two axes."""
    shape = d.shape(2, 4, empty=False)
    elem = d.elem("T")
    time = d.whole(0, 1)
    d.operand(d.array(elem, shape), elem)
    d.operand([d.whole(1, shape[time]) for _ in range(shape[1 - time])], known=0.2)
    d.attribute("time_axis", time)
    d.attribute("batch_axis", 1 - time)


FAMILY = {
    "CenterCropPad": center_crop_pad, "Col2Im": col2im, "Concat": concat,
    "ConstantOfShape": constant_of_shape, "DepthToSpace": blocks, "Expand": expand,
    "EyeLike": eye_like, "Flatten": flatten, "OneHot": one_hot, "Pad": pad, "Range": range_,
    "Reshape": reshape, "ReverseSequence": reverse_sequence, "Shape": shape, "Size": size,
    "Slice": slice_, "SpaceToDepth": blocks, "Split": split, "Squeeze": squeeze, "Tile": tile,
    "Transpose": transpose, "Trilu": trilu, "Unsqueeze": unsqueeze,
}
