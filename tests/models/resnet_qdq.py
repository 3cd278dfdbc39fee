"""A ResNet quantised to 8 bits: QuantizeLinear and DequantizeLinear around ops of floats.

    qdq_onnx("qdq_resnet18.onnx", RESNET18)   # image f32[batch, 3, height, width] -> logits
    logits = qdq_numpy(feed, RESNET18)["logits"]

The networks of `resnet.py` as ONNX Runtime's `quantize_static` writes them: activations u8 with one
scale, by the least and largest values of some images; weights i8 with a scale for each channel of
the result; biases i32. Norms are folded. Opset 13. The reference rounds where the file does and
computes between in float64: a value halfway between two codes may get the other one in f32, which
moves the logits by a part of a step.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping

import numpy as np
import numpy_ops as ops
import resnet
import vision
from onnx_writer import OnnxWriter
from resnet import Config

CALIBRATION = 2  # images by which the ranges of activations are found


def _layer_arrays(config: Config, name: str, norm: str) -> tuple[np.ndarray, np.ndarray]:
    """Weight and bias, f32, of a convolution with its norm or of the linear layer."""
    arrays = resnet.resnet_weights(config)
    if norm:
        return vision.folded(arrays, name, norm)
    return arrays[f"{name}.weight"], arrays[f"{name}.bias"]


def _codes(weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """i8 codes, and scales f32 for each channel of the result."""
    most = np.abs(weight).max(tuple(range(1, weight.ndim)))
    scale = (np.maximum(most, 1e-8) / 127).astype(np.float32)
    codes = np.rint(weight / scale.reshape(-1, *[1] * (weight.ndim - 1)))
    return np.clip(codes, -127, 127).astype(np.int8), scale


def _bias_codes(bias: np.ndarray, source: np.float32, scale: np.ndarray
                ) -> tuple[np.ndarray, np.ndarray]:
    """i32 codes, and their scales f32: what products of codes count in."""
    step = source * scale
    return np.rint(bias / step.astype(np.float64)).astype(np.int32), step


class _Floats:
    """The network's steps in float64; notes the range of each activation."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.ranges: dict[str, tuple[float, float]] = {}

    def layer(self, x: np.ndarray, source: str, name: str, norm: str, stride: int = 1, pad: int = 0
              ) -> np.ndarray:
        """A convolution or, without a norm, the linear layer, of activation `source`."""
        weight, bias = _layer_arrays(self.config, name, norm)
        return self.product(x, weight, bias, stride, pad)

    def product(self, x: np.ndarray, weight: np.ndarray, bias: np.ndarray, stride: int, pad: int
                ) -> np.ndarray:
        if weight.ndim == 2:
            return ops.linear(x, ops.wide(weight), ops.wide(bias))
        return ops.conv(x, ops.wide(weight), ops.wide(bias), stride, pad)

    def seen(self, x: np.ndarray, name: str) -> np.ndarray:
        """An activation, which has a name and a range."""
        self.ranges[name] = min(0.0, float(x.min())), max(0.0, float(x.max()))
        return x

    def relu(self, x: np.ndarray) -> np.ndarray:
        return np.maximum(x, 0)

    def pool(self, x: np.ndarray) -> np.ndarray:
        return ops.max_pool(x, 3, 2, 1)

    def add(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return x + y

    def mean(self, x: np.ndarray) -> np.ndarray:
        return x.mean((2, 3))


def _network(steps: object, x: object, config: Config) -> object:
    """The network by these steps: its logits."""
    x, source = steps.seen(x, "image"), "conv1"
    x = steps.seen(steps.relu(steps.layer(x, "image", "conv1", "bn1", 2, 3)), source)
    x = steps.pool(x)
    for block in resnet.blocks(config):
        y, before = x, source
        for i, (_, _, k, stride) in enumerate(block.convs, 1):
            name = f"{block.name}.conv{i}"
            y = steps.layer(y, before, name, f"{block.name}.bn{i}", stride, k // 2)
            y = steps.seen(steps.relu(y) if i < len(block.convs) else y, name)
            before = name
        if block.shortcut:
            name = f"{block.name}.downsample"
            x = steps.layer(x, source, f"{name}.0", f"{name}.1", block.shortcut[2])
            x = steps.seen(x, name)
        source = f"{block.name}.sum"
        x = steps.seen(steps.relu(steps.add(x, y)), source)
    return steps.layer(steps.seen(steps.mean(x), "mean"), "mean", "fc", "")


@functools.cache
def qdq_scales(config: Config) -> dict[str, tuple[np.float32, np.uint8]]:
    """Scale and zero point of each activation, in which 0 is exact."""
    side = min(config.largest, 64)
    steps = _Floats(config)
    _network(steps, ops.wide(vision.images(CALIBRATION, 3, side, side, config.seed)), config)
    scales = {}
    for name, (low, high) in steps.ranges.items():
        scale = np.float32((high - low) / 255 or 1)
        scales[name] = scale, np.uint8(np.clip(np.rint(-low / float(scale)), 0, 255))
    return scales


class _Codes(_Floats):
    """The same with values that codes have."""

    def layer(self, x: np.ndarray, source: str, name: str, norm: str, stride: int = 1, pad: int = 0
              ) -> np.ndarray:
        weight, bias = _layer_arrays(self.config, name, norm)
        codes, scale = _codes(weight)
        bias_codes, step = _bias_codes(bias, qdq_scales(self.config)[source][0], scale)
        wide = codes * scale.astype(np.float64).reshape(-1, *[1] * (codes.ndim - 1))
        return self.product(x, wide, bias_codes * step.astype(np.float64), stride, pad)

    def seen(self, x: np.ndarray, name: str) -> np.ndarray:
        scale, zero = (float(part) for part in qdq_scales(self.config)[name])
        return (np.clip(np.rint(x / scale) + zero, 0, 255) - zero) * scale


class _Nodes:
    """The same as nodes."""

    def __init__(self, w: OnnxWriter, config: Config) -> None:
        self.w, self.config = w, config

    def layer(self, x: str, source: str, name: str, norm: str, stride: int = 1, pad: int = 0
              ) -> str:
        w = self.w
        weight, bias = _layer_arrays(self.config, name, norm)
        codes, scale = _codes(weight)
        bias_codes, step = _bias_codes(bias, qdq_scales(self.config)[source][0], scale)
        operands = [x]
        for part, values, scales in (("weight", codes, scale), ("bias", bias_codes, step)):
            prefix = f"{name}.{part}"
            zero = np.zeros(scales.shape, values.dtype)
            operands.append(w.node("DequantizeLinear", w.tensor(f"{prefix}_quantized", values),
                                   w.tensor(f"{prefix}_scale", scales),
                                   w.tensor(f"{prefix}_zero_point", zero), axis=0))
        if weight.ndim == 2:
            return w.node("Gemm", *operands, name="logits", alpha=1.0, beta=1.0, transB=1)
        return w.node("Conv", *operands, dilations=[1, 1], group=1,
                      kernel_shape=list(weight.shape[2:]), pads=[pad] * 4, strides=[stride] * 2)

    def seen(self, x: str, name: str) -> str:
        w = self.w
        scale, zero = qdq_scales(self.config)[name]
        operands = [w.tensor(f"{name}_scale", scale), w.tensor(f"{name}_zero_point", zero)]
        return w.node("DequantizeLinear", w.node("QuantizeLinear", x, *operands), *operands)

    def relu(self, x: str) -> str:
        return self.w.node("Relu", x)

    def pool(self, x: str) -> str:
        return self.w.node("MaxPool", x, ceil_mode=0, kernel_shape=[3, 3], pads=[1] * 4,
                           strides=[2, 2])

    def add(self, x: str, y: str) -> str:
        return self.w.node("Add", x, y)

    def mean(self, x: str) -> str:
        return self.w.node("Flatten", self.w.node("GlobalAveragePool", x), axis=1)


def qdq_numpy(feed: Mapping[str, np.ndarray], config: Config = resnet.RESNET18
              ) -> dict[str, np.ndarray]:
    """The network in float64, rounded where the file does: ``logits`` [batch, classes]."""
    return {"logits": _network(_Codes(config), ops.wide(feed["image"]), config)}


def qdq_onnx(path: str | os.PathLike[str], config: Config = resnet.RESNET18) -> None:
    """Writes the network as ONNX opset 13 with dynamic batch, height and width."""
    w = OnnxWriter(opset=13)
    _network(_Nodes(w, config), "image", config)
    w.save(path, f"qdq_{config.name}", {"image": (np.float32, ["batch", 3, "height", "width"])},
           {"logits": (np.float32, ["batch", config.classes])})
