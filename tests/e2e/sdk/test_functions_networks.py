"""Parts of networks of the SDK through a server: norms per channel, resizing, rotary, loops."""

from __future__ import annotations

from collections.abc import Callable

import athanor
import numpy as np
import pytest
from functions_ import covers, wide
from numbers_ import FLOATS, array_type, assert_close, floats


@covers("batch_norm")
@pytest.mark.parametrize("axis", [1, -1])
def test_batch_norm(run: Callable, axis: int) -> None:
    """With and without scale and bias; the channels where `axis` says."""
    g = athanor.Graph("batch", dims={"n": (1, 8)})
    inputs, wants = {}, {}
    for d in FLOATS:
        x = floats(d, 2 * 3 * 4 * 3, special=False).reshape(2, 3, 4, 3)
        mean, scale, bias = (floats(d, 3 + i, special=False)[:3] for i in range(3))
        var = np.abs(floats(d, 9, special=False)[:3])
        inputs[d] = x
        value = g.input(d, ("n", 3, 4, 3), d)
        g.output(d, athanor.batch_norm(value, mean, var, scale, bias, epsilon=1e-3, axis=axis))
        g.output(f"{d}_bias", athanor.batch_norm(value, mean, var, bias=bias, axis=axis))
        shape = [3 if i == axis % 4 else 1 for i in range(4)]
        x, mean, var, scale, bias = (wide(a) for a in (x, mean, var, scale, bias))
        mean, var, scale, bias = (a.reshape(shape) for a in (mean, var, scale, bias))
        wants[d] = (x - mean) / np.sqrt(var + 1e-3) * scale + bias
        wants[f"{d}_bias"] = (x - mean) / np.sqrt(var + 1e-5) + bias
    results = run(g, inputs)
    for name, want in wants.items():
        slack = (1e-14 if name.startswith("f64") else 1e-6) * float(np.abs(want).max())
        assert_close(results[name], want, 2, absolute=slack, what=name)


@covers("group_norm")
@pytest.mark.parametrize("groups", [1, 2, 6])
def test_group_norm(run: Callable, groups: int) -> None:
    """Batch and one spatial axis are dims."""
    g = athanor.Graph("group", dims={"n": (1, 8), "h": (1, 16)})
    inputs, wants = {}, {}
    scale, bias = np.linspace(0.5, 1.5, 6), np.linspace(-1, 1, 6)
    for d in FLOATS:
        x = floats(d, 2 * 6 * 5 * 3, special=False).reshape(2, 6, 5, 3)
        inputs[d] = x
        value = g.input(d, ("n", 6, "h", 3), d)
        s, b = scale.astype(array_type(d)), bias.astype(array_type(d))
        g.output(d, athanor.group_norm(value, groups, s, b, epsilon=1e-3))
        g.output(f"{d}_plain", athanor.group_norm(value, groups, epsilon=1e-3))
        flat = wide(x).reshape(2, groups, -1)
        centred = flat - flat.mean(-1, keepdims=True)
        plain = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-3)
        wants[f"{d}_plain"] = plain.reshape(x.shape)
        wants[d] = wants[f"{d}_plain"] * wide(s).reshape(6, 1, 1) + wide(b).reshape(6, 1, 1)
    results = run(g, inputs)
    for name, want in wants.items():
        slack = 1e-13 if name.startswith("f64") else 4e-6
        assert_close(results[name], want, 1, absolute=slack, what=name)


def interpolated(x: np.ndarray, axis: int, out: int, ratio: float, corners: bool) -> np.ndarray:
    """One axis by linear interpolation, in f64."""
    size, i = x.shape[axis], np.arange(out)
    if corners:
        place = i * (size - 1) / max(out - 1, 1)
    else:
        place = np.maximum((i + 0.5) * ratio - 0.5, 0)
    low = np.minimum(np.floor(place + 1e-9).astype(int), size - 1)
    high = np.minimum(low + 1, size - 1)
    weight = np.reshape(place - low, [-1 if a == axis else 1 for a in range(x.ndim)])
    return np.take(x, low, axis) * (1 - weight) + np.take(x, high, axis) * weight


LINEAR = {1: "linear", 2: "bilinear", 3: "trilinear"}


@covers("interpolate")
@pytest.mark.parametrize("spatial", [(5,), (4, 7), (2, 3, 4)])
@pytest.mark.parametrize("sizes", [(7, 5, 9), (1, 2, 1), (8, 14, 4)], ids=str)
@pytest.mark.parametrize("dims", [False, True])
def test_interpolate_to_a_size(run: Callable, spatial: tuple, sizes: tuple, dims: bool) -> None:
    """Nearest and linear, up and down; spatial sizes known, or not."""
    rank = len(spatial)
    sizes = sizes[:rank]
    g = athanor.Graph("resize", dims={"n": (1, 4), **{f"s{i}": (1, 16) for i in range(rank)}})
    x = np.random.default_rng(1).standard_normal((2, 3, *spatial)).astype(np.float32)
    shape = ["n", 3, *(f"s{i}" for i in range(rank))] if dims else ["n", 3, *spatial]
    value = g.input("x", shape, "f32")
    g.output("nearest", athanor.interpolate(value, sizes))
    for corners in (False, True):
        g.output(str(corners), athanor.interpolate(value, sizes, mode=LINEAR[rank],
                                                   align_corners=corners))
    results = run(g, {"x": x})
    nearest = x
    for axis, out in enumerate(sizes, start=2):
        nearest = np.take(nearest, [i * x.shape[axis] // out for i in range(out)], axis)
    np.testing.assert_array_equal(results["nearest"], nearest)
    for corners in (False, True):
        want = x.astype(np.float64)
        for axis, out in enumerate(sizes, start=2):
            want = interpolated(want, axis, out, want.shape[axis] / out, corners)
        np.testing.assert_allclose(results[str(corners)], want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dims", [False, True])
def test_an_axis_that_keeps_its_size(run: Callable, dims: bool) -> None:
    """Two elements by 1.25 are two: they stay, as in torch 2.13 but for nearest in 1-D and 3-D."""
    g = athanor.Graph("stays", dims={"h": (1, 64)})
    value = g.input("x", (1, 1, "h" if dims else 2, 3), "f32")
    g.output("nearest", athanor.interpolate(value, scale_factor=(1.25, 1)))
    g.output("linear", athanor.interpolate(value, scale_factor=(1.25, 2), mode="bilinear"))
    x = np.arange(6, dtype=np.float32).reshape(1, 1, 2, 3)
    results = run(g, {"x": x})
    np.testing.assert_array_equal(results["nearest"], x)
    np.testing.assert_allclose(results["linear"], interpolated(x, 3, 6, 0.5, False), rtol=1e-6)
    if dims:
        x = np.arange(24, dtype=np.float32).reshape(1, 1, 8, 3)
        want = interpolated(interpolated(x, 2, 10, 0.8, False), 3, 6, 0.5, False)
        results = run(g, {"x": x})
        np.testing.assert_allclose(results["linear"], want, rtol=1e-6)
        np.testing.assert_array_equal(results["nearest"], x[:, :, [i * 4 // 5 for i in range(10)]])


@pytest.mark.parametrize("factor", [2, 0.5, 1.5, 0.1, (3, 0.4)])
@pytest.mark.parametrize("dims", [False, True])
def test_interpolate_by_a_factor(run: Callable, factor: object, dims: bool) -> None:
    """Sizes are rounded down, positions are exact; every float dtype, and integers by nearest."""
    g = athanor.Graph("factor", dims={"h": (10, 64)})
    factors = factor if isinstance(factor, tuple) else (factor, factor)
    base = np.random.default_rng(2).standard_normal((1, 2, 20, 11))
    inputs = {}
    for d in (*FLOATS, "i8"):
        inputs[d] = (base * 9).astype(array_type(d))
        value = g.input(d, (1, 2, "h" if dims else 20, 11), d)
        g.output(d, athanor.interpolate(value, scale_factor=factor))
        if d != "i8":
            g.output(f"{d}_linear", athanor.interpolate(value, scale_factor=factor,
                                                        mode="bilinear"))
    results = run(g, inputs)
    for d, x in inputs.items():
        nearest, linear = x, x.astype(np.float64)
        for axis, f in enumerate(factors, start=2):
            out = int(x.shape[axis] * f + 1e-9)
            at = np.floor(np.arange(out) / f + 1e-9).astype(int)
            nearest = np.take(nearest, at, axis)
            linear = interpolated(linear, axis, out, 1 / f, False)
        np.testing.assert_array_equal(results[d], nearest, err_msg=d)
        if d != "i8":
            assert_close(results[f"{d}_linear"], linear, 1, absolute=1e-13 if d == "f64" else 1e-5,
                         what=d)


@covers("rotary")
@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("turned", [3, 2])
def test_rotary(run: Callable, interleaved: bool, turned: int) -> None:
    """Whole rows and parts of them; angles per position, and per batch."""
    g = athanor.Graph("rotary", dims={"b": (1, 8), "s": (1, 16)})
    inputs, wants = {}, {}
    angles = np.random.default_rng(3).standard_normal((2, 1, 5, turned))
    for d in FLOATS:
        x = floats(d, 2 * 3 * 5 * 6, special=False).reshape(2, 3, 5, 6)
        cos, sin = np.cos(angles).astype(array_type(d)), np.sin(angles).astype(array_type(d))
        inputs |= {d: x, f"{d}_cos": cos, f"{d}_sin": sin}
        value = g.input(d, ("b", 3, "s", 6), d)
        c, s = (g.input(f"{d}_{n}", ("b", 1, "s", turned), d) for n in ("cos", "sin"))
        g.output(d, athanor.rotary(value, c, s, interleaved=interleaved))
        g.output(f"{d}_first", athanor.rotary(value, c[0, 0], s[0, 0], interleaved=interleaved))
        first = slice(0, 2 * turned, 2) if interleaved else slice(0, turned)
        second = slice(1, 2 * turned, 2) if interleaved else slice(turned, 2 * turned)
        for name, part in ((d, slice(None)), (f"{d}_first", slice(0, 1))):
            want, c64, s64 = wide(x).copy(), wide(cos)[part], wide(sin)[part]
            a, b = wide(x)[..., first], wide(x)[..., second]
            want[..., first], want[..., second] = a * c64 - b * s64, b * c64 + a * s64
            wants[name] = want
    results = run(g, inputs)
    for name, want in wants.items():
        slack = 1e-15 if name.startswith("f64") else 1e-6
        assert_close(results[name], want, 1, absolute=16 * slack, what=name)


@covers("scan")
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("steps", [5, 1, 0])
def test_scan(run: Callable, reverse: bool, steps: int) -> None:
    """Two states, two scanned, two outputs, values from around; a dim of steps, also none."""
    g = athanor.Graph("scan", dims={"t": (0, 8), "n": (1, 4)})
    x, k = g.input("x", ("t", "n", 3), "f32"), g.input("k", ("t",), "i64")
    h = g.input("h", ("n", 3), "f32")
    w = g.parameter("w", np.eye(3, dtype=np.float32) * 0.5)
    around = h * 2

    def step(states: tuple, slices: tuple) -> tuple:
        (total, count), (row, number) = states, slices
        v = g_inside(row)
        total = total @ w + v + around
        return [total, count + number], [total * 3, number * 10]

    def g_inside(row: athanor.Value) -> athanor.Value:
        return row + row.graph.parameter("inside", np.ones(3, np.float32)) + np.float32(0)

    (total, count), (rows, numbers) = athanor.scan(
        step, [h, np.zeros((), np.int64)], [x, k], reverse=reverse)
    for name, value in (("total", total), ("count", count), ("rows", rows), ("numbers", numbers)):
        g.output(name, value)
    random = np.random.default_rng(4)
    xs = random.standard_normal((steps, 2, 3)).astype(np.float32)
    ks = np.arange(1, steps + 1)
    hs = random.standard_normal((2, 3)).astype(np.float32)
    results = run(g, {"x": xs, "k": ks, "h": hs})
    state, number = hs.astype(np.float64), 0
    out, tens = np.zeros((steps, 2, 3)), np.zeros(steps, np.int64)
    for i in range(steps)[::-1 if reverse else 1]:
        state = state * 0.5 + xs[i] + 1 + hs * 2.0
        number += ks[i]
        out[i], tens[i] = state * 3, ks[i] * 10
    np.testing.assert_allclose(results["total"], state, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(results["rows"], out, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(results["count"], number)
    np.testing.assert_array_equal(results["numbers"], tens)


def test_loops_inside_loops(run: Callable) -> None:
    """The inner body takes values from the outer one and from the graph; a length by itself."""
    g = athanor.Graph("nested", dims={"t": (0, 8)})
    x = g.input("x", ("t",), "f32")
    base = x.sum()

    def outer(states: tuple, slices: tuple) -> tuple:
        (total,), (row,) = states, slices

        def inner(states: tuple, slices: tuple) -> tuple:
            (value,) = states
            return [value * 0.5 + row + base], []

        (value,), _ = athanor.scan(inner, [total], length=3)
        return [value], [value]

    (last,), (all_,) = athanor.scan(outer, [g.zeros(())], [x])
    g.output("last", last)
    g.output("all", all_)
    xs = np.arange(1, 5, dtype=np.float32)
    results = run(g, {"x": xs})
    value, wants = 0.0, []
    for row in xs:
        for _ in range(3):
            value = value * 0.5 + row + xs.sum()
        wants.append(value)
    np.testing.assert_allclose(results["all"], wants, rtol=1e-6)
    np.testing.assert_allclose(results["last"], wants[-1], rtol=1e-6)


@covers("lstm")
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_lstm(run: Callable, reverse: bool, dtype: str) -> None:
    """Against the equations; with biases and a first state, and without."""
    random, kind = np.random.default_rng(5), array_type(dtype)

    def normal(*shape: int) -> np.ndarray:
        return (random.standard_normal(shape) * 0.5).astype(kind)

    t, n, i, h = 6, 2, 3, 4
    x, w_ih, w_hh, b_ih, b_hh = normal(t, n, i), normal(4 * h, i), normal(4 * h, h), normal(
        4 * h), normal(4 * h)
    h0, c0 = normal(n, h), normal(n, h)
    g = athanor.Graph("lstm", dims={"t": (0, 16), "n": (1, 8)})
    value = g.input("x", ("t", "n", i), dtype)
    p = {name: g.parameter(name, a) for name, a in
         (("w_ih", w_ih), ("w_hh", w_hh), ("b_ih", b_ih), ("b_hh", b_hh))}
    state = (g.input("h0", ("n", h), dtype), g.input("c0", ("n", h), dtype))
    full = athanor.lstm(value, p["w_ih"], p["w_hh"], p["b_ih"], p["b_hh"], state, reverse=reverse)
    bare = athanor.lstm(value, p["w_ih"], p["w_hh"], reverse=reverse)
    for label, (out, (last_h, last_c)) in (("full", full), ("bare", bare)):
        for name, one in (("out", out), ("h", last_h), ("c", last_c)):
            g.output(f"{label}_{name}", one)
    results = run(g, {"x": x, "h0": h0, "c0": c0})

    def sigmoid(v: np.ndarray) -> np.ndarray:
        return 1 / (1 + np.exp(-v))

    for label, bias, hs, cs in (("full", b_ih.astype(np.float64) + b_hh, h0, c0),
                                ("bare", 0, np.zeros((n, h)), np.zeros((n, h)))):
        out = np.zeros((t, n, h))
        for step in range(t)[::-1 if reverse else 1]:
            gates = x[step].astype(np.float64) @ w_ih.T + hs @ w_hh.T + bias
            gi, gf, gg, go = np.split(gates, 4, -1)
            cs = sigmoid(gf) * cs + sigmoid(gi) * np.tanh(gg)
            hs = sigmoid(go) * np.tanh(cs)
            out[step] = hs
        for name, want in (("out", out), ("h", hs), ("c", cs)):
            np.testing.assert_allclose(results[f"{label}_{name}"], want, rtol=1e-5, atol=1e-6,
                                       err_msg=f"{label} {name}")


@covers("gru", "rnn")
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_gru_and_rnn(run: Callable, reverse: bool, dtype: str) -> None:
    """Against the equations; with biases and a first state, and without; no step at all."""
    random, kind = np.random.default_rng(7), array_type(dtype)

    def normal(*shape: int) -> np.ndarray:
        return (random.standard_normal(shape) * 0.5).astype(kind)

    n, i, h = 2, 3, 4
    weights = {f"{name}_{gates}": normal(*shape) for gates in (1, 3) for name, shape in (
        ("w_ih", (gates * h, i)), ("w_hh", (gates * h, h)), ("b_ih", (gates * h,)),
        ("b_hh", (gates * h,)))}
    g = athanor.Graph("gru", dims={"t": (0, 16), "n": (1, 8)})
    value, state = g.input("x", ("t", "n", i), dtype), g.input("h0", ("n", h), dtype)
    p = {name: g.parameter(name, array) for name, array in weights.items()}
    given = {gates: [p[f"{name}_{gates}"] for name in ("w_ih", "w_hh", "b_ih", "b_hh")]
             for gates in (1, 3)}
    for label, (out, last) in {
            "gru": athanor.gru(value, *given[3], state, reverse=reverse),
            "gru bare": athanor.gru(value, *given[3][:2], reverse=reverse),
            "rnn": athanor.rnn(value, *given[1], state, reverse=reverse),
            "rnn bare": athanor.rnn(value, *given[1][:2], reverse=reverse,
                                    activation=athanor.relu)}.items():
        g.output(f"{label} out", out)
        g.output(f"{label} h", last)

    def sigmoid(v: np.ndarray) -> np.ndarray:
        return 1 / (1 + np.exp(-v))

    def stepped(label: str, x: np.ndarray, hs: np.ndarray) -> np.ndarray:
        gates, bare = 3 if label.startswith("gru") else 1, label.endswith("bare")
        w_ih, w_hh, b_ih, b_hh = (weights[f"{name}_{gates}"].astype(np.float64)
                                  for name in ("w_ih", "w_hh", "b_ih", "b_hh"))
        inputs, states = (x @ w_ih.T, hs @ w_hh.T) if bare else (
            x @ w_ih.T + b_ih, hs @ w_hh.T + b_hh)
        if gates == 1:
            return np.maximum(inputs + states, 0) if bare else np.tanh(inputs + states)
        r, z, new = np.split(inputs, 3, -1)
        hr, hz, hn = np.split(states, 3, -1)
        z = sigmoid(z + hz)
        return (1 - z) * np.tanh(new + sigmoid(r + hr) * hn) + z * hs

    h0 = normal(n, h)
    for t in (6, 0):
        x = normal(t, n, i)
        results = run(g, {"x": x, "h0": h0})
        for label in ("gru", "gru bare", "rnn", "rnn bare"):
            hs = np.zeros((n, h)) if label.endswith("bare") else h0.astype(np.float64)
            out = np.zeros((t, n, h))
            for step in range(t)[::-1 if reverse else 1]:
                hs = out[step] = stepped(label, x[step].astype(np.float64), hs)
            for name, want in (("out", out), ("h", hs)):
                np.testing.assert_allclose(results[f"{label} {name}"], want, rtol=1e-5, atol=1e-6,
                                           err_msg=f"{label} {name}")


def test_interpolate_to_sizes_over_dims(run: Callable) -> None:
    """The result's sizes are expressions, of the same dims and of others."""
    g = athanor.Graph("resize-dims", dims={"h": (0, 8), "w": (0, 8), "o": (0, 20)})
    h, w = athanor.Expr.symbol("h"), athanor.Expr.symbol("w")
    value, other = g.input("x", (1, 2, "h", "w"), "f32"), g.input("o", ("o",), "f32")
    g.output("other", other)
    for label, size in (("same", (2 * h, w + 1)), ("other", ("o", "o"))):
        g.output(f"{label} nearest", athanor.interpolate(value, size))
        for corners in (False, True):
            g.output(f"{label} {corners}", athanor.interpolate(value, size, mode="bilinear",
                                                               align_corners=corners))
    for shape, out in (((3, 5), 7), ((1, 1), 1), ((8, 2), 20), ((4, 4), 4)):
        x = np.random.default_rng(6).standard_normal((1, 2, *shape)).astype(np.float32)
        results = run(g, {"x": x, "o": np.zeros(out, np.float32)})
        for label, sizes in (("same", (2 * shape[0], shape[1] + 1)), ("other", (out, out))):
            nearest, wants = x, {corners: x.astype(np.float64) for corners in (False, True)}
            for axis, size in enumerate(sizes, start=2):
                old = x.shape[axis]
                nearest = np.take(nearest, [i * old // size for i in range(size)], axis)
                for corners in wants:
                    wants[corners] = interpolated(wants[corners], axis, size, old / size, corners)
            np.testing.assert_array_equal(results[f"{label} nearest"], nearest)
            for corners, want in wants.items():
                np.testing.assert_allclose(results[f"{label} {corners}"], want, rtol=1e-5,
                                           atol=1e-6, err_msg=f"{label} {shape} {corners}")
    results = run(g, {"x": np.zeros((1, 2, 3, 0), np.float32), "o": np.zeros(0, np.float32)})
    assert results["same True"].shape == (1, 2, 6, 1) and results["other False"].size == 0
