"""Networks of linear layers with relu: as graphs, in numpy, as ONNX and for PyTorch.

    graph = mlp_graph()                # x f32[b, 1024] -> y f32[b, 1024], b in [1, 64]
    y = mlp_numpy(x)                   # the same in float64
    mlp_onnx("mlp.onnx")               # the same for ONNX Runtime
    digits = mlp_graph(config=DIGITS)  # the classifier of digits/, image f32[b, 64] -> logits

The default is four equal layers with seeded weights. Each form takes `composite` (False: written in
primitives only) and a config.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import os
import pathlib
from typing import TYPE_CHECKING

import athanor
import numpy as np
import primitives
from onnx_writer import OnnxWriter

if TYPE_CHECKING:
    import torch


@dataclasses.dataclass(frozen=True)
class Config:
    """Widths from input to output and what differs between the two networks."""

    name: str = "mlp"
    input: str = "x"
    output: str = "y"
    widths: tuple[int, ...] = (1024, 1024, 1024, 1024, 1024)
    last_relu: bool = True
    scale: float = 1.0  # factor of the input
    batch: int = 64
    seed: int = 11
    learned: pathlib.Path | None = None  # w0, b0, w1, ... instead of seeded weights

    @property
    def layers(self) -> int:
        """Number of linear layers."""
        return len(self.widths) - 1

    def relu_after(self, layer: int) -> bool:
        """Reports whether layer `layer`, from 0, ends in a relu."""
        return self.last_relu or layer + 1 < self.layers


DEFAULT = Config()
DIGITS = Config(name="digits", input="image", output="logits", widths=(64, 128, 64, 10),
                last_relu=False, scale=1 / 16,
                learned=pathlib.Path(__file__).parent / "digits/digits.npz")


@functools.cache
def mlp_weights(config: Config = DEFAULT) -> dict[str, np.ndarray]:
    """``{layer}.weight`` f32[in, out] and ``{layer}.bias`` f32[out], the same for equal configs."""
    if config.learned is not None:
        with np.load(config.learned, allow_pickle=False) as file:
            return {f"{i}.{part}": file[f"{part[0]}{i}"]
                    for i in range(config.layers) for part in ("weight", "bias")}
    random = np.random.default_rng(config.seed)
    weights = {}
    for i, (rows, columns) in enumerate(zip(config.widths, config.widths[1:], strict=False)):
        # He's deviation, which keeps the values' size from layer to layer under relu.
        deviation = np.float32(math.sqrt(2 / rows))
        weights[f"{i}.weight"] = random.standard_normal((rows, columns), np.float32) * deviation
        weights[f"{i}.bias"] = random.standard_normal(columns, np.float32) * np.float32(0.1)
    return weights


def mlp_graph(composite: bool = True, config: Config = DEFAULT) -> athanor.Graph:
    """The network as a graph: f32[b, widths[0]] to f32[b, widths[-1]]."""
    g = athanor.Graph(config.name, dims={"b": (1, config.batch)})
    weights = {name: g.parameter(name, array) for name, array in mlp_weights(config).items()}
    x = g.input(config.input, ("b", config.widths[0]), "f32")
    x = x if config.scale == 1 else x * config.scale
    for i in range(config.layers):
        x = primitives.linear(x, weights[f"{i}.weight"], weights[f"{i}.bias"], composite)
        if config.relu_after(i):
            x = athanor.relu(x) if composite else athanor.maximum(x, 0.0)
    g.output(config.output, x)
    return g


def mlp_numpy(x: np.ndarray, config: Config = DEFAULT) -> np.ndarray:
    """The network in float64."""
    weights = mlp_weights(config)
    x = x.astype(np.float64) * config.scale
    for i in range(config.layers):
        x = x @ weights[f"{i}.weight"] + weights[f"{i}.bias"]
        x = np.maximum(x, 0) if config.relu_after(i) else x
    return x


def mlp_onnx(path: str | os.PathLike[str], config: Config = DEFAULT) -> None:
    """Writes the network as ONNX with dynamic b."""
    w = OnnxWriter()
    for name, array in mlp_weights(config).items():
        w.tensor(name, array)
    x = config.input
    if config.scale != 1:
        x = w.node("Mul", x, w.tensor("scale", np.float32(config.scale)))
    for i in range(config.layers):
        last = config.output if i + 1 == config.layers else ""
        relu = config.relu_after(i)
        x = w.node("MatMul", x, f"{i}.weight")
        x = w.node("Add", x, f"{i}.bias", name="" if relu else last)
        x = w.node("Relu", x, name=last) if relu else x
    w.save(path, config.name, {config.input: (np.float32, ["b", config.widths[0]])},
           {config.output: (np.float32, ["b", config.widths[-1]])})


def mlp_torch(config: Config = DEFAULT) -> torch.nn.Module:
    """The network for PyTorch, to be called with one tensor."""
    import torch

    weights = {name: torch.from_numpy(array) for name, array in mlp_weights(config).items()}

    class Mlp(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linears = torch.nn.ModuleList(
                torch.nn.Linear(rows, columns)
                for rows, columns in zip(config.widths, config.widths[1:], strict=False))
            with torch.no_grad():
                for i, linear in enumerate(self.linears):
                    linear.weight.copy_(weights[f"{i}.weight"].T)
                    linear.bias.copy_(weights[f"{i}.bias"])

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = x if config.scale == 1 else x * config.scale
            for i, linear in enumerate(self.linears):
                x = linear(x)
                x = torch.relu(x) if config.relu_after(i) else x
            return x

    return Mlp().eval()
