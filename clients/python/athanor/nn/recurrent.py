"""Recurrent layers with weights, in torch's layouts."""

from __future__ import annotations

from collections.abc import Sequence

from athanor.core import fail
from athanor.elementwise import relu, tanh
from athanor.errors import InvalidArgument
from athanor.loops import gru, lstm, rnn
from athanor.movement import concat, permute, stack, unsqueeze
from athanor.nn.module import Module, Parameter, uniform
from athanor.value import Value

Pair = tuple[Value, Value]


class _Recurrent(Module):
    """Base of recurrent layers: their weights, and the way through layers and directions."""

    _gates: int  # rows of weights, times H

    def __init__(self, input_size: int, hidden_size: int, num_layers: int, bias: bool,
                 batch_first: bool, bidirectional: bool) -> None:
        name = type(self).__name__
        if num_layers < 1 or hidden_size < 1:
            raise InvalidArgument(f"{name}: num_layers={num_layers} and hidden_size={hidden_size} "
                                  "must be 1 or more")
        self.num_layers, self.batch_first = num_layers, batch_first
        self.directions = ("", "_reverse") if bidirectional else ("",)
        rows = self._gates * hidden_size
        for layer in range(num_layers):
            size = hidden_size * len(self.directions) if layer else input_size
            for direction in self.directions:
                end = f"l{layer}{direction}"
                setattr(self, f"weight_ih_{end}", uniform([rows, size], hidden_size))
                setattr(self, f"weight_hh_{end}", uniform([rows, hidden_size], hidden_size))
                for kind in ("bias_ih", "bias_hh") if bias else ():
                    setattr(self, f"{kind}_{end}", uniform([rows], hidden_size))

    def _weights(self, x: Value, end: str) -> tuple[Value, Value, Value | None, Value | None]:
        ih, hh, b_ih, b_hh = (getattr(self, f"{kind}_{end}", None) for kind in (
            "weight_ih", "weight_hh", "bias_ih", "bias_hh"))
        assert isinstance(ih, Parameter) and isinstance(hh, Parameter)
        return (ih.of(x), hh.of(x), None if b_ih is None else b_ih.of(x),
                None if b_hh is None else b_hh.of(x))

    def _layer(self, x: Value, end: str, first: Sequence[Value] | None, reverse: bool
               ) -> tuple[Value, Sequence[Value]]:
        """Goes along x ``[T, N, I]`` once: the outputs, and the last states ``[N, H]``."""
        raise NotImplementedError

    def _run(self, x: Value, states: Sequence[Value] | None) -> tuple[Value, list[Value]]:
        """Goes through all layers: outputs in the order of x's axes, and the last states."""
        name = type(self).__name__
        if x.ndim not in (2, 3):
            raise fail(name, [x], "x must have the axes "
                       f"{'[N, T, I]' if self.batch_first else '[T, N, I]'}, or [T, I]")
        alone = x.ndim == 2
        if alone:
            x = unsqueeze(x, 1)
            states = None if states is None else [unsqueeze(state, 1) for state in states]
        elif self.batch_first:
            x = permute(x, (1, 0, 2))
        rows = self.num_layers * len(self.directions)
        for node in states or ():
            if node.ndim != 3 or node.shape[0] != rows:
                raise fail(name, [x, node], f"a state must have the axes [{rows}, N, H]")
        last: list[Sequence[Value]] = []
        for layer in range(self.num_layers):
            outputs = []
            for direction in self.directions:
                first = None if states is None else [state[len(last)] for state in states]
                output, after = self._layer(x, f"l{layer}{direction}", first, direction != "")
                outputs.append(output)
                last.append(after)
            x = concat(outputs, 2)
        stacked = [stack(list(kind)) for kind in zip(*last, strict=True)]
        if alone:
            return x[:, 0], [state[:, 0] for state in stacked]
        return permute(x, (1, 0, 2)) if self.batch_first else x, stacked


class LSTM(_Recurrent):
    """Layers of long short-term memory, as torch.nn.LSTM without projections.

    Parameters
    ----------
    input_size, hidden_size : int
        ``weight_ih_l0`` is ``[4 H, I]``, ``weight_hh_l0`` ``[4 H, H]``, ``bias_ih_l0`` and
        ``bias_hh_l0`` ``[4 H]``: input, forget, cell and output gate; ``_l1`` for the second
        layer, ``_l0_reverse`` for the other direction.
    num_layers : int
        Each takes what the one before puts out.
    bias : bool
        Whether there are biases.
    batch_first : bool
        Whether the axes are ``[N, T, I]``; by default ``[T, N, I]``, as in torch.
    dropout : float
        As torch takes it; it is for training alone.
    bidirectional : bool
        Each layer also goes from the last to the first; outputs stand side by side.
    """

    _gates = 4

    def __init__(self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True,
                 batch_first: bool = False, dropout: float = 0.0,
                 bidirectional: bool = False) -> None:
        super().__init__(input_size, hidden_size, num_layers, bias, batch_first, bidirectional)

    def _layer(self, x: Value, end: str, first: Sequence[Value] | None, reverse: bool
               ) -> tuple[Value, Sequence[Value]]:
        return lstm(x, *self._weights(x, end), None if first is None else (first[0], first[1]),
                    reverse=reverse)

    def __call__(self, x: Value, state: Pair | None = None) -> tuple[Value, Pair]:
        """Goes along T.

        Parameters
        ----------
        x : Value
            ``[T, N, I]`` (``[N, T, I]`` with `batch_first`), or ``[T, I]``; floats of the weights'
            dtype.
        state : (h, c), optional
            ``[layers * directions, N, H]`` each, without N if `x` has none; zeros if absent.

        Returns
        -------
        (output, (h, c))
            ``[T, N, directions * H]`` in the order of x's axes, and the last states.

        Raises
        ------
        GraphError
            If shapes or dtypes do not fit.
        """
        output, (h, c) = self._run(x, state)
        return output, (h, c)


class GRU(_Recurrent):
    """Layers of gated recurrent units, as torch.nn.GRU.

    Parameters
    ----------
    input_size, hidden_size : int
        ``weight_ih_l0`` is ``[3 H, I]``, ``weight_hh_l0`` ``[3 H, H]``, ``bias_ih_l0`` and
        ``bias_hh_l0`` ``[3 H]``: reset gate, update gate and new value; ``_l1`` and
        ``_l0_reverse`` as in `LSTM`.
    num_layers, bias, batch_first, dropout, bidirectional
        As in `LSTM`.
    """

    _gates = 3

    def __init__(self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True,
                 batch_first: bool = False, dropout: float = 0.0,
                 bidirectional: bool = False) -> None:
        super().__init__(input_size, hidden_size, num_layers, bias, batch_first, bidirectional)

    def _layer(self, x: Value, end: str, first: Sequence[Value] | None, reverse: bool
               ) -> tuple[Value, Sequence[Value]]:
        output, h = gru(x, *self._weights(x, end), None if first is None else first[0],
                        reverse=reverse)
        return output, [h]

    def __call__(self, x: Value, state: Value | None = None) -> tuple[Value, Value]:
        """Goes along T.

        Parameters
        ----------
        x : Value
            ``[T, N, I]`` (``[N, T, I]`` with `batch_first`), or ``[T, I]``; floats of the weights'
            dtype.
        state : Value, optional
            ``[layers * directions, N, H]``, without N if `x` has none; zeros if absent.

        Returns
        -------
        (output, h)
            ``[T, N, directions * H]`` in the order of x's axes, and the last states.

        Raises
        ------
        GraphError
            If shapes or dtypes do not fit.
        """
        output, (h,) = self._run(x, None if state is None else [state])
        return output, h


class RNN(GRU):
    """Layers of plain recurrent networks, as torch.nn.RNN.

    Parameters
    ----------
    input_size, hidden_size : int
        ``weight_ih_l0`` is ``[H, I]``, ``weight_hh_l0`` ``[H, H]``, ``bias_ih_l0`` and
        ``bias_hh_l0`` ``[H]``; ``_l1`` and ``_l0_reverse`` as in `LSTM`.
    num_layers, bias, batch_first, dropout, bidirectional
        As in `LSTM`.
    nonlinearity : str
        ``"tanh"`` or ``"relu"``.
    """

    _gates = 1

    def __init__(self, input_size: int, hidden_size: int, num_layers: int = 1,
                 nonlinearity: str = "tanh", bias: bool = True, batch_first: bool = False,
                 dropout: float = 0.0, bidirectional: bool = False) -> None:
        if nonlinearity not in ("tanh", "relu"):
            raise InvalidArgument(f'RNN: nonlinearity={nonlinearity!r} must be "tanh" or "relu"')
        self.activation = tanh if nonlinearity == "tanh" else relu
        super().__init__(input_size, hidden_size, num_layers, bias, batch_first, dropout,
                         bidirectional)

    def _layer(self, x: Value, end: str, first: Sequence[Value] | None, reverse: bool
               ) -> tuple[Value, Sequence[Value]]:
        output, h = rnn(x, *self._weights(x, end), None if first is None else first[0],
                        reverse=reverse, activation=self.activation)
        return output, [h]
