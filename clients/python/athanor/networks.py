"""Parts of networks: softmax, norms, attention, rotary embedding, embeddings.

Each raises `athanor.GraphError` with its name, its operands and what would be right.
"""

from __future__ import annotations

from collections.abc import Sequence

from athanor import reductions
from athanor.arithmetic import cast, reciprocal, widened
from athanor.checks import is_int
from athanor.core import (
    attr_int,
    check_axis,
    check_kind,
    check_size,
    element_count,
    fail,
    make,
    operands,
    same_dtype,
    scalar_like,
)
from athanor.dtypes import DType
from athanor.elementwise import sqrt
from athanor.expr import Expr, exact_div, floor_div
from athanor.indexing import gather
from athanor.logic import equal, less, where
from athanor.movement import iota_like, reshape, unsqueeze
from athanor.value import Attr, Operand, Value


def softmax(x: Value, axis: int = -1) -> Value:
    """exp(x - max) / sum(exp(x - max)) along `axis`; floats."""
    (x,) = operands("Softmax", x)
    check_kind("Softmax", [x], "floats")
    axis = check_axis("Softmax", x, axis)
    return make("Softmax", [x], x._dtype, x._shape, axis=attr_int(axis))


def _norm(op: str, nodes: list[Value], epsilon: float) -> Value:
    check_kind(op, nodes, "floats")
    dtype = same_dtype(op, nodes)
    for other in nodes[1:]:
        if other.ndim != 1 or nodes[0].ndim == 0:
            raise fail(op, nodes, "scale and bias must have one axis, the last one of x")
        check_size(op, nodes, "last axis", nodes[0]._shape[-1], other._shape[0])
    return make(op, nodes, dtype, nodes[0]._shape, epsilon=Attr(f=float(epsilon)))


def layer_norm(x: Value, scale: Operand, bias: Operand, epsilon: float = 1e-5) -> Value:
    """(x - mean) / sqrt(variance + epsilon) * scale + bias over the last axis; floats."""
    return _norm("LayerNorm", operands("LayerNorm", x, scale, bias), epsilon)


def rms_norm(x: Value, scale: Operand, epsilon: float = 1e-6) -> Value:
    """x / sqrt(mean(x^2) + epsilon) * scale over the last axis; floats."""
    return _norm("RmsNorm", operands("RmsNorm", x, scale), epsilon)


def _channels(op: str, x: Value, axis: int, values: Sequence[Operand]) -> list[Value]:
    """Returns per-channel operands of x's dtype, widened, with axes of 1 beside the channels'."""
    nodes = operands(op, x, *values)
    same_dtype(op, nodes)
    result = []
    for node in nodes[1:]:
        if node.ndim != 1:
            raise fail(op, [x, node], f"{node.name} must have one axis, the channels of x")
        check_size(op, [x, node], "channels", x._shape[axis], node._shape[0])
        shape = [node._shape[0] if i == axis else Expr(1) for i in range(x.ndim)]
        result.append(reshape(widened(node), shape))
    return result


def batch_norm(x: Value, mean: Operand, var: Operand, scale: Operand | None = None,
               bias: Operand | None = None, *, epsilon: float = 1e-5, axis: int = 1) -> Value:
    """(x - mean) / sqrt(var + epsilon) * scale + bias, each per channel, as in inference; floats.

    Parameters
    ----------
    x : Value
        Of any rank; f16 and bf16 compute in f32 and round once.
    mean, var, scale, bias : Value or array
        ``[C]``, of x's dtype; without `scale` 1, without `bias` 0.
    axis : int
        The channels' axis of `x`.

    Raises
    ------
    GraphError
        If dtypes differ, or an operand does not have the channels of `x`.
    """
    (x,) = operands("batch_norm", x)
    check_kind("batch_norm", [x], "floats")
    axis = check_axis("batch_norm", x, axis)
    given = [value for value in (mean, var, scale, bias) if value is not None]
    centre, spread, *rest = _channels("batch_norm", x, axis, given)
    factor = reciprocal(sqrt(spread + float(epsilon)))
    if scale is not None:
        factor = factor * rest[0]
    result = (widened(x) - centre) * factor
    return cast(result if bias is None else result + rest[-1], x._dtype)


def group_norm(x: Value, groups: int, scale: Operand | None = None, bias: Operand | None = None,
               *, epsilon: float = 1e-5) -> Value:
    """Normalises groups of channels: (x - mean) / sqrt(variance + epsilon) * scale + bias; floats.

    Parameters
    ----------
    x : Value
        ``[N, C, ...]``; mean and variance are of each N and group, over its channels and all axes
        behind. f16 and bf16 compute in f32 and round once.
    groups : int
        Divides `C`; 1 is a layer norm of all of an example, `C` an instance norm.
    scale, bias : Value or array, optional
        ``[C]``, of x's dtype.

    Raises
    ------
    GraphError
        If the groups do not divide the channels, or scale or bias do not fit.
    """
    (x,) = operands("group_norm", x)
    check_kind("group_norm", [x], "floats")
    if x.ndim < 2:
        raise fail("group_norm", [x], "x must have the axes [N, C, ...]")
    if not is_int(groups, range(1, 1 << 63)):
        raise fail("group_norm", [x], f"groups={groups!r} must be an integer of 1 or more")
    if exact_div(x._shape[1], Expr(groups)) is None:
        raise fail("group_norm", [x], f"groups={groups} does not divide the {x._shape[1]} channels")
    parts = _channels("group_norm", x, 1, [v for v in (scale, bias) if v is not None])
    width = element_count(x._shape[1:])
    flat = reshape(widened(x), [x._shape[0], Expr(groups), floor_div(width, Expr(groups))])
    centred = flat - reductions.mean(flat, -1, keepdims=True)
    spread = reductions.mean(centred * centred, -1, keepdims=True)
    result = reshape(centred * reciprocal(sqrt(spread + float(epsilon))), x._shape)
    if scale is not None:
        result = result * parts[0]
    return cast(result if bias is None else result + parts[-1], x._dtype)


def attention(q: Value, k: Operand, v: Operand, mask: Operand | None = None, *,
              scale: float | None = None, causal: bool = False) -> Value:
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
    given = operands("Attention", q, k, v, *([] if mask is None else [mask]))
    q, k, v = nodes = given[:3]
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
        nodes, mask = given, given[3]
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
    return make("Attention", nodes, dtype, [*q._shape[:-1], v._shape[-1]], **attrs)


def rotary(x: Value, cos: Operand, sin: Operand, *, interleaved: bool = False) -> Value:
    """Rotary position embedding: turns pairs of elements of the last axis of `x`; floats.

    Parameters
    ----------
    x : Value
        ``[..., L, D]``.
    cos, sin : Value or array
        ``[L, R]``, or of x's rank with leading sizes equal to x's or 1; of x's dtype. The first
        2 R elements of each row turn, the others stay.
    interleaved : bool
        Pairs are elements 2i and 2i + 1; by default i and i + R, as Llama's checkpoints have them.

    Raises
    ------
    GraphError
        If shapes or dtypes do not fit.
    """
    nodes = operands("Rotary", x, cos, sin)
    x, cos, sin = nodes
    check_kind("Rotary", nodes, "floats")
    dtype = same_dtype("Rotary", nodes)
    if x.ndim < 2 or cos.ndim not in (2, x.ndim) or sin.ndim != cos.ndim:
        raise fail("Rotary", nodes, "x must have the axes [..., L, D], cos and sin equally many, "
                   "or 2")
    for i, (a, b) in enumerate(zip(cos._shape, sin._shape, strict=True)):
        check_size("Rotary", nodes, f"axis {i} of cos and sin", a, b)
    check_size("Rotary", nodes, "axis -2 of x and cos", x._shape[-2], cos._shape[-2])
    for i in range(cos.ndim - 2):
        if cos._shape[i] != 1:
            check_size("Rotary", nodes, f"axis {i} of x and cos", x._shape[i], cos._shape[i])
    room = (x._shape[-1] - 2 * cos._shape[-1]).bounds(x.graph.dims)[1]
    if room < 0:
        raise fail("Rotary", nodes, f"cos has {cos._shape[-1]} angles a row and turns twice as "
                   f"many elements; x has {x._shape[-1]}")
    return make("Rotary", nodes, dtype, x._shape, interleaved=Attr(b=bool(interleaved)))


def one_hot(ids: Value, depth: int, *, dtype: str | DType = "f32", axis: int = -1) -> Value:
    """1 where a new axis of `depth` has the position that `ids` names, else 0.

    Parameters
    ----------
    ids : Value
        Integers of any shape; one outside [0, depth) gives zeros only.
    axis : int
        The new axis of the result.

    Raises
    ------
    GraphError
        If `ids` are no integers, or `depth` or `axis` is wrong.
    """
    (ids,) = operands("one_hot", ids)
    check_kind("one_hot", [ids], "integers")
    if not is_int(depth, range(1 << 63)):
        raise fail("one_hot", [ids], f"depth={depth!r} must be an integer of 0 or more")
    axis = check_axis("one_hot", ids, axis, ids.ndim + 1)
    spread = cast(unsqueeze(ids, axis), "i64")
    if ids.dtype == "u64":  # what lies beyond i64 is no position
        spread = where(less(unsqueeze(ids, axis), 2**63 - 1), spread, scalar_like(spread, -1))
    shape = [Expr(depth) if i == axis else size for i, size in enumerate(spread._shape)]
    return cast(equal(spread, iota_like(ids, shape, axis)), dtype)


def embedding(table: Value, ids: Operand) -> Value:
    """Rows of `table` ``[V, D]``, of any dtype, at integer `ids` of any shape."""
    return gather(table, ids, 0)


def embedding_bag(table: Value, ids: Operand, offsets: Operand, mode: str = "sum") -> Value:
    """Reduces rows of `table` ``[V, D]`` per bag ``ids[offsets[b]:offsets[b + 1]]`` to ``[B, D]``.

    The table holds floats, ids and offsets are integers. `mode` is sum, mean or max; an empty bag
    gives zeros.
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
    return make("EmbeddingBag", nodes, nodes[0]._dtype, shape, mode=Attr(s=mode))
