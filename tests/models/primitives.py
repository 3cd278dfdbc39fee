"""Composite ops as a user writes them in primitives, for models that exist in both forms."""

from __future__ import annotations

import athanor


def contract(spec: str, a: athanor.Value, b: athanor.Value) -> athanor.Value:
    """``athanor.contract(spec, a, b)`` as a product over all axes and a sum over the joint ones."""
    left, right, result = spec.replace("->", ",").split(",")
    summed = "".join(c for c in left if c not in result)
    joint = result + summed
    sizes = dict(zip(left + right, a.shape + b.shape, strict=True))
    operands = []
    for value, own in ((a, left), (b, right)):
        order = sorted(range(len(own)), key=lambda i, own=own: joint.index(own[i]))
        shape = [sizes[c] if c in own else 1 for c in joint]
        operands.append(value.permute(order).reshape(shape).expand([sizes[c] for c in joint]))
    axes = list(range(len(result), len(joint)))
    return athanor.sum(operands[0] * operands[1], axes)


def linear(x: athanor.Value, weight: athanor.Value, bias: athanor.Value,
           composite: bool) -> athanor.Value:
    """``x @ weight + bias``: x [b, i], weight [i, o], bias [o]."""
    product = athanor.contract if composite else contract
    return product("bi,io->bo", x, weight) + bias
