"""Every function of the SDK has a case; operators, and values that no operand gives."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import athanor
import numpy as np
import test_functions_composite  # noqa: F401
import test_functions_elementwise  # noqa: F401
import test_functions_movement  # noqa: F401
import test_functions_networks  # noqa: F401
import test_functions_numpy  # noqa: F401
from functions_ import NUMERIC, TESTED
from numbers_ import array_type
from test_windows import TESTED as WINDOWS_TESTED


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
    """A function that is exported and not tested fails here."""
    functions = {name for name in athanor.__all__ if inspect.isfunction(getattr(athanor, name))}
    sizes = {"maximum_of", "minimum_of"}  # for dims; tested offline in clients/python/tests
    assert functions - sizes - TESTED - WINDOWS_TESTED == set()
