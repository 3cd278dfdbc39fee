"""Layers with torch's names and layouts of weights: linear, embeddings, and those without weights
that only move or keep what they are given."""

from __future__ import annotations

import string

from athanor.arithmetic import add, multiply
from athanor.contractions import contract
from athanor.core import check_axis, check_kind, check_size, element_count, fail, size_value
from athanor.errors import InvalidArgument
from athanor.movement import iota_like, reshape
from athanor.networks import embedding, embedding_bag
from athanor.nn.module import Module, Parameter, uniform
from athanor.value import Value


def linear(x: Value, weight: Value, bias: Value | None) -> Value:
    """x @ weight.T + bias over the last axis of `x`, for weight ``[O, I]``."""
    if not 1 <= x.ndim <= 20:
        raise fail("Linear", [x, weight], "x must have at least 1 axis, the last one of features")
    check_size("Linear", [x, weight], "features of x and in_features", x._shape[-1],
               weight._shape[1])
    lead = string.ascii_lowercase[:x.ndim - 1]
    result = contract(f"{lead}y,zy->{lead}z", x, weight)
    return result if bias is None else add(result, bias)


class Linear(Module):
    """x @ weight.T + bias over the last axis, as torch.nn.Linear.

    Parameters
    ----------
    in_features, out_features : int
        ``weight`` is ``[out_features, in_features]``, ``bias`` ``[out_features]``.
    bias : bool
        Whether there is one.
    """

    def __init__(self, in_features: int, out_features: int, bias: bool = True) -> None:
        self.weight = uniform([out_features, in_features], in_features)
        self.bias = uniform([out_features], in_features) if bias else None

    def __call__(self, x: Value) -> Value:
        """``[..., in_features]`` to ``[..., out_features]``, in the weights' dtype."""
        return linear(x, self.weight.of(x), None if self.bias is None else self.bias.of(x))


class Embedding(Module):
    """Rows of a table, as torch.nn.Embedding.

    Parameters
    ----------
    num_embeddings, embedding_dim : int
        ``weight`` is ``[num_embeddings, embedding_dim]``.
    padding_idx : int, optional
        As torch takes it; it is for training alone: the row is that of the weight.
    """

    def __init__(self, num_embeddings: int, embedding_dim: int,
                 padding_idx: int | None = None) -> None:
        self.weight = Parameter((num_embeddings, embedding_dim), "normal")

    def __call__(self, ids: Value) -> Value:
        """Integers of any shape to ``[..., embedding_dim]`` of the weight's dtype."""
        return embedding(self.weight.of(ids), ids)


class EmbeddingBag(Module):
    """The sum, mean or maximum of bags of rows of a table, as torch.nn.EmbeddingBag.

    Parameters
    ----------
    num_embeddings, embedding_dim : int
        ``weight`` is ``[num_embeddings, embedding_dim]``.
    mode : str
        ``"mean"``, ``"sum"`` or ``"max"``.
    """

    def __init__(self, num_embeddings: int, embedding_dim: int, mode: str = "mean") -> None:
        if mode not in ("mean", "sum", "max"):
            raise InvalidArgument(f'EmbeddingBag: mode={mode!r} must be "mean", "sum" or "max"')
        self.mode = mode
        self.weight = Parameter((num_embeddings, embedding_dim), "normal")

    def __call__(self, ids: Value, offsets: Value | None = None) -> Value:
        """Integers ``[N]`` with `offsets` ``[B]`` at which bags begin, or ``[B, L]`` without, to
        ``[B, embedding_dim]`` of the weight's dtype. An empty bag gives zeros."""
        if ids.ndim != (2 if offsets is None else 1):
            raise fail("EmbeddingBag", [ids], "ids must have the axes [B, L] without offsets, and "
                       "[N] with them")
        check_kind("EmbeddingBag", [ids], "integers")
        if offsets is None:
            bags, length = ids._shape
            offsets = multiply(iota_like(ids, [bags]), size_value(ids, length, "i64"))
            ids = reshape(ids, [bags * length])
        return embedding_bag(self.weight.of(ids), ids, offsets, self.mode)


class Flatten(Module):
    """Merges axes into one, as torch.nn.Flatten.

    Parameters
    ----------
    start_dim, end_dim : int
        The first axis and the last of those that become one.
    """

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        self.start_dim, self.end_dim = start_dim, end_dim

    def __call__(self, x: Value) -> Value:
        """Any shape and dtype."""
        first = check_axis("Flatten", x, self.start_dim)
        last = check_axis("Flatten", x, self.end_dim)
        if first > last:
            raise fail("Flatten", [x], f"start_dim={self.start_dim} is behind end_dim="
                       f"{self.end_dim}")
        return reshape(x, [*x._shape[:first], element_count(x._shape[first:last + 1]),
                           *x._shape[last + 1:]])


class Identity(Module):
    """Returns what it is given, as torch.nn.Identity."""

    def __call__(self, x: Value) -> Value:
        """Any shape and dtype."""
        return x


class Dropout(Identity):
    """Returns what it is given, as torch.nn.Dropout does after ``eval()``.

    Parameters
    ----------
    p : float
        As torch takes it; it is for training alone.
    """

    def __init__(self, p: float = 0.5) -> None:
        self.p = p


Dropout1d = Dropout2d = Dropout3d = AlphaDropout = Dropout
