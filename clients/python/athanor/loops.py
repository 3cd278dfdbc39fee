"""Loops: a step run for each element along an axis, and the recurrent networks made of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from athanor.arithmetic import add, multiply, subtract
from athanor.contractions import matmul
from athanor.core import (
    attr_int,
    attr_shape,
    check_kind,
    check_size,
    fail,
    index_map,
    make,
    number_array,
    operands,
    same_dtype,
)
from athanor.elementwise import sigmoid, tanh
from athanor.expr import Expr
from athanor.indexing import split
from athanor.value import Attr, BodyGraph, Operand, Size, Value, shape_text, type_text

Values = Sequence[Value]
Step = Callable[[tuple[Value, ...], tuple[Value, ...]], tuple[Values, Values]]


def _length(nodes: Values, slices: Values, length: Size | None) -> Expr:
    """Returns the number of steps."""
    for node in slices:
        if node.ndim == 0:
            raise fail("scan", [node], "what is scanned must have axes; the first is taken apart")
    if length is not None:
        steps = nodes[0].graph._size(length, "scan")
    elif slices:
        steps = slices[0]._shape[0]
    else:
        raise fail("scan", nodes, "without anything scanned it needs a length")
    for node in slices:
        check_size("scan", [node], "the length and axis 0", steps, node._shape[0])
    return steps


def _check_states(states: Values, after: Values) -> None:
    if len(states) != len(after):
        raise fail("scan", states, f"the step returns {len(after)} states, not {len(states)}")
    for before, node in zip(states, after, strict=True):
        same = before.dtype == node.dtype and before.ndim == node.ndim
        if not same:
            raise fail("scan", [before], f"the step returns {type_text(node)} as its next state; "
                       f"it must be {type_text(before)}")
        for i, (a, b) in enumerate(zip(before._shape, node._shape, strict=True)):
            check_size("scan", [before], f"axis {i} of the state and of the next one", a, b)


def scan(step: Step, states: Sequence[Operand], scanned: Sequence[Operand] = (), *,
         length: Size | None = None,
         reverse: bool = False) -> tuple[tuple[Value, ...], tuple[Value, ...]]:
    """Runs `step` for each element along axis 0, carrying states from step to step.

    Parameters
    ----------
    step : callable
        ``step(states, slices) -> (states, outputs)``: called once, to build what each step
        computes. `slices` are the elements of `scanned` without axis 0. The next states must have
        the dtypes and shapes of the states. It may use values of the graph around it.
    states : sequence of Value or array
        The first states, of any dtypes and shapes.
    scanned : sequence of Value or array
        Taken apart along axis 0, which all have in the same size.
    length : size, optional
        The number of steps; needed if nothing is scanned.
    reverse : bool
        From the last element to the first; outputs stand where their slices stood.

    Returns
    -------
    (states, outputs) : tuples of Value
        The states after the last step, and each output of the steps stacked along a new axis 0.

    Raises
    ------
    GraphError
        If sizes differ, or the step returns something else.

    Examples
    --------
    >>> def step(states, slices):
    ...     (total,), (x,) = states, slices
    ...     return [total + x], [total]
    >>> (total,), (before,) = athanor.scan(step, [zero], [x])
    """
    states, scanned = list(states), list(scanned)
    nodes = operands("scan", *states, *scanned)
    first, slices = nodes[:len(states)], nodes[len(states):]
    steps = _length(nodes, slices, length)
    graph = nodes[0].graph
    body = graph._body("step")
    body._input("step", [], "i64")
    inner = [body._input(f"state_{i}", node._shape, node.dtype) for i, node in enumerate(first)]
    parts = [body._input(f"slice_{i}", node._shape[1:], node.dtype)
             for i, node in enumerate(slices)]
    made = step(tuple(inner), tuple(parts))
    if not isinstance(made, tuple) or len(made) != 2:
        raise fail("scan", nodes, "the step must return a pair: the next states and the outputs")
    results = [[_own(body, node, nodes) for node in group] for group in made]
    _check_states(first, results[0])
    for i, node in enumerate([*results[0], *results[1]]):
        body.output(f"result_{i}", node)
    attrs = {"body": Attr(graph=body.proto()), "states": attr_int(len(first)),
             "scanned": attr_int(len(slices)), "length": attr_shape([steps]),
             "reverse": Attr(b=bool(reverse))}
    every = [*nodes, *body._captured]
    last = [make("Scan", every, node._dtype, node._shape, result=attr_int(i), **attrs)
            for i, node in enumerate(first)]
    stacked = [make("Scan", every, node._dtype, [steps, *node._shape],
                    result=attr_int(len(first) + i), **attrs)
               for i, node in enumerate(results[1])]
    return tuple(last), tuple(stacked)


def _own(body: BodyGraph, node: object, nodes: Values) -> Value:
    """Returns a result of the step as a node of its body."""
    own = body._own(node) if isinstance(node, Value) else None
    if own is None:
        raise fail("scan", nodes, f"the step returns {node!r}; it must be a Value of this graph")
    return own


def _recurrent(op: str, x: Value, weights: Sequence[Operand], gates: int,
               states: Sequence[Operand] | None, count: int) -> tuple[Value, Value, Values]:
    """Checks what a recurrent layer is given.

    Returns
    -------
    (products, turned, first)
        x times the first weight ``[T, N, gates H]``, the second weight transposed, and `count`
        states ``[N, H]``, zeros if there are none.
    """
    nodes = operands(op, x, *weights)
    x, to_gates, from_hidden = nodes
    dtype = same_dtype(op, nodes)
    check_kind(op, nodes, "floats")
    rows = f"{gates} H" if gates > 1 else "H"
    if [node.ndim for node in nodes] != [3, 2, 2]:
        raise fail(op, nodes, f"shapes must be x [T, N, I], weight_ih [{rows}, I] and weight_hh "
                   f"[{rows}, H]")
    hidden = from_hidden._shape[1]
    for node in nodes[1:]:
        check_size(op, nodes, f"axis 0 of {node.name}, and {rows}", node._shape[0], hidden * gates)
    shape = [x._shape[1], hidden]
    zero = index_map(x.graph._constant(dtype, number_array(dtype, 0)), shape, [])
    first = operands(op, x, *(states or [zero] * count))[1:]
    for node in first:
        if node.dtype != x.dtype or node.ndim != 2:
            raise fail(op, [x, node], f"a state must be {x.dtype}{shape_text(shape)}")
        check_size(op, [x, node], "axis 0 of the state, N", node._shape[0], shape[0])
        check_size(op, [x, node], "axis 1 of the state, H", node._shape[1], shape[1])
    return matmul(x, to_gates.T), from_hidden.T, first


def _with(x: Value, bias: Operand | None) -> Value:
    return x if bias is None else add(x, bias)


def rnn(x: Value, weight_ih: Operand, weight_hh: Operand, bias_ih: Operand | None = None,
        bias_hh: Operand | None = None, state: Operand | None = None, *, reverse: bool = False,
        activation: Callable[[Value], Value] = tanh) -> tuple[Value, Value]:
    """One layer of a plain recurrent network, in one direction; floats of one dtype.

    Parameters
    ----------
    x : Value
        ``[T, N, I]``.
    weight_ih, weight_hh : Value or array
        ``[H, I]`` and ``[H, H]``, as torch has them.
    bias_ih, bias_hh : Value or array, optional
        ``[H]``; both are added.
    state : Value or array, optional
        ``[N, H]``; zeros if absent.
    reverse : bool
        From the last of the T elements to the first.
    activation : function of a Value
        `tanh`, or `relu`.

    Returns
    -------
    (output, h)
        ``[T, N, H]``, and the last state ``[N, H]``.

    Raises
    ------
    GraphError
        If shapes or dtypes do not fit.
    """
    products, turned, first = _recurrent("rnn", x, [weight_ih, weight_hh], 1,
                                         None if state is None else [state], 1)
    products = _with(_with(products, bias_ih), bias_hh)

    def step(states: tuple[Value, ...], slices: tuple[Value, ...]) -> tuple[Values, Values]:
        h = activation(add(slices[0], matmul(states[0], turned)))
        return [h], [h]

    (h,), (output,) = scan(step, first, [products], reverse=reverse)
    return output, h


def gru(x: Value, weight_ih: Operand, weight_hh: Operand, bias_ih: Operand | None = None,
        bias_hh: Operand | None = None, state: Operand | None = None, *, reverse: bool = False
        ) -> tuple[Value, Value]:
    """One layer of gated recurrent units, in one direction; floats of one dtype.

    Parameters
    ----------
    x : Value
        ``[T, N, I]``.
    weight_ih, weight_hh : Value or array
        ``[3 H, I]`` and ``[3 H, H]``: reset gate, update gate and new value, as torch has them.
    bias_ih, bias_hh : Value or array, optional
        ``[3 H]``; the reset gate also closes bias_hh of the new value, as in torch.
    state : Value or array, optional
        ``[N, H]``; zeros if absent.
    reverse : bool
        From the last of the T elements to the first.

    Returns
    -------
    (output, h)
        ``[T, N, H]``, and the last state ``[N, H]``.

    Raises
    ------
    GraphError
        If shapes or dtypes do not fit.
    """
    products, turned, first = _recurrent("gru", x, [weight_ih, weight_hh], 3,
                                         None if state is None else [state], 1)

    def step(states: tuple[Value, ...], slices: tuple[Value, ...]) -> tuple[Values, Values]:
        h = states[0]
        r, z, n = split(slices[0], 3, -1)
        from_r, from_z, from_n = split(_with(matmul(h, turned), bias_hh), 3, -1)
        z = sigmoid(add(z, from_z))
        n = tanh(add(n, multiply(sigmoid(add(r, from_r)), from_n)))
        h = add(n, multiply(z, subtract(h, n)))
        return [h], [h]

    (h,), (output,) = scan(step, first, [_with(products, bias_ih)], reverse=reverse)
    return output, h


def lstm(x: Value, weight_ih: Operand, weight_hh: Operand, bias_ih: Operand | None = None,
         bias_hh: Operand | None = None, state: tuple[Operand, Operand] | None = None, *,
         reverse: bool = False) -> tuple[Value, tuple[Value, Value]]:
    """One layer of a long short-term memory, in one direction; floats of one dtype.

    Parameters
    ----------
    x : Value
        ``[T, N, I]``.
    weight_ih, weight_hh : Value or array
        ``[4 H, I]`` and ``[4 H, H]``: input, forget, cell and output gate, as torch has them.
    bias_ih, bias_hh : Value or array, optional
        ``[4 H]``; both are added.
    state : (h, c), optional
        ``[N, H]`` each; zeros if absent.
    reverse : bool
        From the last of the T elements to the first.

    Returns
    -------
    (output, (h, c))
        ``[T, N, H]``, and the last states ``[N, H]``.

    Raises
    ------
    GraphError
        If shapes or dtypes do not fit.
    """
    products, turned, first = _recurrent("lstm", x, [weight_ih, weight_hh], 4, state, 2)
    gates = _with(_with(products, bias_ih), bias_hh)

    def step(states: tuple[Value, ...], slices: tuple[Value, ...]) -> tuple[Values, Values]:
        (h, c), (given,) = states, slices
        i, f, g, o = split(add(given, matmul(h, turned)), 4, -1)
        c = add(multiply(sigmoid(f), c), multiply(sigmoid(i), tanh(g)))
        h = multiply(sigmoid(o), tanh(c))
        return [h, c], [h]

    (h, c), (output,) = scan(step, first, [gates], reverse=reverse)
    return output, (h, c)
