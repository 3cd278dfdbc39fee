"""Reductions, sorting, running sums, norms and losses."""

from __future__ import annotations

import numpy as np
from draw import FLOATS, Draw, Elem, Unfit

POSITIVE = {"ReduceLogSum"}


def reduce(d: Draw) -> None:
    """Axes as an attribute until 13 (ReduceSum) or 18, then as an operand."""
    elem = d.elem("data")
    shape = d.shape()
    narrow = elem in (Elem.FLOAT16, Elem.BFLOAT16)
    most = 1.5 if d.op == "ReduceProd" else 4
    low = 0.5 if d.op in POSITIVE or (d.op == "ReduceProd" and elem in FLOATS) else -most
    # Few, as products leave the range of integers.
    if d.op == "ReduceProd" and elem not in FLOATS:
        shape = d.shape(0, 3, most=20)
    d.operand(d.array(elem, shape, low, most, 0.1 if not narrow else 0), elem, known=0.1)
    axes = d.axes(len(shape))
    if axes:
        if d.opset < (13 if d.op == "ReduceSum" else 18):
            d.attribute("axes", axes)
        else:
            d.operand(axes, known=0.8)
    elif d.opset >= (13 if d.op == "ReduceSum" else 18):
        d.attribute("noop_with_empty_axes", d.whole(0, 1), 0.4)
    d.attribute("keepdims", d.whole(0, 1), 0.7)


def arg(d: Draw) -> None:
    """First or last of equal ones."""
    elem = d.elem("data")
    shape = d.shape(1, empty=False)
    d.operand(d.array(elem, shape, -2, 2) if elem not in FLOATS
              else np.round(d.array(elem, shape, -3, 3).astype(np.float32)).astype(
                  d.array(elem, [0]).dtype), elem)
    d.attribute("axis", d.axis(len(shape)), 0.8)
    d.attribute("keepdims", d.whole(0, 1), 0.7)
    if d.opset >= 12:
        d.attribute("select_last_index", d.whole(0, 1), 0.6)


def softmax(d: Draw) -> None:
    """Along one axis since 13, before over all from it."""
    elem = d.elem("input")
    shape = d.shape(1)
    d.operand(d.array(elem, shape, -9, 9), elem)
    d.attribute("axis", d.axis(len(shape)), 0.8 if len(shape) > 1 or d.opset >= 13 else 0)
    if len(shape) == 1 and d.opset < 13:
        d.attribute("axis", 0)


def hardmax(d: Draw) -> None:
    """With ties."""
    softmax(d)
    operand = d.operands[0]
    if d.coin():
        operand.value = np.round(operand.value.astype(np.float32) / 4).astype(operand.value.dtype)


def top_k(d: Draw) -> None:
    """k as an attribute before 10; values are distinct, since ties are not ordered."""
    elem = d.elem("T") if d.opset >= 10 else d.elem("T", FLOATS)
    shape = d.shape(1, 4, empty=False, most=100)
    count = int(np.prod(shape))
    value = d.random.permutation(count).reshape(shape)
    if elem not in FLOATS and count > 127:
        raise Unfit
    d.operand(value.astype(d.array(elem, [0]).dtype), elem)
    axis = d.axis(len(shape))
    k = d.whole(0 if d.opset >= 10 and d.coin(0.1) else 1, shape[axis])
    if d.opset >= 10:
        d.operand([k], known=0.9)
    else:
        d.attribute("k", k)
    d.attribute("axis", axis)
    if d.opset >= 11:
        d.attribute("largest", d.whole(0, 1), 0.7)
        d.attribute("sorted", 1, 0.5)
    d.results = 2


def cumulate(d: Draw) -> None:
    """Either direction, inclusive or not."""
    elem = d.elem("x")
    shape = d.shape(1)
    low, high = (0.5, 1.5) if d.op == "CumProd" and elem in FLOATS else (-3, 3)
    d.operand(d.array(elem, shape, low, high), elem)
    axis_type = np.int32 if d.coin(0.3) else np.int64
    d.operand(np.asarray(d.axis(len(shape)), axis_type), known=0.9)
    d.attribute("exclusive", d.whole(0, 1), 0.6)
    d.attribute("reverse", d.whole(0, 1), 0.6)


def _channels(d: Draw, low: int = 2, high: int = 5) -> tuple[int, list[int]]:
    elem = d.elem(d.schema.inputs[0].name)
    shape = d.shape(low, high, empty=False)
    d.operand(d.array(elem, shape), elem, known=0.1)
    return elem, shape


def batch_norm(d: Draw) -> None:
    """At inference."""
    elem, shape = _channels(d)
    for low in (0.5, -1, -1, 0.2):
        param = d.schema.inputs[len(d.operands)].name
        e = d.elem(param) if d.opset >= 14 and d.coin(0.3) else elem
        d.operand(d.array(e, [shape[1]], low, 2), e, known=0.7)
    d.attribute("epsilon", d.real(1e-5, 1e-1), 0.7)


def instance_norm(d: Draw) -> None:
    """Over the spatial axes."""
    elem, shape = _channels(d, 3)
    d.operand(d.array(elem, [shape[1]]), elem)
    d.operand(d.array(elem, [shape[1]]), elem)
    d.attribute("epsilon", d.real(1e-5, 1e-1), 0.7)


def layer_norm(d: Draw) -> None:
    """Scale and bias of the normalised axes."""
    elem = d.elem("X")
    shape = d.shape(1, 4, empty=False)
    axis = d.axis(len(shape))
    d.operand(d.array(elem, shape), elem, known=0.1)
    inner = shape[axis:] if axis else shape
    d.operand(d.array(elem, inner), elem)
    if d.op == "LayerNormalization" and d.coin(0.7):
        d.operand(d.array(elem, inner), elem)
    d.attribute("axis", axis)
    d.attribute("epsilon", d.real(1e-5, 1e-1), 0.7)
    if d.op == "LayerNormalization":
        d.results = d.whole(1, 3)


def group_norm(d: Draw) -> None:
    """Scale and bias per channel."""
    elem = d.elem("X")
    groups = d.whole(1, 3)
    shape = [d.whole(1, 2), groups * d.whole(1, 3), *d.shape(1, 2, empty=False, most=30)]
    d.operand(d.array(elem, shape), elem)
    d.operand(d.array(elem, [shape[1]]), elem)
    d.operand(d.array(elem, [shape[1]]), elem)
    d.attribute("num_groups", groups)
    if elem == Elem.DOUBLE:
        d.rtol, d.atol = 1e-5, 1e-5  # stash_type: means are of f32
    d.attribute("epsilon", d.real(1e-5, 1e-1), 0.7)


def lp_norm(d: Draw) -> None:
    """p 1 or 2 along an axis."""
    elem, shape = _channels(d, 1)
    d.attribute("axis", d.axis(len(shape)), 0.8)
    d.attribute("p", d.whole(1, 2), 0.7)


def mvn(d: Draw) -> None:
    """Over given axes or all but the channels."""
    elem, shape = _channels(d, 4, 4)
    d.attribute("axes", sorted(int(a) % 4 for a in d.axes(4, 1)), 0.6)


def lrn(d: Draw) -> None:
    """Across channels."""
    _channels(d, 3)
    d.attribute("size", d.choose([1, 3, 5, 7]))
    d.attribute("alpha", d.real(1e-4, 1), 0.6)
    d.attribute("beta", d.real(0.3, 1), 0.6)
    d.attribute("bias", d.real(0.5, 2), 0.6)


def loss(d: Draw) -> None:
    """Weights, an ignored class, three ways to reduce."""
    name = d.schema.inputs[0].name
    elem = d.elem(name)
    classes = d.whole(2, 6)
    spatial = d.shape(0, 2, empty=False, most=20)
    batch = d.whole(1, 4)
    index = d.elem(d.schema.inputs[1].name)
    d.operand(d.array(elem, [batch, classes, *spatial]), elem)
    ignored = d.whole(0, classes - 1)
    labels = d.array(index, [batch, *spatial], 0, classes - 1)
    if d.coin():
        # Something must be left to average.
        labels.flat[0] = (ignored + 1) % classes
        d.attribute("ignore_index", ignored)
    d.operand(labels, index)
    if d.coin():
        d.operand(d.array(elem, [classes], 0.2, 2), elem)
    d.attribute("reduction", d.choose(["none", "sum", "mean"]), 0.8)
    if d.op == "SoftmaxCrossEntropyLoss":
        d.results = d.whole(1, 2)


FAMILY = {
    **dict.fromkeys(("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax",
                     "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare"),
                    reduce),
    **dict.fromkeys(("ArgMax", "ArgMin"), arg),
    **dict.fromkeys(("Softmax", "LogSoftmax"), softmax),
    **dict.fromkeys(("CumSum", "CumProd"), cumulate),
    **dict.fromkeys(("LayerNormalization", "RMSNormalization"), layer_norm),
    **dict.fromkeys(("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"), loss),
    "BatchNormalization": batch_norm, "GroupNormalization": group_norm, "Hardmax": hardmax,
    "InstanceNormalization": instance_norm, "LRN": lrn, "LpNormalization": lp_norm,
    "MeanVarianceNormalization": mvn, "TopK": top_k,
}
