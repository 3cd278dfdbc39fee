"""Functions of one value, element by element.

Names follow numpy. Functions that the op table lacks are composed of its ops, exactly, also for
NaN and infinities. Each raises `athanor.GraphError` with its name, its operand and what would be
right, for a dtype that it does not take.
"""

from __future__ import annotations

import math

from athanor.arithmetic import cast, multiply, negative, subtract, widened
from athanor.core import check_kind, fail, is_float, operands, scalar_like, unary
from athanor.logic import isnan, less, where
from athanor.value import Attr, Value


def exp(x: Value) -> Value:
    """e to the power of `x`; floats."""
    return unary("Exp", x)


def exp2(x: Value) -> Value:
    """2 to the power of `x`; floats."""
    return unary("Exp2", x)


def log(x: Value) -> Value:
    """Natural logarithm; floats."""
    return unary("Log", x)


def log2(x: Value) -> Value:
    """Logarithm to base 2; floats."""
    return unary("Log2", x)


def log10(x: Value) -> Value:
    """Logarithm to base 10; floats. f16 and bf16 compute in f32 and round once."""
    (x,) = operands("log10", x)
    check_kind("log10", [x], "floats")
    return cast(multiply(log2(widened(x)), math.log10(2)), x.dtype)


def sin(x: Value) -> Value:
    """Sine of radians; floats."""
    return unary("Sin", x)


def cos(x: Value) -> Value:
    """Cosine of radians; floats."""
    return unary("Cos", x)


def tan(x: Value) -> Value:
    """Tangent of radians; floats."""
    return unary("Tan", x)


def asin(x: Value) -> Value:
    """Arcsine; NaN outside [-1, 1]; floats."""
    return unary("Asin", x)


def acos(x: Value) -> Value:
    """Arccosine; NaN outside [-1, 1]; floats."""
    return unary("Acos", x)


def atan(x: Value) -> Value:
    """Arctangent; floats."""
    return unary("Atan", x)


def sinh(x: Value) -> Value:
    """Hyperbolic sine; floats."""
    return unary("Sinh", x)


def cosh(x: Value) -> Value:
    """Hyperbolic cosine; floats."""
    return unary("Cosh", x)


def asinh(x: Value) -> Value:
    """Inverse hyperbolic sine; floats."""
    return unary("Asinh", x)


def acosh(x: Value) -> Value:
    """Inverse hyperbolic cosine; NaN below 1; floats."""
    return unary("Acosh", x)


def atanh(x: Value) -> Value:
    """Inverse hyperbolic tangent; NaN outside [-1, 1]; floats."""
    return unary("Atanh", x)


def log1p(x: Value) -> Value:
    """log(1 + x), also for small `x`; floats."""
    return unary("Log1p", x)


def expm1(x: Value) -> Value:
    """exp(x) - 1, also for small `x`; floats."""
    return unary("Expm1", x)


def sqrt(x: Value) -> Value:
    """Square root; floats."""
    return unary("Sqrt", x)


def tanh(x: Value) -> Value:
    """Hyperbolic tangent; floats."""
    return unary("Tanh", x)


def erf(x: Value) -> Value:
    """Error function; floats."""
    return unary("Erf", x)


def floor(x: Value) -> Value:
    """The largest integral value not above `x`; floats."""
    return unary("Floor", x)


def ceil(x: Value) -> Value:
    """The smallest integral value not below `x`; floats."""
    (x,) = operands("ceil", x)
    check_kind("ceil", [x], "floats")
    return negative(floor(negative(x)))


def trunc(x: Value) -> Value:
    """The integral value next to `x` towards zero; floats."""
    (x,) = operands("trunc", x)
    check_kind("trunc", [x], "floats")
    return where(less(x, 0), ceil(x), floor(x))


def round(x: Value) -> Value:  # noqa: A001 - numpy's name
    """The nearest integral value, ties to even; floats."""
    return unary("Round", x)


def sigmoid(x: Value) -> Value:
    """1 / (1 + exp(-x)); floats."""
    return unary("Sigmoid", x)


def silu(x: Value) -> Value:
    """x * sigmoid(x); floats."""
    return unary("Silu", x)


def relu(x: Value) -> Value:
    """max(x, 0); floats and integers."""
    return unary("Relu", x, "numeric")


def gelu(x: Value, approximate: str = "none") -> Value:
    """Gaussian error linear unit; `approximate` is ``"none"`` or ``"tanh"``. Floats."""
    if approximate not in ("none", "tanh"):
        raise fail("Gelu", [x], f'approximate={approximate!r} must be "none" or "tanh"')
    return unary("Gelu", x, approximate=Attr(s=approximate))


def sign(x: Value) -> Value:
    """1, 0 or -1 in the dtype of `x`; NaN stays; floats and integers."""
    (x,) = operands("sign", x)
    check_kind("sign", [x], "numeric")
    above = cast(less(scalar_like(x, 0), x), x.dtype)
    if x._dtype.kind == "unsigned":
        return above
    result = subtract(above, cast(less(x, 0), x.dtype))
    return where(isnan(x), x, result) if is_float(x) else result
