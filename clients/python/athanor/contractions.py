"""Contractions: products of two operands summed over named axes, and numpy's forms of them.

Floats and integers; f16 and bf16 accumulate in f32. Each raises `athanor.GraphError` with its name,
its operands and what would be right.
"""

from __future__ import annotations

import string
from collections.abc import Sequence

from athanor.core import (
    check_kind,
    check_size,
    fail,
    index_map,
    make,
    operands,
    same_dtype,
)
from athanor.expr import Expr
from athanor.movement import permute
from athanor.reductions import sum as total
from athanor.value import Attr, Operand, Value


def contract(spec: str, a: Operand, b: Operand) -> Value:
    """A contraction of two operands by named axes, as in ``contract("mk,kn->mn", a, b)``.

    A letter that is not in the result is summed; letters in both operands and the result are batch
    axes. Each operand has each letter at most once.

    Raises
    ------
    GraphError
        If letters and axes do not fit, sizes of one letter differ, or dtypes differ.
    """
    nodes = operands("Contract", a, b)
    dtype = same_dtype("Contract", nodes)
    check_kind("Contract", nodes, "numeric")
    parts = spec.replace(" ", "").replace("->", ",").split(",")
    if len(parts) != 3 or "->" not in spec or any(
            len(set(p)) != len(p) or set(p) - set(string.ascii_letters) for p in parts):
        raise fail("Contract", nodes, f'spec {spec!r} must look like "mk,kn->mn", each letter once '
                   "per part")
    sizes: dict[str, Expr] = {}
    for node, letters in zip(nodes, parts[:2], strict=True):
        if len(letters) != node.ndim:
            raise fail("Contract", nodes, f"spec gives {node.name} the axes {letters!r}; it needs "
                       f"one letter per axis, {node.ndim}")
        for letter, size in zip(letters, node._shape, strict=True):
            check_size("Contract", nodes, f"letter {letter}", sizes.setdefault(letter, size), size)
    strange = set(parts[2]) - set(sizes)
    if strange:
        raise fail("Contract", nodes, f"the result's letters {sorted(strange)} are in no operand")
    text = f"{parts[0]},{parts[1]}->{parts[2]}"
    return make("Contract", nodes, dtype, [sizes[c] for c in parts[2]], spec=Attr(s=text))


def matmul(a: Operand, b: Operand) -> Value:
    """The product ``a @ b`` with numpy's rules: vectors, matrices, batches that broadcast.

    ``[..., M, K]`` and ``[..., K, N]`` of one numeric dtype give ``[..., M, N]``.
    """
    nodes = a, b = operands("matmul", a, b)
    if 0 in (a.ndim, b.ndim):
        raise fail("matmul", nodes, "rank 0 cannot be multiplied as a matrix; use *")
    left, right = ("k" if n.ndim == 1 else t for n, t in ((a, "mk"), (b, "kn")))
    lead = [n._shape[:-2] if n.ndim > 2 else () for n in nodes]
    letters = "abcdefghij"[:max(len(shape) for shape in lead)]
    heads = []
    for n, own, shape in ((0, left, lead[0]), (1, right, lead[1])):
        other = lead[1 - n]
        kept = []
        for i in range(len(shape)):
            j = i + len(other) - len(shape)
            # A batch axis of 1 beside a longer one repeats: it is removed, with its letter.
            if not (shape[i] == 1 and j >= 0 and other[j] != 1):
                kept.append(i)
        axes = [*kept, *range(len(shape), nodes[n].ndim)]
        head = "".join(letters[i + len(letters) - len(shape)] for i in kept)
        if len(kept) < len(shape):
            coordinates = [Expr.axis(axes.index(i)) if i in axes else Expr(0)
                           for i in range(nodes[n].ndim)]
            nodes[n] = index_map(nodes[n], [nodes[n]._shape[i] for i in axes], coordinates)
        heads.append(head + own)
    result = letters + left.replace("k", "") + right.replace("k", "")
    return contract(f"{heads[0]},{heads[1]}->{result}", *nodes)


def _labels(nodes: Sequence[Value], spec: str) -> tuple[list[str], str]:
    """Returns the letters of each operand and of the result, the ellipsis written out."""
    heads, arrow, result = spec.replace(" ", "").partition("->")
    parts = heads.split(",")
    if len(parts) != len(nodes):
        raise fail("einsum", nodes, f"spec {spec!r} names {len(parts)} operands, not {len(nodes)}")
    used = set(spec)
    free = "".join(c for c in string.ascii_uppercase + string.ascii_lowercase if c not in used)
    longest = ""
    for i, (node, part) in enumerate(zip(nodes, parts, strict=True)):
        count = node.ndim - len(part.replace("...", ""))
        if count < 0 or (count and "..." not in part):
            raise fail("einsum", nodes, f"spec gives {node.name} the axes {part!r}; it needs one "
                       f"letter per axis, {node.ndim}, or an ellipsis")
        batch = free[:count][::-1]  # aligned at the last axis
        longest = max(longest, batch, key=len)
        parts[i] = part.replace("...", batch)
    if not arrow:
        letters = "".join(parts)
        once = sorted(c for c in set(letters) if letters.count(c) == 1 and c not in longest)
        return parts, longest + "".join(once)
    return parts, result.replace("...", longest)


def einsum(spec: str, *values: Operand) -> Value:
    """numpy.einsum: a sum of products over named axes, of one operand or several.

    Parameters
    ----------
    spec : str
        As in ``"bij,bjk->bik"``. A letter twice in one operand is its diagonal; ``...`` stands for
        axes that broadcast; without ``->`` the result has the letters that occur once, sorted.
    values : Value or array
        Numeric, of one dtype; several are contracted two at a time from the left.

    Raises
    ------
    GraphError
        If letters and axes do not fit, sizes of one letter differ, or dtypes differ.
    """
    nodes = operands("einsum", *values)
    same_dtype("einsum", nodes)
    check_kind("einsum", nodes, "numeric")
    parts, result = _labels(nodes, spec)
    sizes: dict[str, Expr] = {}
    for node, part in zip(nodes, parts, strict=True):
        for letter, size in zip(part, node._shape, strict=True):
            if sizes.get(letter, Expr(1)) == 1:
                sizes[letter] = size
            elif size != 1:
                check_size("einsum", nodes, f"letter {letter}", sizes[letter], size)
    wrong = [c for c in "".join(parts) if c not in string.ascii_letters]
    if wrong or len(set(result)) != len(result) or set(result) - set(sizes):
        raise fail("einsum", nodes, f'spec {spec!r} must look like "ij,jk->ik": letters, and each '
                   "letter of the result once and in an operand")
    done, first = _own_axes(nodes[0], parts[0], sizes)
    for i in range(1, len(nodes)):
        other, second = _own_axes(nodes[i], parts[i], sizes)
        later = result + "".join(parts[i + 1:])
        kept = result if i == len(nodes) - 1 else "".join(
            c for c in dict.fromkeys(first + second) if c in later)
        done, first = contract(f"{first},{second}->{kept}", done, other), kept
    done = total(done, [i for i, c in enumerate(first) if c not in result])
    first = "".join(c for c in first if c in result)
    return permute(done, [first.index(c) for c in result])


def _own_axes(node: Value, part: str, sizes: dict[str, Expr]) -> tuple[Value, str]:
    """Takes diagonals of repeated letters, and removes axes of 1 that broadcast."""
    letters = "".join(c for c in dict.fromkeys(part)
                      if any(s != 1 for s, d in zip(node._shape, part, strict=True) if d == c)
                      or sizes[c] == 1)
    coordinates = [Expr(0) if size == 1 or c not in letters else Expr.axis(letters.index(c))
                   for c, size in zip(part, node._shape, strict=True)]
    return index_map(node, [sizes[c] for c in letters], coordinates), letters
