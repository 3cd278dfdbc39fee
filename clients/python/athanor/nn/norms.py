"""Norms with torch's names and layouts of weights."""

from __future__ import annotations

import math
from collections.abc import Sequence

from athanor.core import check_size, fail
from athanor.errors import InvalidArgument
from athanor.expr import Expr
from athanor.movement import reshape
from athanor.networks import batch_norm, group_norm, layer_norm, rms_norm
from athanor.nn.module import Module, Parameter
from athanor.value import Value


class _LastAxes(Module):
    """Base of norms over the last axes, which the ops normalise as one."""

    def __init__(self, normalized_shape: int | Sequence[int], elementwise_affine: bool,
                 bias: bool) -> None:
        self.normalized_shape = ((normalized_shape,) if isinstance(normalized_shape, int)
                                 else tuple(normalized_shape))
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


RMSNorm = RmsNorm  # torch's name


class BatchNorm(Module):
    """(x - running_mean) / sqrt(running_var + eps) * weight + bias per channel, axis 1: what
    torch.nn.BatchNorm1d, 2d and 3d do after ``eval()``.

    Parameters
    ----------
    num_features : int
        Channels: the size of all its weights.
    eps : float
        Added to the variance.
    momentum : float, optional
        As torch takes it; it is for training alone.
    affine : bool
        Whether there are a weight and a bias.
    """

    _unused = ("num_batches_tracked",)

    def __init__(self, num_features: int, eps: float = 1e-5, momentum: float | None = 0.1,
                 affine: bool = True) -> None:
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


BatchNorm1d = BatchNorm2d = BatchNorm3d = BatchNorm  # torch has a name for each number of axes


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


class InstanceNorm(Module):
    """Normalises each channel of each example: (x - mean) / sqrt(variance + eps) * weight + bias,
    as torch.nn.InstanceNorm1d, 2d and 3d.

    Parameters
    ----------
    num_features : int
        Channels: the size of ``weight`` and ``bias``.
    eps : float
        Added to the variance.
    momentum : float, optional
        As torch takes it; it is for training alone.
    affine : bool
        Whether there are a weight and a bias.
    """

    def __init__(self, num_features: int, eps: float = 1e-5, momentum: float | None = 0.1,
                 affine: bool = False) -> None:
        self.num_features, self.eps = num_features, eps
        self.weight = Parameter((num_features,), "ones") if affine else None
        self.bias = Parameter((num_features,), "zeros") if affine else None

    def __call__(self, x: Value) -> Value:
        """``[N, C, ...]``; the float dtype of `x` is the weights'."""
        if x.ndim < 3:
            raise fail("InstanceNorm", [x], "x must have the axes [N, C] and spatial ones behind "
                       "them")
        check_size("InstanceNorm", [x], "channels of x and num_features", x._shape[1],
                   Expr(self.num_features))
        scale = None if self.weight is None else self.weight.of(x)
        bias = None if self.bias is None else self.bias.of(x)
        return group_norm(x, self.num_features, scale, bias, epsilon=self.eps)


InstanceNorm1d = InstanceNorm2d = InstanceNorm3d = InstanceNorm
