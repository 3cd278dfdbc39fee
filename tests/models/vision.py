"""Shared by the convolutional models: weights, inputs and layers of ONNX.

    weights = ConvWeights(seed)
    weights.conv("conv1", 64, 3, 7); weights.norm("bn1", 64)
    x = conv_norm(w, "image", weights.arrays, "conv1", "bn1", stride=2, pad=3, folded=True)

Weights are named, and shaped, as in torchvision. Each filter of a convolution sums to zero: the
means that relu leaves in all images alike would otherwise grow from layer to layer, until every
image gave the same answer.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping

import numpy as np
import numpy_ops as ops
from onnx_writer import OnnxWriter
from weights import SeededArrays

EPSILON = 1e-5
Arrays = Mapping[str, np.ndarray]
# Mean and deviation of relu(x) for normal x: filters undo the latter.
RELU_MEAN = 1 / math.sqrt(2 * math.pi)
RELU_DEVIATION = math.sqrt(0.5 - RELU_MEAN**2)


@dataclasses.dataclass(frozen=True)
class ImageConfig:
    """Sides of the smallest and the largest image, and how many at once at most."""

    smallest: int = 32
    largest: int = 320
    batch: int = 8

    @property
    def dims(self) -> dict[str, tuple[int, int]]:
        """Bounds of the dynamic dims."""
        side = (self.smallest, self.largest)
        return {"batch": (1, self.batch), "height": side, "width": side}


class ConvWeights(SeededArrays):
    """Weights of convolutions, norms and linear layers by name, f32, drawn from one seed."""

    def filters(self, *shape: int, gain: float) -> np.ndarray:
        """Filters [out, ...] without a mean that keep values' size up to `gain`."""
        values = self.normal(*shape, deviation=gain / math.sqrt(math.prod(shape[1:])))
        # In float64, so that the order of sums on this machine does not show.
        axes = tuple(range(1, len(shape)))
        return (values - values.mean(axes, np.float64, keepdims=True)).astype(np.float32)

    def conv(self, name: str, channels: int, inputs: int, k: int,
             gain: float = 1 / RELU_DEVIATION, bias: bool = False) -> None:
        """``{name}.weight`` [channels, inputs, k, k]."""
        self.arrays[f"{name}.weight"] = self.filters(channels, inputs, k, k, gain=gain)
        if bias:
            self.arrays[f"{name}.bias"] = self.normal(channels)

    def depthwise(self, name: str, channels: int, k: int) -> np.ndarray:
        """``{name}.weight`` [channels, 1, k, k]; the means of what it makes of relu's results."""
        weight = self.normal(channels, 1, k, k, deviation=1 / RELU_DEVIATION / k)
        self.arrays[f"{name}.weight"] = weight
        return weight.sum((1, 2, 3)) * np.float32(RELU_MEAN)

    def norm(self, name: str, channels: int, scale: float = 1.0,
             mean: np.ndarray | float = 0.0) -> None:
        """A batch norm with statistics."""
        variance = self._random.uniform(0.8, 1.2, channels).astype(np.float32)
        self.arrays |= {f"{name}.weight": self.normal(channels, mean=1.0) * np.float32(scale),
                        f"{name}.bias": self.normal(channels),
                        f"{name}.running_mean": self.normal(channels) + np.float32(mean),
                        f"{name}.running_var": variance}

    def linear(self, name: str, outputs: int, inputs: int, gain: float = 1.0) -> None:
        """``{name}.weight`` [outputs, inputs] and its bias."""
        self.arrays[f"{name}.weight"] = self.filters(outputs, inputs, gain=gain)
        self.arrays[f"{name}.bias"] = self.normal(outputs)


def parameters(arrays: Arrays) -> int:
    """Returns the number of learned values; statistics of norms are not learned."""
    return sum(array.size for name, array in arrays.items() if ".running_" not in name)


def norm_names(name: str) -> list[str]:
    """The names of a batch norm's arrays, in ONNX's order."""
    return [f"{name}.{part}" for part in ("weight", "bias", "running_mean", "running_var")]


def images(n: int, channels: int, height: int, width: int, seed: int) -> np.ndarray:
    """f32 images of waves with some noise, of about unit size, each with colours of its own."""
    random = np.random.default_rng(seed)
    y, x = (np.linspace(0, 1, size, endpoint=False, dtype=np.float32).reshape(shape)
            for size, shape in ((height, (-1, 1)), (width, (1, -1))))
    result = 0.3 * random.standard_normal((n, channels, height, width), np.float32)
    for image in result:
        for channel in image:
            channel += np.float32(random.normal(0, 0.7))
            for _ in range(3):
                down, across, phase = random.uniform(-6, 6), random.uniform(-6, 6), random.random()
                channel += np.float32(0.5) * np.sin(
                    np.float32(2 * math.pi) * (down * y + across * x + phase).astype(np.float32))
    return result


def folded(arrays: Arrays, conv: str, norm: str) -> tuple[np.ndarray, np.ndarray]:
    """Weight and bias of a convolution with the norm after it inside, as exporters fold it."""
    scale, bias, mean, variance = (ops.wide(arrays[name]) for name in norm_names(norm))
    factor = scale / np.sqrt(variance + EPSILON)
    weight = arrays[f"{conv}.weight"] * factor.reshape(-1, 1, 1, 1)
    return weight.astype(np.float32), (bias - mean * factor).astype(np.float32)


def conv_node(w: OnnxWriter, x: str, weight: str, bias: str | None, stride: int = 1, pad: int = 0,
              groups: int = 1) -> str:
    """A Conv with the attributes that exporters write; weight and bias are initialisers."""
    k = next(list(t.dims) for t in w.initializers if t.name == weight)[2:]
    return w.node("Conv", x, weight, *([bias] if bias else []), dilations=[1, 1], group=groups,
                  kernel_shape=k, pads=[pad] * 4, strides=[stride] * 2)


def conv_norm(w: OnnxWriter, x: str, arrays: Arrays, conv: str, norm: str, stride: int = 1,
              pad: int = 0, groups: int = 1, fold: bool = True) -> str:
    """A convolution and its batch norm: one node if `fold`, else two."""
    if fold:
        weight, bias = folded(arrays, conv, norm)
        return conv_node(w, x, w.tensor(f"{conv}.weight", weight), w.tensor(f"{conv}.bias", bias),
                         stride, pad, groups)
    x = conv_node(w, x, w.tensor(f"{conv}.weight", arrays[f"{conv}.weight"]), None, stride, pad,
                  groups)
    norms = [w.tensor(name, arrays[name]) for name in norm_names(norm)]
    return w.node("BatchNormalization", x, *norms, epsilon=EPSILON, momentum=0.9)


def conv_norm_numpy(x: np.ndarray, arrays: Arrays, conv: str, norm: str, stride: int = 1,
                    pad: int = 0) -> np.ndarray:
    """The same in float64, the norm on its own."""
    x = ops.conv(x, arrays[f"{conv}.weight"], stride=stride, pad=pad)
    return ops.batch_norm(x, *(arrays[name] for name in norm_names(norm)), EPSILON)
