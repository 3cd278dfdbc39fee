"""Value: the type that users compute with. Every operator calls a function of the modules below."""

from __future__ import annotations

from collections.abc import Sequence

from athanor import elementwise, movement, reductions
from athanor.core import Node, Size
from athanor.dtypes import DType


class Value(Node):
    """The result of an op in a `Graph`; combines with other values, numbers and arrays.

    Operands are broadcast as in numpy. Dtypes are never converted silently: use `cast`. Comparison
    operators give bool values, so values are compared by identity only in sets and dicts.
    """

    __hash__ = object.__hash__

    def __bool__(self) -> bool:
        raise TypeError(f"{self!r} has no value while the graph is built; use athanor.where")

    def __len__(self) -> int:
        raise TypeError(f"{self!r} has no length of its own; use .shape")

    def __iter__(self) -> None:
        raise TypeError(f"{self!r} cannot be iterated; index it")

    def __add__(self, other: object) -> Value:
        return elementwise.plus(self, other)

    def __radd__(self, other: object) -> Value:
        return elementwise.plus(other, self)

    def __sub__(self, other: object) -> Value:
        return elementwise.subtract(self, other)

    def __rsub__(self, other: object) -> Value:
        return elementwise.subtract(other, self)

    def __mul__(self, other: object) -> Value:
        return elementwise.multiply(self, other)

    def __rmul__(self, other: object) -> Value:
        return elementwise.multiply(other, self)

    def __truediv__(self, other: object) -> Value:
        return elementwise.divide(self, other)

    def __rtruediv__(self, other: object) -> Value:
        return elementwise.divide(other, self)

    def __floordiv__(self, other: object) -> Value:
        return elementwise.floor_divide(self, other)

    def __rfloordiv__(self, other: object) -> Value:
        return elementwise.floor_divide(other, self)

    def __mod__(self, other: object) -> Value:
        return elementwise.mod(self, other)

    def __rmod__(self, other: object) -> Value:
        return elementwise.mod(other, self)

    def __pow__(self, other: object) -> Value:
        return elementwise.power(self, other)

    def __rpow__(self, other: object) -> Value:
        return elementwise.power(other, self)

    def __matmul__(self, other: object) -> Value:
        return reductions.matmul(self, other)

    def __rmatmul__(self, other: object) -> Value:
        return reductions.matmul(other, self)

    def __and__(self, other: object) -> Value:
        return elementwise.bitwise_and(self, other)

    def __rand__(self, other: object) -> Value:
        return elementwise.bitwise_and(other, self)

    def __or__(self, other: object) -> Value:
        return elementwise.bitwise_or(self, other)

    def __ror__(self, other: object) -> Value:
        return elementwise.bitwise_or(other, self)

    def __xor__(self, other: object) -> Value:
        return elementwise.bitwise_xor(self, other)

    def __rxor__(self, other: object) -> Value:
        return elementwise.bitwise_xor(other, self)

    def __lshift__(self, other: object) -> Value:
        return elementwise.left_shift(self, other)

    def __rlshift__(self, other: object) -> Value:
        return elementwise.left_shift(other, self)

    def __rshift__(self, other: object) -> Value:
        return elementwise.right_shift(self, other)

    def __rrshift__(self, other: object) -> Value:
        return elementwise.right_shift(other, self)

    def __invert__(self) -> Value:
        return elementwise.invert(self)

    def __neg__(self) -> Value:
        return elementwise.negative(self)

    def __pos__(self) -> Value:
        return self

    def __abs__(self) -> Value:
        return elementwise.absolute(self)

    def __lt__(self, other: object) -> Value:
        return elementwise.less(self, other)

    def __le__(self, other: object) -> Value:
        return elementwise.less_equal(self, other)

    def __gt__(self, other: object) -> Value:
        return elementwise.greater(self, other)

    def __ge__(self, other: object) -> Value:
        return elementwise.greater_equal(self, other)

    def __eq__(self, other: object) -> Value:  # type: ignore[override]
        return elementwise.equal(self, other)

    def __ne__(self, other: object) -> Value:  # type: ignore[override]
        return elementwise.not_equal(self, other)

    def __getitem__(self, key: object) -> Value:
        return movement.index(self, key)

    def cast(self, dtype: str | DType) -> Value:
        """Converts values to another dtype."""
        return elementwise.cast(self, dtype)

    astype = cast

    def bitcast(self, dtype: str | DType) -> Value:
        """Reads the same bits as another dtype of equal width."""
        return elementwise.bitcast(self, dtype)

    def reshape(self, *shape: Size | Sequence[Size]) -> Value:
        """Gives another shape with the same elements; one size may be -1."""
        return movement.reshape(self, _listed(shape))

    def flatten(self, start: int = 0) -> Value:
        """Merges the axes from `start` on into one."""
        return movement.flatten(self, start)

    def squeeze(self, axes: int | Sequence[int] | None = None) -> Value:
        """Removes axes of size 1."""
        return movement.squeeze(self, axes)

    def unsqueeze(self, axis: int) -> Value:
        """Adds an axis of size 1."""
        return movement.unsqueeze(self, axis)

    def transpose(self, *axes: int | Sequence[int]) -> Value:
        """Reorders the axes; without `axes` reverses them."""
        return movement.transpose(self, _listed(axes) if axes else None)

    @property
    def T(self) -> Value:  # noqa: N802 - numpy's name
        """All axes reversed."""
        return movement.transpose(self)

    def permute(self, *axes: int | Sequence[int]) -> Value:
        """Reorders the axes: axis i of the result is axis ``axes[i]``."""
        return movement.permute(self, _listed(axes))

    def expand(self, *shape: Size | Sequence[Size]) -> Value:
        """Repeats axes of size 1 and adds leading axes."""
        return movement.expand(self, _listed(shape))

    def sum(self, axes: reductions.Axes = None, keepdims: bool = False) -> Value:
        """The sum over `axes`, or all."""
        return reductions.sum(self, axes, keepdims)

    def max(self, axes: reductions.Axes = None, keepdims: bool = False) -> Value:
        """The maximum over `axes`, or all."""
        return reductions.max(self, axes, keepdims)

    def min(self, axes: reductions.Axes = None, keepdims: bool = False) -> Value:
        """The minimum over `axes`, or all."""
        return reductions.min(self, axes, keepdims)

    def mean(self, axes: reductions.Axes = None, keepdims: bool = False) -> Value:
        """The mean over `axes`, or all."""
        return reductions.mean(self, axes, keepdims)


def _listed(arguments: tuple) -> Sequence:
    """Accepts both ``f(2, 3)`` and ``f((2, 3))``."""
    if len(arguments) == 1 and isinstance(arguments[0], Sequence) and not isinstance(
            arguments[0], str):
        return arguments[0]
    return arguments
