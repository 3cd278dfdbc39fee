"""The audio encoder of Whisper, in the sizes of "tiny", with seeded weights: as ONNX and in numpy.

    whisper_onnx("whisper.onnx")         # mel f32[batch, 80, frames] -> hidden
    hidden = whisper_numpy(feed)["hidden"]

After Radford et al., "Robust Speech Recognition via Large-Scale Weak Supervision", 2022, with the
names of Hugging Face: two convolutions over time, the second of stride 2, sinusoids as positions,
four pre-norm layers of attention (6 heads, keys without a bias) and a feed-forward network, a last
norm. hidden is f32[batch, (frames - 1)//2 + 1, 384]. Unlike the original, any number of frames up
to 3000 is taken, not 3000 alone. Opset 17; shapes of reshapes are computed from shapes, as
PyTorch exports them.
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
from onnx_writer import OnnxWriter

EPSILON = 1e-5


@dataclasses.dataclass(frozen=True)
class Config:
    """Sizes; `positions` is half the largest number of frames."""

    mels: int = 80
    width: int = 384
    heads: int = 6
    hidden: int = 1536
    layers: int = 4
    positions: int = 1500
    batch: int = 4
    seed: int = 41

    @property
    def head(self) -> int:
        """Width of one head."""
        return self.width // self.heads

    @property
    def dims(self) -> dict[str, tuple[int, int]]:
        """Bounds of the dynamic dims."""
        return {"batch": (1, self.batch), "frames": (1, 2 * self.positions)}


DEFAULT = Config()
TINY = Config(mels=8, width=24, heads=3, hidden=32, layers=2, positions=25, batch=3)


def _sinusoids(config: Config) -> np.ndarray:
    """Sines, then cosines, of the position times frequencies that fall from 1 to 1/10000."""
    half = config.width // 2
    frequencies = np.exp(-math.log(10_000) / (half - 1) * np.arange(half))
    angles = np.arange(config.positions)[:, np.newaxis] * frequencies
    return np.concatenate([np.sin(angles), np.cos(angles)], 1).astype(np.float32)


@functools.cache
def whisper_weights(config: Config = DEFAULT) -> dict[str, np.ndarray]:
    """Returns all weights by Hugging Face's names, f32, including positions, which are not
    learned."""
    weights = transformer.Weights(config.seed)
    for name, inputs in (("conv1", config.mels), ("conv2", config.width)):
        # A value after gelu is about 0.65 of one before.
        deviation = (1.0 if name == "conv1" else 1.5) / math.sqrt(3 * inputs)
        weights.arrays[f"{name}.weight"] = weights.normal(config.width, inputs, 3,
                                                          deviation=deviation)
        weights.arrays[f"{name}.bias"] = weights.normal(config.width)
    weights.arrays["embed_positions.weight"] = _sinusoids(config)
    for i in range(config.layers):
        layer = f"layers.{i}"
        weights.norm(f"{layer}.self_attn_layer_norm", config.width)
        for part in ("q_proj", "k_proj", "v_proj", "out_proj"):
            weights.linear(f"{layer}.self_attn.{part}", config.width, config.width,
                           bias=part != "k_proj", gain=1.5 if part[0] in "qk" else 1.0)
        weights.norm(f"{layer}.final_layer_norm", config.width)
        weights.linear(f"{layer}.fc1", config.hidden, config.width)
        weights.linear(f"{layer}.fc2", config.width, config.hidden, gain=1.5)
    weights.norm("layer_norm", config.width)
    return weights.arrays


def whisper_inputs(sizes: Mapping[str, int], config: Config = DEFAULT,
                   seed: int = 0) -> dict[str, np.ndarray]:
    """Bands of about unit size that rise and fall over time, with some noise."""
    random = np.random.default_rng(seed)
    shape = (sizes["batch"], config.mels)
    time = np.arange(sizes["frames"])
    rate, phase = random.uniform(0, 0.5, (*shape, 1)), random.uniform(0, 6, (*shape, 1))
    bands = random.standard_normal((*shape, 1)) + np.sin(rate * time + phase)
    noise = 0.3 * random.standard_normal((*shape, sizes["frames"]))
    return {"mel": (bands + noise).astype(np.float32)}


def _conv_numpy(x: np.ndarray, arrays: transformer.Arrays, name: str, stride: int) -> np.ndarray:
    """A convolution of width 3 over time: x [batch, channels, frames]."""
    weight = ops.wide(arrays[f"{name}.weight"])
    x = np.pad(x, [(0, 0), (0, 0), (1, 1)])
    windows = np.lib.stride_tricks.sliding_window_view(x, 3, 2)[:, :, ::stride]
    y = np.einsum("bctk,ock->bot", windows, weight, optimize=True)
    return y + arrays[f"{name}.bias"].reshape(1, -1, 1)


def whisper_numpy(feed: Mapping[str, np.ndarray],
                  config: Config = DEFAULT) -> dict[str, np.ndarray]:
    """The encoder in float64: ``hidden`` [batch, (frames - 1)//2 + 1, width]."""
    arrays = whisper_weights(config)
    norm = functools.partial(transformer.layer_norm_numpy, arrays=arrays, epsilon=EPSILON)
    linear = functools.partial(transformer.linear_numpy, arrays=arrays)
    x = ops.gelu(_conv_numpy(ops.wide(feed["mel"]), arrays, "conv1", 1))
    x = ops.gelu(_conv_numpy(x, arrays, "conv2", 2)).swapaxes(1, 2)
    b, length, _ = x.shape
    x = x + arrays["embed_positions.weight"][:length]
    for i in range(config.layers):
        layer = f"layers.{i}"
        y = norm(x, name=f"{layer}.self_attn_layer_norm")
        q, k, v = (linear(y, name=f"{layer}.self_attn.{part}_proj")
                   .reshape(b, length, config.heads, config.head).swapaxes(1, 2)
                   for part in "qkv")
        y = transformer.attention_numpy(q, k, v).swapaxes(1, 2).reshape(x.shape)
        x = x + linear(y, name=f"{layer}.self_attn.out_proj")
        y = ops.gelu(linear(norm(x, name=f"{layer}.final_layer_norm"), name=f"{layer}.fc1"))
        x = x + linear(y, name=f"{layer}.fc2")
    return {"hidden": norm(x, name="layer_norm")}


def whisper_onnx(path: str | os.PathLike[str], config: Config = DEFAULT) -> None:
    """Writes the encoder as ONNX opset 17 with dynamic batch and frames."""
    w = OnnxWriter()
    arrays = whisper_weights(config)
    linear = functools.partial(transformer.linear, w, arrays=arrays)

    def conv(x: str, name: str, stride: int) -> str:
        names = [w.tensor(f"{name}.{part}", arrays[f"{name}.{part}"])
                 for part in ("weight", "bias")]
        return transformer.gelu(w, w.node("Conv", x, *names, dilations=[1], group=1,
                                          kernel_shape=[3], pads=[1, 1], strides=[stride]))

    def norm(x: str, name: str, result: str = "") -> str:
        return transformer.layer_norm(w, x, arrays, name, EPSILON, result)

    x = w.node("Transpose", conv(conv("mel", "conv1", 1), "conv2", 2), perm=[0, 2, 1])
    positions = w.tensor("embed_positions.weight", arrays["embed_positions.weight"])
    x = w.node("Add", x, w.node("Slice", positions, w.ints(0), w.size(x, 1), w.ints(0)))
    for i in range(config.layers):
        layer = f"layers.{i}"
        y = norm(x, f"{layer}.self_attn_layer_norm")
        b, length = w.size(y, 0), w.size(y, 1)
        q = w.node("Mul", linear(y, name=f"{layer}.self_attn.q_proj"),
                   w.constant(np.float32(1 / math.sqrt(config.head))))
        k = linear(y, name=f"{layer}.self_attn.k_proj")
        v = linear(y, name=f"{layer}.self_attn.v_proj")
        q, k, v = (w.node("Transpose", w.reshape(part, b, length, config.heads, config.head),
                          perm=order)
                   for part, order in ((q, [0, 2, 1, 3]), (k, [0, 2, 3, 1]), (v, [0, 2, 1, 3])))
        y = w.node("MatMul", w.node("Softmax", w.node("MatMul", q, k), axis=-1), v)
        y = w.reshape(w.node("Transpose", y, perm=[0, 2, 1, 3]), b, length, config.width)
        x = w.node("Add", x, linear(y, name=f"{layer}.self_attn.out_proj"))
        y = linear(norm(x, f"{layer}.final_layer_norm"), name=f"{layer}.fc1")
        x = w.node("Add", x, linear(transformer.gelu(w, y), name=f"{layer}.fc2"))
    norm(x, "layer_norm", "hidden")
    w.save(path, "whisper", {"mel": (np.float32, ["batch", config.mels, "frames"])},
           {"hidden": (np.float32, ["batch", "(frames - 1)//2 + 1", config.width])})
