"""Code of a user, whose types `test_types.py` checks; it is not run."""

from __future__ import annotations

from typing import assert_type

import athanor
import numpy as np
from athanor import nn


def graph() -> athanor.Graph:
    g = athanor.Graph("typed", dims={"b": (1, 64)})
    x = g.input("x", ("b", 16), "f32")
    assert_type(x, athanor.Value)
    assert_type(g.parameter("w", np.ones((16, 4), np.float32)), athanor.Value)
    assert_type(g.zeros(("b", 2)), athanor.Value)
    assert_type(x + 1, athanor.Value)
    assert_type(2.0 * x, athanor.Value)
    assert_type(-x @ x.T, athanor.Value)
    assert_type(x == 0, athanor.Value)
    assert_type(x[:, ::2], athanor.Value)
    assert_type(x.sum(axis=0, keepdims=True), athanor.Value)
    assert_type(athanor.relu(x), athanor.Value)
    assert_type(athanor.concatenate([x, x], axis=1), athanor.Value)
    assert_type(athanor.split(x, 2, axis=1), list[athanor.Value])
    assert_type(athanor.einsum("ij,kj->ik", x, x), athanor.Value)
    assert_type(x.shape, tuple[athanor.Expr | int, ...])
    (last,), rows = athanor.scan(lambda states, slices: ([states[0] + slices[0]], []),
                                 [g.zeros(16)], [x])
    assert_type(last, athanor.Value)
    assert_type(rows, tuple[athanor.Value, ...])
    layer = nn.Linear(16, 4)
    layer.load_state_dict({"weight": np.ones((4, 16), np.float32),
                           "bias": np.ones(4, np.float32)})
    assert_type(layer(x), athanor.Value)
    g.output("y", layer(x))
    return g


def use(client: athanor.Client) -> None:
    model = client.upload(graph(), "typed", buckets={"b": [(1, 1), (2, 64)]}).wait("baseline")
    assert_type(model, athanor.Model)
    result = model.infer(np.ones((2, 16), np.float32), timeout=10)
    assert_type(result, athanor.InferResult)
    assert_type(result["y"], np.ndarray)
    assert_type(model.infer({"x": np.ones((2, 16), np.float32)}).exec_us, int)
    assert_type(model.info().dims, dict[str, tuple[int, int]])
    for job in model.watch():
        assert_type(job, athanor.CompileJob)
    for piece in model.generate("Once", max_tokens=3):
        assert_type(piece.text, str)


async def use_asyncio(client: athanor.AsyncClient) -> None:
    model = await client.model("typed")
    assert_type(model, athanor.AsyncModel)
    assert_type(await model.infer(np.ones((2, 16), np.float32)), athanor.InferResult)
    async for job in model.watch():
        assert_type(job, athanor.CompileJob)
