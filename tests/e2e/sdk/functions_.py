"""Shared by the tests of the SDK's functions: tables of cases, and which functions have one."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import athanor
import numpy as np
import pytest
from numbers_ import FLOATS, INTEGERS, assert_close, bools, floats, integers, limits

NUMERIC = (*FLOATS, *INTEGERS)
COMPUTING = ("bool", *NUMERIC)
# Functions that a case of some module tests; filled when that is loaded.
TESTED: set[str] = set()


def covers(*names: str) -> Callable[[Callable], Callable]:
    """Marks the functions that a test covers."""
    TESTED.update(names)
    return lambda test: test


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
    """Checks a graph with an output per dtype; the leading size of the arrays is a dim."""
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
