"""Reductions over axes, contractions, norms, attention and embeddings."""

from __future__ import annotations

import string
from collections.abc import Sequence

from athanor.core import (
    Attr,
    Node,
    add,
    attr_int,
    attr_ints,
    attr_shape,
    check_axes,
    check_axis,
    check_kind,
    check_size,
    element_count,
    fail,
    index_map,
    operands,
    same_dtype,
    size_value,
)
from athanor.elementwise import (
    bitwise_or,
    cast,
    divide,
    invert,
    isnan,
    less,
    negative,
    where,
)
from athanor.expr import Expr
from athanor.movement import gather, iota_like, reshape

Axes = int | Sequence[int] | None


def _reduce(op: str, x: Node, axes: Axes, keepdims: bool, kind: str) -> Node:
    (x,) = operands(op, x)
    check_kind(op, [x], kind)
    chosen = check_axes(op, x, axes)
    kept = [size for i, size in enumerate(x._shape) if i not in chosen]
    result = add(op, [x], x._dtype, kept, axes=attr_ints(chosen)) if chosen else x
    if not keepdims:
        return result
    return reshape(result, [Expr(1) if i in chosen else s for i, s in enumerate(x._shape)])


def sum(x: Node, axes: Axes = None, keepdims: bool = False) -> Node:  # noqa: A001
    """The sum over `axes` (None: all) in the dtype of `x`; f16 and bf16 accumulate in f32."""
    return _reduce("SumReduce", x, axes, keepdims, "numeric")


def max(x: Node, axes: Axes = None, keepdims: bool = False) -> Node:  # noqa: A001
    """The maximum over `axes`; NaN if any is NaN; of nothing -inf, the least integer or False."""
    return _reduce("MaxReduce", x, axes, keepdims, "computing")


def min(x: Node, axes: Axes = None, keepdims: bool = False) -> Node:  # noqa: A001
    """The minimum over `axes`; NaN if any is NaN; of nothing +inf, the largest integer or True."""
    (x,) = operands("min", x)
    # Flipping every bit reverses the order of integers and bools without an overflow.
    turn = negative if x._dtype.kind == "float" else invert
    return turn(max(turn(x), axes, keepdims))


def prod(x: Node, axes: Axes = None, keepdims: bool = False) -> Node:
    """The product over `axes` (None: all) in the dtype of `x`; f16 and bf16 accumulate in f32."""
    return _reduce("MulReduce", x, axes, keepdims, "numeric")


def mean(x: Node, axes: Axes = None, keepdims: bool = False) -> Node:
    """The mean over `axes`; floats. f16 and bf16 compute in f32 and round once; of nothing NaN."""
    (x,) = operands("mean", x)
    check_kind("mean", [x], "floats")
    wide = cast(x, "f32") if x.dtype in ("f16", "bf16") else x
    count = element_count(x._shape[i] for i in check_axes("mean", x, axes))
    total = sum(wide, axes, keepdims)
    return cast(divide(total, size_value(wide, count, wide.dtype)), x._dtype)


def variance(x: Node, axes: Axes = None, keepdims: bool = False) -> Node:
    """The mean of squared differences from the mean (no sample correction); floats."""
    (x,) = operands("variance", x)
    check_kind("variance", [x], "floats")
    wide = cast(x, "f32") if x.dtype in ("f16", "bf16") else x
    centred = wide - mean(wide, axes, keepdims=True)
    return cast(mean(centred * centred, axes, keepdims), x._dtype)


def argmax(x: Node, axis: int, keepdims: bool = False) -> Node:
    """Position of the maximum along `axis`, i64; the lowest among equals, the first NaN if any."""
    (x,) = operands("argmax", x)
    peak = max(x, axis, keepdims=True)
    hit = invert(less(x, peak))
    if x._dtype.kind == "float":
        unordered = isnan(peak)
        hit = where(unordered, isnan(x), bitwise_or(hit, unordered))
    axis = check_axis("argmax", x, axis)
    position = iota_like(x, x._shape, axis)
    return min(where(hit, position, size_value(x, x._shape[axis], "i64")), axis, keepdims)


def argmin(x: Node, axis: int, keepdims: bool = False) -> Node:
    """Position of the minimum along `axis`, i64; the lowest among equals, the first NaN if any."""
    (x,) = operands("argmin", x)
    return argmax(negative(x) if x._dtype.kind == "float" else invert(x), axis, keepdims)


def argsort(x: Node, axis: int = -1, descending: bool = False) -> Node:
    """Positions in the order of the elements along `axis`, i64; equal ones stay in their order.

    NaN is above all numbers, as in numpy: last, or first if `descending`.
    """
    (x,) = operands("Sort", x)
    check_kind("Sort", [x], "computing")
    axis = check_axis("Sort", x, axis)
    return add("Sort", [x], "i64", x._shape, axis=attr_int(axis),
               descending=Attr(b=bool(descending)))


def top_k(x: Node, k: int, axis: int = -1, largest: bool = True) -> Node:
    """Positions of the `k` largest or smallest elements along `axis`, in order, i64.

    Of equal elements those of the lowest positions; NaN is above all numbers. `k` must be at most
    the size of the axis for every size of its dims.
    """
    (x,) = operands("TopK", x)
    check_kind("TopK", [x], "computing")
    axis = check_axis("TopK", x, axis)
    shape = [Expr(k) if i == axis else size for i, size in enumerate(x._shape)]
    return add("TopK", [x], "i64", shape, axis=attr_int(axis), k=attr_shape([Expr(k)]),
               largest=Attr(b=bool(largest)))


def _cumulate(op: str, x: Node, axis: int, exclusive: bool, reverse: bool) -> Node:
    (x,) = operands("Cumulate", x)
    check_kind("Cumulate", [x], "numeric")
    return add("Cumulate", [x], x._dtype, x._shape, axis=attr_int(check_axis("Cumulate", x, axis)),
               op=Attr(s=op), exclusive=Attr(b=bool(exclusive)), reverse=Attr(b=bool(reverse)))


def cumsum(x: Node, axis: int, exclusive: bool = False, reverse: bool = False) -> Node:
    """Running sums along `axis`; `exclusive` leaves out the element itself, `reverse` starts from
    the last. f16 and bf16 accumulate in f32."""
    return _cumulate("add", x, axis, exclusive, reverse)


def cumprod(x: Node, axis: int, exclusive: bool = False, reverse: bool = False) -> Node:
    """Running products along `axis`, otherwise like `cumsum`."""
    return _cumulate("mul", x, axis, exclusive, reverse)


def contract(spec: str, a: Node, b: Node) -> Node:
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
    return add("Contract", nodes, dtype, [sizes[c] for c in parts[2]], spec=Attr(s=text))


def matmul(a: Node, b: Node) -> Node:
    """The product ``a @ b`` with numpy's rules: vectors, matrices, batches that broadcast."""
    nodes = a, b = operands("matmul", a, b)
    if 0 in (a.ndim, b.ndim):
        raise fail("matmul", nodes, "rank 0 cannot be multiplied as a matrix; use *")
    left, right = ("k" if n.ndim == 1 else t for n, t in ((a, "mk"), (b, "kn")))
    lead = [n._shape[:-2] if n.ndim > 2 else () for n in nodes]
    letters = "abcdefghij"[:builtin_max(len(shape) for shape in lead)]
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


def builtin_max(values: object) -> int:
    """Python's max, which this module's `max` hides."""
    return sorted(values)[-1]


def softmax(x: Node, axis: int = -1) -> Node:
    """exp(x - max) / sum(exp(x - max)) along `axis`; floats."""
    (x,) = operands("Softmax", x)
    check_kind("Softmax", [x], "floats")
    axis = check_axis("Softmax", x, axis)
    return add("Softmax", [x], x._dtype, x._shape, axis=attr_int(axis))


def _norm(op: str, nodes: list[Node], epsilon: float) -> Node:
    check_kind(op, nodes, "floats")
    dtype = same_dtype(op, nodes)
    for other in nodes[1:]:
        if other.ndim != 1 or nodes[0].ndim == 0:
            raise fail(op, nodes, "scale and bias must have one axis, the last one of x")
        check_size(op, nodes, "last axis", nodes[0]._shape[-1], other._shape[0])
    return add(op, nodes, dtype, nodes[0]._shape, epsilon=Attr(f=float(epsilon)))


def layer_norm(x: Node, scale: object, bias: object, epsilon: float = 1e-5) -> Node:
    """(x - mean) / sqrt(variance + epsilon) * scale + bias over the last axis; floats."""
    return _norm("LayerNorm", operands("LayerNorm", x, scale, bias), epsilon)


def rms_norm(x: Node, scale: object, epsilon: float = 1e-6) -> Node:
    """x / sqrt(mean(x^2) + epsilon) * scale over the last axis; floats."""
    return _norm("RmsNorm", operands("RmsNorm", x, scale), epsilon)


def attention(q: Node, k: Node, v: Node, mask: Node | None = None, *, scale: float | None = None,
              causal: bool = False) -> Node:
    """softmax(scale * q k^T + mask) v over the last two axes; leading axes are batches.

    Parameters
    ----------
    q, k, v : Value
        ``[..., Lq, D]``, ``[..., Lk, D]`` and ``[..., Lk, Dv]`` of one float dtype.
    mask : Value, optional
        ``[Lq, Lk]``, or of q's rank with leading sizes equal to q's or 1. bool: True attends;
        float, of q's dtype: added to the scores.
    scale : float, optional
        Factor of the scores; 1/sqrt(D) if absent.
    causal : bool
        Query i attends keys up to i + (Lk - Lq) only.
    """
    nodes = operands("Attention", q, k, v)
    q, k, v = nodes
    check_kind("Attention", nodes, "floats")
    dtype = same_dtype("Attention", nodes)
    if q.ndim < 2 or k.ndim != q.ndim or v.ndim != q.ndim:
        raise fail("Attention", nodes, "q, k and v must have equally many axes, at least 2")
    for i in range(q.ndim - 2):
        check_size("Attention", nodes, f"axis {i} of q and k", q._shape[i], k._shape[i])
        check_size("Attention", nodes, f"axis {i} of q and v", q._shape[i], v._shape[i])
    check_size("Attention", nodes, "last axis of q and k", q._shape[-1], k._shape[-1])
    check_size("Attention", nodes, "axis -2 of k and v", k._shape[-2], v._shape[-2])
    if mask is not None:
        (mask,) = operands("Attention", mask)
        nodes.append(mask)
        if mask.dtype not in ("bool", q.dtype):
            raise fail("Attention", nodes, f'the mask must be bool or {q.dtype}; convert it with '
                       f'.cast("{q.dtype}")')
        if mask.ndim not in (2, q.ndim):
            raise fail("Attention", nodes, f"the mask must have 2 or {q.ndim} axes")
        check_size("Attention", nodes, "axis -2 of q and mask", q._shape[-2], mask._shape[-2])
        check_size("Attention", nodes, "keys and last axis of mask", k._shape[-2], mask._shape[-1])
    attrs = {"causal": Attr(b=bool(causal))}
    if scale is not None:
        attrs["scale"] = Attr(f=float(scale))
    return add("Attention", nodes, dtype, [*q._shape[:-1], v._shape[-1]], **attrs)


def embedding(table: Node, ids: object) -> Node:
    """Rows of `table` ``[V, D]`` at integer `ids` of any shape."""
    return gather(table, ids, 0)


def embedding_bag(table: Node, ids: Node, offsets: Node, mode: str = "sum") -> Node:
    """Reduces rows of `table` ``[V, D]`` per bag ``ids[offsets[b]:offsets[b + 1]]`` to ``[B, D]``.

    `mode` is sum, mean or max; an empty bag gives zeros.
    """
    nodes = operands("EmbeddingBag", table, ids, offsets)
    if mode not in ("sum", "mean", "max"):
        raise fail("EmbeddingBag", nodes, f'mode={mode!r} must be "sum", "mean" or "max"')
    check_kind("EmbeddingBag", nodes, "floats")
    check_kind("EmbeddingBag", nodes[1:], "integers")
    check_kind("EmbeddingBag", nodes[2:], "integers")
    if [n.ndim for n in nodes] != [2, 1, 1]:
        raise fail("EmbeddingBag", nodes, "shapes must be table [V, D], ids [N], offsets [B]")
    shape = [nodes[2]._shape[0], nodes[0]._shape[1]]
    return add("EmbeddingBag", nodes, nodes[0]._dtype, shape, mode=Attr(s=mode))
