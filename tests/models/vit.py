"""ViT-tiny with seeded weights: as ONNX and in numpy.

    vit_onnx("vit.onnx")                 # image f32[batch, 3, 224, 224] -> logits f32[batch, 1000]
    logits = vit_numpy(feed)["logits"]

After Dosovitskiy et al., "An Image is Worth 16x16 Words", 2020, and Touvron et al., "Training
data-efficient image transformers & distillation through attention", 2020, with timm's names:
patches of 16x16 as tokens and one more for the class, twelve pre-norm layers with one linear layer
for queries, keys and values. Opset 16, where a layer norm is nine nodes.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import os
from collections.abc import Mapping

import numpy as np
import numpy_ops as ops
import transformer
import vision
from onnx_writer import OnnxWriter

EPSILON = 1e-6


@dataclasses.dataclass(frozen=True)
class Config:
    """Sizes; images are `side` by `side`."""

    side: int = 224
    patch: int = 16
    width: int = 192
    heads: int = 3
    layers: int = 12
    classes: int = 1000
    batch: int = 8
    seed: int = 43

    @property
    def head(self) -> int:
        """Width of one head."""
        return self.width // self.heads

    @property
    def patches(self) -> int:
        """Returns the number of patches of an image."""
        return (self.side // self.patch) ** 2

    @property
    def dims(self) -> dict[str, tuple[int, int]]:
        """Bounds of the dynamic dim."""
        return {"batch": (1, self.batch)}


DEFAULT = Config()
TINY = Config(side=32, patch=8, width=24, heads=2, layers=2, classes=10, batch=5)


@functools.cache
def vit_weights(config: Config = DEFAULT) -> dict[str, np.ndarray]:
    """Returns all weights by timm's names, f32."""
    weights = transformer.Weights(config.seed)
    d, k = config.width, config.patch
    weights.arrays["cls_token"] = weights.normal(1, 1, d, deviation=0.5)
    weights.arrays["pos_embed"] = weights.normal(1, config.patches + 1, d, deviation=0.5)
    weights.arrays["patch_embed.proj.weight"] = weights.normal(d, 3, k, k,
                                                               deviation=1 / (k * math.sqrt(3)))
    weights.arrays["patch_embed.proj.bias"] = weights.normal(d)
    for i in range(config.layers):
        block = f"blocks.{i}"
        weights.norm(f"{block}.norm1", d)
        weights.linear(f"{block}.attn.qkv", 3 * d, d, gain=1.5)
        weights.linear(f"{block}.attn.proj", d, d)
        weights.norm(f"{block}.norm2", d)
        weights.linear(f"{block}.mlp.fc1", 4 * d, d)
        weights.linear(f"{block}.mlp.fc2", d, 4 * d, gain=1.5)
    weights.norm("norm", d)
    weights.linear("head", config.classes, d)
    return weights.arrays


def vit_inputs(sizes: Mapping[str, int], config: Config = DEFAULT,
               seed: int = 0) -> dict[str, np.ndarray]:
    """Images."""
    return {"image": vision.images(sizes["batch"], 3, config.side, config.side, seed)}


def vit_numpy(feed: Mapping[str, np.ndarray], config: Config = DEFAULT) -> dict[str, np.ndarray]:
    """The network in float64: ``logits`` [batch, classes]."""
    arrays = vit_weights(config)
    norm = functools.partial(transformer.layer_norm_numpy, arrays=arrays, epsilon=EPSILON)
    linear = functools.partial(transformer.linear_numpy, arrays=arrays)
    b, k, rows = len(feed["image"]), config.patch, config.side // config.patch
    x = ops.wide(feed["image"]).reshape(b, 3, rows, k, rows, k)
    x = x.transpose(0, 2, 4, 1, 3, 5).reshape(b, config.patches, 3 * k * k)
    x = ops.linear(x, arrays["patch_embed.proj.weight"].reshape(config.width, -1),
                   arrays["patch_embed.proj.bias"])
    x = np.concatenate([np.broadcast_to(arrays["cls_token"], (b, 1, config.width)), x], 1)
    x = x + arrays["pos_embed"]
    for i in range(config.layers):
        block = f"blocks.{i}"
        y = linear(norm(x, name=f"{block}.norm1"), name=f"{block}.attn.qkv")
        q, k, v = (part.reshape(b, -1, config.heads, config.head).swapaxes(1, 2)
                   for part in np.split(y, 3, -1))
        y = transformer.attention_numpy(q, k, v).swapaxes(1, 2).reshape(x.shape)
        x = x + linear(y, name=f"{block}.attn.proj")
        y = ops.gelu(linear(norm(x, name=f"{block}.norm2"), name=f"{block}.mlp.fc1"))
        x = x + linear(y, name=f"{block}.mlp.fc2")
    return {"logits": linear(norm(x, name="norm")[:, 0], name="head")}


def vit_onnx(path: str | os.PathLike[str], config: Config = DEFAULT) -> None:
    """Writes the network as ONNX opset 16 with dynamic batch."""
    w = OnnxWriter(opset=16)
    arrays = vit_weights(config)
    linear = functools.partial(transformer.linear, w, arrays=arrays)
    norm = functools.partial(transformer.layer_norm, w, arrays=arrays, epsilon=EPSILON)

    def tensor(name: str) -> str:
        return w.tensor(name, arrays[name])

    b = w.size("image", 0)
    k, tokens = config.patch, config.patches + 1
    x = w.node("Conv", "image", tensor("patch_embed.proj.weight"), tensor("patch_embed.proj.bias"),
               dilations=[1, 1], group=1, kernel_shape=[k, k], pads=[0] * 4, strides=[k, k])
    x = w.node("Transpose", w.reshape(x, 0, config.width, -1), perm=[0, 2, 1])
    shape = w.node("Concat", b, w.ints(-1), w.ints(-1), axis=0)
    # Expand knows no -1: exporters put a 1 there, which leaves a size as it is.
    ones = w.node("ConstantOfShape", w.ints(3), value=np.array([1], np.int64))
    shape = w.node("Where", w.node("Equal", shape, w.ints(-1, -1, -1)), ones, shape)
    x = w.node("Concat", w.node("Expand", tensor("cls_token"), shape), x, axis=1)
    x = w.node("Add", x, tensor("pos_embed"))
    for i in range(config.layers):
        block = f"blocks.{i}"
        y = linear(norm(x, name=f"{block}.norm1"), name=f"{block}.attn.qkv")
        y = w.node("Transpose", w.reshape(y, b, tokens, 3, config.heads, config.head),
                   perm=[2, 0, 3, 1, 4])
        parts = w.node_of([""] * 3, "Split", y, w.ints(1, 1, 1), axis=0)
        q, key, v = (w.node("Squeeze", part, w.ints(0)) for part in parts)
        q = w.node("Mul", q, w.constant(np.float32(1 / math.sqrt(config.head))))
        y = w.node("MatMul", q, w.node("Transpose", key, perm=[0, 1, 3, 2]))
        y = w.node("Transpose", w.node("MatMul", w.node("Softmax", y, axis=-1), v),
                   perm=[0, 2, 1, 3])
        y = w.reshape(y, b, tokens, config.width)
        x = w.node("Add", x, linear(y, name=f"{block}.attn.proj"))
        y = linear(norm(x, name=f"{block}.norm2"), name=f"{block}.mlp.fc1")
        x = w.node("Add", x, linear(transformer.gelu(w, y), name=f"{block}.mlp.fc2"))
    x = w.node("Gather", norm(x, name="norm"), w.constant(np.int64(0)), axis=1)
    w.node("Gemm", x, tensor("head.weight"), tensor("head.bias"), name="logits", alpha=1.0,
           beta=1.0, transB=1)
    w.save(path, "vit", {"image": (np.float32, ["batch", 3, config.side, config.side])},
           {"logits": (np.float32, ["batch", config.classes])})
