"""`athanor.nn` through a server against torch's numbers, which `testdata/make_nn.py` made."""

from __future__ import annotations

import pathlib
from collections.abc import Callable

import athanor
import numpy as np
import pytest
from athanor import nn
from nn_cases import CASES, Case, called
from numbers_ import array_type

GOLDENS = pathlib.Path(__file__).resolve().parent / "testdata/nn.npz"


def goldens(name: str, kind: str) -> dict[str, np.ndarray]:
    with np.load(GOLDENS, allow_pickle=False) as file:
        start = f"{name}/{kind}/"
        return {key.removeprefix(start): file[key] for key in file.files if key.startswith(start)}


def inputs_of(g: athanor.Graph, case: Case, dims: bool) -> dict[str, athanor.Value]:
    """Adds the inputs of a case; with `dims` its one dim is a dim."""
    kinds = {"f32": "f32", "bool": "bool"}
    return {name: g.input(name, [size if not isinstance(size, tuple) else size[0] if dims
                                 else size[1] for size in shape], kinds.get(kind, "i64"))
            for name, (shape, kind) in case.inputs.items()}


@pytest.mark.parametrize("name", CASES)
def test_against_torch(run: Callable, name: str) -> None:
    """With a dim and with fixed sizes, within 1e-5 of the largest element."""
    case = CASES[name]
    module = case.make()
    module.load_state_dict(goldens(name, "weight"))
    wants = goldens(name, "output")
    for dims in (False, True):
        g = athanor.Graph(name, dims={"b": (1, 8)} if dims else None)
        results = called(case, module, inputs_of(g, case, dims), {})
        for i, value in enumerate(results):
            g.output(str(i), value)
        got = run(g, goldens(name, "input"))
        assert set(got) == set(wants)
        for key, want in wants.items():
            assert got[key].shape == want.shape
            error = np.abs(got[key] - want).max() / np.abs(want).max()
            assert error <= 1e-5, f"{name} output {key}: {error}"


def test_the_goldens_are_of_these_cases() -> None:
    with np.load(GOLDENS, allow_pickle=False) as file:
        assert {key.split("/")[0] for key in file.files} == set(CASES)


class Block(nn.Module):
    """A transformer block, as a user writes one."""

    def __init__(self, width: int) -> None:
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.RmsNorm(width)
        self.attention = nn.MultiHeadAttention(width, 2, batch_first=True)
        self.mlp = nn.MLP([width, 2 * width, width], athanor.silu)

    def __call__(self, x: athanor.Value) -> athanor.Value:
        x = x + self.attention(self.norm1(x), is_causal=True)
        return x + self.mlp(self.norm2(x))


class Model(nn.Module):
    """Blocks between an embedding and its transpose."""

    def __init__(self) -> None:
        self.embed = nn.Embedding(13, 8)
        self.blocks = [Block(8) for _ in range(2)]
        self.head = nn.Linear(8, 13, bias=False)
        self.head.weight = self.embed.weight

    def __call__(self, ids: athanor.Value) -> athanor.Value:
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


@pytest.mark.parametrize("dtype", ["f32", "bf16", "f64"])
def test_a_model_of_modules(run: Callable, dtype: str) -> None:
    """Names are paths; a shared weight is one parameter; later tokens do not reach earlier ones."""
    model = Model()
    model.initialise(3, dtype)
    g = athanor.Graph("model", dims={"b": (1, 4), "s": (1, 16)})
    g.output("y", model(g.input("ids", ("b", "s"), "i64")))
    names = [node.name for node in g.proto().nodes if node.op == "Parameter"]
    assert "blocks.1.attention.in_proj_weight" in names and "blocks.0.mlp.2.bias" in names
    assert len([name for name in names if name in ("embed.weight", "head.weight")]) == 1
    ids = np.random.default_rng(0).integers(0, 13, (2, 7))
    whole = run(g, {"ids": ids})["y"]
    assert whole.dtype == array_type(dtype) and np.isfinite(whole.astype(np.float64)).all()
    part = run(g, {"ids": ids[:, :4]})["y"]
    slack = {"f32": 1e-5, "bf16": 0.15, "f64": 1e-12}[dtype]
    np.testing.assert_allclose(part.astype(np.float64), whole[:, :4].astype(np.float64),
                               rtol=slack, atol=slack)


def test_a_module_inside_a_loop(run: Callable) -> None:
    """Weights belong to the graph around, and are taken in."""
    layer = nn.Linear(3, 3)
    layer.initialise(1)
    g = athanor.Graph("loop", dims={"t": (1, 8)})
    x = g.input("x", ("t", 3), "f32")
    (last,), _ = athanor.scan(lambda states, slices: ([layer(states[0]) + slices[0]], []),
                              [g.zeros(3)], [x])
    g.output("y", last)
    xs = np.random.default_rng(2).standard_normal((4, 3)).astype(np.float32)
    weights, state = layer.state_dict(), np.zeros(3)
    for row in xs:
        state = state @ weights["weight"].T.astype(np.float64) + weights["bias"] + row
    np.testing.assert_allclose(run(g, {"x": xs})["y"], state, rtol=1e-5, atol=1e-6)
