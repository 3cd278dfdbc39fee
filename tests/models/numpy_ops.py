"""Ops that the models' numpy references share, each straight from its definition, in float64.

Images are [n, channels, height, width] as in ONNX. What is given as f32 is computed in float64.
"""

from __future__ import annotations

import numpy as np


def wide(x: np.ndarray) -> np.ndarray:
    """`x` in float64."""
    return x.astype(np.float64)


def erf(x: np.ndarray) -> np.ndarray:
    """The error function."""
    from scipy import special

    return special.erf(x)


def gelu(x: np.ndarray) -> np.ndarray:
    """``x * Phi(x)``, exact."""
    return x * (1 + erf(x * np.sqrt(0.5))) / 2


def sigmoid(x: np.ndarray) -> np.ndarray:
    """``1 / (1 + exp(-x))``, without overflow."""
    return (1 + np.tanh(x / 2)) / 2


def softmax(x: np.ndarray) -> np.ndarray:
    """Over the last axis."""
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def layer_norm(x: np.ndarray, scale: np.ndarray, bias: np.ndarray, epsilon: float) -> np.ndarray:
    """Over the last axis."""
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + epsilon) * scale + bias


def linear(x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None = None) -> np.ndarray:
    """``x @ weight.T + bias``: weight [out, in] as in PyTorch."""
    y = x @ wide(weight).T
    return y if bias is None else y + bias


def conv(x: np.ndarray, weight: np.ndarray, bias: np.ndarray | None = None, stride: int = 1,
         pad: int = 0) -> np.ndarray:
    """A convolution: weight [out, in, k, k], or [channels, 1, k, k] for one filter a channel."""
    x = np.pad(x, [(0, 0), (0, 0), (pad, pad), (pad, pad)])
    height, width = ((size - weight.shape[2]) // stride + 1 for size in x.shape[2:])
    depthwise = weight.shape[1] == 1 and x.shape[1] > 1
    y = np.zeros((x.shape[0], weight.shape[0], height, width))
    for i, j in np.ndindex(weight.shape[2:]):
        part = x[:, :, i:i + stride * height:stride, j:j + stride * width:stride]
        tap = wide(weight[:, :, i, j])
        if depthwise:
            y += part * tap.reshape(1, -1, 1, 1)
        else:
            y += (tap @ part.reshape(*part.shape[:2], -1)).reshape(y.shape)
    return y if bias is None else y + bias.reshape(1, -1, 1, 1)


def conv_transpose(x: np.ndarray, weight: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """Weight [in, out, k, k], stride k: each value becomes a square of k by k."""
    n, _, height, width = x.shape
    _, channels, k, _ = weight.shape
    y = np.einsum("nchw,coij->nohiwj", x, wide(weight), optimize=True)
    return y.reshape(n, channels, height * k, width * k) + bias.reshape(1, -1, 1, 1)


def batch_norm(x: np.ndarray, scale: np.ndarray, bias: np.ndarray, mean: np.ndarray,
               variance: np.ndarray, epsilon: float) -> np.ndarray:
    """Per channel, by stored statistics."""
    def shaped(values: np.ndarray) -> np.ndarray:
        return wide(values).reshape(1, -1, 1, 1)

    root = np.sqrt(shaped(variance) + epsilon)
    return (x - shaped(mean)) / root * shaped(scale) + shaped(bias)


def group_norm(x: np.ndarray, groups: int, scale: np.ndarray, bias: np.ndarray,
               epsilon: float) -> np.ndarray:
    """Over each group of channels of each image; scale and bias per channel."""
    parts = x.reshape(x.shape[0], groups, -1)
    centred = parts - parts.mean(-1, keepdims=True)
    parts = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + epsilon)
    return parts.reshape(x.shape) * scale.reshape(1, -1, 1, 1) + bias.reshape(1, -1, 1, 1)


def max_pool(x: np.ndarray, k: int, stride: int, pad: int = 0) -> np.ndarray:
    """The largest of each k by k."""
    x = np.pad(x, [(0, 0), (0, 0), (pad, pad), (pad, pad)], constant_values=-np.inf)
    windows = np.lib.stride_tricks.sliding_window_view(x, (k, k), (2, 3))
    return windows[:, :, ::stride, ::stride].max((-1, -2))


def resize_linear(x: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Bilinear between the pixels' centres ("half_pixel"), edges repeated."""
    for axis, new in zip((2, 3), size, strict=True):
        old = x.shape[axis]
        position = np.clip((np.arange(new) + 0.5) * (old / new) - 0.5, 0, old - 1)
        low = np.floor(position).astype(np.int64)
        high = np.minimum(low + 1, old - 1)
        shape = [-1 if i == axis else 1 for i in range(4)]
        part = (position - low).reshape(shape)
        x = np.take(x, low, axis) * (1 - part) + np.take(x, high, axis) * part
    return x
