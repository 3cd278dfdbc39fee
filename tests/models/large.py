"""A whole Llama of any size, token ids to logits, whose weights lie in a file of external data.

    large_onnx("llama.onnx", BILLION)    # ids i64[batch, sequence] -> logits; 4.1 GB
    feed = large_inputs({"batch": 1, "sequence": 8}, BILLION)

`llama.py`'s block without past keys, as often as `layers` says, in opset 23, between an embedding
and, by the same weight, the logits. For what memory and time a model takes that is large: weights
are numbers of a counter, written a few MB at a time, so that writing takes no memory and any part
of the file can be made again; they are scaled so that values keep their size through any depth.

    .venv/bin/python tests/models/large.py --out DIR [--size billion]
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

import numpy as np
from llama import EPSILON, THETA
from onnx_writer import OnnxWriter

PIECE = 1 << 20  # weights drawn at once
ALIGNMENT = 4096  # of tensors in the file, as ONNX's text recommends for mapping


@dataclasses.dataclass(frozen=True)
class Config:
    """Sizes. Not `tied`: the logits have a weight of their own."""

    layers: int
    width: int
    heads: int
    kv_heads: int
    hidden: int
    vocabulary: int
    positions: int = 128
    batch: int = 4
    tied: bool = True
    seed: int = 71

    @property
    def head(self) -> int:
        """Width of one head."""
        return self.width // self.heads

    @property
    def parameters(self) -> int:
        """Returns the number of weights."""
        return sum(math.prod(shape) for _, shape, _, _ in self.weights())

    @property
    def dims(self) -> dict[str, tuple[int, int]]:
        """Bounds of the dynamic dims."""
        return {"batch": (1, self.batch), "sequence": (1, self.positions)}

    def weights(self) -> Iterator[tuple[str, tuple[int, ...], float, float]]:
        """Name, shape, largest distance from the middle and middle, in the file's order."""
        kv, width = self.kv_heads * self.head, self.width

        def linear(name: str, inputs: int, outputs: int, gain: float = 1.0) -> tuple:
            return name, (inputs, outputs), gain * math.sqrt(3 / inputs), 0.0

        yield "model.embed_tokens.weight", (self.vocabulary, width), math.sqrt(3), 0.0
        for i in range(self.layers):
            at = f"model.layers.{i}"
            yield f"{at}.input_layernorm.weight", (width,), 0.2, 1.0
            yield linear(f"{at}.self_attn.q_proj.weight", width, width, 1.5)
            yield linear(f"{at}.self_attn.k_proj.weight", width, kv, 1.5)
            yield linear(f"{at}.self_attn.v_proj.weight", width, kv)
            yield linear(f"{at}.self_attn.o_proj.weight", width, width)
            yield f"{at}.post_attention_layernorm.weight", (width,), 0.2, 1.0
            yield linear(f"{at}.mlp.gate_proj.weight", width, self.hidden)
            yield linear(f"{at}.mlp.up_proj.weight", width, self.hidden)
            yield linear(f"{at}.mlp.down_proj.weight", self.hidden, width, 2.0)
        # Divided by the root of the width, so that logits are of size one with tied weights too.
        yield "model.norm.weight", (width,), 0.2 / math.sqrt(width), 1 / math.sqrt(width)
        if not self.tied:
            yield "lm_head.weight", (width, self.vocabulary), math.sqrt(3), 0.0


# The sizes of TinyLlama-1.1B, tied: 1,034,512,384 weights. The small one: 15 million, 62 MB.
BILLION = Config(layers=22, width=2048, heads=32, kv_heads=4, hidden=5632, vocabulary=32_000)
SMALL = Config(layers=4, width=512, heads=8, kv_heads=2, hidden=1408, vocabulary=8_000)
TINY = Config(layers=2, width=64, heads=4, kv_heads=2, hidden=176, vocabulary=500, positions=32)
SIZES = {"billion": BILLION, "small": SMALL, "tiny": TINY}


def _write_weight(file: BinaryIO, key: int, count: int, distance: float, middle: float) -> None:
    """`count` uniform values of the counter-based generator Philox; `key` is this tensor's."""
    random = np.random.Generator(np.random.Philox(key=key))
    for begin in range(0, count, PIECE):
        values = random.random(min(PIECE, count - begin), np.float32)
        values *= np.float32(2 * distance)
        values += np.float32(middle - distance)
        file.write(values.astype("<f4", copy=False).data)


class _Model:
    """Writes the nodes, and the weights beside them."""

    def __init__(self, config: Config, location: str) -> None:
        self.config = config
        self.w = OnnxWriter(opset=23)
        self.end = 0  # end of the weights written so far
        self.places: dict[str, int] = {}
        for name, shape, _, _ in config.weights():
            offset = -(-self.end // ALIGNMENT) * ALIGNMENT
            self.w.external(name, np.float32, shape, location, offset)
            self.places[name] = offset
            self.end = offset + 4 * math.prod(shape)

    def write_weights(self, path: Path) -> None:
        """The file of external data."""
        with path.open("wb") as file:
            for i, (name, shape, distance, middle) in enumerate(self.config.weights()):
                file.seek(self.places[name])
                _write_weight(file, (self.config.seed << 32) + i, math.prod(shape), distance,
                              middle)

    def norm(self, x: str, name: str) -> str:
        return self.w.node("RMSNormalization", x, f"{name}.weight", axis=-1, epsilon=EPSILON,
                           stash_type=1)

    def heads(self, x: str, weight: str, count: int) -> str:
        """A linear layer's result as [batch, heads, sequence, head]."""
        x = self.w.reshape(self.w.node("MatMul", x, weight), 0, 0, count, self.config.head)
        return self.w.node("Transpose", x, perm=[0, 2, 1, 3])

    def attention(self, x: str, at: str, positions: str) -> str:
        w, config = self.w, self.config
        q, k, v = (self.heads(x, f"{at}.self_attn.{part}_proj.weight", count) for part, count in
                   (("q", config.heads), ("k", config.kv_heads), ("v", config.kv_heads)))
        q, k = (w.node("RotaryEmbedding", part, "cos_cache", "sin_cache", positions,
                       interleaved=0) for part in (q, k))
        x = w.node("Attention", q, k, v, is_causal=1, scale=1 / math.sqrt(config.head))
        x = w.reshape(w.node("Transpose", x, perm=[0, 2, 1, 3]), 0, 0, config.width)
        return w.node("MatMul", x, f"{at}.self_attn.o_proj.weight")

    def block(self, x: str, at: str, positions: str) -> str:
        w = self.w
        x = w.node("Add", x, self.attention(self.norm(x, f"{at}.input_layernorm"), at, positions))
        y = self.norm(x, f"{at}.post_attention_layernorm")
        gate = w.node("MatMul", y, f"{at}.mlp.gate_proj.weight")
        gate = w.node("Mul", gate, w.node("Sigmoid", gate))
        y = w.node("Mul", gate, w.node("MatMul", y, f"{at}.mlp.up_proj.weight"))
        return w.node("Add", x, w.node("MatMul", y, f"{at}.mlp.down_proj.weight"))

    def nodes(self) -> None:
        """Writes the nodes from ids to logits."""
        w, config = self.w, self.config
        frequencies = THETA ** -(np.arange(0, config.head, 2) / config.head)
        angles = np.arange(config.positions)[:, np.newaxis] * frequencies
        w.tensor("cos_cache", np.cos(angles).astype(np.float32))
        w.tensor("sin_cache", np.sin(angles).astype(np.float32))
        steps = w.node("Range", w.constant(np.int64(0)), w.size("ids", 1, vector=False),
                       w.constant(np.int64(1)))
        positions = w.node("Expand", w.node("Unsqueeze", steps, w.ints(0)), w.node("Shape", "ids"))
        x = w.node("Gather", "model.embed_tokens.weight", "ids", axis=0)
        for i in range(config.layers):
            x = self.block(x, f"model.layers.{i}", positions)
        x = self.norm(x, "model.norm")
        head = (w.node("Transpose", "model.embed_tokens.weight", perm=[1, 0]) if config.tied
                else "lm_head.weight")
        w.node("MatMul", x, head, name="logits")


def data_path(path: str | os.PathLike[str]) -> Path:
    """Returns the path of the weights of the model at `path`."""
    return Path(f"{os.fspath(path)}.data")


def large_onnx(path: str | os.PathLike[str], config: Config = SMALL) -> None:
    """Writes the model and, beside it, its weights."""
    beside = data_path(path)
    model = _Model(config, beside.name)
    model.nodes()
    model.write_weights(beside)
    batch = ["batch", "sequence"]
    model.w.save(path, "llama", {"ids": (np.int64, batch)},
                 {"logits": (np.float32, [*batch, config.vocabulary])})


def large_inputs(sizes: Mapping[str, int], config: Config = SMALL,
                 seed: int = 0) -> dict[str, np.ndarray]:
    """Random ids."""
    random = np.random.default_rng(seed)
    return {"ids": random.integers(0, config.vocabulary, (sizes["batch"], sizes["sequence"]))}


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--size", choices=SIZES, default="small")
    parser.add_argument("--layers", type=int, help="another number of blocks")
    parser.add_argument("--untied", action="store_true", help="logits by a weight of their own")
    args = parser.parse_args()
    config = dataclasses.replace(SIZES[args.size], tied=not args.untied)
    config = dataclasses.replace(config, layers=args.layers or config.layers)
    args.out.mkdir(parents=True, exist_ok=True)
    path = args.out / f"llama_{args.size}.onnx"
    large_onnx(path, config)
    print(f"{path}: {config.parameters:,} parameters, {data_path(path).stat().st_size:,} bytes "
          "beside it")


if __name__ == "__main__":
    main()
