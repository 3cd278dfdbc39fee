"""Recurrent layers with weights, in torch's layouts."""

from __future__ import annotations

from athanor.core import fail
from athanor.errors import InvalidArgument
from athanor.loops import lstm
from athanor.movement import concat, permute, stack, unsqueeze
from athanor.nn.module import Module, Parameter, uniform
from athanor.value import Value


class LSTM(Module):
    """Layers of long short-term memory, as torch.nn.LSTM without projections and dropout.

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
    bidirectional : bool
        Each layer also goes from the last to the first; outputs stand side by side.
    """

    def __init__(self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True,
                 batch_first: bool = False, *, bidirectional: bool = False) -> None:
        if num_layers < 1 or hidden_size < 1:
            raise InvalidArgument(f"LSTM: num_layers={num_layers} and hidden_size={hidden_size} "
                                  "must be 1 or more")
        self.num_layers, self.batch_first = num_layers, batch_first
        self.directions = ("", "_reverse") if bidirectional else ("",)
        for layer in range(num_layers):
            size = hidden_size * len(self.directions) if layer else input_size
            for direction in self.directions:
                end = f"l{layer}{direction}"
                setattr(self, f"weight_ih_{end}", uniform([4 * hidden_size, size], hidden_size))
                setattr(self, f"weight_hh_{end}",
                        uniform([4 * hidden_size, hidden_size], hidden_size))
                for name in ("bias_ih", "bias_hh") if bias else ():
                    setattr(self, f"{name}_{end}", uniform([4 * hidden_size], hidden_size))

    def _weight(self, x: Value, name: str) -> Value | None:
        weight = getattr(self, name, None)
        return weight.of(x) if isinstance(weight, Parameter) else None

    def __call__(self, x: Value, state: tuple[Value, Value] | None = None
                 ) -> tuple[Value, tuple[Value, Value]]:
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
        if x.ndim not in (2, 3):
            raise fail("LSTM", [x], "x must have the axes "
                       f"{'[N, T, I]' if self.batch_first else '[T, N, I]'}, or [T, I]")
        alone = x.ndim == 2
        if alone:
            x = unsqueeze(x, 1)
            state = None if state is None else (unsqueeze(state[0], 1), unsqueeze(state[1], 1))
        elif self.batch_first:
            x = permute(x, (1, 0, 2))
        rows = self.num_layers * len(self.directions)
        for node in state or ():
            if node.ndim != 3 or node.shape[0] != rows:
                raise fail("LSTM", [x, node], f"a state must have the axes [{rows}, N, H]")
        hidden: list[Value] = []
        cells: list[Value] = []
        for layer in range(self.num_layers):
            outputs = []
            for direction in self.directions:
                place, end = len(hidden), f"l{layer}{direction}"
                ih, hh, b_ih, b_hh = (self._weight(x, f"{name}_{end}") for name in (
                    "weight_ih", "weight_hh", "bias_ih", "bias_hh"))
                assert ih is not None and hh is not None
                first = None if state is None else (state[0][place], state[1][place])
                output, (h, c) = lstm(x, ih, hh, b_ih, b_hh, first, reverse=direction != "")
                outputs.append(output)
                hidden.append(h)
                cells.append(c)
            x = concat(outputs, 2)
        last = stack(hidden), stack(cells)
        if alone:
            return x[:, 0], (last[0][:, 0], last[1][:, 0])
        return permute(x, (1, 0, 2)) if self.batch_first else x, last
