"""Every function of the SDK through a real server against numpy, with the ends of each dtype."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence

import athanor
import numpy as np
import pytest
from numbers_ import (
    FLOATS,
    INTEGERS,
    array_type,
    assert_close,
    bools,
    floats,
    integers,
    limits,
    spacing,
)
from scipy import special
from test_windows import TESTED as WINDOWS_TESTED

TESTED: set[str] = set()


def row(name: str, *values: object, id: str = "") -> object:
    """A case of a table; remembers which function it tests."""
    TESTED.add(name)
    return pytest.param(name, *values, id=id or name)


def wide(array: np.ndarray, ulp: float = 1) -> np.ndarray:
    """Floats as the reference computes them: in f64 where the result is then rounded correctly."""
    if array.dtype.kind in "biu":
        return array
    return array.astype(np.longdouble if ulp else np.float64)


def values_of(dtype: str, count: int) -> np.ndarray:
    """Values with the dtype's ends."""
    if dtype == "bool":
        return bools(count)
    return floats(dtype, count) if dtype in FLOATS else integers(dtype, count)


def check_each(run: Callable, dtypes: Sequence[str], arrays: Callable[[str], Sequence[np.ndarray]],
               build: Callable, reference: Callable, ulp: float = 0) -> None:
    """One graph with an output per dtype; the leading size of the arrays is a dim."""
    g = athanor.Graph("each", dims={"n": (0, 4096)})
    inputs: dict[str, np.ndarray] = {}
    wants = {}
    for dtype in dtypes:
        operands = []
        for i, array in enumerate(arrays(dtype)):
            inputs[f"{dtype}_{i}"] = array
            shape = ["n", *array.shape[1:]] if array.ndim and array.shape[0] > 1 else array.shape
            names = {row.numpy: name for name, row in athanor.dtypes.DTYPES.items()}
            operands.append(g.input(f"{dtype}_{i}", shape, names[array.dtype]))
        g.output(dtype, build(*operands))
        with np.errstate(all="ignore"):
            wants[dtype] = np.asarray(reference(*(wide(a, ulp) for a in arrays(dtype))))
    results = run(g, inputs)
    for dtype in dtypes:
        assert_close(results[dtype], wants[dtype], ulp, what=dtype)


def eps(dtype: str) -> float:
    """The distance from 1 to the next number."""
    return float(limits(dtype).eps)


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
    row("recip", FLOATS, lambda x: 1 / x, 0),
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


@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_gelu(run: Callable, approximate: str) -> None:
    TESTED.add("gelu")
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


NUMERIC = (*FLOATS, *INTEGERS)
COMPUTING = ("bool", *NUMERIC)
BINARY = [
    row("plus", NUMERIC, np.add, 0),
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


@pytest.mark.parametrize("name", ["left_shift", "right_shift"])
def test_shift(run: Callable, name: str) -> None:
    TESTED.add(name)

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


def test_cast(run: Callable) -> None:
    """Between all computing dtypes: wraps, saturates, truncates, rounds as the op table says."""
    TESTED.add("cast")
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


def test_bitcast(run: Callable) -> None:
    TESTED.add("bitcast")
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


def test_where(run: Callable) -> None:
    """What is not chosen has no influence, bit for bit."""
    TESTED.add("where")
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


A = np.arange(2 * 3 * 4, dtype=np.float32).reshape(2, 3, 4)
MOVEMENTS = [
    row("permute", lambda x: athanor.permute(x, (2, 0, 1)), lambda x: x.transpose(2, 0, 1)),
    row("transpose", lambda x: x.T, lambda x: x.T),
    row("expand", lambda x: athanor.expand(x[:, :1], (-1, 5, -1)),
        lambda x: np.broadcast_to(x[:, :1], (2, 5, 4))),
    row("expand", lambda x: x.expand(7, -1, -1, -1), lambda x: np.broadcast_to(x, (7, 2, 3, 4)),
        id="expand-new-axis"),
    row("reshape", lambda x: x.reshape(-1, 6), lambda x: x.reshape(-1, 6)),
    row("reshape", lambda x: x.reshape(x.shape[0], 2, 6), lambda x: x.reshape(2, 2, 6),
        id="reshape-split"),
    row("reshape", lambda x: x.reshape(4, 3, -1), lambda x: x.reshape(4, 3, -1),
        id="reshape-across-the-dim"),
    row("flatten", lambda x: athanor.flatten(x, 1), lambda x: x.reshape(2, 12)),
    row("squeeze", lambda x: athanor.squeeze(x[:, 1:2]), lambda x: x[:, 1]),
    row("unsqueeze", lambda x: athanor.unsqueeze(x, 1), lambda x: x[:, None]),
    row("flip", lambda x: athanor.flip(x, (0, 2)), lambda x: x[::-1, :, ::-1]),
    row("pad", lambda x: athanor.pad(x, [(0, 0), (1, 2), (3, 0)], -1.5),
        lambda x: np.pad(x, [(0, 0), (1, 2), (3, 0)], constant_values=-1.5)),
    row("pad", lambda x: athanor.pad(x, [(2, 1), (0, 0), (0, 0)], np.inf),
        lambda x: np.pad(x, [(2, 1), (0, 0), (0, 0)], constant_values=np.inf), id="pad-the-dim"),
    row("concat", lambda x: athanor.concat([x, x[:, :1], x * 2], 1),
        lambda x: np.concatenate([x, x[:, :1], x * 2], 1)),
    row("concat", lambda x: athanor.concat([x, x + 1, x], 0),
        lambda x: np.concatenate([x, x + 1, x]), id="concat-the-dim"),
    row("stack", lambda x: athanor.stack([x, -x], -1), lambda x: np.stack([x, -x], -1)),
    row("index", lambda x: x[:, 1], lambda x: x[:, 1]),
    row("index", lambda x: x[..., -1], lambda x: x[..., -1], id="index-last"),
    row("index", lambda x: x[:, None, 0, 1:3], lambda x: x[:, None, 0, 1:3], id="index-new"),
    row("index", lambda x: x[:, ::-2, 3:0:-1], lambda x: x[:, ::-2, 3:0:-1], id="index-steps"),
    row("index", lambda x: x[:, 1:1], lambda x: x[:, 1:1], id="index-nothing"),
    row("index", lambda x: x[1:, :-1, ::3], lambda x: x[1:, :-1, ::3], id="index-the-dim"),
    row("index", lambda x: x[::2], lambda x: x[::2], id="index-dim-step"),
]


@pytest.mark.parametrize(("name", "build", "reference"), MOVEMENTS)
def test_movement(run: Callable, name: str, build: Callable, reference: Callable) -> None:
    """With a dim and with fixed sizes."""
    g = athanor.Graph("movement", dims={"b": (1, 8)})
    g.output("dim", build(g.input("x", ("b", 3, 4), "f32")))
    g.output("fixed", build(g.input("y", (2, 3, 4), "f64")))
    results = run(g, {"x": A, "y": A.astype(np.float64)})
    np.testing.assert_array_equal(results["dim"], reference(A))
    np.testing.assert_array_equal(results["fixed"], reference(A.astype(np.float64)))


REDUCTIONS = [
    row("sum", NUMERIC, np.sum),
    row("max", COMPUTING, np.max),
    row("min", COMPUTING, np.min),
    row("prod", NUMERIC, np.prod),
]


@pytest.mark.parametrize(("name", "dtypes", "reference"), REDUCTIONS)
@pytest.mark.parametrize("axes", [None, 0, 1, (0, 2), -1])
def test_reduction(run: Callable, name: str, dtypes: Sequence[str], reference: Callable,
                   axes: object) -> None:
    function = getattr(athanor, name)
    g = athanor.Graph("reduce", dims={"n": (0, 64)})
    inputs, wants = {}, {}
    for d in dtypes:
        x = values_of(d, 5 * 7 * 3)
        if d in FLOATS:
            x = floats(d, 105, special=False)
            if name in ("max", "min"):
                x[17], x[40] = np.nan, -np.inf
            if name == "prod":  # no product of some leaves the range of any dtype
                x = (1 + np.abs(x) / 128).astype(x.dtype)
                x[17], x[40] = -x[17], np.nan
        inputs[d] = x.reshape(5, 7, 3)
        g.output(d, function(g.input(d, ("n", 7, 3), d), axes, keepdims=axes == 1))
        adds = name in ("sum", "prod")
        same = {} if not adds or d in FLOATS else {"dtype": array_type(d)}
        with np.errstate(all="ignore"):
            wants[d] = np.asarray(reference(wide(inputs[d]), axis=axes, keepdims=axes == 1, **same))
    results = run(g, inputs)
    for d in dtypes:
        bound = 0.0
        if name == "sum" and d in FLOATS:
            bound = 105 * eps("f32" if d != "f64" else "f64") * float(
                np.abs(inputs[d].astype(np.float64)).sum())
        if name == "prod" and d in FLOATS:
            bound = 105 * eps("f32" if d != "f64" else "f64") * float(
                np.nanmax(np.abs(wants[d].astype(np.float64)), initial=0))
        assert_close(results[d], wants[d], absolute=bound, what=d)


@pytest.mark.parametrize("name", ["mean", "variance"])
def test_mean(run: Callable, name: str) -> None:
    """Also over the dim, whose size the graph does not know."""
    TESTED.add(name)
    g = athanor.Graph("mean", dims={"n": (1, 64)})
    inputs = {d: floats(d, 35, special=False).reshape(5, 7) for d in FLOATS}
    for d in FLOATS:
        x = g.input(d, ("n", 7), d)
        for label, axes in (("all", None), ("rows", 0), ("columns", 1)):
            g.output(f"{d}_{label}", getattr(athanor, name)(x, axes))
    results = run(g, inputs)
    reference = np.mean if name == "mean" else np.var
    for d in FLOATS:
        for label, axes in (("all", None), ("rows", 0), ("columns", 1)):
            want = np.asarray(reference(wide(inputs[d]), axis=axes))
            slack = 400 * eps("f64" if d == "f64" else "f32")
            assert_close(results[f"{d}_{label}"], want, absolute=slack, what=f"{d} {label}")


@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_argmax(run: Callable, name: str) -> None:
    """The lowest index among equals; the first NaN."""
    TESTED.add(name)
    g = athanor.Graph("arg", dims={"n": (1, 64)})
    rows = np.array([[1, 3, 3, 0], [2, 2, 2, 2], [0, -1, -1, 5], [7, 0, 0, 7]])
    inputs = {d: np.abs(rows).astype(array_type(d)) for d in ("f32", "f16", "i32", "u8")}
    inputs["f64"] = np.array([[1, np.nan, np.inf, np.nan], [-np.inf] * 4, [-0.0, 0.0, -0.0, 0.0],
                              [np.inf, -np.inf, np.inf, -np.inf]])
    for d in inputs:
        x = g.input(d, ("n", 4), d)
        g.output(f"{d}_1", getattr(athanor, name)(x, 1))
        g.output(f"{d}_0", getattr(athanor, name)(x, 0, keepdims=True))
    results = run(g, inputs)
    for d, x in inputs.items():
        np.testing.assert_array_equal(results[f"{d}_1"], getattr(np, name)(x, 1), err_msg=d)
        np.testing.assert_array_equal(results[f"{d}_0"], getattr(np, name)(x, 0, keepdims=True))
        assert results[f"{d}_1"].dtype == np.int64


@pytest.mark.parametrize("axis", [0, 1])
def test_order(run: Callable, axis: int) -> None:
    """Stable, either way; NaN above all; the first of the order."""
    TESTED.update(("argsort", "top_k"))
    g = athanor.Graph("order", dims={"n": (5, 64)})
    inputs = {d: values_of(d, 60).reshape(5, 12)[:, ::-1].copy() for d in COMPUTING}
    for d in COMPUTING:
        x = g.input(d, ("n", 12), d)
        g.output(d, athanor.argsort(x, axis))
        g.output(f"{d}_k", athanor.top_k(x, 5, axis, largest=False))
        g.output(f"{d}_down", athanor.argsort(x, axis, descending=True))
    results = run(g, inputs)
    for d in COMPUTING:
        x = inputs[d].astype(np.float32) if d == "bf16" else inputs[d]
        order = np.argsort(x, axis, kind="stable")
        np.testing.assert_array_equal(results[d], order, err_msg=d)
        np.testing.assert_array_equal(results[f"{d}_k"], np.take(order, range(5), axis), err_msg=d)
        # The order of the reversed elements, from behind: equal ones keep their order.
        down = x.shape[axis] - 1 - np.flip(np.argsort(np.flip(x, axis), axis, kind="stable"), axis)
        np.testing.assert_array_equal(results[f"{d}_down"], down, err_msg=d)


@pytest.mark.parametrize("name", ["cumsum", "cumprod"])
def test_cumulation(run: Callable, name: str) -> None:
    """Both directions, with and without the element itself."""
    TESTED.add(name)
    g = athanor.Graph("cumulate", dims={"n": (1, 64)})
    values = np.arange(1, 13).reshape(3, 4) % 5 + 1
    inputs = {d: values.astype(array_type(d)) for d in NUMERIC}
    for d in NUMERIC:
        x = g.input(d, ("n", 4), d)
        g.output(d, getattr(athanor, name)(x, 1))
        g.output(f"{d}_back", getattr(athanor, name)(x, 0, exclusive=True, reverse=True))
    results = run(g, inputs)
    back = np.flip(values, 0)
    wants = {"": getattr(np, name)(values, 1),
             "_back": np.flip(getattr(np, name)(np.vstack([
                 np.full((1, 4), name == "cumprod"), back[:-1]]), 0), 0)}
    for d in NUMERIC:
        for suffix, want in wants.items():
            got = results[d + suffix]
            assert got.dtype == array_type(d)
            exact = want.astype(array_type(d)).astype(np.float64)
            np.testing.assert_array_equal(got.astype(np.float64), exact, err_msg=d + suffix)


CONTRACTIONS = [
    ("mk,kn->mn", (5, 7), (7, 3)), ("km,kn->nm", (7, 5), (7, 3)),
    ("bmk,bkn->bmn", (5, 2, 3), (5, 3, 4)), ("bmk,kn->bmn", (5, 3, 4), (4, 6)),
    ("k,k->", (5,), (5,)), ("m,n->mn", (5,), (3,)), ("mk,k->m", (5, 8), (8,)),
    ("bhqd,bhkd->bhqk", (5, 2, 3, 4), (5, 2, 6, 4)), ("mk,n->n", (5, 2), (3,)),
    ("mk,kn->mn", (5, 64), (64, 48)), ("mk,kn->mn", (17, 33), (33, 65)),
]


@pytest.mark.parametrize(("spec", "left", "right"), CONTRACTIONS)
def test_contract(run: Callable, spec: str, left: tuple, right: tuple) -> None:
    TESTED.add("contract")
    dtypes = (*FLOATS, "i32", "u8", "i64")
    g = athanor.Graph("contract", dims={"n": (1, 64)})
    inputs, wants = {}, {}
    random = np.random.default_rng(3)
    for d in dtypes:
        a, b = (random.standard_normal(shape) if d in FLOATS else random.integers(0, 127, shape)
                for shape in (left, right))
        a, b = a.astype(array_type(d)), b.astype(array_type(d))
        inputs |= {f"a_{d}": a, f"b_{d}": b}
        shared = spec.split(",")[1].split("->")[0]
        other = ["n" if c == spec[0] else size for c, size in zip(shared, right, strict=True)]
        g.output(d, athanor.contract(spec, g.input(f"a_{d}", ("n", *left[1:]), d),
                                     g.input(f"b_{d}", other, d)))
        with np.errstate(all="ignore"):
            wants[d] = np.asarray(np.einsum(spec, wide(a), wide(b)))
    results = run(g, inputs)
    for d in dtypes:
        slack = 64 * 64 * eps("f64" if d == "f64" else "f32") if d in FLOATS else 0
        assert_close(results[d], wants[d], absolute=slack, what=d)


@pytest.mark.parametrize(("left", "right"), [
    ((5, 7), (7, 3)), ((7,), (7, 3)), ((5, 7), (7,)), ((7,), (7,)), ((5, 2, 7), (7, 3)),
    ((5, 1, 2, 7), (4, 7, 3)), ((1, 2, 7), (5, 7, 3))])
def test_matmul(run: Callable, left: tuple, right: tuple) -> None:
    """numpy's rules, vectors and broadcast batches among them."""
    TESTED.add("matmul")
    g = athanor.Graph("matmul")
    random = np.random.default_rng(4)
    a, b = (random.standard_normal(shape).astype(np.float32) for shape in (left, right))
    g.output("y", g.input("a", left, "f32") @ g.input("b", right, "f32"))
    want = a.astype(np.float64) @ b.astype(np.float64)
    assert_close(run(g, {"a": a, "b": b})["y"], np.asarray(want), absolute=1e-5)


def softmax(x: np.ndarray, axis: int) -> np.ndarray:
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


@pytest.mark.parametrize("axis", [-1, 0, 1])
def test_softmax(run: Callable, axis: int) -> None:
    TESTED.add("softmax")
    g = athanor.Graph("softmax", dims={"n": (1, 64)})
    inputs = {}
    for d in FLOATS:
        x = floats(d, 5 * 3 * 17, special=False).reshape(5, 3, 17)
        x[0, 0, 0], x[1, 1, 3], x[3, :, 5] = np.nan, np.inf, -np.inf
        x[4] = -np.inf
        inputs[d] = x
        g.output(d, athanor.softmax(g.input(d, ("n", 3, 17), d), axis))
    results = run(g, inputs)
    for d in FLOATS:
        with np.errstate(all="ignore"):
            want = softmax(wide(inputs[d]), axis)
        assert_close(results[d], want, 8, absolute=1e-7 if d != "f64" else 1e-15, what=d)


@pytest.mark.parametrize("width", [1, 7, 64, 100])
def test_norms(run: Callable, width: int) -> None:
    TESTED.update({"layer_norm", "rms_norm"})
    g = athanor.Graph("norms", dims={"n": (1, 64)})
    inputs, scale = {}, np.linspace(0.5, 1.5, width)
    for d in FLOATS:
        inputs[d] = floats(d, 5 * width, special=False).reshape(5, width)
        x = g.input(d, ("n", width), d)
        s = g.parameter(f"s_{d}", scale.astype(array_type(d)))
        b = g.parameter(f"b_{d}", (scale - 1).astype(array_type(d)))
        g.output(f"layer_{d}", athanor.layer_norm(x, s, b, 1e-3))
        g.output(f"rms_{d}", athanor.rms_norm(x, s, 1e-3))
    results = run(g, inputs)
    for d in FLOATS:
        x = wide(inputs[d])
        s, b = wide(scale.astype(array_type(d))), wide((scale - 1).astype(array_type(d)))
        centred = x - x.mean(-1, keepdims=True)
        layer = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-3) * s + b
        rms = x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-3) * s
        slack = 1e-14 if d == "f64" else 4e-6
        assert_close(results[f"layer_{d}"], layer, absolute=slack, what=f"layer {d}")
        assert_close(results[f"rms_{d}"], rms, absolute=slack, what=f"rms {d}")


def attention(q: np.ndarray, k: np.ndarray, v: np.ndarray, keep: np.ndarray | None = None,
              bias: np.ndarray | None = None, scale: float | None = None) -> np.ndarray:
    q, k, v = (a.astype(np.float64) for a in (q, k, v))
    scores = q @ k.swapaxes(-1, -2) * (1 / np.sqrt(q.shape[-1]) if scale is None else scale)
    scores = scores if bias is None else scores + bias
    scores = scores if keep is None else np.where(keep, scores, -np.inf)
    hidden = np.isneginf(scores).all(-1, keepdims=True)
    weights = np.exp(scores - np.where(hidden, 0, scores.max(-1, keepdims=True)))
    total = weights.sum(-1, keepdims=True)
    return np.where(hidden, 0, weights @ v / np.where(hidden, 1, total))


@pytest.mark.parametrize("kind", ["plain", "scale", "causal", "bool", "float", "cross"])
@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16", "f64"])
def test_attention(run: Callable, kind: str, dtype: str) -> None:
    TESTED.add("attention")
    g = athanor.Graph("attention", dims={"s": (1, 64)})
    queries, keys = 9, 5 if kind == "cross" else 9
    random = np.random.default_rng(5)
    q = random.standard_normal((2, 3, queries, 8)).astype(array_type(dtype))
    k, v = (random.standard_normal((2, 3, keys, w)).astype(array_type(dtype)) for w in (8, 6))
    x = g.input("q", (2, 3, "s", 8), dtype)
    rows = "t" if kind == "cross" else "s"
    y, z = g.input("k", (2, 3, rows, 8), dtype), g.input("v", (2, 3, rows, 6), dtype)
    inputs = {"q": q, "k": k, "v": v}
    options, reference = {}, {}
    if kind == "scale":
        options = reference = {"scale": 0.25}
    elif kind == "causal":
        options = {"causal": True}
        reference = {"keep": np.tril(np.ones((9, 9), bool))}
    elif kind == "bool":
        inputs["mask"] = random.random((9, 9)) < 0.5
        inputs["mask"][4] = False  # a query that sees nothing gives zeros
        options = {"mask": g.input("mask", ("s", "s"), "bool")}
        reference = {"keep": inputs["mask"]}
    elif kind == "float":
        inputs["mask"] = random.standard_normal((2, 1, 9, 9)).astype(array_type(dtype))
        inputs["mask"][0, 0, 2] = -np.inf
        options = {"mask": g.input("mask", (2, 1, "s", "s"), dtype)}
        reference = {"bias": inputs["mask"].astype(np.float64)}
    g.output("y", athanor.attention(x, y, z, **options))
    with np.errstate(all="ignore"):
        want = attention(q, k, v, **reference)
    assert_close(run(g, inputs)["y"], want, 8, absolute=1e-14 if dtype == "f64" else 4e-6)


@pytest.mark.parametrize("ids", ["i32", "i64", "u8"])
def test_gather(run: Callable, ids: str) -> None:
    TESTED.update({"gather", "embedding"})
    g = athanor.Graph("gather", dims={"n": (1, 64)})
    table = np.random.default_rng(6).standard_normal((11, 4)).astype(np.float32)
    t = g.parameter("table", table)
    i = g.input("i", ("n", 3), ids)
    g.output("rows", athanor.embedding(t, i))
    g.output("columns", athanor.gather(g.input("x", ("n", 11), "f64"), g.input("j", "m", ids), 1))
    g.output("indexed", t[i])
    values = np.random.default_rng(7).integers(0, 11, (5, 3)).astype(array_type(ids))
    x, j = np.random.default_rng(8).standard_normal((5, 11)), values[:, 0].copy()
    results = run(g, {"i": values, "x": x, "j": j})
    np.testing.assert_array_equal(results["rows"], table[values])
    np.testing.assert_array_equal(results["indexed"], table[values])
    np.testing.assert_array_equal(results["columns"], x[:, j])


@pytest.mark.parametrize("mode", ["set", "add", "mul", "max", "min"])
@pytest.mark.parametrize("dtype", ["f32", "bf16", "i32", "u8"])
def test_scatter(run: Callable, mode: str, dtype: str) -> None:
    """Equal indices among them."""
    TESTED.add("scatter")
    g = athanor.Graph("scatter", dims={"n": (1, 64)})
    kind = array_type(dtype)
    data = np.arange(12).reshape(6, 2).astype(kind)
    ids = np.array([1, 4, 1, 0, 1], np.int64)
    updates = (np.arange(10).reshape(5, 2) % 7).astype(kind)
    g.output("y", athanor.scatter(g.input("data", (6, 2), dtype), g.input("ids", "n", "i64"),
                                  g.input("updates", ("n", 2), dtype), 0, mode))
    want = data.astype(np.float64)
    for i, update in zip(ids, updates.astype(np.float64), strict=True):
        combine = {"set": lambda a, b: b, "add": np.add, "mul": np.multiply, "max": np.maximum,
                   "min": np.minimum}
        want[i] = combine[mode](want[i], update)
    got = run(g, {"data": data, "ids": ids, "updates": updates})["y"]
    np.testing.assert_array_equal(got.astype(np.float64), want)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("dtype", ["f32", "f16"])
def test_embedding_bag(run: Callable, mode: str, dtype: str) -> None:
    """Ragged bags, empty ones first, in the middle and last."""
    TESTED.add("embedding_bag")
    g = athanor.Graph("bags", dims={"n": (0, 64), "b": (1, 16)})
    table = np.random.default_rng(9).standard_normal((13, 5)).astype(array_type(dtype))
    ids, offsets = np.array([3, 0, 12, 3, 7, 7], np.int64), np.array([0, 0, 2, 2, 5, 6], np.int64)
    g.output("y", athanor.embedding_bag(g.parameter("table", table), g.input("ids", "n", "i64"),
                                        g.input("offsets", "b", "i64"), mode))
    want = np.zeros((6, 5))
    for b, (start, end) in enumerate(zip(offsets, [*offsets[1:], 6], strict=True)):
        rows = table[ids[start:end]].astype(np.float64)
        if len(rows):
            want[b] = getattr(np, mode)(rows, 0)
    got = run(g, {"ids": ids, "offsets": offsets})["y"]
    assert_close(got, want, 2, absolute=1e-6)


def test_iota_and_random_bits(run: Callable) -> None:
    g = athanor.Graph("iota", dims={"n": (1, 64)})
    x = g.input("x", "n", "f32")
    seed = g.input("seed", (), "u64")
    for d in NUMERIC:
        g.output(d, g.iota(("n", 3), 0, d))
    g.output("columns", g.iota((2, "n"), 1))
    g.output("bits", g.random_bits(seed, ("n", 4)))
    g.output("x", x)
    inputs = {"x": np.zeros(5, np.float32), "seed": np.asarray(7, np.uint64)}
    results = run(g, inputs)
    for d in NUMERIC:
        want = np.broadcast_to(np.arange(5)[:, None], (5, 3)).astype(array_type(d))
        assert results[d].tobytes() == np.ascontiguousarray(want).tobytes(), d
    np.testing.assert_array_equal(results["columns"], np.broadcast_to(np.arange(5), (2, 5)))
    np.testing.assert_array_equal(results["bits"].ravel(), philox(7, 20))


def philox(seed: int, count: int) -> np.ndarray:
    """Philox4x32-10 with counter (i, 0, 0, 0) and the seed's halves as key."""
    words = []
    for block in range(-(-count // 4)):
        c, k = [block, 0, 0, 0], [seed & 0xffffffff, seed >> 32]
        for _ in range(10):
            a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
            c = [b >> 32 ^ c[1] ^ k[0], b & 0xffffffff, a >> 32 ^ c[3] ^ k[1], a & 0xffffffff]
            k = [k[0] + 0x9E3779B9 & 0xffffffff, k[1] + 0xBB67AE85 & 0xffffffff]
        words += c
    return np.array(words[:count], np.uint32)


def test_operators(run: Callable) -> None:
    """Python's operators, with numbers and arrays on either side."""
    g = athanor.Graph("operators", dims={"n": (1, 64)})
    x, i = g.input("x", ("n", 3), "f32"), g.input("i", ("n", 3), "i32")
    m = np.arange(3, dtype=np.float32)
    cases = {
        "radd": (2 + x, lambda x, i: 2 + x), "rsub": (1 - x, lambda x, i: 1 - x),
        "rmul": (3 * x, lambda x, i: 3 * x), "rdiv": (1 / x, lambda x, i: 1 / x),
        "array": (m - x, lambda x, i: m - x), "square": (x**2, lambda x, i: x * x),
        "imod": (i % 3, lambda x, i: i % 3), "rmod": (7 % i, lambda x, i: 7 % i),
        "ifloor": (i // 2, lambda x, i: i // 2), "rfloor": (9 // i, lambda x, i: 9 // i),
        "shift": (i << 2, lambda x, i: i << 2), "rshift": (i >> 1, lambda x, i: i >> 1),
        "lshift": (1 << i, lambda x, i: 1 << i), "not": (~i, lambda x, i: ~i),
        "bits": (i & 6 | i ^ 3, lambda x, i: i & 6 | i ^ 3),
        "neg": (-x, lambda x, i: -x), "abs": (abs(-x), lambda x, i: x),
        "compare": ((x > 1) & (x <= 2), lambda x, i: (x > 1) & (x <= 2)),
        "ne": (i != 2, lambda x, i: i != 2), "eq": (i == 2, lambda x, i: i == 2),
        "matmul": (x @ np.eye(3, dtype=np.float32), lambda x, i: x),
        "rmatmul": (np.ones((2, 3), np.float32) @ x.T, lambda x, i: np.ones((2, 3)) @ x.T),
    }
    for name, (value, _) in cases.items():
        g.output(name, value)
    xs = np.arange(1, 7, dtype=np.float32).reshape(2, 3)
    i_s = np.arange(1, 7, dtype=np.int32).reshape(2, 3)
    results = run(g, {"x": xs, "i": i_s})
    for name, (_, reference) in cases.items():
        np.testing.assert_allclose(results[name], reference(xs, i_s), rtol=1e-6, err_msg=name)


def test_every_function_has_a_case() -> None:
    """Runs last in this file: a function that is exported and not tested fails here."""
    functions = {name for name in athanor.__all__ if inspect.isfunction(getattr(athanor, name))}
    sizes = {"maximum_of", "minimum_of"}  # of dims, tested offline in clients/python/tests
    assert functions - sizes - TESTED - WINDOWS_TESTED == set()
