"""ResNet-18 and -50 with seeded weights: as ONNX and in numpy.

    resnet_onnx("resnet50.onnx", RESNET50)   # image f32[batch, 3, height, width] -> logits
    logits = resnet_numpy(feed, RESNET50)["logits"]

After He et al., "Deep Residual Learning for Image Recognition", 2015, as torchvision builds them
(the stride of a bottleneck on its 3x3). Opset 13. ResNet-18 has its batch norms folded into the
convolutions, as PyTorch exports a network for inference; ResNet-50 keeps them as nodes, as models
exported for further training and those of older model zoos do.
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
    """Blocks of each stage and the channels of the first; each further stage has twice as many."""

    name: str = "resnet18"
    blocks: tuple[int, ...] = (2, 2, 2, 2)
    bottleneck: bool = False
    width: int = 64
    classes: int = 1000
    fold: bool = True
    seed: int = 23


RESNET18 = Config()
RESNET50 = Config(name="resnet50", blocks=(3, 4, 6, 3), bottleneck=True, fold=False)
TINY18 = dataclasses.replace(RESNET18, blocks=(1, 2), width=8, classes=10, smallest=8, largest=48,
                             batch=3)
TINY50 = dataclasses.replace(TINY18, name="resnet50", bottleneck=True, fold=False)


@dataclasses.dataclass(frozen=True)
class Block:
    """A residual block: its convolutions as (channels in, out, kernel, stride)."""

    name: str
    convs: tuple[tuple[int, int, int, int], ...]
    shortcut: tuple[int, int, int] | None  # channels in, out, stride


def blocks(config: Config) -> list[Block]:
    """Returns all residual blocks in order."""
    result = []
    inputs = config.width
    for stage, count in enumerate(config.blocks):
        middle = config.width << stage
        outputs = middle * (4 if config.bottleneck else 1)
        for i in range(count):
            stride = 2 if stage and not i else 1
            if config.bottleneck:
                convs = ((inputs, middle, 1, 1), (middle, middle, 3, stride),
                         (middle, outputs, 1, 1))
            else:
                convs = ((inputs, middle, 3, stride), (middle, outputs, 3, 1))
            shortcut = (inputs, outputs, stride) if stride > 1 or inputs != outputs else None
            result.append(Block(f"layer{stage + 1}.{i}", convs, shortcut))
            inputs = outputs
    return result


@functools.cache
def resnet_weights(config: Config = RESNET18) -> dict[str, np.ndarray]:
    """Returns all weights by torchvision's names, f32, norms not folded."""
    weights = vision.ConvWeights(config.seed)
    weights.conv("conv1", config.width, 3, 7, gain=1.0)
    weights.norm("bn1", config.width)
    outputs = config.width
    for block in blocks(config):
        for i, (inputs, outputs, k, _) in enumerate(block.convs, 1):
            weights.conv(f"{block.name}.conv{i}", outputs, inputs, k)
            # The sum with the shortcut would grow from block to block.
            weights.norm(f"{block.name}.bn{i}", outputs, 0.35 if i == len(block.convs) else 1.0)
        if block.shortcut:
            inputs, outputs, _ = block.shortcut
            weights.conv(f"{block.name}.downsample.0", outputs, inputs, 1)
            weights.norm(f"{block.name}.downsample.1", outputs)
    weights.linear("fc", config.classes, outputs, gain=2.0)
    return weights.arrays


def resnet_inputs(sizes: Mapping[str, int], config: Config = RESNET18,
                  seed: int = 0) -> dict[str, np.ndarray]:
    """Images."""
    return {"image": vision.images(sizes["batch"], 3, sizes["height"], sizes["width"], seed)}


def resnet_numpy(feed: Mapping[str, np.ndarray],
                 config: Config = RESNET18) -> dict[str, np.ndarray]:
    """The network in float64: ``logits`` [batch, classes]."""
    arrays = resnet_weights(config)
    x = vision.conv_norm_numpy(ops.wide(feed["image"]), arrays, "conv1", "bn1", 2, 3)
    x = ops.max_pool(np.maximum(x, 0), 3, 2, 1)
    for block in blocks(config):
        y = x
        for i, (_, _, k, stride) in enumerate(block.convs, 1):
            y = np.maximum(y, 0)  # no effect on x itself
            y = vision.conv_norm_numpy(y, arrays, f"{block.name}.conv{i}", f"{block.name}.bn{i}",
                                       stride, k // 2)
        if block.shortcut:
            x = vision.conv_norm_numpy(x, arrays, f"{block.name}.downsample.0",
                                       f"{block.name}.downsample.1", block.shortcut[2])
        x = np.maximum(x + y, 0)
    return {"logits": ops.linear(x.mean((2, 3)), arrays["fc.weight"], arrays["fc.bias"])}


def resnet_onnx(path: str | os.PathLike[str], config: Config = RESNET18) -> None:
    """Writes the network as ONNX opset 13 with dynamic batch, height and width."""
    w = OnnxWriter(opset=13)
    arrays = resnet_weights(config)
    layer = functools.partial(vision.conv_norm, w, arrays=arrays, fold=config.fold)
    x = w.node("Relu", layer("image", conv="conv1", norm="bn1", stride=2, pad=3))
    x = w.node("MaxPool", x, ceil_mode=0, kernel_shape=[3, 3], pads=[1] * 4, strides=[2, 2])
    for block in blocks(config):
        y = x
        for i, (_, _, k, stride) in enumerate(block.convs, 1):
            y = w.node("Relu", y) if i > 1 else y
            y = layer(y, conv=f"{block.name}.conv{i}", norm=f"{block.name}.bn{i}", stride=stride,
                      pad=k // 2)
        if block.shortcut:
            x = layer(x, conv=f"{block.name}.downsample.0", norm=f"{block.name}.downsample.1",
                      stride=block.shortcut[2])
        x = w.node("Relu", w.node("Add", y, x))
    x = w.node("Flatten", w.node("GlobalAveragePool", x), axis=1)
    w.node("Gemm", x, w.tensor("fc.weight", arrays["fc.weight"]),
           w.tensor("fc.bias", arrays["fc.bias"]), name="logits", alpha=1.0, beta=1.0, transB=1)
    w.save(path, config.name, {"image": (np.float32, ["batch", 3, "height", "width"])},
           {"logits": (np.float32, ["batch", config.classes])})
