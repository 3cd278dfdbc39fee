"""A Llama block with a cache of keys and values and seeded weights: as ONNX and in numpy.

    llama_onnx("llama.onnx")             # hidden f32[batch, sequence, 2048], position_ids,
    found = llama_numpy(feed)            # attention_mask, past_key, past_value
                                         # -> output, present_key, present_value

After Touvron et al., "LLaMA: Open and Efficient Foundation Language Models", 2023, in the sizes of
TinyLlama-1.1B and with the names of Hugging Face: RMS norms, rotary positions, 32 heads that share
4 heads of keys and values, a feed-forward network gated by silu. `past` keys and values of earlier
tokens come first; attention_mask i64[batch, past + sequence] is 0 for the padding on their left.
In four forms, of equal weights but for the last:

`DEFAULT`: opset 23 with RMSNormalization, RotaryEmbedding and Attention.
`MICROSOFT`: opset 17 with com.microsoft's RotaryEmbedding inside of GroupQueryAttention, and
SkipSimplifiedLayerNormalization, as onnxruntime-genai builds models. No padding is understood.
`PRIMITIVES`: opset 17 without any of these, as Hugging Face's models are exported by PyTorch.
`NBITS`: as `MICROSOFT`, weights in blocks of 4 bits by MatMulNBits.
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
from onnx_writer import MICROSOFT as DOMAIN
from onnx_writer import OnnxWriter

EPSILON = 1e-5
THETA = 10_000.0
# Added to the scores of keys that do not count.
LOWEST = float(np.finfo(np.float32).min)


@dataclasses.dataclass(frozen=True)
class Config:
    """Sizes and the form; `positions` is the largest sum of past and sequence."""

    name: str = "llama"
    width: int = 2048
    heads: int = 32
    kv_heads: int = 4
    hidden: int = 5632
    positions: int = 2048
    batch: int = 4
    seed: int = 53
    form: str = "opset 23"
    block: int = 0  # 4-bit weights per scale; 0: weights are f32

    @property
    def head(self) -> int:
        """Width of one head."""
        return self.width // self.heads

    @property
    def dims(self) -> dict[str, tuple[int, int]]:
        """Bounds of the dynamic dims."""
        half = self.positions // 2
        return {"batch": (1, self.batch), "sequence": (1, half), "past": (0, half)}


DEFAULT = Config()
# ONNX Runtime's GroupQueryAttention takes several tokens after a past for a batch of 1 only.
MICROSOFT = dataclasses.replace(DEFAULT, name="llama_microsoft", form="com.microsoft", batch=1)
PRIMITIVES = dataclasses.replace(DEFAULT, name="llama_primitives", form="primitives")
NBITS = dataclasses.replace(MICROSOFT, name="llama_nbits", block=32)
# com.microsoft's attention takes only heads whose width is a multiple of 16.
_SMALL = {"width": 64, "heads": 4, "kv_heads": 2, "hidden": 48, "positions": 32}
TINY, TINY_MICROSOFT, TINY_PRIMITIVES, TINY_NBITS = (
    dataclasses.replace(config, **_SMALL) for config in (DEFAULT, MICROSOFT, PRIMITIVES, NBITS))


@functools.lru_cache(maxsize=2)
def _weights(width: int, kv_width: int, hidden: int, seed: int) -> dict[str, np.ndarray]:
    weights = transformer.Weights(seed)
    weights.norm("input_layernorm", width, bias=False)
    for part, outputs in (("q", width), ("k", kv_width), ("v", kv_width), ("o", width)):
        weights.linear(f"self_attn.{part}_proj", outputs, width, bias=False,
                       gain=1.5 if part in "qk" else 1.0)
    weights.norm("post_attention_layernorm", width, bias=False)
    weights.linear("mlp.gate_proj", hidden, width, bias=False)
    weights.linear("mlp.up_proj", hidden, width, bias=False)
    weights.linear("mlp.down_proj", width, hidden, bias=False, gain=2.0)
    return weights.arrays


def llama_weights(config: Config = DEFAULT) -> dict[str, np.ndarray]:
    """Returns all weights by Hugging Face's names, f32; 4-bit ones as the values of their codes."""
    arrays = _weights(config.width, config.kv_heads * config.head, config.hidden, config.seed)
    if not config.block:
        return arrays
    return {name: array if array.ndim == 1 else _of_codes(*codes_of(array, config.block), array)
            for name, array in arrays.items()}


def codes_of(weight: np.ndarray, block: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Codes u8 0..15 [outputs, blocks, block] of a weight [outputs, inputs], the last block filled
    with zeros, scales f32 and zero points u8 [outputs, blocks] for each block."""
    outputs, inputs = weight.shape
    blocks = -(-inputs // block)
    padded = np.zeros((outputs, blocks * block), np.float32)
    padded[:, :inputs] = weight
    padded = padded.reshape(outputs, blocks, block)
    low, high = np.minimum(padded.min(-1), 0), np.maximum(padded.max(-1), 0)
    scale = np.maximum((high - low) / np.float32(15), np.float32(1e-8))
    zero = np.clip(np.rint(-low / scale), 0, 15).astype(np.uint8)
    codes = np.clip(np.rint(padded / scale[..., np.newaxis]) + zero[..., np.newaxis], 0, 15)
    return codes.astype(np.uint8), scale, zero


def _of_codes(codes: np.ndarray, scale: np.ndarray, zero: np.ndarray, like: np.ndarray
              ) -> np.ndarray:
    values = (codes.astype(np.float32) - zero[..., np.newaxis]) * scale[..., np.newaxis]
    return values.reshape(like.shape[0], -1)[:, :like.shape[1]]


def llama_inputs(sizes: Mapping[str, int], config: Config = DEFAULT,
                 seed: int = 0) -> dict[str, np.ndarray]:
    """Random states; where padding is understood, some of `past` is padding."""
    random = np.random.default_rng(seed)
    b, length, past = sizes["batch"], sizes["sequence"], sizes["past"]
    cache = (b, config.kv_heads, past, config.head)
    padding = random.integers(0, past + 1, (b, 1)) * (config.form != "com.microsoft")
    places = np.arange(past + length)
    feed = {"hidden": random.standard_normal((b, length, config.width), np.float32)}
    if config.form != "com.microsoft":
        # Positions count from the first token that is not padding.
        feed["position_ids"] = places[past:] - padding
    return feed | {"attention_mask": (places >= padding).astype(np.int64),
                   "past_key": 1.5 * random.standard_normal(cache, np.float32),
                   "past_value": random.standard_normal(cache, np.float32)}


def _caches(config: Config) -> tuple[np.ndarray, np.ndarray]:
    """Cosines and sines [positions, head / 2] of each position's angles, in float64."""
    frequencies = THETA ** -(np.arange(0, config.head, 2) / config.head)
    angles = np.arange(config.positions)[:, np.newaxis] * frequencies
    return np.cos(angles), np.sin(angles)


def _rms_norm_numpy(x: np.ndarray, scale: np.ndarray) -> np.ndarray:
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + EPSILON) * scale


def llama_numpy(feed: Mapping[str, np.ndarray], config: Config = DEFAULT) -> dict[str, np.ndarray]:
    """The block in float64."""
    arrays = llama_weights(config)
    linear = functools.partial(transformer.linear_numpy, arrays=arrays)
    b, length, _ = feed["hidden"].shape
    past = feed["past_key"].shape[2]
    positions = feed.get("position_ids", np.broadcast_to(np.arange(past, past + length),
                                                         (b, length)))
    # Pairs (i, i + head / 2) are complex numbers, turned by the angle.
    cosines, sines = _caches(config)
    turn = (cosines + 1j * sines)[positions][:, np.newaxis]

    def heads(name: str, turned: bool) -> np.ndarray:
        x = linear(y, name=f"self_attn.{name}_proj").reshape(b, length, -1, config.head)
        x = x.swapaxes(1, 2)
        if turned:
            first, second = np.split(x, 2, -1)
            pairs = (first + 1j * second) * turn
            x = np.concatenate([pairs.real, pairs.imag], -1)
        return x

    x = ops.wide(feed["hidden"])
    y = _rms_norm_numpy(x, arrays["input_layernorm.weight"])
    q = heads("q", True)
    k = np.concatenate([feed["past_key"], heads("k", True)], 2)
    v = np.concatenate([feed["past_value"], heads("v", False)], 2)
    places = np.arange(past + length)
    allowed = (places <= past + np.arange(length)[:, np.newaxis])
    allowed = allowed & (feed["attention_mask"] != 0)[:, np.newaxis, np.newaxis]
    shared = config.heads // config.kv_heads
    mixed = transformer.attention_numpy(q, k.repeat(shared, 1), v.repeat(shared, 1), allowed)
    mixed = mixed.swapaxes(1, 2).reshape(x.shape)
    x = x + linear(mixed, name="self_attn.o_proj")
    y = _rms_norm_numpy(x, arrays["post_attention_layernorm.weight"])
    gate = linear(y, name="mlp.gate_proj")
    y = gate * ops.sigmoid(gate) * linear(y, name="mlp.up_proj")
    return {"output": x + linear(y, name="mlp.down_proj"), "present_key": k, "present_value": v}


class _Block:
    """The block's steps with the ops of opset 23."""

    opset = 23

    def __init__(self, config: Config) -> None:
        self.config = config
        self.w = OnnxWriter(self.opset)
        self.arrays = llama_weights(config)
        self.caches = [self.w.tensor(name, cache.astype(np.float32))
                       for name, cache in zip(("cos_cache", "sin_cache"), _caches(config),
                                              strict=True)]

    def tensor(self, name: str) -> str:
        return self.w.tensor(name, self.arrays[name])

    def linear(self, x: str, name: str) -> str:
        return transformer.linear(self.w, x, self.arrays, name)

    def norm(self, x: str, name: str) -> str:
        return self.w.node("RMSNormalization", x, self.tensor(f"{name}.weight"), axis=-1,
                           epsilon=EPSILON, stash_type=1)

    def add_and_norm(self, x: str, y: str, name: str) -> tuple[str, str]:
        """The sum of x and y, and its norm."""
        total = self.w.node("Add", x, y)
        return total, self.norm(total, name)

    def heads(self, x: str, name: str, count: int) -> str:
        """A linear layer's result as [batch, heads, sequence, head]."""
        x = self.w.reshape(self.linear(x, f"self_attn.{name}_proj"), 0, 0, count,
                           self.config.head)
        return self.w.node("Transpose", x, perm=[0, 2, 1, 3])

    def merged(self, x: str) -> str:
        """[batch, heads, sequence, head] as [batch, sequence, width]."""
        x = self.w.node("Transpose", x, perm=[0, 2, 1, 3])
        return self.w.reshape(x, 0, 0, self.config.width)

    def allowed(self) -> str:
        """bool[batch, 1, sequence, past + sequence]: which keys count for which token."""
        w = self.w
        zero, one = w.constant(np.int64(0)), w.constant(np.int64(1))
        past = w.size("past_key", 2, vector=False)
        total = w.node("Add", past, w.size("hidden", 1, vector=False))
        keys = w.node("Range", zero, total, one)
        tokens = w.node("Unsqueeze", w.node("Range", past, total, one), w.ints(1))
        causal = w.node("Unsqueeze", w.node("LessOrEqual", keys, tokens), w.ints(0, 1))
        real = w.node("Unsqueeze", w.node("Cast", "attention_mask", to=9), w.ints(1, 2))
        return w.node("And", causal, real)

    def attention(self, x: str) -> str:
        """Writes present_key and present_value too."""
        w, config = self.w, self.config
        q, k, v = (self.heads(x, name, count) for name, count in
                   (("q", config.heads), ("k", config.kv_heads), ("v", config.kv_heads)))
        q, k = (w.node("RotaryEmbedding", part, *self.caches, "position_ids", interleaved=0)
                for part in (q, k))
        mixed, _, _ = w.node_of(["", "present_key", "present_value"], "Attention", q, k, v,
                                self.allowed(), "past_key", "past_value",
                                scale=1 / math.sqrt(config.head))
        return self.merged(mixed)

    def write(self, path: str | os.PathLike[str]) -> None:
        """The block from these steps."""
        w, config = self.w, self.config
        y = self.linear(self.attention(self.norm("hidden", "input_layernorm")),
                        "self_attn.o_proj")
        x, y = self.add_and_norm("hidden", y, "post_attention_layernorm")
        gate = self.linear(y, "mlp.gate_proj")
        gate = w.node("Mul", gate, w.node("Sigmoid", gate))
        y = w.node("Mul", gate, self.linear(y, "mlp.up_proj"))
        w.node("Add", x, self.linear(y, "mlp.down_proj"), name="output")
        total = "past + sequence"
        inputs = {"hidden": (np.float32, ["batch", "sequence", config.width])}
        if config.form != "com.microsoft":
            inputs["position_ids"] = (np.int64, ["batch", "sequence"])
        inputs["attention_mask"] = (np.int64, ["batch", total])
        outputs = {"output": inputs["hidden"]}
        for part in ("key", "value"):
            shapes = [["batch", config.kv_heads, size, config.head] for size in ("past", total)]
            inputs[f"past_{part}"] = (np.float32, shapes[0])
            outputs[f"present_{part}"] = (np.float32, shapes[1])
        w.save(path, config.name, inputs, outputs)


class _PrimitiveBlock(_Block):
    """The same in ops of opset 17."""

    opset = 17

    def norm(self, x: str, name: str) -> str:
        w = self.w
        mean = w.node("ReduceMean", w.node("Pow", x, w.constant(np.float32(2))), axes=[-1])
        root = w.node("Sqrt", w.node("Add", mean, w.constant(np.float32(EPSILON))))
        y = w.node("Mul", x, w.node("Reciprocal", root))
        return w.node("Mul", self.tensor(f"{name}.weight"), y)

    def turned(self, x: str, cosines: str, sines: str) -> str:
        """Rotary positions: x * cos + (-second half, first half) * sin."""
        w, half = self.w, self.config.head // 2
        first = w.node("Slice", x, w.ints(0), w.ints(half), w.ints(3), w.ints(1))
        second = w.node("Slice", x, w.ints(half), w.ints(np.iinfo(np.int64).max), w.ints(3),
                        w.ints(1))
        swapped = w.node("Concat", w.node("Neg", second), first, axis=-1)
        return w.node("Add", w.node("Mul", x, cosines), w.node("Mul", swapped, sines))

    def repeated(self, x: str) -> str:
        """Heads of keys or values, each as often as heads share it."""
        w, config = self.w, self.config
        shared = config.heads // config.kv_heads
        size = w.node("Shape", x)
        b, length = (w.node("Gather", size, w.ints(axis), axis=0) for axis in (0, 2))
        shape = w.node("Concat", b, w.ints(config.kv_heads, shared), length, w.ints(config.head),
                       axis=0)
        x = w.node("Expand", w.node("Unsqueeze", x, w.ints(2)), shape)
        return w.reshape(x, b, config.heads, length, config.head)

    def attention(self, x: str) -> str:
        w, config = self.w, self.config
        q, k, v = (self.heads(x, name, count) for name, count in
                   (("q", config.heads), ("k", config.kv_heads), ("v", config.kv_heads)))
        angles = []
        for cache in self.caches:
            rows = w.node("Gather", cache, "position_ids", axis=0)
            angles.append(w.node("Unsqueeze", w.node("Concat", rows, rows, axis=-1), w.ints(1)))
        q, k = (self.turned(part, *angles) for part in (q, k))
        k = w.node("Concat", "past_key", k, axis=2, name="present_key")
        v = w.node("Concat", "past_value", v, axis=2, name="present_value")
        k = w.node("Transpose", self.repeated(k), perm=[0, 1, 3, 2])
        scores = w.node("Mul", w.node("MatMul", q, k),
                        w.constant(np.float32(1 / math.sqrt(config.head))))
        bias = w.node("Where", self.allowed(), w.constant(np.float32(0)),
                      w.constant(np.float32(LOWEST)))
        weights = w.node("Softmax", w.node("Add", scores, bias), axis=-1)
        return self.merged(w.node("MatMul", weights, self.repeated(v)))


class _MicrosoftBlock(_PrimitiveBlock):
    """The same with ops of com.microsoft."""

    def add_and_norm(self, x: str, y: str, name: str) -> tuple[str, str]:
        normed, _, _, total = self.w.node_of(
            ["", None, None, ""], "SkipSimplifiedLayerNormalization", x, y,
            self.tensor(f"{name}.weight"), domain=DOMAIN, epsilon=EPSILON)
        return total, normed

    def attention(self, x: str) -> str:
        w, config = self.w, self.config
        q, k, v = (self.linear(x, f"self_attn.{name}_proj") for name in "qkv")
        counts = w.node("ReduceSum", "attention_mask", w.ints(1), keepdims=0)
        last = w.node("Cast", w.node("Sub", counts, w.ints(1)), to=6)
        total = w.node("Cast", w.size("attention_mask", 1, vector=False), to=6)
        mixed, _, _ = w.node_of(
            ["", "present_key", "present_value"], "GroupQueryAttention", q, k, v, "past_key",
            "past_value", last, total, *self.caches, domain=DOMAIN, num_heads=config.heads,
            kv_num_heads=config.kv_heads, do_rotary=1, rotary_interleaved=0,
            scale=1 / math.sqrt(config.head))
        return mixed


class _NbitsBlock(_MicrosoftBlock):
    """The same with weights of 4 bits, two in a byte, the first in the lower half."""

    def linear(self, x: str, name: str) -> str:
        config = self.config
        weight = _weights(config.width, config.kv_heads * config.head, config.hidden,
                          config.seed)[f"{name}.weight"]
        codes, scale, zero = codes_of(weight, config.block)
        zero = np.pad(zero, [(0, 0), (0, zero.shape[1] % 2)])
        packed = [part[..., ::2] | part[..., 1::2] << 4 for part in (codes, zero)]
        operands = [self.w.tensor(f"{name}.{part}", array) for part, array in
                    (("qweight", packed[0]), ("scales", scale), ("qzeros", packed[1]))]
        return self.w.node("MatMulNBits", x, *operands, domain=DOMAIN, K=weight.shape[1],
                           N=weight.shape[0], bits=4, block_size=config.block)


_FORMS = {"opset 23": _Block, "com.microsoft": _MicrosoftBlock, "primitives": _PrimitiveBlock}


def llama_onnx(path: str | os.PathLike[str], config: Config = DEFAULT) -> None:
    """Writes the block as ONNX with dynamic batch, sequence and past, in the config's form."""
    form = _NbitsBlock if config.block else _FORMS[config.form]
    form(config).write(path)
