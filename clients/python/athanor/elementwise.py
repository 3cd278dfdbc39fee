"""Operations element by element. Operands are broadcast as in numpy; dtypes must be equal.

Names follow numpy. Functions that the op table lacks are composed of its ops, exactly, also for
NaN, infinities and wrapping integers. Each raises `athanor.GraphError` with its name, its operands
and what would be right: for a dtype that it does not take, dtypes or sizes that differ.
"""

from __future__ import annotations

import math

from athanor.core import (
    broadcast,
    check_kind,
    make,
    operands,
    same_dtype,
    scalar_like,
)
from athanor.core import fail as _fail
from athanor.dtypes import DType, dtype_of
from athanor.value import Attr, Operand, Value


def _unary(op: str, x: Value, kind: str = "floats", **attrs: Attr) -> Value:
    (x,) = operands(op, x)
    check_kind(op, [x], kind)
    return make(op, [x], x._dtype, x._shape, **attrs)


def _binary(op: str, a: Operand, b: Operand, kind: str, **attrs: Attr) -> Value:
    nodes = broadcast(op, a, b)
    dtype = same_dtype(op, nodes)
    check_kind(op, nodes, kind)
    return make(op, nodes, dtype, nodes[0]._shape, **attrs)


def _is_float(x: Value) -> bool:
    return x._dtype.kind == "float"


def exp(x: Value) -> Value:
    """e to the power of `x`; floats."""
    return _unary("Exp", x)


def exp2(x: Value) -> Value:
    """2 to the power of `x`; floats."""
    return _unary("Exp2", x)


def log(x: Value) -> Value:
    """Natural logarithm; floats."""
    return _unary("Log", x)


def log2(x: Value) -> Value:
    """Logarithm to base 2; floats."""
    return _unary("Log2", x)


def log10(x: Value) -> Value:
    """Logarithm to base 10; floats. f16 and bf16 compute in f32 and round once."""
    (x,) = operands("log10", x)
    check_kind("log10", [x], "floats")
    return cast(multiply(log2(widened(x)), math.log10(2)), x.dtype)


def sin(x: Value) -> Value:
    """Sine of radians; floats."""
    return _unary("Sin", x)


def cos(x: Value) -> Value:
    """Cosine of radians; floats."""
    return _unary("Cos", x)


def tan(x: Value) -> Value:
    """Tangent of radians; floats."""
    return _unary("Tan", x)


def asin(x: Value) -> Value:
    """Arcsine; NaN outside [-1, 1]; floats."""
    return _unary("Asin", x)


def acos(x: Value) -> Value:
    """Arccosine; NaN outside [-1, 1]; floats."""
    return _unary("Acos", x)


def atan(x: Value) -> Value:
    """Arctangent; floats."""
    return _unary("Atan", x)


def sinh(x: Value) -> Value:
    """Hyperbolic sine; floats."""
    return _unary("Sinh", x)


def cosh(x: Value) -> Value:
    """Hyperbolic cosine; floats."""
    return _unary("Cosh", x)


def asinh(x: Value) -> Value:
    """Inverse hyperbolic sine; floats."""
    return _unary("Asinh", x)


def acosh(x: Value) -> Value:
    """Inverse hyperbolic cosine; NaN below 1; floats."""
    return _unary("Acosh", x)


def atanh(x: Value) -> Value:
    """Inverse hyperbolic tangent; NaN outside [-1, 1]; floats."""
    return _unary("Atanh", x)


def log1p(x: Value) -> Value:
    """log(1 + x), also for small `x`; floats."""
    return _unary("Log1p", x)


def expm1(x: Value) -> Value:
    """exp(x) - 1, also for small `x`; floats."""
    return _unary("Expm1", x)


def sqrt(x: Value) -> Value:
    """Square root; floats."""
    return _unary("Sqrt", x)


def reciprocal(x: Value) -> Value:
    """1 / x; floats."""
    return _unary("Recip", x)


def square(x: Value) -> Value:
    """x * x; floats and integers, which wrap."""
    return multiply(x, x)


def tanh(x: Value) -> Value:
    """Hyperbolic tangent; floats."""
    return _unary("Tanh", x)


def erf(x: Value) -> Value:
    """Error function; floats."""
    return _unary("Erf", x)


def floor(x: Value) -> Value:
    """The largest integral value not above `x`; floats."""
    return _unary("Floor", x)


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
    return _unary("Round", x)


def sigmoid(x: Value) -> Value:
    """1 / (1 + exp(-x)); floats."""
    return _unary("Sigmoid", x)


def silu(x: Value) -> Value:
    """x * sigmoid(x); floats."""
    return _unary("Silu", x)


def relu(x: Value) -> Value:
    """max(x, 0); floats and integers."""
    return _unary("Relu", x, "numeric")


def gelu(x: Value, approximate: str = "none") -> Value:
    """Gaussian error linear unit; `approximate` is ``"none"`` or ``"tanh"``. Floats."""
    if approximate not in ("none", "tanh"):
        raise _fail("Gelu", [x], f'approximate={approximate!r} must be "none" or "tanh"')
    return _unary("Gelu", x, approximate=Attr(s=approximate))


def widened(x: Value) -> Value:
    """Returns f16 and bf16 as f32, in which composed functions compute; others unchanged."""
    return cast(x, "f32") if x.dtype in ("f16", "bf16") else x


def cast(x: Value, dtype: str | DType) -> Value:
    """Converts values; integers wrap, float to integer saturates and NaN gives 0."""
    (x,) = operands("Cast", x)
    row = dtype_of(dtype)
    if row == x._dtype:
        return x
    return make("Cast", [x], row, x._shape, dtype=Attr(dtype=row.name))


def bitcast(x: Value, dtype: str | DType) -> Value:
    """The same bits read as another dtype of equal width."""
    (x,) = operands("Bitcast", x)
    row = dtype_of(dtype)
    if "bool" in (row.name, x.dtype) or row.numpy.itemsize != x._dtype.numpy.itemsize:
        raise _fail("Bitcast", [x], f"to {row.name}: the widths must be equal and neither bool; to "
                    f'convert values use .cast("{row.name}")')
    return make("Bitcast", [x], row, x._shape, dtype=Attr(dtype=row.name))


def negative(x: Value) -> Value:
    """-x; floats and integers, which wrap."""
    (x,) = operands("negative", x)
    check_kind("negative", [x], "numeric")
    return _binary("Mul", x, _minus_one(x), "numeric")


def _minus_one(x: Value) -> Value:
    # Times all ones, an unsigned integer wraps to its negative.
    bits = x._dtype.numpy.itemsize * 8
    return scalar_like(x, 2**bits - 1 if x._dtype.kind == "unsigned" else -1)


def absolute(x: Value) -> Value:
    """The magnitude; -0 gives 0. The smallest signed integer wraps to itself."""
    (x,) = operands("absolute", x)
    check_kind("absolute", [x], "numeric")
    if x._dtype.kind == "unsigned":
        return x
    if not _is_float(x):
        return maximum(x, negative(x))
    bits = bitcast(x, f"u{x._dtype.numpy.itemsize * 8}")
    magnitude = (1 << (x._dtype.numpy.itemsize * 8 - 1)) - 1
    return bitcast(_binary("And", bits, magnitude, "logical"), x._dtype)


abs = absolute  # noqa: A001 - numpy has both names


def positive(x: Value) -> Value:
    """`x` itself; floats and integers."""
    (x,) = operands("positive", x)
    check_kind("positive", [x], "numeric")
    return x


def sign(x: Value) -> Value:
    """1, 0 or -1 in the dtype of `x`; NaN stays; floats and integers."""
    (x,) = operands("sign", x)
    check_kind("sign", [x], "numeric")
    above = cast(less(scalar_like(x, 0), x), x.dtype)
    if x._dtype.kind == "unsigned":
        return above
    result = subtract(above, cast(less(x, 0), x.dtype))
    return where(isnan(x), x, result) if _is_float(x) else result


def add(a: Operand, b: Operand) -> Value:
    """a + b; floats and integers, which wrap; for bools use ``|``."""
    return _binary("Add", a, b, "numeric")


def subtract(a: Operand, b: Operand) -> Value:
    """a - b; floats and integers, which wrap."""
    a, b = operands("subtract", a, b)
    same_dtype("subtract", [a, b])
    return add(a, negative(b))


def multiply(a: Operand, b: Operand) -> Value:
    """a * b; floats and integers, which wrap; for bools use ``&``."""
    return _binary("Mul", a, b, "numeric")


def divide(a: Operand, b: Operand) -> Value:
    """a / b; floats. Integers have ``//`` and `trunc_div`."""
    return _binary("Div", a, b, "floats")


def floor_divide(a: Operand, b: Operand) -> Value:
    """Integer quotient rounded towards minus infinity; x // 0 is 0. For floats: floor(a / b)."""
    return _binary("FloorDiv", a, b, "integers")


def trunc_div(a: Operand, b: Operand) -> Value:
    """Integer quotient rounded towards zero; a division by 0 gives 0."""
    return _binary("TruncDiv", a, b, "integers")


def mod(a: Operand, b: Operand) -> Value:
    """Remainder with the sign of the divisor; floats and integers. Of integers by 0: 0."""
    return _binary("Mod", a, b, "numeric")


def power(a: Operand, b: Operand) -> Value:
    """a to the power b; floats. The exponent 2 is a product, as in numpy."""
    if isinstance(a, Value) and isinstance(b, int | float) and b == 2:
        return multiply(a, a)
    return _binary("Pow", a, b, "floats")


def minimum(a: Operand, b: Operand) -> Value:
    """The smaller; NaN if either is NaN; floats, integers and bools."""
    return _binary("Min", a, b, "computing")


def maximum(a: Operand, b: Operand) -> Value:
    """The larger; NaN if either is NaN; floats, integers and bools."""
    return _binary("Max", a, b, "computing")


def clip(x: Value, min: Operand | None = None,  # noqa: A002 - numpy's names
         max: Operand | None = None) -> Value:  # noqa: A002
    """`x` held within [min, max], as numpy.clip: NaN stays, and where min > max the result is max.

    `min` and `max` are of the dtype of `x` and broadcast; None leaves that side open.
    """
    (x,) = operands("clip", x)
    check_kind("clip", [x], "computing")
    if min is not None:
        x = maximum(x, min)
    return x if max is None else minimum(x, max)


def bitwise_and(a: Operand, b: Operand) -> Value:
    """Each bit of both; integers, and bools as truth values."""
    return _binary("And", a, b, "logical")


def bitwise_or(a: Operand, b: Operand) -> Value:
    """Each bit of either; integers, and bools as truth values."""
    return _binary("Or", a, b, "logical")


def bitwise_xor(a: Operand, b: Operand) -> Value:
    """Each bit of one of both; integers, and bools as truth values."""
    return _binary("Xor", a, b, "logical")


def invert(x: Value) -> Value:
    """Every bit flipped; integers, and bools as truth values."""
    return _unary("Not", x, "logical")


def _truth(x: Value) -> Value:
    return cast(x, "bool")


def logical_and(a: Operand, b: Operand) -> Value:
    """Whether both are other than 0, as bool; NaN is. For bools the same as ``&``."""
    a, b = operands("logical_and", a, b)
    return bitwise_and(_truth(a), _truth(b))


def logical_or(a: Operand, b: Operand) -> Value:
    """Whether either is other than 0, as bool; NaN is. For bools the same as ``|``."""
    a, b = operands("logical_or", a, b)
    return bitwise_or(_truth(a), _truth(b))


def logical_xor(a: Operand, b: Operand) -> Value:
    """Whether one of both is other than 0, as bool; NaN is. For bools the same as ``^``."""
    a, b = operands("logical_xor", a, b)
    return bitwise_xor(_truth(a), _truth(b))


def logical_not(x: Value) -> Value:
    """Whether `x` is 0, as bool. For bools the same as ``~``."""
    (x,) = operands("logical_not", x)
    return invert(_truth(x))


def left_shift(a: Operand, b: Operand) -> Value:
    """a shifted left by b bits; zeros come in; integers."""
    return _binary("Shift", a, b, "integers", direction=Attr(s="left"))


def right_shift(a: Operand, b: Operand) -> Value:
    """a shifted right by b bits; the sign comes in for signed dtypes; integers."""
    return _binary("Shift", a, b, "integers", direction=Attr(s="right"))


def less(a: Operand, b: Operand) -> Value:
    """a < b as bool; False beside NaN."""
    nodes = broadcast("LessThan", a, b)
    same_dtype("LessThan", nodes)
    check_kind("LessThan", nodes, "computing")
    return make("LessThan", nodes, "bool", nodes[0]._shape)


def greater(a: Operand, b: Operand) -> Value:
    """a > b as bool; False beside NaN."""
    a, b = operands("greater", a, b)
    return less(b, a)


def _ordered(x: Value) -> Value:
    return bitwise_or(less(x, math.inf), less(-math.inf, x))


def less_equal(a: Operand, b: Operand) -> Value:
    """a <= b as bool; False beside NaN."""
    a, b = broadcast("less_equal", a, b)
    result = invert(less(b, a))
    return bitwise_and(result, _ordered(maximum(a, b))) if _is_float(a) else result


def greater_equal(a: Operand, b: Operand) -> Value:
    """a >= b as bool; False beside NaN."""
    a, b = operands("greater_equal", a, b)
    return less_equal(b, a)


def equal(a: Operand, b: Operand) -> Value:
    """a == b as bool; False beside NaN, and -0 equals 0."""
    a, b = broadcast("equal", a, b)
    result = invert(bitwise_or(less(a, b), less(b, a)))
    return bitwise_and(result, _ordered(maximum(a, b))) if _is_float(a) else result


def not_equal(a: Operand, b: Operand) -> Value:
    """a != b as bool; True beside NaN."""
    return invert(equal(a, b))


def isnan(x: Value) -> Value:
    """Tells per element whether it is NaN, as bool; floats."""
    (x,) = operands("isnan", x)
    check_kind("isnan", [x], "floats")
    return invert(_ordered(x))


def isinf(x: Value) -> Value:
    """Tells per element whether it is infinite, as bool; floats."""
    return bitwise_and(invert(isfinite(x)), _ordered(x))


def isfinite(x: Value) -> Value:
    """Tells per element whether it is neither infinite nor NaN, as bool; floats."""
    (x,) = operands("isfinite", x)
    check_kind("isfinite", [x], "floats")
    return bitwise_and(less(x, math.inf), less(-math.inf, x))


def where(condition: Operand, a: Operand, b: Operand) -> Value:
    """`a` where the bool `condition` holds, else `b`; the value not chosen has no influence."""
    nodes = broadcast("Select", condition, a, b)
    if nodes[0].dtype != "bool":
        raise _fail("Select", nodes, "the condition must be bool; compare, or convert it with "
                    '.cast("bool")')
    dtype = same_dtype("Select", nodes[1:])
    return make("Select", nodes, dtype, nodes[0]._shape)
