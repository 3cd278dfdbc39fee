"""Values worth testing with, and comparisons in units of the last place."""

from __future__ import annotations

import ml_dtypes
import numpy as np
from athanor.dtypes import DTYPES

FLOATS = ("f16", "bf16", "f32", "f64")
INTEGERS = ("i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64")


def array_type(dtype: str) -> np.dtype:
    """numpy's dtype of ours."""
    return DTYPES[dtype].numpy


def limits(dtype: str) -> ml_dtypes.finfo | ml_dtypes.iinfo:
    """Least, largest, smallest subnormal and so on."""
    kind = DTYPES[dtype].kind
    return (ml_dtypes.finfo if kind == "float" else ml_dtypes.iinfo)(array_type(dtype))


def floats(dtype: str, count: int = 64, scale: float = 3.0, special: bool = True) -> np.ndarray:
    """Random values; with `special`, its ends, zeros, infinities and NaN come first."""
    random = np.random.default_rng(len(dtype) * 1000 + count)
    values = (random.standard_normal(count) * scale).astype(array_type(dtype))
    if special:
        info = limits(dtype)
        ends = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.5, info.max, info.min,
                info.tiny, -info.tiny, info.smallest_subnormal]
        with np.errstate(all="ignore"):
            values[:len(ends)] = np.array(ends, array_type("f64")).astype(array_type(dtype))
    return values


def integers(dtype: str, count: int = 64) -> np.ndarray:
    """Random values over the whole range, its ends and the numbers around 0 first."""
    info = limits(dtype)
    random = np.random.default_rng(count)
    values = random.integers(info.min, info.max, count, array_type(dtype), endpoint=True)
    ends = [0, 1, 2, 3, 7, int(info.max), int(info.min), int(info.max) - 1]
    if info.min < 0:
        ends += [-1, -2, -7]
    values[:len(ends)] = np.array(ends, array_type(dtype))
    return values


def bools(count: int = 64) -> np.ndarray:
    """True and False."""
    return np.random.default_rng(count).random(count) < 0.5


def spacing(values: np.ndarray, dtype: str) -> np.ndarray:
    """The distance from each value (float64) to its neighbour in `dtype`."""
    info = limits(dtype)
    with np.errstate(all="ignore"):
        exponent = np.floor(np.log2(np.maximum(np.abs(values), float(info.tiny))))
        return np.maximum(np.exp2(exponent) * float(info.eps), float(info.smallest_subnormal))


def assert_close(got: np.ndarray, want: np.ndarray, ulp: float = 0, absolute: float = 0.0,
                 what: str = "") -> None:
    """`got` (any dtype) against the exact `want` (float64 or wider), NaN and infinities in place.

    `ulp` 0 means: `want` rounded once to the dtype of `got`, equal as numbers.
    """
    names = {row.numpy: name for name, row in DTYPES.items()}
    dtype = names[got.dtype]
    assert got.shape == want.shape, f"{what}: shape {got.shape}, expected {want.shape}"
    if DTYPES[dtype].kind != "float":
        np.testing.assert_array_equal(got, want, err_msg=what)
        return
    with np.errstate(all="ignore"):
        rounded = want.astype(got.dtype).astype(np.float64)
        wide = got.astype(np.float64)
        error = np.abs(wide - want.astype(np.float64))
        allowed = (ulp + 0.5) * spacing(want.astype(np.float64), dtype) + absolute
        exact = (wide == rounded) | (np.isnan(wide) & np.isnan(rounded))
        # Near the end of the range an allowed error may cross into infinity.
        largest = float(limits(dtype).max)
        edge = np.isinf(wide) & (np.abs(want) + allowed > largest) & (ulp > 0)
    good = exact | edge if ulp == 0 and absolute == 0 else exact | edge | (error <= allowed)
    if not good.all():
        bad = np.argwhere(~good)[:5]
        rows = [f"at {tuple(i)}: got {got[tuple(i)]}, expected {want[tuple(i)]}" for i in bad]
        raise AssertionError(f"{what} ({dtype}), {(~good).sum()} of {good.size} wrong: "
                             + "; ".join(rows))
