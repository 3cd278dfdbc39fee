"""Elementwise ops: one operand, two, many; casts."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from draw import FLOATS, Draw, Elem, Unfit
from onnx import helper

INTEGERS = (Elem.INT8, Elem.INT16, Elem.INT32, Elem.INT64, Elem.UINT8, Elem.UINT16, Elem.UINT32,
            Elem.UINT64)

FLOAT8 = (Elem.FLOAT8E4M3FN, Elem.FLOAT8E4M3FNUZ, Elem.FLOAT8E5M2, Elem.FLOAT8E5M2FNUZ)

# Op: where its operand is drawn from, and how often it holds NaN and infinities.
UNARY = {
    "Abs": (-9, 9, 0.2), "Acos": (-1, 1, 0.2), "Acosh": (1, 9, 0.2), "Asin": (-1, 1, 0.2),
    "Asinh": (-9, 9, 0.2), "Atan": (-9, 9, 0.2), "Atanh": (-0.95, 0.95, 0.2), "Ceil": (-9, 9, 0.2),
    "Cos": (-9, 9, 0), "Cosh": (-5, 5, 0.2), "Erf": (-4, 4, 0.2), "Exp": (-9, 9, 0.2),
    "Floor": (-9, 9, 0.2), "HardSwish": (-5, 5, 0), "Identity": (-9, 9, 0.2),
    "IsNaN": (-9, 9, 0.8), "Log": (0.01, 9, 0.2), "Mish": (-30, 30, 0), "Neg": (-9, 9, 0.2),
    "Not": (0, 1, 0), "Reciprocal": (0.1, 9, 0.2), "Relu": (-9, 9, 0.2), "Round": (-9, 9, 0.2),
    "Sigmoid": (-30, 30, 0.2), "Sign": (-9, 9, 0), "Sin": (-9, 9, 0), "Sinh": (-5, 5, 0.2),
    "Softplus": (-30, 60, 0.2), "Softsign": (-9, 9, 0), "Sqrt": (0, 9, 0.2), "Tan": (-1.4, 1.4, 0),
    "Tanh": (-9, 9, 0.2), "BitwiseNot": (-99, 99, 0),
}
# With float attributes: where each is drawn from.
FLOAT_ATTRIBUTES = {
    "Celu": {"alpha": (0.2, 3)}, "Elu": {"alpha": (0.2, 3)},
    "HardSigmoid": {"alpha": (0.1, 1), "beta": (0, 1)}, "LeakyRelu": {"alpha": (-0.5, 2)},
    "Selu": {"alpha": (0.2, 3), "gamma": (0.5, 2)},
    "Shrink": {"lambd": (0.1, 2), "bias": (-1, 1)}, "Swish": {"alpha": (0.2, 2)},
    "ThresholdedRelu": {"alpha": (0, 2)},
}


def unary(d: Draw) -> None:
    """Draws an op of one operand, perhaps with numbers as attributes."""
    low, high, special = UNARY.get(d.op, (-5, 5, 0))
    param = d.schema.inputs[0].name
    elem = d.elem(param)
    # Halves, so that Round meets ties.
    value = d.array(elem, d.shape(), low, high, special)
    if d.op in ("Round", "Ceil", "Floor") and d.coin():
        value = (np.round(value.astype(np.float64) * 2) / 2).astype(value.dtype)
    d.operand(value, elem)
    for name, bounds in FLOAT_ATTRIBUTES.get(d.op, {}).items():
        d.attribute(name, d.real(*bounds), 0.7)


def gelu(d: Draw) -> None:
    """With either formula."""
    elem = d.elem("X")
    d.operand(d.array(elem, d.shape(), -5, 5), elem)
    d.attribute("approximate", d.choose(["none", "tanh"]), 0.8)


def is_inf(d: Draw) -> None:
    """Draws numbers of either sign."""
    elem = d.elem("X")
    d.operand(d.array(elem, d.shape(), -9, 9, 0.8), elem)
    d.attribute("detect_negative", d.whole(0, 1), 0.6)
    d.attribute("detect_positive", d.whole(0, 1), 0.6)


def _two(d: Draw, elem: int, make: Callable[[list[int]], tuple[np.ndarray, np.ndarray]] | None
         = None) -> None:
    shape = d.shape()
    a, b = shape, d.below(shape)
    if d.coin():
        a, b = b, a
    d.operand(d.array(elem, a, special=0.1), elem)
    d.operand(d.array(elem, b, special=0.1) if make is None else make(b), elem)


def binary(d: Draw) -> None:
    """Draws an op of two operands that broadcast."""
    _two(d, d.elem(d.schema.inputs[0].name))


def _nonzero(d: Draw, elem: int, shape: list[int]) -> np.ndarray:
    value = d.array(elem, shape, -7, 7)
    return np.where(np.abs(value) < 0.25, np.ones_like(value), value)


def divide(d: Draw) -> None:
    """No integer is divided by 0, nor the least by -1."""
    elem = d.elem("A")
    _two(d, elem, lambda shape: _nonzero(d, elem, shape))


def mod(d: Draw) -> None:
    """Draws integers, and floats with fmod."""
    elem = d.elem("A")
    _two(d, elem, lambda shape: _nonzero(d, elem, shape))
    if elem in FLOATS:
        d.attribute("fmod", 1)
        d.operands[0].value = np.asarray(np.nan_to_num(d.operands[0].value))
    else:
        d.attribute("fmod", d.whole(0, 1), 0.6)


def power(d: Draw) -> None:
    """Two types since 12; integers stay small."""
    elem = d.elem("X")
    other = d.elem("Y") if d.opset >= 12 else elem
    whole = elem not in FLOATS or d.coin(0.3)
    shape = d.shape()
    base = d.array(elem, shape, 0 if other in FLOATS and not whole else -4, 4)
    exponent = d.array(other, d.below(shape), 0, 4)
    if whole:
        exponent = np.round(exponent.astype(np.float64)).astype(exponent.dtype)
    d.operand(base, elem)
    d.operand(exponent, other)


def bit_shift(d: Draw) -> None:
    """By fewer bits than there are."""
    elem = d.elem("X")
    bits = 8 * helper.tensor_dtype_to_np_dtype(elem).itemsize
    shape = d.shape()
    d.operand(d.array(elem, shape, 0, 2**30), elem)
    d.operand(d.array(elem, d.below(shape), 0, bits - 1), elem)
    d.attribute("direction", d.choose(["LEFT", "RIGHT"]))


def many(d: Draw) -> None:
    """Max, Min, Sum, Mean of one to four."""
    elem = d.elem(d.schema.inputs[0].name)
    shape = d.shape()
    d.operand(d.array(elem, shape), elem)
    for _ in range(d.whole(0, 3)):
        d.operand(d.array(elem, d.below(shape) if d.opset >= 8 else shape), elem)


def where(d: Draw) -> None:
    """Any of the three broadcasts."""
    elem = d.elem("X")
    shape = d.shape()
    d.operand(d.array(Elem.BOOL, d.below(shape)), Elem.BOOL)
    d.operand(d.array(elem, d.below(shape), special=0.2), elem)
    d.operand(d.array(elem, d.below(shape), special=0.2), elem)


def prelu(d: Draw) -> None:
    """The slope broadcasts to X alone."""
    elem = d.elem("X")
    shape = d.shape(1)
    d.operand(d.array(elem, shape), elem)
    d.operand(d.array(elem, d.below(shape)), elem)


def clip(d: Draw) -> None:
    """Bounds as attributes until 11, then as operands, either left out."""
    elem = d.elem("input")
    d.operand(d.array(elem, d.shape(), -9, 9, 0.2), elem)
    low, high = sorted((d.real(-5, 5), d.real(-5, 5)))
    if d.opset < 11:
        d.attribute("min", low, 0.7)
        d.attribute("max", high, 0.7)
        return
    for bound in (low, high):
        if d.coin(0.3):
            d.omit()
        else:
            d.operand(d.array(elem, [], bound, bound + 0.01 if elem in FLOATS else bound + 1), elem)


def cast(d: Draw) -> None:
    """Between any two types, of values that both hold."""
    source, target = d.elem("T1"), d.elem("T2")
    wide = source not in FLOATS and target not in FLOATS
    least = {Elem.UINT4: 0, Elem.INT4: -8}.get(target, -99 if wide else -12)
    if target in (Elem.UINT8, Elem.UINT16, Elem.UINT32, Elem.UINT64, Elem.UINT4):
        least = 0
    most = {Elem.UINT4: 15, Elem.INT4: 7}.get(target, 99 if wide else 12)
    value = d.array(source, d.shape(), least, most)
    if source in FLOATS and target in FLOATS:
        value = d.array(source, d.shape(), -99, 99, 0.2)
    d.operand(value, source)
    if d.op == "Cast":
        d.attribute("to", target)
    else:
        d.operand(d.array(target, [d.whole(0, 2)], 0, 1), target)
    if d.opset >= 19 and target in FLOAT8:
        d.attribute("saturate", d.whole(0, 1), 0.5)


def bitcast(d: Draw) -> None:
    """Between types of one width."""
    source = d.elem("T1")
    width = helper.tensor_dtype_to_np_dtype(source).itemsize
    fits = [e for e in d.allowed("T2")
            if e in FLOATS + INTEGERS and helper.tensor_dtype_to_np_dtype(e).itemsize == width]
    if source not in FLOATS + INTEGERS or not fits:
        raise Unfit
    d.operand(d.array(source, d.shape(), -99, 99), source)
    d.attribute("to", d.choose(fits))


def dropout(d: Draw) -> None:
    """At inference: what it is given, and a mask of ones."""
    elem = d.elem("data")
    d.operand(d.array(elem, d.shape()), elem)
    if d.opset < 12:
        d.attribute("ratio", d.real(0, 0.9), 0.5)
    elif d.coin(0.6):
        d.operand(np.asarray(d.real(0, 0.9), np.float32), known=1)
        if d.coin():
            d.operand(np.asarray(False), known=1)
    d.results = 1 if d.opset < 10 else d.whole(1, 2)


FAMILY = {
    **dict.fromkeys((*UNARY, *FLOAT_ATTRIBUTES), unary),
    **dict.fromkeys(("Add", "Sub", "Mul", "And", "Or", "Xor", "Equal", "Less", "Greater",
                     "LessOrEqual", "GreaterOrEqual", "BitwiseAnd", "BitwiseOr", "BitwiseXor"),
                    binary),
    **dict.fromkeys(("Max", "Min", "Sum", "Mean"), many),
    **dict.fromkeys(("Cast", "CastLike"), cast),
    "BitCast": bitcast, "BitShift": bit_shift, "Clip": clip, "Div": divide, "Dropout": dropout,
    "Gelu": gelu, "IsInf": is_inf, "Mod": mod, "PRelu": prelu, "Pow": power, "Where": where,
}
