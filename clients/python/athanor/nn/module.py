"""Modules: layers with weights by name, as torch's state dicts have them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self

import numpy as np

from athanor.arrays import host_array
from athanor.dtypes import DType, dtype_of
from athanor.errors import GraphError, InvalidArgument
from athanor.value import Value


@dataclasses.dataclass(eq=False)
class Parameter:
    """A weight of a module, or a number that it keeps beside weights, such as a running mean.

    Attributes
    ----------
    shape : tuple of int
        Its sizes.
    start : str
        What `Module.initialise` fills it with: ``"ones"``, ``"zeros"``, ``"normal"`` (of deviation
        1), or ``"uniform"`` in [-bound, bound].
    bound : float
        For ``"uniform"``.
    name : str
        Name in the state dict that gave it its values; empty before.
    array : array, optional
        Its values, of any dtype of the server; None before there are any.
    """

    shape: tuple[int, ...]
    start: str = "zeros"
    bound: float = 0.0
    name: str = ""
    array: np.ndarray | None = dataclasses.field(default=None, repr=False)

    def of(self, x: Value) -> Value:
        """Returns it as a parameter of the graph of `x`, the same one each time.

        Raises
        ------
        GraphError
            If it has no values yet.
        """
        if self.array is None:
            raise GraphError(f"a weight of shape {list(self.shape)} has no values yet; call "
                             "load_state_dict or initialise of the module before you call it")
        return x.graph._weight(self, self.name, self.array)

    def initial(self, random: np.random.Generator) -> np.ndarray:
        """Returns values to begin with, f64."""
        if self.start == "uniform":
            return random.uniform(-self.bound, self.bound, self.shape)
        if self.start == "normal":
            return random.standard_normal(self.shape)
        return np.full(self.shape, 1.0 if self.start == "ones" else 0.0)


def uniform(shape: Sequence[int], fan_in: int) -> Parameter:
    """Returns a weight that begins within 1 / sqrt(fan_in), as torch's layers do."""
    return Parameter(tuple(shape), "uniform", 1 / math.sqrt(max(fan_in, 1)))


def _listed(names: Sequence[str], what: str) -> list[str]:
    """Says of each name that it is wrong, of many that there are more."""
    most = 8
    more = [f"{len(names) - most} more are {what}"] if len(names) > most else []
    return [f"{name!r} is {what}" for name in names[:most]] + more


def _common_start(weights: Mapping[str, Parameter], given: Sequence[str]) -> list[str]:
    """Names what all given names begin with, if the weights would be found without it."""
    for name in given:
        start = next((name.removesuffix(own) for own in weights if name.endswith(f".{own}")), "")
        if start and all(start + own in given for own in weights):
            return [f"all weights are there with {start!r} before their names: take it off"]
    return []


class Module:
    """Base of layers: holds weights, and modules with weights, in its attributes.

    A module is a function of values: subclasses define ``__call__``, or ``forward`` as in torch.
    Names of weights are the paths of attributes, as in torch: ``"encoder.0.weight"``. An attribute
    may be a list of modules, which have numbers as in torch.nn.ModuleList, or a dict of modules,
    which have names.

    Examples
    --------
    >>> class Block(athanor.nn.Module):
    ...     def __init__(self) -> None:
    ...         self.norm = athanor.nn.LayerNorm(64)
    ...         self.mlp = athanor.nn.MLP([64, 256, 64], athanor.gelu)
    ...
    ...     def __call__(self, x: athanor.Value) -> athanor.Value:
    ...         return x + self.mlp(self.norm(x))
    >>> block = Block()
    >>> block.load_state_dict(np.load("block.npz"))
    >>> g.output("y", block(g.input("x", ("b", 64), "f32")))
    """

    # Names beside weights that torch's state dicts have and inference does not need.
    _unused: tuple[str, ...] = ()

    def __repr__(self) -> str:
        weights = {id(weight): weight for _, weight in self.named_parameters()}
        count = sum(math.prod(weight.shape) for weight in weights.values())
        return f"<{type(self).__name__}: {len(weights)} weights, {count} elements>"

    def __call__(self, *args: Any, **options: Any) -> Any:
        """Calls ``forward``, if the class has that instead of ``__call__``.

        Raises
        ------
        GraphError
            If it has neither.
        """
        forward = getattr(self, "forward", None)
        if forward is None:
            raise GraphError(f"{type(self).__name__} has neither __call__ nor forward; a module "
                             "that is called must define one")
        return forward(*args, **options)

    def eval(self) -> Self:
        """Returns itself: all layers compute as torch's do after ``eval()``."""
        return self

    def _attributes(self) -> Iterator[tuple[str, object]]:
        for name, value in vars(self).items():
            if isinstance(value, list | tuple):
                yield from ((f"{name}.{i}", one) for i, one in enumerate(value))
            elif isinstance(value, dict):
                yield from ((f"{name}.{key}", one) for key, one in value.items())
            else:
                yield name, value

    def named_modules(self, prefix: str = "") -> Iterator[tuple[str, Module]]:
        """Yields this module and all inside it, by path; `prefix` comes before."""
        yield prefix, self
        for name, value in self._attributes():
            if isinstance(value, Module):
                yield from value.named_modules(f"{prefix}.{name}" if prefix else name)

    def named_parameters(self) -> Iterator[tuple[str, Parameter]]:
        """Yields all weights by path; one that two modules share, twice."""
        for path, module in self.named_modules():
            for name, value in module._attributes():
                if isinstance(value, Parameter):
                    yield f"{path}.{name}" if path else name, value

    def state_dict(self) -> dict[str, np.ndarray]:
        """Returns the values of all weights that have some, by path."""
        return {name: weight.array for name, weight in self.named_parameters()
                if weight.array is not None}

    def load_state_dict(self, state: Mapping[str, Any], *, strict: bool = True) -> None:
        """Gives all weights their values, or none of them.

        Parameters
        ----------
        state : mapping of str to array
            By path, in torch's layouts: ``safetensors.numpy.load_file(path)``, numpy arrays, or CPU
            tensors with DLPack such as a ``state_dict()`` of torch. Dtypes stay as they are.
        strict : bool
            Whether every weight must be there, and nothing else; a weight that two modules share
            need be there once.

        Raises
        ------
        InvalidArgument
            Naming the weights that are missing, unknown or of another shape.
        """
        if not isinstance(state, Mapping):
            raise InvalidArgument(
                f"load_state_dict of {type(self).__name__}: a {type(state).__name__} is given; it "
                "must be arrays by name, as module.state_dict() of torch, or "
                "safetensors.numpy.load_file(path)")
        weights = dict(self.named_parameters())
        arrays = {name: host_array(value, f"weight {name!r}") for name, value in state.items()
                  if name in weights}
        for array in arrays.values():
            dtype_of(array.dtype)  # refuses those that the server lacks
        wrong = [f"{name!r} has shape {list(array.shape)}, it must be {list(weights[name].shape)}"
                 for name, array in arrays.items() if array.shape != weights[name].shape]
        if strict:
            given = {id(weights[name]) for name in arrays}
            unused = {f"{path}.{name}" if path else name for path, module in self.named_modules()
                      for name in module._unused}
            wrong += _listed([name for name, weight in weights.items() if id(weight) not in given],
                             "missing")
            wrong += _listed([name for name in state if name not in weights
                              and name not in unused], "no weight of this module")
            wrong += _common_start(weights, list(state))
        if wrong:
            raise InvalidArgument(f"load_state_dict of {type(self).__name__}: {'; '.join(wrong)}")
        for name, array in arrays.items():
            weights[name].name, weights[name].array = name, array

    def initialise(self, seed: int = 0, dtype: str | DType = "f32") -> None:
        """Gives all weights values to try things with, distributed as torch's layers begin.

        Parameters
        ----------
        seed : int
            Equal seeds give equal values.
        dtype : str
            A float dtype.

        Raises
        ------
        InvalidArgument
            If it is none, or one that needs the package ml_dtypes, which is not there.
        """
        row = dtype_of(dtype)
        if row.kind != "float" or row.numpy.kind == "u":
            raise InvalidArgument(f"initialise: dtype {row.name} must be a float, and of bf16 the "
                                  "package ml_dtypes must be there")
        random = np.random.default_rng(seed)
        done: set[int] = set()
        for name, weight in self.named_parameters():
            if id(weight) not in done:
                done.add(id(weight))
                weight.name, weight.array = name, weight.initial(random).astype(row.numpy)
