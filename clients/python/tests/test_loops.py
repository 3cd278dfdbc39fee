"""Loops: the message of a body, what it takes in from around, and what is refused."""

from __future__ import annotations

from collections.abc import Callable

import athanor
import numpy as np
import pytest


@pytest.fixture
def g() -> athanor.Graph:
    return athanor.Graph("g", dims={"t": (0, 64), "n": (1, 8)})


def test_a_body_states_its_types(g: athanor.Graph) -> None:
    x, h, unused = g.input("x", ("t", "n"), "f32"), g.input("h", ("n",), "f32"), g.zeros(("n",))
    w = g.parameter("w", np.ones((), np.float32))

    def step(states: tuple, slices: tuple) -> tuple:
        _ = unused + 1  # of the graph around alone: stays there
        return [states[0] * w + slices[0]], [states[0]]

    (last,), (rows,) = athanor.scan(step, [h], [x])
    assert last.shape == h.shape and rows.shape == x.shape
    g.output("last", last)
    g.output("rows", rows)
    nodes = [n for n in g.proto().nodes if n.op == "Scan"]
    assert [n.attrs["result"].i for n in nodes] == [0, 1]
    assert nodes[0].inputs[:2] == ["h", "x"] and nodes[0].inputs[2] == "w"
    body = nodes[0].attrs["body"].graph
    assert not body.dims and all(n.has_type for n in body.nodes)
    assert [n.name for n in body.nodes if n.op == "Input"] == ["step", "state_0", "slice_0",
                                                               "captured_0"]
    assert nodes[0].attrs["length"].shape.sizes[0] == athanor.Expr.symbol("t").proto()


def test_a_value_from_around_is_taken_in_once(g: athanor.Graph) -> None:
    x, w = g.input("x", ("t", 3), "f32"), g.input("w", 3, "f32")

    def step(states: tuple, slices: tuple) -> tuple:
        return [(states[0] + w) * w], [w]

    (last,), (rows,) = athanor.scan(step, [g.zeros(3)], [x])
    assert len(last.inputs) == 3 and rows.shape == (athanor.Expr.symbol("t"), 3)


@pytest.mark.parametrize(("make", "words"), [
    (lambda g, x: athanor.scan(lambda s, v: (s, v), [g.zeros(3)]), ["scan", "length"]),
    (lambda g, x: athanor.scan(lambda s, v: (s, v), [g.zeros(3)], [g.zeros(())]),
     ["scan", "must have axes"]),
    (lambda g, x: athanor.scan(lambda s, v: (s, v), [g.zeros(3)], [x], length=4),
     ["scan", "length and axis 0", "4 and t"]),
    (lambda g, x: athanor.scan(lambda s, v: s, [g.zeros(3)], [x]), ["scan", "pair"]),
    (lambda g, x: athanor.scan(lambda s, v: (v, v), [], [x]), ["scan", "1 states, not 0"]),
    (lambda g, x: athanor.scan(lambda s, v: ([s[0].cast("f64")], []), [g.zeros(3)], [x]),
     ["scan", "f64[3]", "f32[3]"]),
    (lambda g, x: athanor.scan(lambda s, v: ([s[0][:2]], []), [g.zeros(3)], [x]),
     ["scan", "axis 0 of the state", "3 and 2"]),
    (lambda g, x: athanor.scan(lambda s, v: ([1.0], []), [g.zeros(3)], [x]),
     ["scan", "1.0", "Value of this graph"]),
    (lambda g, x: athanor.scan(lambda s, v: ([athanor.Graph("h").zeros(3)], []), [g.zeros(3)],
                               [x]), ["scan", "Value of this graph"]),
    (lambda g, x: athanor.scan(lambda s, v: ([s[0].graph.input("i", 3, "f32")], []), [g.zeros(3)],
                               [x]), ["input 'i' inside a loop"]),
    (lambda g, x: athanor.scan(lambda s, v: ([s[0] + athanor.Graph("h").zeros(3)], []),
                               [g.zeros(3)], [x]), ["two graphs"]),
    (lambda g, x: athanor.lstm(x, np.ones((8, 3), np.float32), np.ones((8, 2), np.float32)),
     ["lstm", "[T, N, I]"]),
    (lambda g, x: athanor.lstm(x[None], np.ones((8, 3), np.float32), np.ones((8, 3), np.float32)),
     ["lstm", "4 H", "8 and 12"]),
    (lambda g, x: athanor.lstm(x[None], np.ones((8, 3), np.float32), np.ones((8, 2), np.float32),
                               state=(g.zeros((5, 2)), g.zeros((5, 2)))), ["lstm", "N", "5 and t"]),
    (lambda g, x: athanor.gru(x, np.ones((6, 3), np.float32), np.ones((6, 2), np.float32)),
     ["gru", "weight_ih [3 H, I]"]),
    (lambda g, x: athanor.gru(x[None], np.ones((8, 3), np.float32), np.ones((8, 2), np.float32)),
     ["gru", "3 H", "8 and 6"]),
    (lambda g, x: athanor.gru(x[None], np.ones((6, 3), np.float64), np.ones((6, 2), np.float64)),
     ["gru", "f32 and f64"]),
    (lambda g, x: athanor.rnn(x[None], np.ones((2, 3), np.float32), np.ones((2, 3), np.float32)),
     ["rnn", "H", "2 and 3"]),
    (lambda g, x: athanor.rnn(x[None], np.ones((2, 3), np.float32), np.ones((2, 2), np.float32),
                              state=g.zeros(2)), ["rnn", "a state must be f32[t, 2]"]),
])
def test_what_does_not_fit_is_named(g: athanor.Graph, make: Callable, words: list[str]) -> None:
    x = g.input("x", ("t", 3), "f32")
    with pytest.raises(athanor.GraphError) as error:
        make(g, x)
    for word in words:
        assert word in str(error.value), str(error.value)


def test_a_value_of_a_body_does_not_leave_it(g: athanor.Graph) -> None:
    x, kept = g.input("x", ("t", 3), "f32"), []

    def step(states: tuple, slices: tuple) -> tuple:
        kept.append(states[0])
        return states, ()

    athanor.scan(step, [g.zeros(3)], [x])
    with pytest.raises(athanor.GraphError, match="must be a Value of graph 'g'"):
        g.output("y", kept[0])
