"""Modules of modules."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from athanor.elementwise import relu
from athanor.errors import InvalidArgument
from athanor.nn.layers import Linear
from athanor.nn.module import Module
from athanor.value import Value

Layer = Callable[[Value], Value]


class ModuleList(Module):
    """Layers by number, as torch.nn.ModuleList; a list in an attribute does the same.

    Parameters
    ----------
    layers : iterable of Module or function of a Value
        A function such as `athanor.relu` takes a number too, as torch's activations do.
    """

    def __init__(self, layers: Iterable[Layer] = ()) -> None:
        self._layers = list(layers)

    def _attributes(self) -> Iterator[tuple[str, object]]:
        return ((str(i), layer) for i, layer in enumerate(self._layers))

    def append(self, layer: Layer) -> None:
        """Adds a layer behind the others."""
        self._layers.append(layer)

    def __len__(self) -> int:
        return len(self._layers)

    def __iter__(self) -> Iterator[Layer]:
        return iter(self._layers)

    def __getitem__(self, i: int) -> Layer:
        return self._layers[i]


class Sequential(ModuleList):
    """Layers one after another, by number as in torch.nn.Sequential.

    Parameters
    ----------
    layers : Module or function of a Value
        A function such as `athanor.relu` takes a number too, as torch's activations do.
    """

    def __init__(self, *layers: Layer) -> None:
        super().__init__(layers)

    def __call__(self, x: Value) -> Value:
        """What the last layer makes of it."""
        for layer in self._layers:
            x = layer(x)
        return x


class MLP(Sequential):
    """Linear layers with an activation between them: the Sequential of torch that alternates them.

    Parameters
    ----------
    sizes : sequence of int
        Features before the first layer and after each.
    activation : function of a Value
        Such as `athanor.relu`, `athanor.gelu` or `athanor.silu`.
    bias : bool
        Whether the layers have one.
    """

    def __init__(self, sizes: Sequence[int], activation: Layer = relu, bias: bool = True) -> None:
        if len(sizes) < 2:
            raise InvalidArgument(f"MLP: sizes={list(sizes)} must be at least 2")
        layers: list[Layer] = []
        for i in range(len(sizes) - 1):
            layers += [activation] * (i > 0) + [Linear(sizes[i], sizes[i + 1], bias)]
        super().__init__(*layers)
