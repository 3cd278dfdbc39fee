"""Bits, truth, comparisons and choices, element by element.

Operands are broadcast as in numpy; dtypes must be equal. Each raises `athanor.GraphError` with its
name, its operands and what would be right: for a dtype that it does not take, dtypes or sizes that
differ.
"""

from __future__ import annotations

import math

from athanor.arithmetic import cast, maximum
from athanor.core import (
    binary,
    broadcast,
    check_kind,
    fail,
    is_float,
    make,
    operands,
    same_dtype,
    unary,
)
from athanor.value import Attr, Operand, Value


def bitwise_and(a: Operand, b: Operand) -> Value:
    """Each bit of both; integers, and bools as truth values."""
    return binary("And", a, b, "logical")


def bitwise_or(a: Operand, b: Operand) -> Value:
    """Each bit of either; integers, and bools as truth values."""
    return binary("Or", a, b, "logical")


def bitwise_xor(a: Operand, b: Operand) -> Value:
    """Each bit of one of both; integers, and bools as truth values."""
    return binary("Xor", a, b, "logical")


def invert(x: Value) -> Value:
    """Every bit flipped; integers, and bools as truth values."""
    return unary("Not", x, "logical")


def left_shift(a: Operand, b: Operand) -> Value:
    """a shifted left by b bits; zeros come in; integers."""
    return binary("Shift", a, b, "integers", direction=Attr(s="left"))


def right_shift(a: Operand, b: Operand) -> Value:
    """a shifted right by b bits; the sign comes in for signed dtypes; integers."""
    return binary("Shift", a, b, "integers", direction=Attr(s="right"))


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
    return bitwise_and(result, _ordered(maximum(a, b))) if is_float(a) else result


def greater_equal(a: Operand, b: Operand) -> Value:
    """a >= b as bool; False beside NaN."""
    a, b = operands("greater_equal", a, b)
    return less_equal(b, a)


def equal(a: Operand, b: Operand) -> Value:
    """a == b as bool; False beside NaN, and -0 equals 0."""
    a, b = broadcast("equal", a, b)
    result = invert(bitwise_or(less(a, b), less(b, a)))
    return bitwise_and(result, _ordered(maximum(a, b))) if is_float(a) else result


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
        raise fail("Select", nodes, "the condition must be bool; compare, or convert it with "
                    '.cast("bool")')
    dtype = same_dtype("Select", nodes[1:])
    return make("Select", nodes, dtype, nodes[0]._shape)
