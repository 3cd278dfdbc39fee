"""Convolutions and pools of the SDK through a real server against numpy."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import athanor
import numpy as np
import pytest
from numbers_ import array_type, assert_close

TESTED = {"conv", "conv_transpose", "max_pool", "sum_pool", "average_pool"}


def windows_of(x: np.ndarray, kernel: Sequence[int], strides: Sequence[int],
               padding: Sequence[tuple[int, int]], fill: float) -> np.ndarray:
    """[N, C, O1, ..., K1, ...] of windows without dilation."""
    padded = np.pad(x, [(0, 0), (0, 0), *padding], constant_values=fill)
    axes = tuple(range(2, x.ndim))
    windows = np.lib.stride_tricks.sliding_window_view(padded, kernel, axes)
    return windows[(slice(None), slice(None), *(slice(None, None, s) for s in strides))]


@pytest.mark.parametrize("dtype", ["f32", "f16", "i32"])
@pytest.mark.parametrize("groups", [1, 2, 4])
def test_conv(run: Callable, dtype: str, groups: int) -> None:
    """Against sums over windows; batch and one spatial axis are dims."""
    rng = np.random.default_rng(10)
    x = rng.integers(-3, 4, (2, 4, 7, 5)).astype(array_type(dtype))
    w = rng.integers(-3, 4, (8, 4 // groups, 3, 2)).astype(array_type(dtype))
    g = athanor.Graph("conv", dims={"n": (0, 8), "h": (3, 64)})
    g.output("y", athanor.conv(g.input("x", ["n", 4, "h", 5], dtype), g.parameter("w", w),
                               strides=(2, 1), padding=[1, (0, 2)], groups=groups))
    windows = windows_of(x.astype(np.float64), (3, 2), (2, 1), [(1, 1), (0, 2)], 0)
    split = windows.reshape(2, groups, 4 // groups, *windows.shape[2:])
    weights = w.astype(np.float64).reshape(groups, 8 // groups, *w.shape[1:])
    want = np.einsum("ngchwij,gmcij->ngmhw", split, weights).reshape(2, 8, 4, 6)
    assert_close(run(g, {"x": x})["y"], want, 1)


def test_conv_dilated(run: Callable) -> None:
    """A dilated kernel is one with zeros between; in one dimension, cropped in front."""
    x = np.arange(20, dtype=np.float32).reshape(1, 2, 10)
    w = np.array([[[1, 10], [2, -1]]], np.float32)
    g = athanor.Graph("dilated", dims={"s": (5, 32)})
    g.output("y", athanor.conv(g.input("x", [1, 2, "s"], "f32"), g.parameter("w", w), dilations=3,
                               padding=[(-1, 0)]))
    want = [[[sum(x[0, c, 1 + o + 3 * k] * w[0, c, k] for c in range(2) for k in range(2))
              for o in range(6)]]]
    assert_close(run(g, {"x": x})["y"], np.array(want), 1)


@pytest.mark.parametrize(("strides", "dilations", "cut", "added", "groups"), [
    ((1, 1), (1, 1), (0, 0), (0, 0), 1),
    ((2, 3), (1, 1), (1, 2), (1, 0), 2),
    ((2, 1), (1, 2), (0, 1), (0, 1), 1),
    ((2, 2), (3, 1), (1, 0), (1, 1), 4),  # steps on either side
    ((3, 5), (1, 1), (4, 0), (2, 4), 1),  # cut by more than a step; steps wider than the kernel
])
@pytest.mark.parametrize("dtype", ["f32", "f16", "i32"])
def test_conv_transpose(run: Callable, dtype: str, strides: tuple, dilations: tuple, cut: tuple,
                        added: tuple, groups: int) -> None:
    """Against adding up each element's kernel; batch and one spatial axis are dims."""
    rng = np.random.default_rng(12)
    w = rng.integers(-3, 4, (4, 3, 3, 2)).astype(array_type(dtype))
    g = athanor.Graph("conv-transpose", dims={"n": (0, 8), "h": (4, 64)})
    value = g.input("x", ["n", 4, "h", 5], dtype)
    y = athanor.conv_transpose(value, g.parameter("w", w), strides=strides, dilations=dilations,
                               padding=cut, output_padding=added, groups=groups)
    # Cutting more in front than behind is a slice.
    uneven = athanor.conv_transpose(value, w, strides=strides, dilations=dilations, groups=groups,
                                    padding=[(2, 0), (1, 3)], output_padding=added)
    g.output("y", y)
    g.output("uneven", uneven)
    for shape in ((2, 4, 7, 5), (0, 4, 4, 5)):
        x = rng.integers(-3, 4, shape).astype(array_type(dtype))
        whole = [(size - 1) * step + gap * (k - 1) + 1 + more for size, step, gap, k, more in zip(
            shape[2:], strides, dilations, (3, 2), added, strict=True)]
        want = np.zeros((shape[0], 3 * groups, *whole))
        for c, i, j, a, b in np.ndindex(4, *shape[2:], 3, 2):
            first = c // (4 // groups) * 3
            want[:, first:first + 3, i * strides[0] + a * dilations[0],
                 j * strides[1] + b * dilations[1]] += (
                     x[:, c, i, j, None].astype(np.float64) * w[c, :, a, b])
        results = run(g, {"x": x})
        inside = want[:, :, cut[0]:whole[0] - cut[0], cut[1]:whole[1] - cut[1]]
        assert_close(results["y"], inside, 1)
        assert_close(results["uneven"], want[:, :, 2:, 1:whole[1] - 3], 1)


@pytest.mark.parametrize("name", ["max_pool", "sum_pool", "average_pool"])
@pytest.mark.parametrize("dtype", ["f32", "bf16", "i8"])
def test_pools(run: Callable, name: str, dtype: str) -> None:
    """Pools with padding, which no maximum holds and no mean counts unless asked to."""
    if name == "average_pool" and dtype == "i8":
        pytest.skip("means are of floats")
    x = np.random.default_rng(11).integers(-9, 10, (2, 3, 6, 5)).astype(array_type(dtype))
    g = athanor.Graph("pool", dims={"n": (1, 8), "h": (2, 64)})
    image = g.input("x", ["n", 3, "h", 5], dtype)
    padding = [(1, 0), (1, 1)]
    pool = getattr(athanor, name)
    g.output("y", pool(image, (2, 3), strides=(1, 2), padding=padding))
    g.output("default", pool(image, 2))
    fill = -np.inf if name == "max_pool" else np.nan
    reduce = {"max_pool": np.max, "sum_pool": np.nansum, "average_pool": np.nanmean}[name]
    wide = x.astype(np.float64)
    wants = {"y": reduce(windows_of(wide, (2, 3), (1, 2), padding, fill), (-2, -1)),
             "default": reduce(windows_of(wide, (2, 2), (2, 2), [(0, 0), (0, 0)], fill), (-2, -1))}
    if name == "average_pool":
        g.output("counted", pool(image, (2, 3), strides=(1, 2), padding=padding,
                                 count_padding=True))
        wants["counted"] = np.mean(windows_of(wide, (2, 3), (1, 2), padding, 0), (-2, -1))
    for output, got in run(g, {"x": x}).items():
        assert_close(got, wants[output], 1, what=output)


def test_what_does_not_fit_is_refused() -> None:
    """Before anything is sent, by the operation's name."""
    g = athanor.Graph("wrong", dims={"h": (1, 64)})
    x, w = g.input("x", [1, 4, "h", 5], "f32"), g.input("w", [6, 2, 3, 3], "f32")
    y = g.input("y", [4, 2, 3, 3], "f32")
    v, u = g.input("v", [6, 1, 3, 3], "f32"), g.input("u", [6, 4, 3], "f32")
    wrong = {
        "channels of x": lambda: athanor.conv(x, w),
        "groups=4 does not divide": lambda: athanor.conv(x, v, groups=4),
        "w must have 4 axes": lambda: athanor.conv(x, u),
        "groups=0": lambda: athanor.conv(x, w, groups=0),
        "strides=(1,)": lambda: athanor.conv(x, w, strides=(1,), groups=2),
        "dilations=0": lambda: athanor.conv(x, w, dilations=0, groups=2),
        "padding=[1]": lambda: athanor.conv(x, w, padding=[1], groups=2),
        "axis 0 of w: sizes 4 and 6": lambda: athanor.conv_transpose(x, w),
        "groups=4 must divide the 6": lambda: athanor.conv_transpose(x, w, groups=4),
        "w must have 4 axes of constant sizes": lambda: athanor.conv_transpose(
            x, g.input("open", [4, 2, "h", 3], "f32")),
        "output_padding=-1": lambda: athanor.conv_transpose(x, y, output_padding=-1),
        "padding=[1] must be an integer": lambda: athanor.conv_transpose(x, y, padding=[1]),
        "padding=-1": lambda: athanor.conv_transpose(x, y, padding=-1),
        "cuts more than spatial axis 1": lambda: athanor.conv_transpose(x, y, padding=(0, 9)),
        "strides=0": lambda: athanor.conv_transpose(x, y, strides=0),
        "spatial axis 1 has 5 elements": lambda: athanor.max_pool(x, (1, 7)),
        "kernel=[0, 1]": lambda: athanor.max_pool(x, [0, 1]),
        "1 to 6 spatial ones": lambda: athanor.max_pool(g.input("flat", [2, 3], "f32"), 2),
        "does not take i32": lambda: athanor.average_pool(g.input("i", [1, 1, 4], "i32"), 2),
    }
    for text, call in wrong.items():
        with pytest.raises(athanor.GraphError) as error:
            call()
        assert text in str(error.value)
