"""MobileNetV2 with seeded weights: as ONNX and in numpy.

    mobilenet_onnx("mobilenet.onnx")     # image f32[batch, 3, height, width] -> logits
    logits = mobilenet_numpy(feed)["logits"]

After Sandler et al., "MobileNetV2: Inverted Residuals and Linear Bottlenecks", 2018, with
torchvision's names: convolutions of one filter a channel between ones of 1x1. Opset 17; norms are
folded into the convolutions and relu6 is a Clip between constants, as PyTorch exports them.
"""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Mapping

import numpy as np
import numpy_ops as ops
import vision
from onnx_writer import OnnxWriter


@dataclasses.dataclass(frozen=True)
class Config(vision.ImageConfig):
    """`stages`: expansion, channels, blocks and stride of the first, for each stage."""

    stages: tuple[tuple[int, int, int, int], ...] = (
        (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2),
        (6, 320, 1, 1))
    first: int = 32
    last: int = 1280
    classes: int = 1000
    seed: int = 29


# Deviation of what enters a relu6, so that some of it is larger than 6.
SIZE = 2.5
DEFAULT = Config()
TINY = Config(stages=((1, 8, 1, 1), (3, 12, 2, 2)), first=8, last=32, classes=10, smallest=8,
              largest=40, batch=3)


@dataclasses.dataclass(frozen=True)
class Layer:
    """A convolution with its norm. `mixes`: over all channels, not filter by filter."""

    conv: str
    norm: str
    inputs: int
    outputs: int
    k: int
    stride: int
    mixes: bool
    relu: bool


def blocks(config: Config) -> list[tuple[list[Layer], bool]]:
    """The layers of each block, and whether its input is added to its result."""
    result = [([Layer("features.0.0", "features.0.1", 3, config.first, 3, 2, True, True)], False)]
    inputs = config.first
    for expansion, outputs, count, first_stride in config.stages:
        for i in range(count):
            stride = 1 if i else first_stride
            name = f"features.{len(result)}.conv"
            hidden = inputs * expansion
            layers = []
            if expansion > 1:
                layers.append(Layer(f"{name}.0.0", f"{name}.0.1", inputs, hidden, 1, 1, True, True))
            n = len(layers)
            layers += [
                Layer(f"{name}.{n}.0", f"{name}.{n}.1", hidden, hidden, 3, stride, False, True),
                Layer(f"{name}.{n + 1}", f"{name}.{n + 2}", hidden, outputs, 1, 1, True, False)]
            result.append((layers, stride == 1 and inputs == outputs))
            inputs = outputs
    name = f"features.{len(result)}"
    last = Layer(f"{name}.0", f"{name}.1", inputs, config.last, 1, 1, True, True)
    return [*result, ([last], False)]


@functools.cache
def mobilenet_weights(config: Config = DEFAULT) -> dict[str, np.ndarray]:
    """Returns all weights by torchvision's names, f32, norms not folded."""
    weights = vision.ConvWeights(config.seed)
    for layers, adds in blocks(config):
        for i, layer in enumerate(layers):
            # After a relu values vary less than before; a block's input had none.
            gain = 1 / (SIZE * vision.RELU_DEVIATION) if i else 1.0
            means = 0.0
            if layer.mixes:
                weights.conv(layer.conv, layer.outputs, layer.inputs, layer.k, gain=gain)
            else:
                # Values are SIZE times as large and weights as much smaller, which keeps the means.
                means = weights.depthwise(layer.conv, layer.outputs, layer.k)
                weights.arrays[f"{layer.conv}.weight"] /= np.float32(SIZE)
            scale = SIZE if layer.relu else 0.5 if adds else 1.0
            weights.norm(layer.norm, layer.outputs, scale, means)
    weights.linear("classifier.1", config.classes, config.last, gain=4 / SIZE)
    return weights.arrays


def mobilenet_inputs(sizes: Mapping[str, int], config: Config = DEFAULT,
                     seed: int = 0) -> dict[str, np.ndarray]:
    """Images."""
    return {"image": vision.images(sizes["batch"], 3, sizes["height"], sizes["width"], seed)}


def mobilenet_numpy(feed: Mapping[str, np.ndarray],
                    config: Config = DEFAULT) -> dict[str, np.ndarray]:
    """The network in float64: ``logits`` [batch, classes]."""
    arrays = mobilenet_weights(config)
    x = ops.wide(feed["image"])
    for layers, adds in blocks(config):
        y = x
        for layer in layers:
            y = vision.conv_norm_numpy(y, arrays, layer.conv, layer.norm, layer.stride,
                                       layer.k // 2)
            y = np.clip(y, 0, 6) if layer.relu else y
        x = x + y if adds else y
    x = ops.linear(x.mean((2, 3)), arrays["classifier.1.weight"], arrays["classifier.1.bias"])
    return {"logits": x}


def mobilenet_onnx(path: str | os.PathLike[str], config: Config = DEFAULT) -> None:
    """Writes the network as ONNX opset 17 with dynamic batch, height and width."""
    w = OnnxWriter()
    arrays = mobilenet_weights(config)
    x = "image"
    for layers, adds in blocks(config):
        y = x
        for layer in layers:
            y = vision.conv_norm(w, y, arrays, layer.conv, layer.norm, layer.stride, layer.k // 2,
                                 1 if layer.mixes else layer.outputs)
            if layer.relu:
                y = w.node("Clip", y, w.constant(np.float32(0)), w.constant(np.float32(6)))
        x = w.node("Add", x, y) if adds else y
    x = w.node("Flatten", w.node("GlobalAveragePool", x), axis=1)
    names = [f"classifier.1.{part}" for part in ("weight", "bias")]
    w.node("Gemm", x, *(w.tensor(name, arrays[name]) for name in names), name="logits", alpha=1.0,
           beta=1.0, transB=1)
    w.save(path, "mobilenet", {"image": (np.float32, ["batch", 3, "height", "width"])},
           {"logits": (np.float32, ["batch", config.classes])})
