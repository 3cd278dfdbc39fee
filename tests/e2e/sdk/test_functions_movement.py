"""Movements, reductions, orders and running sums of the SDK through a server against numpy."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import athanor
import numpy as np
import pytest
from functions_ import COMPUTING, NUMERIC, covers, eps, row, values_of, wide
from numbers_ import FLOATS, array_type, assert_close, floats

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
    """Checks a function with a dim and with fixed sizes."""
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


@covers("mean", "var")
@pytest.mark.parametrize("name", ["mean", "var"])
def test_mean(run: Callable, name: str) -> None:
    """Also over the dim, whose size the graph does not know."""
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


@covers("argmax", "argmin")
@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_argmax(run: Callable, name: str) -> None:
    """The lowest index among equals; the first NaN."""
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


@covers("argsort", "top_k")
@pytest.mark.parametrize("axis", [0, 1])
def test_order(run: Callable, axis: int) -> None:
    """Stable, either way; NaN above all; the first of the order."""
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


@covers("cumsum", "cumprod")
@pytest.mark.parametrize("name", ["cumsum", "cumprod"])
def test_cumulation(run: Callable, name: str) -> None:
    """Both directions, with and without the element itself."""
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
