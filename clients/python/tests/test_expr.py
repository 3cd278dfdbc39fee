"""Sizes: exact normal forms, divisions, bounds."""

from __future__ import annotations

import itertools
import random

import pytest
from athanor import GraphError, maximum_of, minimum_of
from athanor.expr import Expr, exact_div, expr, floor_div, provably_different

B, S = Expr.symbol("b"), Expr.symbol("s")


def evaluate(e: Expr, env: dict[str, int]) -> int:
    """The value at given sizes, by definition."""
    total = 0
    for monomial, coefficient in e.terms.items():
        term = coefficient
        for atom in monomial:
            if atom.kind == "symbol":
                term *= env[atom.key]
            else:
                a, b = (evaluate(argument, env) for argument in atom.args)
                term *= {"floor_div": lambda a, b: a // b, "min": min, "max": max}[atom.kind](a, b)
        total += term
    return total


def test_equal_values_are_equal_forms() -> None:
    assert (2 * B + 3) * B == 2 * B * B + 3 * B
    assert B - B == 0 and not B - B
    assert (B + S) * (B - S) == B * B - S * S
    assert hash(B + 1) == hash(1 + B)
    assert 5 - B == -(B - 5)
    assert Expr(7).constant == 7 and (B + 1).constant is None
    assert repr(2 * B * S - 3) == "2*b*s - 3" and repr(Expr(0)) == "0" and repr(-B) == "-b"


def test_divisions() -> None:
    assert floor_div(16 * B, expr(16)) == B
    assert floor_div(16 * B + 5, expr(16)) == B
    assert floor_div(B * S + S, S) == B + 1
    assert floor_div((B + 1) * S, B + 1) == S
    assert (B % 1) == 0
    assert floor_div(Expr(-7), expr(2)) == -4
    assert exact_div(B * B - S * S, B + S) == B - S
    assert exact_div(B * B + 1, B + 1) is None
    with pytest.raises(GraphError, match="at least 1"):
        floor_div(B, expr(0))


def test_random_expressions_keep_their_value() -> None:
    """Every operation on random expressions against the numbers."""
    chooser = random.Random(5)
    pool = [(B, lambda e: e["b"]), (S, lambda e: e["s"]), (Expr(3), lambda e: 3),
            (Expr(2), lambda e: 2)]
    environments = [{"b": b, "s": s} for b, s in itertools.product((1, 2, 5), (1, 3, 4))]
    for _ in range(300):
        (x, f), (y, g) = chooser.choice(pool), chooser.choice(pool)
        kind = chooser.choice(["+", "-", "*", "//", "%", "min", "max"])
        if kind in ("//", "%") and any(g(e) < 1 for e in environments):
            continue
        made = {"+": lambda x, y: x + y, "-": lambda x, y: x - y, "*": lambda x, y: x * y,
                "//": lambda x, y: x // y, "%": lambda x, y: x % y, "min": minimum_of,
                "max": maximum_of}[kind](x, y)
        plain = {"+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b,
                 "//": lambda a, b: a // b, "%": lambda a, b: a % b, "min": min, "max": max}[kind]

        def value(e: dict, f=f, g=g, plain=plain) -> int:
            return plain(f(e), g(e))

        for e in environments:
            assert evaluate(made, e) == value(e), (x, kind, y, e)
            low, high = made.bounds({"b": (1, 5), "s": (1, 4)})
            assert low <= value(e) <= high, (made, e)
        if len(repr(made)) < 60:
            pool.append((made, value))


def test_what_is_provably_different() -> None:
    assert provably_different(B, S) and provably_different(B, B + 1)
    assert not provably_different(B, B + 0)
    assert not provably_different(B // 2 * 2, B)  # equal for even b


def test_messages() -> None:
    message = (2 * B * S - 3 + B // 4).proto()
    assert sorted(t.coefficient for t in message.terms) == [-3, 1, 2]
    kinds = {f.WhichOneof("kind") for t in message.terms for f in t.factors}
    assert kinds == {"symbol", "floor_div"}
    factor = minimum_of(B, 4).proto().terms[0].factors[0]
    assert factor.min.a.terms[0].factors[0].symbol == "b"
    assert factor.min.b.terms[0].coefficient == 4
