"""SqueezeNet 1.1 with seeded weights: as ONNX of opset 8 and in numpy.

    squeezenet_onnx("squeezenet.onnx")     # image f32[batch, 3, height, width] -> logits
    logits = squeezenet_numpy(feed)["logits"]

After Iandola et al., "SqueezeNet: AlexNet-level accuracy with 50x fewer parameters and <0.5MB model
size", 2016, with torchvision's names. Pixels are scaled channel by channel inside the network, as
torchvision's `transform_input` does. Opset 8, where what later became operands were attributes: of
Slice, Pad, Clip, Squeeze, ReduceMean and Dropout; a pool's `ceil_mode` is a pad at the end.
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
    """`fires`: squeezed and expanded (each of two) channels of each module; `pools`: the modules
    before which there is a pool."""

    fires: tuple[tuple[int, int], ...] = ((16, 64), (16, 64), (32, 128), (32, 128), (48, 192),
                                          (48, 192), (64, 256), (64, 256))
    pools: tuple[int, ...] = (0, 2, 4)
    first: int = 64
    classes: int = 1000
    seed: int = 61


DEFAULT = Config()
TINY = Config(fires=((4, 8), (6, 12)), pools=(0, 1), first=8, classes=10, smallest=16, largest=48,
              batch=3)
# Per channel: factor and offset of pixels.
SCALES = ((0.458, -0.03), (0.448, -0.088), (0.45, -0.188))
BRIGHTEST = 1.5


def _names(config: Config) -> list[str]:
    """The modules' names: pools and relus count too."""
    names, place = [], 2
    for i in range(len(config.fires)):
        place += 1 if i in config.pools else 0
        names.append(f"features.{place}")
        place += 1
    return names


@functools.cache
def squeezenet_weights(config: Config = DEFAULT) -> dict[str, np.ndarray]:
    """Returns all weights by torchvision's names, f32."""
    weights = vision.ConvWeights(config.seed)
    # Scaled pixels vary about half as much as others.
    weights.conv("features.0", config.first, 3, 3, gain=2.0, bias=True)
    inputs = config.first
    for name, (squeezed, expanded) in zip(_names(config), config.fires, strict=True):
        weights.conv(f"{name}.squeeze", squeezed, inputs, 1, bias=True)
        for k in (1, 3):
            weights.conv(f"{name}.expand{k}x{k}", expanded, squeezed, k, bias=True)
        inputs = 2 * expanded
    weights.conv("classifier.1", config.classes, inputs, 1, gain=6.0, bias=True)
    return weights.arrays


def squeezenet_inputs(sizes: Mapping[str, int], config: Config = DEFAULT,
                      seed: int = 0) -> dict[str, np.ndarray]:
    """Images."""
    return {"image": vision.images(sizes["batch"], 3, sizes["height"], sizes["width"], seed)}


def _pool_numpy(x: np.ndarray) -> np.ndarray:
    return ops.max_pool(np.pad(x, [(0, 0), (0, 0), (0, 1), (0, 1)], constant_values=-np.inf), 3, 2)


def squeezenet_numpy(feed: Mapping[str, np.ndarray],
                     config: Config = DEFAULT) -> dict[str, np.ndarray]:
    """The network in float64: ``logits`` [batch, classes]."""
    arrays = squeezenet_weights(config)

    def layer(x: np.ndarray, name: str, stride: int = 1, pad: int = 0) -> np.ndarray:
        return np.maximum(ops.conv(x, arrays[f"{name}.weight"], arrays[f"{name}.bias"], stride,
                                   pad), 0)

    scale, shift = np.asarray(SCALES, np.float32).astype(np.float64).T.reshape(2, 1, 3, 1, 1)
    x = np.clip(ops.wide(feed["image"]), -BRIGHTEST, BRIGHTEST) * scale + shift
    x = layer(x, "features.0", 2, 1)
    for i, name in enumerate(_names(config)):
        x = _pool_numpy(x) if i in config.pools else x
        x = layer(x, f"{name}.squeeze")
        x = np.concatenate([layer(x, f"{name}.expand1x1"),
                            layer(x, f"{name}.expand3x3", pad=1)], 1)
    return {"logits": layer(x, "classifier.1").mean((2, 3))}


def squeezenet_onnx(path: str | os.PathLike[str], config: Config = DEFAULT) -> None:
    """Writes the network as ONNX opset 8 with dynamic batch, height and width."""
    w = OnnxWriter(opset=8)
    arrays = squeezenet_weights(config)

    def layer(x: str, name: str, stride: int = 1, pad: int = 0) -> str:
        weight, bias = (w.tensor(f"{name}.{part}", arrays[f"{name}.{part}"])
                        for part in ("weight", "bias"))
        return w.node("Relu", vision.conv_node(w, x, weight, bias, stride, pad))

    image = w.node("Clip", "image", min=-BRIGHTEST, max=BRIGHTEST)
    channels = []
    for i, (scale, shift) in enumerate(SCALES):
        channel = w.node("Slice", image, axes=[1], starts=[i], ends=[i + 1])
        channel = w.node("Mul", channel, w.constant(np.float32(scale)))
        channels.append(w.node("Add", channel, w.constant(np.float32(shift))))
    x = w.node("Concat", *channels, axis=1)
    x = w.node("Pad", x, mode="constant", pads=[0, 0, 1, 1, 0, 0, 1, 1], value=0.0)
    x = layer(x, "features.0", 2)
    for i, name in enumerate(_names(config)):
        if i in config.pools:
            x = w.node("MaxPool", x, kernel_shape=[3, 3], pads=[0, 0, 1, 1], strides=[2, 2])
        x = layer(x, f"{name}.squeeze")
        x = w.node("Concat", layer(x, f"{name}.expand1x1"), layer(x, f"{name}.expand3x3", pad=1),
                   axis=1)
    x = layer(w.node("Dropout", x, ratio=0.5), "classifier.1")
    x = w.node("ReduceMean", x, axes=[2, 3], keepdims=1)
    w.node("Squeeze", x, axes=[2, 3], name="logits")
    w.save(path, "squeezenet", {"image": (np.float32, ["batch", 3, "height", "width"])},
           {"logits": (np.float32, ["batch", config.classes])})
