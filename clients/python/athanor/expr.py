"""Sizes and coordinates: exact integer polynomials over dims and axes.

    b = Expr.symbol("b")
    (2 * b + 3) * b == 2 * b * b + 3 * b        # normal form: equal values compare equal
    floor_div(16 * b, 16) == b

Atoms are symbols, floor divisions, minima and maxima, as in the server's own form, which also knows
bounds and simplifies further.
"""

from __future__ import annotations

import dataclasses
import numbers
import operator
from collections.abc import Iterable, Mapping
from typing import SupportsIndex

from athanor.errors import GraphError
from athanor.protos import graph_pb2


@dataclasses.dataclass(frozen=True, order=True)
class Atom:
    """An indivisible factor; `key` is its text, its order and its identity."""

    key: str
    kind: str = dataclasses.field(compare=False)
    args: tuple[Expr, ...] = dataclasses.field(default=(), compare=False)


Monomial = tuple[Atom, ...]


class Expr:
    """An immutable integer expression; combines with ``+ - * //`` and other expressions or ints."""

    __slots__ = ("terms",)

    def __init__(self, terms: Mapping[Monomial, int] | int = 0) -> None:
        if not isinstance(terms, Mapping):
            terms = {(): operator.index(terms)}
        self.terms: dict[Monomial, int] = {m: terms[m] for m in sorted(terms) if terms[m]}

    @staticmethod
    def symbol(name: str) -> Expr:
        """A dim by name."""
        return Expr({(Atom(name, "symbol"),): 1})

    @staticmethod
    def axis(i: int) -> Expr:
        """The coordinate of result axis `i` inside an index map."""
        return Expr.symbol(f"${i}")

    @property
    def constant(self) -> int | None:
        """Returns the value if the expression has no symbol, else None."""
        if not self.terms:
            return 0
        return self.terms.get(()) if len(self.terms) == 1 else None

    @property
    def is_polynomial(self) -> bool:
        """Reports whether all atoms are symbols; then different forms are different functions."""
        return all(atom.kind == "symbol" for monomial in self.terms for atom in monomial)

    def symbols(self) -> set[str]:
        """Returns all its symbols."""
        found: set[str] = set()
        for monomial in self.terms:
            for atom in monomial:
                if atom.kind == "symbol":
                    found.add(atom.key)
                for argument in atom.args:
                    found |= argument.symbols()
        return found

    def __add__(self, other: Expr | int) -> Expr:
        if not isinstance(other, Expr | numbers.Integral):
            return NotImplemented
        total = dict(self.terms)
        for monomial, coefficient in expr(other).terms.items():
            total[monomial] = total.get(monomial, 0) + coefficient
        return Expr(total)

    __radd__ = __add__

    def __neg__(self) -> Expr:
        return Expr({m: -c for m, c in self.terms.items()})

    def __sub__(self, other: Expr | int) -> Expr:
        return self + -expr(other) if isinstance(other, Expr | numbers.Integral) else NotImplemented

    def __rsub__(self, other: int) -> Expr:
        return expr(other) + -self

    def __mul__(self, other: Expr | int) -> Expr:
        if not isinstance(other, Expr | numbers.Integral):
            return NotImplemented
        total: dict[Monomial, int] = {}
        for m, c in self.terms.items():
            for n, d in expr(other).terms.items():
                product = tuple(sorted(m + n))
                total[product] = total.get(product, 0) + c * d
        return Expr(total)

    __rmul__ = __mul__

    def __floordiv__(self, other: Expr | int) -> Expr:
        return floor_div(self, expr(other))

    def __mod__(self, other: Expr | int) -> Expr:
        return self - floor_div(self, expr(other)) * other

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Expr | numbers.Integral) and self.terms == expr(other).terms

    def __hash__(self) -> int:
        return hash(tuple(self.terms.items()))

    def __bool__(self) -> bool:
        return bool(self.terms)

    def __repr__(self) -> str:
        text = ""
        for monomial, coefficient in reversed(self.terms.items()):
            sign = "-" if coefficient < 0 else "+" if text else ""
            text += f" {sign} " if text else sign
            names = [atom.key for atom in monomial]
            if abs(coefficient) != 1 or not names:
                names.insert(0, str(abs(coefficient)))
            text += "*".join(names)
        return text or "0"

    def bounds(self, dims: Mapping[str, tuple[int, int]]) -> tuple[int, int]:
        """Returns a lower and an upper bound of its value, for dims inside their bounds."""
        low = high = 0
        for monomial, coefficient in self.terms.items():
            a, b = coefficient, coefficient
            for atom in monomial:
                c, d = _atom_bounds(atom, dims)
                corners = (a * c, a * d, b * c, b * d)
                a, b = min(corners), max(corners)
            low, high = low + a, high + b
        return low, high

    def proto(self) -> graph_pb2.SizeExpr:
        """The message."""
        message = graph_pb2.SizeExpr()
        for monomial, coefficient in self.terms.items():
            term = message.terms.add(coefficient=coefficient)
            for atom in monomial:
                factor = term.factors.add()
                if atom.kind == "symbol":
                    factor.symbol = atom.key
                else:
                    pair = getattr(factor, atom.kind)
                    pair.a.CopyFrom(atom.args[0].proto())
                    pair.b.CopyFrom(atom.args[1].proto())
        return message


def expr(value: Expr | SupportsIndex) -> Expr:
    """Converts an integer to an expression."""
    return value if isinstance(value, Expr) else Expr(int(value))


def _atom_bounds(atom: Atom, dims: Mapping[str, tuple[int, int]]) -> tuple[int, int]:
    if atom.kind == "symbol":
        return dims[atom.key]
    (a, b), (c, d) = (argument.bounds(dims) for argument in atom.args)
    if atom.kind == "min":
        return min(a, c), min(b, d)
    if atom.kind == "max":
        return max(a, c), max(b, d)
    c, d = max(c, 1), max(d, 1)
    corners = (a // c, a // d, b // c, b // d)
    return min(corners), max(corners)


def _divide_monomial(a: Monomial, b: Monomial) -> Monomial | None:
    rest = list(a)
    for atom in b:
        if atom not in rest:
            return None
        rest.remove(atom)
    return tuple(rest)


def exact_div(a: Expr, b: Expr) -> Expr | None:
    """Returns the `q` with ``q * b == a`` as polynomials; None if there is none."""
    if not b:
        return None
    lead = max(b.terms, key=lambda m: (len(m), m))
    quotient, rest = Expr(0), a
    while rest:
        top = max(rest.terms, key=lambda m: (len(m), m))
        monomial = _divide_monomial(top, lead)
        if monomial is None or rest.terms[top] % b.terms[lead]:
            return None
        step = Expr({monomial: rest.terms[top] // b.terms[lead]})
        quotient, rest = quotient + step, rest - step * b
    return quotient


def floor_div(a: Expr, b: Expr) -> Expr:
    """``a // b``, rounded towards minus infinity, for b >= 1."""
    if b.constant is not None and b.constant < 1:
        raise GraphError(f"division of the size {a} by {b}; the divisor must be at least 1")
    if b == 1:
        return a
    if a.constant is not None and b.constant is not None:
        return Expr(a.constant // b.constant)
    # Moves whole multiples of a single-term divisor out of the floor.
    quotient, rest = Expr(0), Expr(0)
    for monomial, coefficient in a.terms.items():
        term = Expr({monomial: coefficient})
        part = exact_div(term, b) if len(b.terms) == 1 else None
        quotient, rest = (quotient, rest + term) if part is None else (quotient + part, rest)
    if not rest:
        return quotient
    whole = exact_div(rest, b)
    if whole is not None:
        return quotient + whole
    if rest.constant is not None and b.constant is not None:
        return quotient + rest.constant // b.constant
    return quotient + Expr({(Atom(f"floordiv({rest}, {b})", "floor_div", (rest, b)),): 1})


def _extremum(kind: str, a: Expr, b: Expr) -> Expr:
    difference = (a - b).constant
    if difference is not None:
        return a if (difference <= 0) == (kind == "min") else b
    return Expr({(Atom(f"{kind}({a}, {b})", kind, (a, b)),): 1})


def minimum_of(a: Expr | int, b: Expr | int) -> Expr:
    """The smaller of two sizes."""
    return _extremum("min", expr(a), expr(b))


def maximum_of(a: Expr | int, b: Expr | int) -> Expr:
    """The larger of two sizes."""
    return _extremum("max", expr(a), expr(b))


def product(sizes: Iterable[Expr]) -> Expr:
    """The product of sizes; 1 of none."""
    total = Expr(1)
    for size in sizes:
        total = total * size
    return total


def provably_different(a: Expr, b: Expr) -> bool:
    """Reports whether the two are different functions; False if that is not known."""
    difference = a - b
    return bool(difference) and difference.is_polynomial
