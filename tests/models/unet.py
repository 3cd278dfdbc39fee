"""U-Nets with seeded weights: as ONNX and in numpy.

    unet_onnx("unet.onnx")               # image f32[batch, 3, height, width] -> scores, as large
    scores = unet_numpy(feed)["scores"]

After Ronneberger et al., "U-Net: Convolutional Networks for Biomedical Image Segmentation", 2015.
Each level down halves the image, rounding down, and each level up joins what the level had on the
way down; so the way up has to make up for odd sizes, in one of two ways:

`DEFAULT`: transposed convolutions, then a Pad whose amounts come from shapes; batch norms, folded,
and relu; opset 17. `RESIZED`: bilinear Resize to the size of what is joined; group norms, written
as exporters do (a Reshape around InstanceNormalization), and x * sigmoid(x); opset 18.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import os
from collections.abc import Mapping

import numpy as np
import numpy_ops as ops
import vision
from onnx_writer import OnnxWriter


@dataclasses.dataclass(frozen=True)
class Config:
    """Channels of each level from the top; whether the way up resizes; groups of its norms."""

    name: str = "unet"
    channels: tuple[int, ...] = (32, 64, 128, 256)
    resizes: bool = False
    groups: int = 8
    classes: int = 4
    largest: int = 256
    batch: int = 4
    seed: int = 31

    @property
    def dims(self) -> dict[str, tuple[int, int]]:
        """Bounds of the dynamic dims; the lowest level has at least one pixel."""
        side = (1 << (len(self.channels) - 1), self.largest)
        return {"batch": (1, self.batch), "height": side, "width": side}

    @property
    def ups(self) -> list[tuple[str, int, int]]:
        """Name of each level up, its channels and those of the level below."""
        levels = list(zip(self.channels, self.channels[1:], strict=False))
        return [(f"up{i}", *levels[i]) for i in reversed(range(len(levels)))]


DEFAULT = Config()
RESIZED = Config(name="unet_resized", resizes=True, seed=37)
TINY = dataclasses.replace(DEFAULT, channels=(4, 8, 8), groups=2, largest=24, batch=3)
TINY_RESIZED = dataclasses.replace(RESIZED, channels=(4, 8, 8), groups=2, largest=24, batch=3)


@functools.cache
def unet_weights(config: Config = DEFAULT) -> dict[str, np.ndarray]:
    """Returns all weights by name, f32: ``{level}.conv1.weight``, ``{level}.norm1.weight``, ..."""
    weights = vision.ConvWeights(config.seed)

    def double(name: str, inputs: int, outputs: int, gain: float) -> None:
        for i, channels in ((1, inputs), (2, outputs)):
            weights.conv(f"{name}.conv{i}", outputs, channels, 3,
                         gain=gain if i == 1 else 1 / vision.RELU_DEVIATION)
            weights.norm(f"{name}.norm{i}", outputs)

    for i, channels in enumerate(config.channels):
        double(f"down{i}", config.channels[i - 1] if i else 3, channels,
               1 / vision.RELU_DEVIATION if i else 1.0)
    for name, channels, below in config.ups:
        if not config.resizes:
            deviation = 1 / vision.RELU_DEVIATION / math.sqrt(below)
            values = weights.normal(below, channels, 2, 2, deviation=deviation)
            weights.arrays[f"{name}.spread.weight"] = values - values.mean(0, keepdims=True)
            weights.arrays[f"{name}.spread.bias"] = weights.normal(channels)
        double(name, channels + (below if config.resizes else channels), channels, 1.2)
    weights.conv("last", config.classes, config.channels[0], 1, bias=True)
    return weights.arrays


def unet_inputs(sizes: Mapping[str, int], config: Config = DEFAULT,
                seed: int = 0) -> dict[str, np.ndarray]:
    """Images."""
    return {"image": vision.images(sizes["batch"], 3, sizes["height"], sizes["width"], seed)}


def unet_numpy(feed: Mapping[str, np.ndarray], config: Config = DEFAULT) -> dict[str, np.ndarray]:
    """The network in float64: ``scores`` [batch, classes, height, width]."""
    arrays = unet_weights(config)

    def double(x: np.ndarray, name: str) -> np.ndarray:
        for i in (1, 2):
            conv, norm = f"{name}.conv{i}", f"{name}.norm{i}"
            if config.resizes:
                x = ops.conv(x, arrays[f"{conv}.weight"], pad=1)
                x = ops.group_norm(x, config.groups, arrays[f"{norm}.weight"],
                                   arrays[f"{norm}.bias"], vision.EPSILON)
                x = x * ops.sigmoid(x)
            else:
                x = np.maximum(vision.conv_norm_numpy(x, arrays, conv, norm, pad=1), 0)
        return x

    x = ops.wide(feed["image"])
    left = []
    for i in range(len(config.channels)):
        x = double(ops.max_pool(x, 2, 2) if i else x, f"down{i}")
        left.append(x)
    left.pop()
    for name, _, _ in config.ups:
        beside = left.pop()
        if config.resizes:
            x = ops.resize_linear(x, beside.shape[2:])
        else:
            x = ops.conv_transpose(x, arrays[f"{name}.spread.weight"],
                                   arrays[f"{name}.spread.bias"])
            missing = [want - size for want, size in zip(beside.shape[2:], x.shape[2:],
                                                         strict=True)]
            x = np.pad(x, [(0, 0), (0, 0), *((d // 2, d - d // 2) for d in missing)])
        x = double(np.concatenate([beside, x], 1), name)
    return {"scores": ops.conv(x, arrays["last.weight"], arrays["last.bias"])}


class _Layers:
    """The U-Net's layers as nodes."""

    def __init__(self, w: OnnxWriter, config: Config) -> None:
        self._w, self._config = w, config
        self._arrays = unet_weights(config)

    def tensor(self, name: str) -> str:
        return self._w.tensor(name, self._arrays[name])

    def double(self, x: str, name: str) -> str:
        """Two convolutions, each with its norm."""
        for i in (1, 2):
            conv, norm = f"{name}.conv{i}", f"{name}.norm{i}"
            if self._config.resizes:
                x = vision.conv_node(self._w, x, self.tensor(f"{conv}.weight"), None, pad=1)
                x = self.group_norm(x, norm)
                x = self._w.node("Mul", x, self._w.node("Sigmoid", x))
            else:
                x = vision.conv_norm(self._w, x, self._arrays, conv, norm, pad=1)
                x = self._w.node("Relu", x)
        return x

    def group_norm(self, x: str, name: str) -> str:
        """Writes GroupNorm as PyTorch exports it for opsets without a fitting
        GroupNormalization."""
        w, groups = self._w, self._config.groups
        one = w.constant(np.ones(groups, np.float32))
        zero = w.constant(np.zeros(groups, np.float32))
        y = w.reshape(x, 0, groups, -1)
        y = w.node("InstanceNormalization", y, one, zero, epsilon=vision.EPSILON)
        y = w.node("Reshape", y, w.node("Shape", x))
        for op, part in (("Mul", "weight"), ("Add", "bias")):
            values = self._arrays[f"{name}.{part}"].reshape(-1, 1, 1)
            y = w.node(op, y, w.tensor(f"{name}.{part}", values))
        return y

    def up(self, x: str, name: str, beside: str) -> str:
        """`x` twice as large, or one more, as `beside` is."""
        w = self._w
        if self._config.resizes:
            sizes = w.node("Concat", w.node("Slice", w.node("Shape", x), w.ints(0), w.ints(2)),
                           w.node("Slice", w.node("Shape", beside), w.ints(2), w.ints(4)), axis=0)
            return w.node("Resize", x, "", "", sizes, mode="linear", nearest_mode="floor",
                          coordinate_transformation_mode="half_pixel", cubic_coeff_a=-0.75)
        x = w.node("ConvTranspose", x, self.tensor(f"{name}.spread.weight"),
                   self.tensor(f"{name}.spread.bias"), dilations=[1, 1], group=1,
                   kernel_shape=[2, 2], pads=[0] * 4, strides=[2, 2])
        before, after = [], []
        for axis in (2, 3):
            missing = w.node("Sub", w.size(beside, axis, vector=False),
                             w.size(x, axis, vector=False))
            half = w.node("Div", missing, w.constant(np.int64(2)))
            before.append(w.node("Unsqueeze", half, w.ints(0)))
            after.append(w.node("Unsqueeze", w.node("Sub", missing, half), w.ints(0)))
        pads = w.node("Concat", w.ints(0, 0), *before, w.ints(0, 0), *after, axis=0)
        return w.node("Pad", x, pads, w.constant(np.float32(0)), mode="constant")


def unet_onnx(path: str | os.PathLike[str], config: Config = DEFAULT) -> None:
    """Writes the network as ONNX with dynamic batch, height and width."""
    w = OnnxWriter(opset=18 if config.resizes else 17)
    layers = _Layers(w, config)
    x = "image"
    left = []
    for i in range(len(config.channels)):
        if i:
            x = w.node("MaxPool", x, ceil_mode=0, kernel_shape=[2, 2], pads=[0] * 4,
                       strides=[2, 2])
        x = layers.double(x, f"down{i}")
        left.append(x)
    left.pop()
    for name, _, _ in config.ups:
        beside = left.pop()
        x = w.node("Concat", beside, layers.up(x, name, beside), axis=1)
        x = layers.double(x, name)
    w.node("Conv", x, layers.tensor("last.weight"), layers.tensor("last.bias"), name="scores",
           dilations=[1, 1], group=1, kernel_shape=[1, 1], pads=[0] * 4, strides=[1, 1])
    w.save(path, config.name, {"image": (np.float32, ["batch", 3, "height", "width"])},
           {"scores": (np.float32, ["batch", config.classes, "height", "width"])})
