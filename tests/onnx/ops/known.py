"""Cases in which ONNX Runtime 1.31 is wrong or ONNX leaves the result open: a row each, with the
reason and the voice that is heard instead. A draw that a row covers is compared like any other,
with that voice."""

from __future__ import annotations

import copy
import dataclasses
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
from draw import FLOATS, Draw, Elem, Operand
from node import Case, case_of
from onnx.reference import ReferenceEvaluator

Arrays = list[np.ndarray]


def by_reference(case: Case) -> Arrays:
    """Evaluates the draw with onnx's own evaluator."""
    names = [info.name for info in case.model.graph.input]
    feed = dict(zip(names, case.inputs, strict=True))
    return [np.asarray(value) for value in ReferenceEvaluator(case.model).run(None, feed)]


def by_other_node(change: Callable[[Draw], None]) -> Callable[[Case], Arrays]:
    """Evaluates an equivalent node with ONNX Runtime."""
    def expected(case: Case) -> Arrays:
        draw = copy.copy(case.draw)
        draw.attributes = dict(draw.attributes)
        draw.operands = [copy.copy(operand) for operand in draw.operands]
        change(draw)
        return case_of(draw).expected
    return expected


@dataclasses.dataclass
class Row:
    """`when` it holds of a draw of one of the ops, why, and who is heard."""

    ops: str
    when: Callable[[Draw], bool]
    reason: str
    expected: Callable[[Case], Arrays] = by_reference
    used: int = 0


def _value(d: Draw, i: int) -> np.ndarray | None:
    return d.operands[i].value if i < len(d.operands) and d.operands[i] else None


def _nans(d: Draw) -> bool:
    return any(o is not None and o.elem in FLOATS and bool(np.isnan(o.value).any())
               for o in d.operands)


def _empty(d: Draw) -> bool:
    return d.operands[0].value.size == 0


def _to_the_end(d: Draw) -> bool:
    """A step back towards an end of 2^31-1 or 2^63-1."""
    ends, steps = _value(d, 2), _value(d, 4)
    if ends is None or steps is None:
        return False
    huge = (ends == 2**31 - 1) | (ends == 2**63 - 1)
    return bool((huge & (steps < 0)).any())


def _fractional_corners(d: Draw) -> bool:
    scales = _value(d, 2 if d.opset >= 11 else 1)
    shape = d.operands[0].value.shape
    if d.attributes.get("coordinate_transformation_mode") != "align_corners" or scales is None:
        return False
    sizes = np.asarray(shape[len(shape) - len(scales):]) * scales.astype(np.float64)
    return bool((sizes != np.floor(sizes)).any())


def _same_dilated(d: Draw) -> bool:
    return (str(d.attributes.get("auto_pad", "")).startswith("SAME")
            and max(d.attributes.get("dilations", [1])) > 1)


def _narrow(d: Draw) -> bool:
    """SAME of windows that are narrower than their strides."""
    return (str(d.attributes.get("auto_pad", "")).startswith("SAME")
            and any(k < s for k, s in zip(d.attributes["kernel_shape"],
                                          d.attributes.get("strides", []), strict=False)))


def _beyond(d: Draw) -> list[int]:
    """Returns by how much SAME lengthens each axis of a ConvTranspose."""
    if (not str(d.attributes.get("auto_pad", "")).startswith("SAME")
            or "output_shape" in d.attributes):
        return []
    kernel = d.operands[1].value.shape[2:]
    dilations = d.attributes.get("dilations", [1] * len(kernel))
    added = d.attributes.get("output_padding", [0] * len(kernel))
    return [s - (k - 1) * e - 1 - a for s, k, e, a in
            zip(d.attributes["strides"], kernel, dilations, added, strict=True)]


def _zeros_behind(case: Case) -> Arrays:
    """Longer axes get zeros (or the bias) at their end, shorter ones lose what SAME says."""
    d = case.draw
    extra = [max(0, e) for e in _beyond(d)]

    def padded(draw: Draw) -> None:
        upper = draw.attributes.pop("auto_pad") == "SAME_UPPER"
        totals = [max(0, -e) for e in _beyond(d)]
        begin = [t // 2 if upper else t - t // 2 for t in totals]
        draw.attributes["pads"] = begin + [t - b for t, b in zip(totals, begin, strict=True)]

    y = by_other_node(padded)(case)[0]
    bias = d.operands[2].value if len(d.operands) > 2 else np.zeros(y.shape[1], y.dtype)
    whole = np.zeros([*y.shape[:2], *(n + e for n, e in zip(y.shape[2:], extra, strict=True))],
                     y.dtype) + bias.reshape(-1, *[1] * len(extra))
    whole[tuple(slice(0, n) for n in y.shape)] = y
    return [whole.astype(y.dtype)]


def _valid_ceil(d: Draw) -> bool:
    return d.attributes.get("auto_pad") == "VALID" and d.attributes.get("ceil_mode", 0) == 1


def _explicit_pads(d: Draw) -> None:
    """SAME_UPPER and SAME_LOWER as the pads that they stand for, none below 0."""
    lower = d.attributes.pop("auto_pad") == "SAME_LOWER"
    kernel = d.attributes.get("kernel_shape") or list(d.operands[1].value.shape[2:])
    rank = len(kernel)
    strides = d.attributes.get("strides", [1] * rank)
    dilations = d.attributes.get("dilations", [1] * rank)
    begin, end = [], []
    shape = d.operands[0].value.shape
    image = shape[1:-1] if d.attributes.get("channels_last") else shape[2:]
    for size, k, s, e in zip(image, kernel, strides, dilations, strict=True):
        total = max(0, ((size + s - 1) // s - 1) * s + (k - 1) * e + 1 - size)
        begin.append(total - total // 2 if lower else total // 2)
        end.append(total - begin[-1])
    d.attributes["pads"] = begin + end


def _whole_indices(d: Draw) -> None:
    """Casts OneHot's indices to int64; before opset 11 those below 0 are outside."""
    indices = np.trunc(d.operands[0].value)
    d.operands[0].value = indices if d.opset >= 11 else np.where(indices < 0, 2**10, indices
                                                                  ).astype(indices.dtype)


def _near_ends(d: Draw) -> None:
    """Ends of INT_MAX as others behind the last element."""
    ends = d.operands[2].value
    d.operands[2].value = np.where(ends >= 2**31 - 1, 2**20, ends).astype(ends.dtype)


def _signed(d: Draw) -> bool:
    return d.operands[0].elem in FLOATS or (d.opset < 11 and bool((d.operands[0].value < 0).any()))


def _interpolates_integers(d: Draw) -> bool:
    return d.operands[0].elem not in FLOATS and d.attributes.get("mode", "nearest") != "nearest"


def _rounded(case: Case) -> Arrays:
    """Interpolated as floats, to the nearest, halves to even, as far as the type goes."""
    dtype = case.expected[0].dtype
    draw = copy.copy(case.draw)
    draw.operands = [copy.copy(operand) for operand in draw.operands]
    draw.operands[0].value = draw.operands[0].value.astype(np.float32)
    draw.operands[0].elem = Elem.FLOAT
    case.draw.steps = 1  # f32 is off a half there
    real = np.rint(case_of(draw).expected[0].astype(np.float64))
    if dtype.kind in "iu":
        real = np.clip(real, np.iinfo(dtype).min, np.iinfo(dtype).max)
    return [real.astype(dtype)]


def _crops_and_scales(d: Draw) -> bool:
    return (d.attributes.get("coordinate_transformation_mode") == "tf_crop_and_resize"
            and len(d.operands) == 3)


def _crops_in_place(d: Draw) -> bool:
    sizes = _value(d, 3)
    shape = d.operands[0].value.shape
    return (d.attributes.get("coordinate_transformation_mode") == "tf_crop_and_resize"
            and sizes is not None and list(shape[len(shape) - len(sizes):]) == list(sizes))


def _scales_as_sizes(d: Draw) -> None:
    """floor(size * (end - start) * scale), as the text has it."""
    roi = d.operands[1].value.astype(np.float64)
    scales = d.operands[2].value.astype(np.float64)
    rank = len(scales)
    shape = d.operands[0].value.shape[-rank:]
    sizes = np.floor(np.asarray(shape) * (roi[rank:] - roi[:rank]) * scales).astype(np.int64)
    if (sizes < 1).any():
        raise ValueError("no size is left")
    scale = d.operands[2]
    if d.opset < 13:
        scale.value = np.zeros(0, np.float32)
    else:
        d.operands[2] = None
    d.operands.append(Operand(sizes, Elem.INT64, True, True))


def _log_sum_exp(case: Case) -> Arrays:
    """In f64, cut to the integer."""
    d = case.draw
    axes = d.attributes.get("axes") or (list(_value(d, 1)) if _value(d, 1) is not None else [])
    value = d.operands[0].value
    if not axes and d.attributes.get("noop_with_empty_axes"):
        return [value]
    chosen = tuple(int(a) for a in axes) or None
    sums = np.exp(value.astype(np.float64)).sum(chosen,
                                                keepdims=bool(d.attributes.get("keepdims", 1)))
    return [np.asarray(np.log(sums)).astype(case.expected[0].dtype)]


def _no_mean(d: Draw) -> bool:
    return _empty(d) and d.operands[0].elem not in FLOATS


def _no_variance(d: Draw) -> bool:
    shape = d.operands[0].value.shape
    return all(shape[axis] == 1 for axis in d.attributes.get("axes", [0, 2, 3]))


def _causal_past(d: Draw) -> bool:
    """A past, one query and several new keys."""
    if not d.attributes.get("is_causal") or _value(d, 4) is None:
        return False
    return d.operands[0].value.shape[-2] == 1 != d.operands[1].value.shape[-2]


def _adds_in_16_bits() -> bool:
    """An x86 processor without VNNI adds pairs of products of u8 and i8 in 16 bits, which saturate:
    what ONNX Runtime makes of them depends on it."""
    try:
        flags = re.search(r"^flags\s*:(.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        return False
    return flags is not None and not {"avx512_vnni", "avx_vnni"} & set(flags[1].split())


_ADDS_IN_16_BITS = _adds_in_16_bits()


def _saturates(d: Draw) -> bool:
    return _ADDS_IN_16_BITS and any(o is not None and o.elem == Elem.INT8 for o in d.operands)


def _unsigned(d: Draw) -> None:
    """The same numbers as u8, whose products do not saturate."""
    for operand in d.operands:
        if operand is not None and operand.elem == Elem.INT8:
            operand.value = (operand.value.astype(np.int16) + 128).astype(np.uint8)
            operand.elem = Elem.UINT8


ROWS: list[Row] = [
    Row("ConvInteger", _saturates, "sums saturate on this processor"),
    Row("com.microsoft.DynamicQuantizeLSTM", _saturates, "sums saturate on this processor",
        by_other_node(_unsigned)),
    Row("Attention", lambda d: d.attributes.get("qk_matmul_output_mode") == 2,
        "scores that a mask hides are the lowest number; by the text -inf"),
    Row("Attention", _causal_past,
        "behind a past one query sees all keys; by the text those up to its own"),
    Row("Clip", lambda d: d.opset >= 11 and (len(d.operands) < 3 or None in d.operands),
        "a bound that is left out is taken for the largest number: infinities become finite"),
    Row("Dropout", lambda d: d.opset < 12 and d.results == 2,
        "the mask of a Dropout that drops nothing is all false"),
    Row("Slice", _to_the_end,
        "a step back towards an end of INT_MAX goes to the first element; by the text the end is "
        "cut to the last, and nothing is between", by_other_node(_near_ends)),
    Row("Cast CastLike", lambda d: d.operands[0].elem in FLOATS
        and d.elems["T2"] in (Elem.INT4, Elem.UINT4),
        "floats are rounded to 4 bits; all other integers get what is before the point"),
    Row("MeanVarianceNormalization", _no_variance, "values without a variance give NaN"),
    Row("ReduceMean", _no_mean, "the mean of nothing is NaN, which no integer is: casts give 0",
        lambda case: [np.zeros_like(value) for value in by_reference(case)]),
    Row("ReduceMax ReduceMin ReduceLogSumExp ScatterND ScatterElements", _nans,
        "whether NaN counts depends on where it is"),
    Row("ReduceLogSumExp", lambda d: d.operands[0].elem not in FLOATS and not _empty(d),
        "sums of powers of integers are cut to integers at each step", _log_sum_exp),
    Row("ReduceMean ReduceSumSquare ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax "
        "ReduceMin ReduceProd ReduceSum", _empty,
        "reductions of nothing keep sizes or give 0 where the mean of nothing is NaN"),
    Row("AveragePool LpPool MaxPool", _same_dilated, "SAME does not count the dilation",
        by_other_node(_explicit_pads)),
    Row("AveragePool LpPool MaxPool com.microsoft.QLinearAveragePool", _narrow,
        "SAME of windows narrower than their strides has pads below 0", by_other_node(
            _explicit_pads)),
    Row("ConvTranspose", lambda d: max(_beyond(d), default=0) > 0,
        "SAME of kernels narrower than their strides: the text has pads below 0 and does not say "
        "how -1 is halved, ONNX Runtime's results are too short; as TensorFlow, zeros go behind",
        _zeros_behind),
    Row("AveragePool LpPool MaxPool com.microsoft.QLinearAveragePool", _valid_ceil,
        "VALID counts windows that begin inside and end outside",
        by_other_node(lambda d: d.attributes.pop("ceil_mode"))),
    Row("Col2Im", lambda d: len(_value(d, 1)) != 2, "images of one axis are put together wrongly"),
    Row("OneHot", _signed,
        "indices of floats are compared as they are, and those below 0 count from the end before "
        "11 too; by the text they are cast to int64 before, and were outside",
        by_other_node(_whole_indices)),
    Row("Resize Upsample", _interpolates_integers,
        "interpolated integers are cut, and wrap around; onnx's evaluator rounds them", _rounded),
    Row("Resize", _crops_in_place, "a crop of the operand's own size copies it"),
    Row("Resize", _crops_and_scales, "sizes by scales do not count the region",
        by_other_node(_scales_as_sizes)),
    Row("Resize", _fractional_corners,
        "align_corners counts with the whole size of the result; by the suite with size * scale"),
]


def row_of(draw: Draw) -> Row | None:
    """The row that holds for this draw."""
    name = f"{draw.domain}.{draw.op}" if draw.domain else draw.op
    for row in ROWS:
        if name in row.ops.split() and row.when(draw):
            return row
    return None
