"""Activations by torch's names, for models that are written for torch.

The functions of athanor, such as `athanor.relu`, are activations as well.
"""

from __future__ import annotations

from athanor.arithmetic import add, cast, clip, divide, minimum, multiply, widened
from athanor.core import check_kind, check_size
from athanor.elementwise import exp as e_to
from athanor.elementwise import expm1, gelu, log1p, relu, sigmoid, silu, tanh
from athanor.expr import Expr
from athanor.logic import less, where
from athanor.movement import reshape
from athanor.networks import softmax
from athanor.nn.module import Module, Parameter
from athanor.reductions import logsumexp
from athanor.value import Value


class _Elementwise(Module):
    """Base of activations that keep shape and dtype: floats, of which f16 and bf16 compute in f32
    and round once."""

    def _of(self, x: Value) -> Value:
        raise NotImplementedError

    def __call__(self, x: Value) -> Value:
        """Any shape; floats."""
        check_kind(type(self).__name__, [x], "floats")
        return cast(self._of(widened(x)), x.dtype)


def _softplus(x: Value) -> Value:
    """log(1 + exp(x)), for large `x` too."""
    return add(relu(x), log1p(e_to(minimum(x, -x))))


class ReLU(Module):
    """max(x, 0), as torch.nn.ReLU.

    Parameters
    ----------
    inplace : bool
        As torch takes it; it changes nothing.
    """

    def __init__(self, inplace: bool = False) -> None:
        self.inplace = inplace

    def __call__(self, x: Value) -> Value:
        """Any shape; floats and integers."""
        return relu(x)


class Hardtanh(_Elementwise):
    """`x` held within [min_val, max_val], as torch.nn.Hardtanh.

    Parameters
    ----------
    min_val, max_val : float
        The ends.
    inplace : bool
        As torch takes it; it changes nothing.
    """

    def __init__(self, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> None:
        self.min_val, self.max_val = min_val, max_val

    def _of(self, x: Value) -> Value:
        return clip(x, self.min_val, self.max_val)


class ReLU6(Hardtanh):
    """`x` held within [0, 6], as torch.nn.ReLU6."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__(0.0, 6.0)


class LeakyReLU(_Elementwise):
    """`x`, times `negative_slope` below 0, as torch.nn.LeakyReLU.

    Parameters
    ----------
    negative_slope : float
        The factor.
    inplace : bool
        As torch takes it; it changes nothing.
    """

    def __init__(self, negative_slope: float = 0.01, inplace: bool = False) -> None:
        self.negative_slope = negative_slope

    def _of(self, x: Value) -> Value:
        return where(less(x, 0), multiply(x, self.negative_slope), x)


class PReLU(Module):
    """`x`, times a weight below 0, as torch.nn.PReLU.

    Parameters
    ----------
    num_parameters : int
        1, or one per channel, axis 1: the size of ``weight``.
    """

    def __init__(self, num_parameters: int = 1) -> None:
        self.weight = Parameter((num_parameters,), "ones")

    def __call__(self, x: Value) -> Value:
        """Any shape; floats of the weight's dtype."""
        weight = self.weight.of(x)
        if self.weight.shape[0] > 1:
            check_size("PReLU", [x, weight], "channels", x._shape[1] if x.ndim > 1 else Expr(1),
                       weight._shape[0])
            weight = reshape(weight, [weight._shape[0], *[Expr(1)] * (x.ndim - 2)])
        return where(less(x, 0), multiply(x, weight), x)


class ELU(_Elementwise):
    """`x`, and alpha * (exp(x) - 1) below 0, as torch.nn.ELU.

    Parameters
    ----------
    alpha : float
        The factor.
    inplace : bool
        As torch takes it; it changes nothing.
    """

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        self.alpha = alpha

    def _of(self, x: Value) -> Value:
        return where(less(0, x), x, multiply(expm1(minimum(x, 0)), self.alpha))


class GELU(Module):
    """`athanor.gelu`, as torch.nn.GELU.

    Parameters
    ----------
    approximate : str
        ``"none"`` or ``"tanh"``.
    """

    def __init__(self, approximate: str = "none") -> None:
        self.approximate = approximate

    def __call__(self, x: Value) -> Value:
        """Any shape; floats."""
        return gelu(x, self.approximate)


class SiLU(ReLU):
    """x * sigmoid(x), as torch.nn.SiLU; floats."""

    def __call__(self, x: Value) -> Value:
        """Any shape; floats."""
        return silu(x)


class Mish(_Elementwise):
    """x * tanh(log(1 + exp(x))), as torch.nn.Mish.

    Parameters
    ----------
    inplace : bool
        As torch takes it; it changes nothing.
    """

    def __init__(self, inplace: bool = False) -> None:
        self.inplace = inplace

    def _of(self, x: Value) -> Value:
        return multiply(x, tanh(_softplus(x)))


class Sigmoid(Module):
    """1 / (1 + exp(-x)), as torch.nn.Sigmoid."""

    def __call__(self, x: Value) -> Value:
        """Any shape; floats."""
        return sigmoid(x)


class Tanh(Module):
    """Hyperbolic tangent, as torch.nn.Tanh."""

    def __call__(self, x: Value) -> Value:
        """Any shape; floats."""
        return tanh(x)


class Softplus(_Elementwise):
    """log(1 + exp(beta * x)) / beta, as torch.nn.Softplus.

    Parameters
    ----------
    beta : float
        The factor.
    threshold : float
        Above it, beta * x is taken as it is.
    """

    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        self.beta, self.threshold = beta, threshold

    def _of(self, x: Value) -> Value:
        scaled = multiply(x, self.beta)
        return where(less(self.threshold, scaled), x, divide(_softplus(scaled), self.beta))


class Hardsigmoid(_Elementwise):
    """x / 6 + 1 / 2 held within [0, 1], as torch.nn.Hardsigmoid.

    Parameters
    ----------
    inplace : bool
        As torch takes it; it changes nothing.
    """

    def __init__(self, inplace: bool = False) -> None:
        self.inplace = inplace

    def _of(self, x: Value) -> Value:
        return divide(clip(add(x, 3), 0, 6), 6)


class Hardswish(Hardsigmoid):
    """x times its `Hardsigmoid`, as torch.nn.Hardswish."""

    def _of(self, x: Value) -> Value:
        return multiply(x, super()._of(x))


class Softmax(Module):
    """exp(x) / sum(exp(x)) along an axis, as torch.nn.Softmax.

    Parameters
    ----------
    dim : int
        The axis.
    """

    def __init__(self, dim: int = -1) -> None:
        self.dim = dim

    def __call__(self, x: Value) -> Value:
        """Any shape; floats."""
        return softmax(x, self.dim)


class LogSoftmax(_Elementwise):
    """x - log(sum(exp(x))) along an axis, as torch.nn.LogSoftmax.

    Parameters
    ----------
    dim : int
        The axis.
    """

    def __init__(self, dim: int = -1) -> None:
        self.dim = dim

    def _of(self, x: Value) -> Value:
        return x - logsumexp(x, self.dim, keepdims=True)
