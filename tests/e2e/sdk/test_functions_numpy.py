"""Functions of the SDK with numpy's names through a server against numpy itself."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Sequence

import athanor
import numpy as np
import pytest
from functions_ import COMPUTING, NUMERIC, check_each, covers, eps, row, values_of, wide
from numbers_ import FLOATS, INTEGERS, array_type, assert_close, floats
from scipy import special

UNARY = [
    row("abs", NUMERIC, np.abs),
    row("ceil", FLOATS, np.ceil),
    row("trunc", FLOATS, np.trunc),
    row("sign", NUMERIC, np.sign),
    row("square", NUMERIC, np.square),
    row("positive", NUMERIC, np.positive),
    row("isinf", FLOATS, np.isinf),
    row("isfinite", FLOATS, np.isfinite),
    row("logical_not", COMPUTING, np.logical_not),
]


@pytest.mark.parametrize(("name", "dtypes", "reference"), UNARY)
def test_unary(run: Callable, name: str, dtypes: Sequence[str], reference: Callable) -> None:
    check_each(run, dtypes, lambda d: [values_of(d, 64)], getattr(athanor, name), reference)


@covers("log10")
def test_log10(run: Callable) -> None:
    check_each(run, FLOATS, lambda d: [values_of(d, 64)], athanor.log10, np.log10, 4)


@covers("logical_and", "logical_or", "logical_xor")
@pytest.mark.parametrize("name", ["logical_and", "logical_or", "logical_xor"])
def test_logical(run: Callable, name: str) -> None:
    """Also of numbers, as numpy: 0 is False, NaN is True."""
    def arrays(dtype: str) -> list[np.ndarray]:
        values = values_of(dtype, 16)
        return [values.reshape(-1, 1), np.roll(values, 3).reshape(1, -1)]

    check_each(run, COMPUTING, arrays, getattr(athanor, name), getattr(np, name))


@covers("clip")
def test_clip(run: Callable) -> None:
    """NaN stays; the upper bound wins; a bound may be absent or a tensor."""
    cases = {
        "both": (lambda x, b: athanor.clip(x, 2, 5), lambda x, b: np.clip(x, 2, 5)),
        "low": (lambda x, b: x.clip(min=2), lambda x, b: np.clip(x, 2, None)),
        "high": (lambda x, b: x.clip(max=5), lambda x, b: np.clip(x, None, 5)),
        "none": (lambda x, b: athanor.clip(x), lambda x, b: x),
        "crossed": (lambda x, b: athanor.clip(x, 5, 2), lambda x, b: np.clip(x, 5, 2)),
        "tensor": (lambda x, b: athanor.clip(x, b, 9), lambda x, b: np.clip(x, b, 9)),
    }
    for build, reference in cases.values():
        check_each(run, NUMERIC, lambda d: [values_of(d, 16).reshape(-1, 1),
                                            np.arange(3).astype(array_type(d)).reshape(1, 3)],
                   build, lambda x, b, reference=reference: reference(x, b))


A = np.arange(2 * 3 * 4, dtype=np.float32).reshape(2, 3, 4)
MOVEMENTS = [
    row("concatenate", lambda x: athanor.concatenate([x, x], 0), lambda x: np.concatenate([x, x])),
    row("split", lambda x: athanor.concat(athanor.split(x, 3, 1)[::-1], 1),
        lambda x: np.concatenate(np.split(x, 3, 1)[::-1], 1)),
    row("split", lambda x: athanor.concat(athanor.split(x, [1, 3], -1)[::-1], -1),
        lambda x: np.concatenate(np.split(x, [1, 3], -1)[::-1], -1), id="split-at"),
    row("tile", lambda x: athanor.tile(x, (2, 1, 3)), lambda x: np.tile(x, (2, 1, 3))),
    row("tile", lambda x: athanor.tile(x, 2), lambda x: np.tile(x, 2), id="tile-last"),
    row("tile", lambda x: athanor.tile(x, (2, 3, 1, 1, 2)), lambda x: np.tile(x, (2, 3, 1, 1, 2)),
        id="tile-leading"),
    row("tile", lambda x: athanor.tile(x, (1, 0, 1)), lambda x: np.tile(x, (1, 0, 1)),
        id="tile-nothing"),
    row("repeat", lambda x: athanor.repeat(x, 3, 0), lambda x: np.repeat(x, 3, 0)),
    row("repeat", lambda x: athanor.repeat(x, 2), lambda x: np.repeat(x, 2), id="repeat-all"),
    row("repeat", lambda x: athanor.repeat(x, 0, 1), lambda x: np.repeat(x, 0, 1),
        id="repeat-nothing"),
    row("swapaxes", lambda x: athanor.swapaxes(x, 0, -1), lambda x: np.swapaxes(x, 0, -1)),
    row("moveaxis", lambda x: athanor.moveaxis(x, 0, -1), lambda x: np.moveaxis(x, 0, -1)),
    row("moveaxis", lambda x: athanor.moveaxis(x, (0, 1), (-1, 0)),
        lambda x: np.moveaxis(x, (0, 1), (-1, 0)), id="moveaxis-two"),
    row("full_like", lambda x: athanor.full_like(x, 7), lambda x: np.full_like(x, 7)),
    row("zeros_like", lambda x: athanor.zeros_like(x, "i32"),
        lambda x: np.zeros_like(x, np.int32)),
    row("ones_like", lambda x: athanor.ones_like(x, "bool"), lambda x: np.ones_like(x, np.bool_)),
    row("sort", lambda x: athanor.sort(athanor.flip(x), 1), lambda x: np.sort(np.flip(x), 1)),
    *(row(name, lambda x, name=name, k=k: getattr(athanor, name)(x, k),
          lambda x, name=name, k=k: getattr(np, name)(x, k), id=f"{name}{k}")
      for name in ("tril", "triu") for k in (-4, -1, 0, 2, 5)),
]


@pytest.mark.parametrize(("name", "build", "reference"), MOVEMENTS)
def test_movement(run: Callable, name: str, build: Callable, reference: Callable) -> None:
    """Checks a function with a dim and with fixed sizes."""
    g = athanor.Graph("movement", dims={"b": (1, 8)})
    g.output("dim", build(g.input("x", ("b", 3, 4), "f32")))
    g.output("fixed", build(g.input("y", (2, 3, 4), "f64")))
    results = run(g, {"x": A, "y": A.astype(np.float64)})
    for got, want in ((results["dim"], reference(A)),
                      (results["fixed"], reference(A.astype(np.float64)))):
        np.testing.assert_array_equal(got, want)
        assert got.dtype == want.dtype


def test_sizes_over_dims(run: Callable) -> None:
    """Triangles, tiles and parts whose sizes a request decides."""
    g = athanor.Graph("dims", dims={"b": (0, 8), "s": (0, 8)})
    b, s = athanor.Expr.symbol("b"), athanor.Expr.symbol("s")
    x = g.input("x", ("b", "s"), "f32")
    g.output("lower", athanor.tril(x, 1))
    g.output("tiled", athanor.tile(x, (3, 1)))
    g.output("halves", athanor.concat(athanor.split(athanor.concat([x, -x], 1), 2, 1)[::-1], 1))
    g.output("counted", g.arange(b, 2 * b + s, 2))
    g.output("down", g.arange(s, 0, -1, dtype="f32"))
    g.output("ones", g.ones(("b", 2), "i8"))
    g.output("sorted", athanor.sort(-x, 0))
    for shape in ((5, 3), (1, 1), (2, 8), (0, 3), (4, 0)):
        values = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
        results = run(g, {"x": values})
        wants = {
            "lower": np.tril(values, 1), "tiled": np.tile(values, (3, 1)),
            "halves": np.concatenate([-values, values], 1),
            "counted": np.arange(shape[0], 2 * shape[0] + shape[1], 2),
            "down": np.arange(shape[1], 0, -1, dtype=np.float32),
            "ones": np.ones((shape[0], 2), np.int8), "sorted": np.sort(-values, 0)}
        for name, want in wants.items():
            np.testing.assert_array_equal(results[name], want, err_msg=f"{name} {shape}")


def test_tensors_of_a_graph(run: Callable) -> None:
    """Graph.full, zeros, ones and arange."""
    g = athanor.Graph("made")
    cases = {
        "full": (g.full((2, 3), 2.5), np.full((2, 3), 2.5, np.float32)),
        "true": (g.full(3, True, "bool"), np.ones(3, np.bool_)),
        "zeros": (g.zeros((0, 2), "i16"), np.zeros((0, 2), np.int16)),
        "stop": (g.arange(5), np.arange(5)),
        "range": (g.arange(7, -3, -4), np.arange(7, -3, -4)),
        "nothing": (g.arange(3, 1), np.arange(3, 1)),
        "thirds": (g.arange(0, 1, 0.3, "f32"), np.arange(0, 1, 0.3).astype(np.float32)),
        "small": (g.arange(3, dtype="bf16"), np.arange(3).astype(array_type("bf16"))),
    }
    for name, (value, _) in cases.items():
        g.output(name, value)
    results = run(g, {})
    for name, (_, want) in cases.items():
        assert results[name].dtype == want.dtype
        np.testing.assert_array_equal(results[name], want, err_msg=name)


@covers("sort")
@pytest.mark.parametrize("axis", [0, -1, None])
def test_sort(run: Callable, axis: int | None) -> None:
    """NaN last, or first; equal ones in their order."""
    g = athanor.Graph("sort", dims={"n": (1, 64)})
    inputs = {d: values_of(d, 60).reshape(5, 12)[:, ::-1].copy() for d in COMPUTING}
    for d in COMPUTING:
        x = g.input(d, ("n", 12), d)
        g.output(d, athanor.sort(x, axis))
        g.output(f"{d}_down", athanor.sort(x, axis, descending=True))
    results = run(g, inputs)
    for d in COMPUTING:
        x = inputs[d].astype(np.float32) if d == "bf16" else inputs[d]
        want = np.sort(x, axis, kind="stable")
        np.testing.assert_array_equal(results[d].astype(x.dtype), want, err_msg=d)
        np.testing.assert_array_equal(results[f"{d}_down"].astype(x.dtype),
                                      np.flip(want, -1 if axis is None else axis), err_msg=d)


@covers("take_along_axis")
def test_take_along_axis(run: Callable) -> None:
    """Along each axis, and of all; an index outside its row is an error, not the next row's."""
    random = np.random.default_rng(2)
    x = random.standard_normal((4, 5, 3)).astype(np.float32)
    g = athanor.Graph("take", dims={"n": (1, 8)})
    value = g.input("x", ("n", 5, 3), "f32")
    inputs, wants = {"x": x}, {}
    for axis, dtype in ((0, "i64"), (1, "i32"), (2, "u8")):
        shape = list(x.shape)
        shape[axis] = 2 if axis else 4
        ids = random.integers(0, x.shape[axis], shape).astype(array_type(dtype))
        inputs[f"i{axis}"] = ids
        sizes = [s if i or not axis else "n" for i, s in enumerate(shape)]
        sizes[0] = "n"
        g.output(f"y{axis}", athanor.take_along_axis(
            value, g.input(f"i{axis}", sizes, dtype), axis))
        wants[f"y{axis}"] = np.take_along_axis(x, ids.astype(np.int64), axis)
    results = run(g, inputs)
    for name, want in wants.items():
        np.testing.assert_array_equal(results[name], want, err_msg=name)
    inputs["i1"] = inputs["i1"].copy()
    inputs["i1"][1, 0, 0] = 5
    with pytest.raises(athanor.InvalidArgument, match="out of range"):
        run(g, inputs)


@covers("any", "all")
@pytest.mark.parametrize("name", ["any", "all"])
@pytest.mark.parametrize("axis", [None, 0, (1, -1), ()])
def test_truth(run: Callable, name: str, axis: object) -> None:
    """Of bools and numbers; of nothing too."""
    g = athanor.Graph("truth", dims={"n": (0, 8)})
    random = np.random.default_rng(3)
    inputs = {}
    for d in COMPUTING:
        inputs[d] = (random.random((4, 3, 2)) < 0.5).astype(array_type(d))
        g.output(d, getattr(athanor, name)(g.input(d, ("n", 3, 2), d), axis, keepdims=axis == 0))
    for n in (4, 0):
        given = {d: x[:n] for d, x in inputs.items()}
        results = run(g, given)
        for d, x in given.items():
            want = getattr(np, name)(x != 0, axis=axis, keepdims=axis == 0)
            np.testing.assert_array_equal(results[d], want, err_msg=d)
            assert results[d].dtype == np.bool_


@covers("std", "var")
@pytest.mark.parametrize("name", ["std", "var"])
@pytest.mark.parametrize("ddof", [0, 1, 2.5, 9])
def test_spread(run: Callable, name: str, ddof: float) -> None:
    """Over the dim too, whose size the graph does not know; as many degrees as elements: inf."""
    g = athanor.Graph("spread", dims={"n": (1, 64)})
    inputs = {d: floats(d, 35, special=False).reshape(5, 7) for d in FLOATS}
    for d in FLOATS:
        x = g.input(d, ("n", 7), d)
        for label, axis in (("all", None), ("rows", 0), ("columns", -1), ("none", ())):
            g.output(f"{d}_{label}", getattr(athanor, name)(x, axis, ddof=ddof, keepdims=axis == 0))
    results = run(g, inputs)
    for d, (label, axis) in itertools.product(FLOATS, (("all", None), ("rows", 0),
                                                       ("columns", -1), ("none", ()))):
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            want = np.asarray(getattr(np, name)(wide(inputs[d]), axis=axis, ddof=ddof,
                                                keepdims=axis == 0))
        slack = 400 * eps("f64" if d == "f64" else "f32")
        assert_close(results[f"{d}_{label}"], want, absolute=slack, what=f"{d} {label}")


@covers("logsumexp")
@pytest.mark.parametrize("axis", [None, 0, -1, (0, 1), ()])
def test_logsumexp(run: Callable, axis: object) -> None:
    """Values whose exponentials overflow; infinities, NaN, nothing."""
    g = athanor.Graph("logsumexp", dims={"n": (0, 64)})
    inputs = {}
    for d in FLOATS:
        x = floats(d, 40, special=False).reshape(5, 8)
        x[0] += 200
        x[1, 2], x[2, 3], x[3] = np.inf, np.nan, -np.inf
        inputs[d] = x
        g.output(d, athanor.logsumexp(g.input(d, ("n", 8), d), axis, keepdims=axis == 0))
    for n in (5, 0):
        given = {d: x[:n] for d, x in inputs.items()}
        results = run(g, given)
        for d, x in given.items():
            with np.errstate(all="ignore"):
                axes = (0, 1) if axis is None else axis
                want = (np.where(np.ones(x.shape), wide(x), 0) if axis == () else
                        special.logsumexp(x.astype(np.float64), axes, keepdims=axis == 0)
                        if x.size else np.full(x.sum(axis=axes, keepdims=axis == 0).shape, -np.inf))
            assert_close(results[d], np.asarray(want, np.float64), 4, absolute=4 * eps(
                "f64" if d == "f64" else "f32"), what=f"{d} {n}")


@covers("argmax", "argmin", "argsort", "cumsum", "cumprod")
def test_of_all_elements(run: Callable) -> None:
    """Without an axis numpy flattens, or looks at all elements."""
    x = np.array([[3, 1, 2], [5, 5, 0]], np.float32)
    g = athanor.Graph("all")
    value = g.input("x", (2, 3), "f32")
    for name in ("argmax", "argmin", "cumsum", "cumprod"):
        g.output(name, getattr(athanor, name)(value))
    g.output("kept", athanor.argmax(value, keepdims=True))
    g.output("argsort", athanor.argsort(value, None))
    results = run(g, {"x": x})
    for name in ("argmax", "argmin", "cumsum", "cumprod"):
        np.testing.assert_array_equal(results[name], getattr(np, name)(x), err_msg=name)
    np.testing.assert_array_equal(results["kept"], np.argmax(x, keepdims=True))
    np.testing.assert_array_equal(results["argsort"], np.argsort(x, None, kind="stable"))


EINSUMS = [
    ("ij,jk->ik", (5, 3), (3, 4)), ("ij,jk", (5, 3), (3, 4)), ("ii->i", (4, 4)), ("ii", (4, 4)),
    ("iji->ji", (4, 3, 4)), ("ij->ji", (5, 3)), ("ij->", (5, 3)), ("ba", (5, 3)),
    ("i,i->", (5,), (5,)), ("i,j->ij", (5,), (3,)), ("bij,bjk->bik", (5, 2, 3), (5, 3, 4)),
    ("...ij,...jk->...ik", (5, 2, 2, 3), (2, 3, 4)), ("...i->...", (5, 2, 3)),
    ("ij,jk,kl->il", (5, 3), (3, 4), (4, 2)), ("bhqd,bhkd->bhqk", (2, 3, 4, 5), (2, 3, 6, 5)),
    ("ij,ij->ij", (5, 1), (5, 4)), ("ij,j->i", (5, 1), (4,)), ("ii,i->", (4, 4), (4,)),
    ("a,b,c->cab", (2,), (3,), (4,)), ("ij,jk->k", (5, 3), (3, 4)), ("...,...", (5, 3), (3,)),
    ("i...,i...->...", (5, 2, 3), (5, 3)),
]


@covers("einsum")
@pytest.mark.parametrize("case", EINSUMS, ids=lambda case: case[0])
def test_einsum(run: Callable, case: tuple) -> None:
    """Against numpy: integers exactly, floats within the bound of their sums."""
    spec, *shapes = case
    g = athanor.Graph("einsum", dims={"n": (1, 16)})
    random = np.random.default_rng(4)
    inputs, wants = {}, {}
    for d in ("f32", "f64", "f16", "i32"):
        operands = [random.integers(-4, 5, shape).astype(array_type(d)) for shape in shapes]
        values = []
        for i, x in enumerate(operands):
            inputs[f"{d}{i}"] = x
            values.append(g.input(f"{d}{i}", ["n" if s == 5 else s for s in x.shape], d))
        g.output(d, athanor.einsum(spec, *values))
        wants[d] = np.einsum(spec, *(x.astype(np.float64) for x in operands))
    results = run(g, inputs)
    for d, want in wants.items():
        np.testing.assert_array_equal(results[d].astype(np.float64), np.asarray(want), err_msg=d)


def random_einsum(random: np.random.Generator) -> tuple[str, list[tuple[int, ...]]]:
    """A spec of 1 to 3 operands with repeats, sums, sizes of 1 and an ellipsis, and shapes."""
    sizes = dict(zip("abcde", random.integers(1, 4, 5), strict=True))
    ellipsis = [int(size) for size in random.integers(1, 4, random.integers(0, 3))]
    parts, shapes = [], []
    for _ in range(random.integers(1, 4)):
        letters = "".join(random.choice(list("abcde"), random.integers(0, 4)))
        shape = [int(sizes[c]) if letters.count(c) > 1 or random.random() < 0.85 else 1
                 for c in letters]
        lead = ellipsis[random.integers(0, len(ellipsis) + 1):]
        lead = [size if random.random() < 0.8 else 1 for size in lead]
        parts.append(("..." if lead or ellipsis else "") + letters)
        shapes.append((*lead, *shape))
    present = sorted({c for part in parts for c in part if c != "."})
    kept = [c for c in present if random.random() < 0.5]
    random.shuffle(kept)
    return ",".join(parts) + ("->" + ("..." if ellipsis else "") + "".join(kept)), shapes


@pytest.mark.parametrize("seed", range(3))
def test_random_einsums(run: Callable, seed: int) -> None:
    """Against numpy, many of them in one graph."""
    random = np.random.default_rng(seed)
    g = athanor.Graph("einsums")
    inputs, wants = {}, {}
    for case in range(60):
        spec, shapes = random_einsum(random)
        operands = [random.integers(-3, 4, shape).astype(np.int32) for shape in shapes]
        try:
            want = np.einsum(spec, *operands)
        except ValueError:
            continue  # numpy's own broadcasting refuses the sizes
        values = []
        for i, x in enumerate(operands):
            inputs[f"{case}_{i}"] = x
            values.append(g.input(f"{case}_{i}", x.shape, "i32"))
        g.output(f"{case} {spec}", athanor.einsum(spec, *values))
        wants[f"{case} {spec}"] = np.asarray(want)
    assert len(wants) > 30
    results = run(g, inputs)
    for name, want in wants.items():
        np.testing.assert_array_equal(results[name], want, err_msg=name)


def test_numpy_functions(run: Callable) -> None:
    """numpy's own functions take values, with arrays beside them."""
    g = athanor.Graph("numpy", dims={"n": (1, 8)})
    x = g.input("x", ("n", 4), "f32")
    m = np.arange(4, dtype=np.float32)
    cases = {
        "exp": (np.exp(x), np.exp), "add": (np.add(m, x), lambda x: m + x),
        "greater": (np.greater(m, x), lambda x: m > x), "left": (m - x, lambda x: m - x),
        "abs": (np.abs(-x), np.abs), "rint": (np.rint(x), np.rint),
        "matmul": (np.matmul(x, np.eye(4, dtype=np.float32)), lambda x: x),
        "clip": (np.clip(x, 1, 2), lambda x: np.clip(x, 1, 2)),
        "sum": (np.sum(x, axis=0), lambda x: x.sum(0)),
        "max": (np.max(x, axis=-1, keepdims=True), lambda x: x.max(-1, keepdims=True)),
        "joined": (np.concatenate([x, x], axis=1), lambda x: np.concatenate([x, x], 1)),
        "where": (np.where(x > 1, x, 0), lambda x: np.where(x > 1, x, 0)),
        "einsum": (np.einsum("ij->ji", x), lambda x: x.T),
        "broadcast": (np.broadcast_to(x, (2, -1, 4)), lambda x: np.broadcast_to(x, (2, *x.shape))),
        "std": (np.std(x, axis=1, ddof=1), lambda x: np.std(x, 1, ddof=1)),
        "tril": (np.tril(x), np.tril), "flip": (np.flip(x, 1), lambda x: np.flip(x, 1)),
    }
    for name, (value, _) in cases.items():
        g.output(name, value)
    given = np.random.default_rng(5).standard_normal((3, 4)).astype(np.float32)
    results = run(g, {"x": given})
    for name, (_, reference) in cases.items():
        np.testing.assert_allclose(results[name], reference(given), rtol=3e-6, atol=1e-6,
                                   err_msg=name)


@covers("one_hot")
def test_one_hot(run: Callable) -> None:
    """Of every integer dtype; what is outside gives zeros."""
    g = athanor.Graph("one-hot", dims={"n": (0, 16)})
    inputs = {}
    for d in INTEGERS:
        inputs[d] = values_of(d, 12)
        ids = g.input(d, "n", d)
        g.output(d, athanor.one_hot(ids, 4))
        g.output(f"{d}_0", athanor.one_hot(ids, 4, dtype="bool", axis=0))
    results = run(g, inputs)
    for d, ids in inputs.items():
        want = (ids[:, None].astype(object) == np.arange(4)).astype(np.float32)
        np.testing.assert_array_equal(results[d], want, err_msg=d)
        np.testing.assert_array_equal(results[f"{d}_0"], want.T != 0, err_msg=d)

