"""Elementwise functions of the SDK through a server against numpy, with the ends of each dtype."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import athanor
import numpy as np
import pytest
from functions_ import COMPUTING, NUMERIC, check_each, covers, row, values_of
from numbers_ import FLOATS, INTEGERS, array_type, bools, floats, integers, spacing
from scipy import special


def gelu(x: np.ndarray) -> np.ndarray:
    x = np.asarray(x, np.float64)
    return np.where(x == -np.inf, -0.0, x * special.ndtr(x))


def gelu_tanh(x: np.ndarray) -> np.ndarray:
    inner = np.sqrt(2 / np.longdouble(np.pi)) * (x + 0.044715 * x**3)
    return np.where(x == -np.inf, -0.0, x * (1 + np.tanh(inner)) / 2)


UNARY = [
    row("exp", FLOATS, np.exp, 2),
    row("exp2", FLOATS, np.exp2, 2),
    row("log", FLOATS, np.log, 2),
    row("log2", FLOATS, np.log2, 2),
    row("sqrt", FLOATS, np.sqrt, 0),
    row("reciprocal", FLOATS, lambda x: 1 / x, 0),
    row("sin", FLOATS, np.sin, 2),
    row("tanh", FLOATS, np.tanh, 4),
    row("cos", FLOATS, np.cos, 4),
    row("tan", FLOATS, np.tan, 4),
    row("asin", FLOATS, np.arcsin, 4),
    row("acos", FLOATS, np.arccos, 4),
    row("atan", FLOATS, np.arctan, 4),
    row("sinh", FLOATS, np.sinh, 4),
    row("cosh", FLOATS, np.cosh, 4),
    row("asinh", FLOATS, np.arcsinh, 4),
    row("acosh", FLOATS, np.arccosh, 4),
    row("atanh", FLOATS, np.arctanh, 4),
    row("log1p", FLOATS, np.log1p, 4),
    row("expm1", FLOATS, np.expm1, 4),
    row("erf", FLOATS, lambda x: special.erf(x.astype(np.float64)), 4),
    row("floor", FLOATS, np.floor, 0),
    row("round", FLOATS, np.rint, 0),
    row("sigmoid", FLOATS, lambda x: 1 / (1 + np.exp(-x)), 4),
    row("silu", FLOATS, lambda x: np.where(x == -np.inf, -0.0, x / (1 + np.exp(-x))), 4),
    row("relu", (*FLOATS, *INTEGERS), lambda x: np.maximum(x, x.dtype.type(0)), 0),
    row("negative", (*FLOATS, *INTEGERS), np.negative, 0),
    row("absolute", (*FLOATS, *INTEGERS), np.abs, 0),
    row("invert", ("bool", *INTEGERS), np.invert, 0),
    row("isnan", FLOATS, np.isnan, 0),
]


@pytest.mark.parametrize(("name", "dtypes", "reference", "ulp"), UNARY)
def test_unary(run: Callable, name: str, dtypes: Sequence[str], reference: Callable,
               ulp: float) -> None:
    check_each(run, dtypes, lambda d: [values_of(d, 64)], getattr(athanor, name), reference, ulp)


@covers("gelu")
@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_gelu(run: Callable, approximate: str) -> None:
    g = athanor.Graph("gelu", dims={"n": (1, 64)})
    inputs = {d: floats(d) for d in FLOATS}
    for d in FLOATS:
        g.output(d, athanor.gelu(g.input(d, "n", d), approximate))
    results = run(g, inputs)
    reference = gelu if approximate == "none" else gelu_tanh
    for d in FLOATS:
        # The bound is in units of the operand where that is larger.
        with np.errstate(all="ignore"):
            x = inputs[d].astype(np.float64)
            want = np.asarray(reference(x.astype(np.longdouble)), np.float64)
            finite = np.isfinite(x) & (np.abs(x) < 1e3)
            slack = 9 * spacing(x[finite], d)
            got = results[d].astype(np.float64)
        assert (np.abs(got[finite] - want[finite]) <= slack).all(), d
        np.testing.assert_array_equal(np.isnan(got), np.isnan(x))
        assert got[2] == np.inf and got[3] == 0, d


def mod(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if a.dtype.kind == "f":
        return np.mod(a, b)
    return np.where(b == 0, a.dtype.type(0), np.mod(a, np.where(b == 0, a.dtype.type(1), b)))


def floor_divide(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.where(b == 0, a.dtype.type(0),
                    np.floor_divide(a, np.where(b == 0, a.dtype.type(1), b)))


def trunc_div(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    def one(x: int, y: int) -> int:
        return 0 if y == 0 else abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)

    exact = [one(int(x), int(y)) for x, y in np.broadcast(a, b)]
    bits = a.dtype.itemsize * 8
    wrapped = np.array([x & (1 << bits) - 1 for x in exact], f"u{a.dtype.itemsize}")
    return wrapped.view(a.dtype).reshape(np.broadcast(a, b).shape)


BINARY = [
    row("add", NUMERIC, np.add, 0),
    row("subtract", NUMERIC, np.subtract, 0),
    row("multiply", NUMERIC, np.multiply, 0),
    row("divide", FLOATS, np.divide, 0),
    row("floor_divide", INTEGERS, floor_divide, 0),
    row("trunc_div", INTEGERS, trunc_div, 0),
    row("mod", NUMERIC, mod, 0),
    row("power", FLOATS, np.power, 4),
    row("minimum", COMPUTING, np.minimum, 0),
    row("maximum", COMPUTING, np.maximum, 0),
    row("bitwise_and", ("bool", *INTEGERS), np.bitwise_and, 0),
    row("bitwise_or", ("bool", *INTEGERS), np.bitwise_or, 0),
    row("bitwise_xor", ("bool", *INTEGERS), np.bitwise_xor, 0),
    row("less", COMPUTING, np.less, 0),
    row("less_equal", COMPUTING, np.less_equal, 0),
    row("greater", COMPUTING, np.greater, 0),
    row("greater_equal", COMPUTING, np.greater_equal, 0),
    row("equal", COMPUTING, np.equal, 0),
    row("not_equal", COMPUTING, np.not_equal, 0),
]


@pytest.mark.parametrize(("name", "dtypes", "reference", "ulp"), BINARY)
def test_binary(run: Callable, name: str, dtypes: Sequence[str], reference: Callable,
                ulp: float) -> None:
    """Every pair of values: a column against a row."""
    def arrays(dtype: str) -> list[np.ndarray]:
        values = values_of(dtype, 24)
        return [values.reshape(-1, 1), np.roll(values, 3).reshape(1, -1)]

    check_each(run, dtypes, arrays, getattr(athanor, name), reference, ulp)


@covers("left_shift", "right_shift")
@pytest.mark.parametrize("name", ["left_shift", "right_shift"])
def test_shift(run: Callable, name: str) -> None:

    def arrays(dtype: str) -> list[np.ndarray]:
        bits = array_type(dtype).itemsize * 8
        return [integers(dtype, 24).reshape(-1, 1),
                np.array([[0, 1, bits - 1, bits, bits + 1, 127]], array_type(dtype))]

    def reference(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        bits = a.dtype.itemsize * 8
        inside = np.minimum(b, b.dtype.type(bits - 1))
        if name == "left_shift":
            return np.where(b < bits, np.left_shift(a, inside), a.dtype.type(0))
        beyond = np.where(a < 0, a.dtype.type(-1), a.dtype.type(0)) if a.dtype.kind == "i" else (
            a.dtype.type(0))
        return np.where(b < bits, np.right_shift(a, inside), beyond)

    check_each(run, INTEGERS, arrays, getattr(athanor, name), reference)


@covers("cast")
def test_cast(run: Callable) -> None:
    """Between all computing dtypes: wraps, saturates, truncates, rounds as the op table says."""
    dtypes = COMPUTING
    g = athanor.Graph("cast", dims={"n": (1, 64)})
    inputs = {d: values_of(d, 48) for d in dtypes}
    for source in dtypes:
        x = g.input(source, "n", source)
        for target in dtypes:
            g.output(f"{source}_{target}", x.cast(target))
    results = run(g, inputs)
    for source in dtypes:
        x = inputs[source]
        for target in dtypes:
            got, kind = results[f"{source}_{target}"], array_type(target)
            with np.errstate(all="ignore"):
                if target in INTEGERS and source in FLOATS:
                    info = np.iinfo(kind)
                    exact = [0 if np.isnan(v) else int(min(max(np.trunc(v), float(info.min)),
                             float(info.max))) for v in x.astype(np.float64)]
                    want = np.array([min(max(v, info.min), info.max) for v in exact], kind)
                elif target == "bool":
                    want = x.astype(np.float64) != 0 if source in FLOATS else x != 0
                elif target == "bf16" and source not in FLOATS:
                    # Through float64 is exact up to 2^53 only: round by hand.
                    want = np.array([exact_bf16(int(v)) for v in x], kind)
                else:
                    want = x.astype(kind)
            np.testing.assert_array_equal(got.astype(np.float64) if target == "bf16" else got,
                                          want.astype(np.float64) if target == "bf16" else want,
                                          err_msg=f"{source} to {target}")


def exact_bf16(value: int) -> float:
    """An integer rounded once to eight bits of mantissa, ties to even."""
    magnitude = abs(value)
    shift = max(magnitude.bit_length() - 8, 0)
    kept, rest = magnitude >> shift, magnitude & (1 << shift) - 1
    half = 1 << shift >> 1
    kept += shift > 0 and (rest > half or (rest == half and kept & 1 == 1))
    return float(kept << shift) * (-1 if value < 0 else 1)


@covers("bitcast")
def test_bitcast(run: Callable) -> None:
    pairs = [("f32", "u32"), ("u32", "f32"), ("f64", "i64"), ("f16", "u16"), ("bf16", "i16"),
             ("i8", "u8"), ("u64", "f64")]
    g = athanor.Graph("bitcast", dims={"n": (1, 64)})
    inputs = {}
    for source, target in pairs:
        inputs[source] = values_of(source, 32)
        g.output(f"{source}_{target}", athanor.bitcast(g.input(source, "n", source), target))
    results = run(g, inputs)
    for source, target in pairs:
        got = results[f"{source}_{target}"]
        assert got.dtype == array_type(target)
        assert got.tobytes() == inputs[source].tobytes(), source


@covers("where")
def test_where(run: Callable) -> None:
    """The value not chosen has no influence, bit for bit."""
    g = athanor.Graph("where", dims={"n": (1, 64)})
    inputs = {"c": bools(64)}
    c = g.input("c", "n", "bool")
    for d in COMPUTING:
        inputs[f"a_{d}"], inputs[f"b_{d}"] = values_of(d, 64), values_of(d, 64)[::-1].copy()
        g.output(d, athanor.where(c, g.input(f"a_{d}", "n", d), g.input(f"b_{d}", "n", d)))
    results = run(g, inputs)
    for d in COMPUTING:
        want = np.where(inputs["c"], inputs[f"a_{d}"], inputs[f"b_{d}"])
        assert results[d].tobytes() == want.tobytes(), d
