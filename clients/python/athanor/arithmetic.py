"""Arithmetic element by element, and conversions between dtypes.

Operands are broadcast as in numpy; dtypes must be equal. Each raises `athanor.GraphError` with its
name, its operands and what would be right: for a dtype that it does not take, dtypes or sizes that
differ.
"""

from __future__ import annotations

from athanor.core import (
    binary,
    check_kind,
    fail,
    is_float,
    make,
    operands,
    same_dtype,
    scalar_like,
    unary,
)
from athanor.dtypes import DType, dtype_of
from athanor.value import Attr, Operand, Value


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
        raise fail("Bitcast", [x], f"to {row.name}: the widths must be equal and neither bool; to "
                    f'convert values use .cast("{row.name}")')
    return make("Bitcast", [x], row, x._shape, dtype=Attr(dtype=row.name))


def positive(x: Value) -> Value:
    """`x` itself; floats and integers."""
    (x,) = operands("positive", x)
    check_kind("positive", [x], "numeric")
    return x


def negative(x: Value) -> Value:
    """-x; floats and integers, which wrap."""
    (x,) = operands("negative", x)
    check_kind("negative", [x], "numeric")
    return binary("Mul", x, _minus_one(x), "numeric")


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
    if not is_float(x):
        return maximum(x, negative(x))
    bits = bitcast(x, f"u{x._dtype.numpy.itemsize * 8}")
    magnitude = (1 << (x._dtype.numpy.itemsize * 8 - 1)) - 1
    return bitcast(binary("And", bits, magnitude, "logical"), x._dtype)


abs = absolute  # noqa: A001 - numpy has both names


def add(a: Operand, b: Operand) -> Value:
    """a + b; floats and integers, which wrap; for bools use ``|``."""
    return binary("Add", a, b, "numeric")


def subtract(a: Operand, b: Operand) -> Value:
    """a - b; floats and integers, which wrap."""
    a, b = operands("subtract", a, b)
    same_dtype("subtract", [a, b])
    return add(a, negative(b))


def multiply(a: Operand, b: Operand) -> Value:
    """a * b; floats and integers, which wrap; for bools use ``&``."""
    return binary("Mul", a, b, "numeric")


def square(x: Value) -> Value:
    """x * x; floats and integers, which wrap."""
    return multiply(x, x)


def reciprocal(x: Value) -> Value:
    """1 / x; floats."""
    return unary("Recip", x)


def divide(a: Operand, b: Operand) -> Value:
    """a / b; floats. Integers have ``//`` and `trunc_div`."""
    return binary("Div", a, b, "floats")


def floor_divide(a: Operand, b: Operand) -> Value:
    """Integer quotient rounded towards minus infinity; x // 0 is 0. For floats: floor(a / b)."""
    return binary("FloorDiv", a, b, "integers")


def trunc_div(a: Operand, b: Operand) -> Value:
    """Integer quotient rounded towards zero; a division by 0 gives 0."""
    return binary("TruncDiv", a, b, "integers")


def mod(a: Operand, b: Operand) -> Value:
    """Remainder with the sign of the divisor; floats and integers. Of integers by 0: 0."""
    return binary("Mod", a, b, "numeric")


def power(a: Operand, b: Operand) -> Value:
    """a to the power b; floats. The exponent 2 is a product, as in numpy."""
    if isinstance(a, Value) and isinstance(b, int | float) and b == 2:
        return multiply(a, a)
    return binary("Pow", a, b, "floats")


def minimum(a: Operand, b: Operand) -> Value:
    """The smaller; NaN if either is NaN; floats, integers and bools."""
    return binary("Min", a, b, "computing")


def maximum(a: Operand, b: Operand) -> Value:
    """The larger; NaN if either is NaN; floats, integers and bools."""
    return binary("Max", a, b, "computing")


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
