"""Layers with torch's names and layouts of weights: linear, norms, embedding, convolution."""

from __future__ import annotations

import math
import string
from collections.abc import Callable, Iterator, Sequence

from athanor.contractions import contract
from athanor.core import check_size, fail
from athanor.elementwise import add, relu
from athanor.errors import InvalidArgument
from athanor.expr import Expr
from athanor.movement import reshape
from athanor.networks import batch_norm, embedding, group_norm, layer_norm, rms_norm
from athanor.nn.module import Module, Parameter, uniform
from athanor.value import Value
from athanor.windows import conv

Layer = Callable[[Value], Value]


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


def _sizes(shape: int | Sequence[int]) -> tuple[int, ...]:
    return (shape,) if isinstance(shape, int) else tuple(shape)


class _LastAxes(Module):
    """Base of norms over the last axes, which the ops normalise as one."""

    def __init__(self, normalized_shape: int | Sequence[int], elementwise_affine: bool,
                 bias: bool) -> None:
        self.normalized_shape = _sizes(normalized_shape)
        if not self.normalized_shape:
            raise InvalidArgument(f"{type(self).__name__}: normalized_shape must have a size")
        affine = elementwise_affine
        self.weight = Parameter(self.normalized_shape, "ones") if affine else None
        self.bias = Parameter(self.normalized_shape, "zeros") if affine and bias else None

    def _flat(self, x: Value) -> Value:
        rank = len(self.normalized_shape)
        if x.ndim < rank:
            raise fail(type(self).__name__, [x], f"x must have at least {rank} axes")
        for i, size in enumerate(self.normalized_shape):
            check_size(type(self).__name__, [x], f"axis {i - rank}", x._shape[i - rank],
                       Expr(size))
        return reshape(x, [*x._shape[:x.ndim - rank], math.prod(self.normalized_shape)])

    def _per_element(self, x: Value, weight: Parameter | None, otherwise: int) -> Value:
        count = math.prod(self.normalized_shape)
        if weight is None:
            return x.graph.full((count,), otherwise, x.dtype)
        return reshape(weight.of(x), [count])


class LayerNorm(_LastAxes):
    """(x - mean) / sqrt(variance + eps) * weight + bias over the last axes, as
    torch.nn.LayerNorm.

    Parameters
    ----------
    normalized_shape : int or sequence of int
        Sizes of the last axes, and of ``weight`` and ``bias``.
    eps : float
        Added to the variance.
    elementwise_affine, bias : bool
        Whether there are a weight and a bias.
    """

    def __init__(self, normalized_shape: int | Sequence[int], eps: float = 1e-5,
                 elementwise_affine: bool = True, bias: bool = True) -> None:
        super().__init__(normalized_shape, elementwise_affine, bias)
        self.eps = eps

    def __call__(self, x: Value) -> Value:
        """The shape and float dtype of `x`, which is the weights'."""
        scale, bias = self._per_element(x, self.weight, 1), self._per_element(x, self.bias, 0)
        return reshape(layer_norm(self._flat(x), scale, bias, self.eps), x._shape)


class RmsNorm(_LastAxes):
    """x / sqrt(mean(x^2) + eps) * weight over the last axes, as torch.nn.RMSNorm.

    Parameters
    ----------
    normalized_shape : int or sequence of int
        Sizes of the last axes, and of ``weight``.
    eps : float, optional
        By default the distance from 1 to the next number of x's dtype.
    elementwise_affine : bool
        Whether there is a weight.
    """

    def __init__(self, normalized_shape: int | Sequence[int], eps: float | None = None,
                 elementwise_affine: bool = True) -> None:
        super().__init__(normalized_shape, elementwise_affine, bias=False)
        self.eps = eps

    def __call__(self, x: Value) -> Value:
        """The shape and float dtype of `x`, which is the weight's."""
        bits = {"f16": 10, "bf16": 7, "f32": 23, "f64": 52}
        if x.dtype not in bits:
            raise fail("RmsNorm", [x], f"does not take {x.dtype}, only {', '.join(bits)}; convert "
                       'with .cast("f32")')
        eps = 2.0 ** -bits[x.dtype] if self.eps is None else self.eps
        return reshape(rms_norm(self._flat(x), self._per_element(x, self.weight, 1), eps), x._shape)


class BatchNorm(Module):
    """(x - running_mean) / sqrt(running_var + eps) * weight + bias per channel, axis 1: what
    torch.nn.BatchNorm1d, 2d and 3d do after ``eval()``.

    Parameters
    ----------
    num_features : int
        Channels: the size of all its weights.
    eps : float
        Added to the variance.
    affine : bool
        Whether there are a weight and a bias.
    """

    _unused = ("num_batches_tracked",)

    def __init__(self, num_features: int, eps: float = 1e-5, affine: bool = True) -> None:
        self.eps = eps
        self.weight = Parameter((num_features,), "ones") if affine else None
        self.bias = Parameter((num_features,), "zeros") if affine else None
        self.running_mean = Parameter((num_features,), "zeros")
        self.running_var = Parameter((num_features,), "ones")

    def __call__(self, x: Value) -> Value:
        """``[N, C, ...]`` or ``[N, C]``; the float dtype of `x` is the weights'."""
        scale = None if self.weight is None else self.weight.of(x)
        bias = None if self.bias is None else self.bias.of(x)
        return batch_norm(x, self.running_mean.of(x), self.running_var.of(x), scale, bias,
                          epsilon=self.eps)


class GroupNorm(Module):
    """`athanor.group_norm` with weights, as torch.nn.GroupNorm.

    Parameters
    ----------
    num_groups, num_channels : int
        The groups divide the channels; ``weight`` and ``bias`` are ``[num_channels]``.
    eps : float
        Added to the variance.
    affine : bool
        Whether there are a weight and a bias.
    """

    def __init__(self, num_groups: int, num_channels: int, eps: float = 1e-5,
                 affine: bool = True) -> None:
        self.num_groups, self.num_channels, self.eps = num_groups, num_channels, eps
        self.weight = Parameter((num_channels,), "ones") if affine else None
        self.bias = Parameter((num_channels,), "zeros") if affine else None

    def __call__(self, x: Value) -> Value:
        """``[N, num_channels, ...]``; the float dtype of `x` is the weights'."""
        scale = None if self.weight is None else self.weight.of(x)
        bias = None if self.bias is None else self.bias.of(x)
        return group_norm(x, self.num_groups, scale, bias, epsilon=self.eps)


class Embedding(Module):
    """Rows of a table, as torch.nn.Embedding.

    Parameters
    ----------
    num_embeddings, embedding_dim : int
        ``weight`` is ``[num_embeddings, embedding_dim]``.
    """

    def __init__(self, num_embeddings: int, embedding_dim: int) -> None:
        self.weight = Parameter((num_embeddings, embedding_dim), "normal")

    def __call__(self, ids: Value) -> Value:
        """Integers of any shape to ``[..., embedding_dim]`` of the weight's dtype."""
        return embedding(self.weight.of(ids), ids)


class Conv(Module):
    """A convolution with a bias, as torch.nn.Conv1d, 2d and 3d.

    Parameters
    ----------
    in_channels, out_channels : int
        ``weight`` is ``[out_channels, in_channels // groups, *kernel_size]``.
    kernel_size : int or sequence of int
        An int is for 2 spatial axes; a sequence has one for each: ``(3,)`` is a Conv1d of 3.
    stride, dilation : int or sequence of int
        Steps of the window, and steps between its elements.
    padding : int, sequence of int, or "same"
        Zeros on both sides of each spatial axis; ``"same"``, for a stride of 1, keeps its size.
    groups : int
        Groups of channels, each convolved on its own.
    bias : bool
        Whether there is one.
    """

    def __init__(self, in_channels: int, out_channels: int, kernel_size: int | Sequence[int],
                 stride: int | Sequence[int] = 1, padding: int | Sequence[int] | str = 0,
                 dilation: int | Sequence[int] = 1, groups: int = 1, bias: bool = True) -> None:
        kernel = (kernel_size,) * 2 if isinstance(kernel_size, int) else tuple(kernel_size)
        if groups < 1 or in_channels % groups or out_channels % groups:
            raise InvalidArgument(f"Conv: groups={groups} must divide {in_channels} and "
                                  f"{out_channels} channels")
        self.stride, self.dilation, self.groups = stride, dilation, groups
        if padding == "same":
            if any(step != 1 for step in _sizes(stride)):
                raise InvalidArgument(f'Conv: padding="same" needs stride=1, not {stride!r}')
            steps = _sizes(dilation) * (1 if not isinstance(dilation, int) else len(kernel))
            # Of an odd number of zeros the greater part comes behind.
            reach = [step * (size - 1) for step, size in zip(steps, kernel, strict=True)]
            self.padding: list[tuple[int, int]] = [(r // 2, r - r // 2) for r in reach]
        elif isinstance(padding, str):
            raise InvalidArgument(f'Conv: padding={padding!r} must be sizes or "same"')
        else:
            sizes = (padding,) * len(kernel) if isinstance(padding, int) else tuple(padding)
            self.padding = [(size, size) for size in sizes]
        inside = in_channels // groups
        self.weight = uniform([out_channels, inside, *kernel], inside * math.prod(kernel))
        self.bias = uniform([out_channels], inside * math.prod(kernel)) if bias else None

    def __call__(self, x: Value) -> Value:
        """``[N, in_channels, D1, ...]`` to ``[N, out_channels, O1, ...]``, in the weights'
        dtype."""
        result = conv(x, self.weight.of(x), strides=self.stride, padding=self.padding,
                      dilations=self.dilation, groups=self.groups)
        if self.bias is None:
            return result
        bias = self.bias.of(x)
        return add(result, reshape(bias, [bias._shape[0], *[Expr(1)] * (x.ndim - 2)]))


class Sequential(Module):
    """Layers one after another, by number as in torch.nn.Sequential.

    Parameters
    ----------
    layers : Module or function of a Value
        A function such as `athanor.relu` takes a number too, as torch's activations do.
    """

    def __init__(self, *layers: Layer) -> None:
        self._layers = layers

    def _attributes(self) -> Iterator[tuple[str, object]]:
        return ((str(i), layer) for i, layer in enumerate(self._layers))

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
