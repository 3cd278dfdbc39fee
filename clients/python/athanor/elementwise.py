"""Operations element by element. Operands are broadcast as in numpy; dtypes must be equal.

Names follow numpy. Functions that the op table lacks are composed of its ops, exactly, also for
NaN, infinities and wrapping integers.
"""

from __future__ import annotations

import math

from athanor.core import (
    Attr,
    Node,
    add,
    broadcast,
    check_kind,
    operands,
    same_dtype,
    scalar_like,
)
from athanor.core import fail as _fail
from athanor.dtypes import DType, dtype_of


def _unary(op: str, x: Node, kind: str = "floats", **attrs: Attr) -> Node:
    (x,) = operands(op, x)
    check_kind(op, [x], kind)
    return add(op, [x], x._dtype, x._shape, **attrs)


def _binary(op: str, a: object, b: object, kind: str, **attrs: Attr) -> Node:
    nodes = broadcast(op, a, b)
    dtype = same_dtype(op, nodes)
    check_kind(op, nodes, kind)
    return add(op, nodes, dtype, nodes[0]._shape, **attrs)


def _is_float(x: Node) -> bool:
    return x._dtype.kind == "float"


def exp(x: Node) -> Node:
    """e to the power of `x`; floats."""
    return _unary("Exp", x)


def exp2(x: Node) -> Node:
    """2 to the power of `x`; floats."""
    return _unary("Exp2", x)


def log(x: Node) -> Node:
    """Natural logarithm; floats."""
    return _unary("Log", x)


def log2(x: Node) -> Node:
    """Logarithm to base 2; floats."""
    return _unary("Log2", x)


def sin(x: Node) -> Node:
    """Sine of radians; floats."""
    return _unary("Sin", x)


def cos(x: Node) -> Node:
    """Cosine of radians; floats."""
    return _unary("Cos", x)


def tan(x: Node) -> Node:
    """Tangent of radians; floats."""
    return _unary("Tan", x)


def asin(x: Node) -> Node:
    """Arcsine; NaN outside [-1, 1]; floats."""
    return _unary("Asin", x)


def acos(x: Node) -> Node:
    """Arccosine; NaN outside [-1, 1]; floats."""
    return _unary("Acos", x)


def atan(x: Node) -> Node:
    """Arctangent; floats."""
    return _unary("Atan", x)


def sinh(x: Node) -> Node:
    """Hyperbolic sine; floats."""
    return _unary("Sinh", x)


def cosh(x: Node) -> Node:
    """Hyperbolic cosine; floats."""
    return _unary("Cosh", x)


def asinh(x: Node) -> Node:
    """Inverse hyperbolic sine; floats."""
    return _unary("Asinh", x)


def acosh(x: Node) -> Node:
    """Inverse hyperbolic cosine; NaN below 1; floats."""
    return _unary("Acosh", x)


def atanh(x: Node) -> Node:
    """Inverse hyperbolic tangent; NaN outside [-1, 1]; floats."""
    return _unary("Atanh", x)


def log1p(x: Node) -> Node:
    """log(1 + x), also for small `x`; floats."""
    return _unary("Log1p", x)


def expm1(x: Node) -> Node:
    """exp(x) - 1, also for small `x`; floats."""
    return _unary("Expm1", x)


def sqrt(x: Node) -> Node:
    """Square root; floats."""
    return _unary("Sqrt", x)


def recip(x: Node) -> Node:
    """1 / x; floats."""
    return _unary("Recip", x)


def tanh(x: Node) -> Node:
    """Hyperbolic tangent; floats."""
    return _unary("Tanh", x)


def erf(x: Node) -> Node:
    """Error function; floats."""
    return _unary("Erf", x)


def floor(x: Node) -> Node:
    """The largest integral value not above `x`; floats."""
    return _unary("Floor", x)


def round(x: Node) -> Node:  # noqa: A001 - numpy's name
    """The nearest integral value, ties to even; floats."""
    return _unary("Round", x)


def sigmoid(x: Node) -> Node:
    """1 / (1 + exp(-x)); floats."""
    return _unary("Sigmoid", x)


def silu(x: Node) -> Node:
    """x * sigmoid(x); floats."""
    return _unary("Silu", x)


def relu(x: Node) -> Node:
    """max(x, 0); floats and integers."""
    return _unary("Relu", x, "numeric")


def gelu(x: Node, approximate: str = "none") -> Node:
    """Gaussian error linear unit; `approximate` is ``"none"`` or ``"tanh"``. Floats."""
    if approximate not in ("none", "tanh"):
        raise _fail("Gelu", [x], f'approximate={approximate!r} must be "none" or "tanh"')
    return _unary("Gelu", x, approximate=Attr(s=approximate))


def cast(x: Node, dtype: str | DType) -> Node:
    """Converts values; integers wrap, float to integer saturates and NaN gives 0."""
    (x,) = operands("Cast", x)
    row = dtype_of(dtype)
    if row == x._dtype:
        return x
    return add("Cast", [x], row, x._shape, dtype=Attr(dtype=row.name))


def bitcast(x: Node, dtype: str | DType) -> Node:
    """The same bits read as another dtype of equal width."""
    (x,) = operands("Bitcast", x)
    row = dtype_of(dtype)
    if "bool" in (row.name, x.dtype) or row.numpy.itemsize != x._dtype.numpy.itemsize:
        raise _fail("Bitcast", [x], f"to {row.name}: the widths must be equal and neither bool; to "
                    f'convert values use .cast("{row.name}")')
    return add("Bitcast", [x], row, x._shape, dtype=Attr(dtype=row.name))


def negative(x: Node) -> Node:
    """-x; floats and integers, which wrap."""
    (x,) = operands("negative", x)
    check_kind("negative", [x], "numeric")
    return _binary("Mul", x, _minus_one(x), "numeric")


def _minus_one(x: Node) -> Node:
    # Times all ones, an unsigned integer wraps to its negative.
    bits = x._dtype.numpy.itemsize * 8
    return scalar_like(x, 2**bits - 1 if x._dtype.kind == "unsigned" else -1)


def absolute(x: Node) -> Node:
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


def plus(a: object, b: object) -> Node:
    """a + b; for bools use ``|``."""
    return _binary("Add", a, b, "numeric")


def subtract(a: object, b: object) -> Node:
    """a - b."""
    a, b = operands("subtract", a, b)
    same_dtype("subtract", [a, b])
    return plus(a, negative(b))


def multiply(a: object, b: object) -> Node:
    """a * b; for bools use ``&``."""
    return _binary("Mul", a, b, "numeric")


def divide(a: object, b: object) -> Node:
    """a / b; floats. Integers have ``//`` and `trunc_div`."""
    return _binary("Div", a, b, "floats")


def floor_divide(a: object, b: object) -> Node:
    """Integer quotient rounded towards minus infinity; x // 0 is 0. For floats: floor(a / b)."""
    return _binary("FloorDiv", a, b, "integers")


def trunc_div(a: object, b: object) -> Node:
    """Integer quotient rounded towards zero; a division by 0 gives 0."""
    return _binary("TruncDiv", a, b, "integers")


def mod(a: object, b: object) -> Node:
    """Remainder with the sign of the divisor."""
    return _binary("Mod", a, b, "numeric")


def power(a: object, b: object) -> Node:
    """a to the power b; floats. The exponent 2 is a product, as in numpy."""
    if isinstance(a, Node) and isinstance(b, int | float) and b == 2:
        return multiply(a, a)
    return _binary("Pow", a, b, "floats")


def minimum(a: object, b: object) -> Node:
    """The smaller; NaN if either is NaN."""
    return _binary("Min", a, b, "computing")


def maximum(a: object, b: object) -> Node:
    """The larger; NaN if either is NaN."""
    return _binary("Max", a, b, "computing")


def bitwise_and(a: object, b: object) -> Node:
    """Bit by bit; logical for bools."""
    return _binary("And", a, b, "logical")


def bitwise_or(a: object, b: object) -> Node:
    """Bit by bit; logical for bools."""
    return _binary("Or", a, b, "logical")


def bitwise_xor(a: object, b: object) -> Node:
    """Bit by bit; logical for bools."""
    return _binary("Xor", a, b, "logical")


def invert(x: Node) -> Node:
    """Every bit flipped; logical for bools."""
    return _unary("Not", x, "logical")


def left_shift(a: object, b: object) -> Node:
    """a shifted left by b bits; zeros come in."""
    return _binary("Shift", a, b, "integers", direction=Attr(s="left"))


def right_shift(a: object, b: object) -> Node:
    """a shifted right by b bits; the sign comes in for signed dtypes."""
    return _binary("Shift", a, b, "integers", direction=Attr(s="right"))


def less(a: object, b: object) -> Node:
    """a < b as bool; False beside NaN."""
    nodes = broadcast("LessThan", a, b)
    same_dtype("LessThan", nodes)
    check_kind("LessThan", nodes, "computing")
    return add("LessThan", nodes, "bool", nodes[0]._shape)


def greater(a: object, b: object) -> Node:
    """a > b as bool; False beside NaN."""
    a, b = operands("greater", a, b)
    return less(b, a)


def _ordered(x: Node) -> Node:
    return bitwise_or(less(x, math.inf), less(-math.inf, x))


def less_equal(a: object, b: object) -> Node:
    """a <= b as bool; False beside NaN."""
    a, b = broadcast("less_equal", a, b)
    result = invert(less(b, a))
    return bitwise_and(result, _ordered(maximum(a, b))) if _is_float(a) else result


def greater_equal(a: object, b: object) -> Node:
    """a >= b as bool; False beside NaN."""
    a, b = operands("greater_equal", a, b)
    return less_equal(b, a)


def equal(a: object, b: object) -> Node:
    """a == b as bool; False beside NaN, and -0 equals 0."""
    a, b = broadcast("equal", a, b)
    result = invert(bitwise_or(less(a, b), less(b, a)))
    return bitwise_and(result, _ordered(maximum(a, b))) if _is_float(a) else result


def not_equal(a: object, b: object) -> Node:
    """a != b as bool; True beside NaN."""
    return invert(equal(a, b))


def isnan(x: Node) -> Node:
    """Tells per element whether it is NaN, as bool; floats."""
    (x,) = operands("isnan", x)
    check_kind("isnan", [x], "floats")
    return invert(_ordered(x))


def where(condition: Node, a: object, b: object) -> Node:
    """`a` where the bool `condition` holds, else `b`; the value not chosen has no influence."""
    nodes = broadcast("Select", condition, a, b)
    if nodes[0].dtype != "bool":
        raise _fail("Select", nodes, "the condition must be bool; compare, or convert it with "
                    '.cast("bool")')
    dtype = same_dtype("Select", nodes[1:])
    return add("Select", nodes, dtype, nodes[0]._shape)
