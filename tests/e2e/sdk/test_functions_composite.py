"""Contractions, norms, attention and indexing of the SDK through a server against numpy."""

from __future__ import annotations

from collections.abc import Callable

import athanor
import numpy as np
import pytest
from functions_ import covers, eps, wide
from numbers_ import FLOATS, array_type, assert_close, floats

CONTRACTIONS = [
    ("mk,kn->mn", (5, 7), (7, 3)), ("km,kn->nm", (7, 5), (7, 3)),
    ("bmk,bkn->bmn", (5, 2, 3), (5, 3, 4)), ("bmk,kn->bmn", (5, 3, 4), (4, 6)),
    ("k,k->", (5,), (5,)), ("m,n->mn", (5,), (3,)), ("mk,k->m", (5, 8), (8,)),
    ("bhqd,bhkd->bhqk", (5, 2, 3, 4), (5, 2, 6, 4)), ("mk,n->n", (5, 2), (3,)),
    ("mk,kn->mn", (5, 64), (64, 48)), ("mk,kn->mn", (17, 33), (33, 65)),
]


@covers("contract")
@pytest.mark.parametrize(("spec", "left", "right"), CONTRACTIONS)
def test_contract(run: Callable, spec: str, left: tuple, right: tuple) -> None:
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


@covers("matmul")
@pytest.mark.parametrize(("left", "right"), [
    ((5, 7), (7, 3)), ((7,), (7, 3)), ((5, 7), (7,)), ((7,), (7,)), ((5, 2, 7), (7, 3)),
    ((5, 1, 2, 7), (4, 7, 3)), ((1, 2, 7), (5, 7, 3))])
def test_matmul(run: Callable, left: tuple, right: tuple) -> None:
    """numpy's rules, vectors and broadcast batches among them."""
    g = athanor.Graph("matmul")
    random = np.random.default_rng(4)
    a, b = (random.standard_normal(shape).astype(np.float32) for shape in (left, right))
    g.output("y", g.input("a", left, "f32") @ g.input("b", right, "f32"))
    want = a.astype(np.float64) @ b.astype(np.float64)
    assert_close(run(g, {"a": a, "b": b})["y"], np.asarray(want), absolute=1e-5)


def softmax(x: np.ndarray, axis: int) -> np.ndarray:
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


@covers("softmax")
@pytest.mark.parametrize("axis", [-1, 0, 1])
def test_softmax(run: Callable, axis: int) -> None:
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


@covers("layer_norm", "rms_norm")
@pytest.mark.parametrize("width", [1, 7, 64, 100])
def test_norms(run: Callable, width: int) -> None:
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


@covers("attention")
@pytest.mark.parametrize("kind", ["plain", "scale", "causal", "bool", "float", "cross"])
@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16", "f64"])
def test_attention(run: Callable, kind: str, dtype: str) -> None:
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


@covers("gather", "embedding")
@pytest.mark.parametrize("ids", ["i32", "i64", "u8"])
def test_gather(run: Callable, ids: str) -> None:
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


@covers("scatter")
@pytest.mark.parametrize("mode", ["set", "add", "mul", "max", "min"])
@pytest.mark.parametrize("dtype", ["f32", "bf16", "i32", "u8"])
def test_scatter(run: Callable, mode: str, dtype: str) -> None:
    """Equal indices among them."""
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


@covers("embedding_bag")
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("dtype", ["f32", "f16"])
def test_embedding_bag(run: Callable, mode: str, dtype: str) -> None:
    """Ragged bags, empty ones first, in the middle and last."""
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
