"""Attention with weights, in torch's layouts."""

from __future__ import annotations

import math

from athanor.core import check_size, fail, scalar_like
from athanor.errors import InvalidArgument
from athanor.logic import bitwise_and, invert, where
from athanor.movement import expand, permute, reshape, unsqueeze
from athanor.networks import attention
from athanor.nn.layers import Linear, linear
from athanor.nn.module import Module, Parameter, uniform
from athanor.value import Value


class MultiHeadAttention(Module):
    """Attention of several heads with projections, as torch.nn.MultiheadAttention.

    Parameters
    ----------
    embed_dim, num_heads : int
        The heads divide the features. ``in_proj_weight`` is ``[3 E, E]``, ``in_proj_bias``
        ``[3 E]``, ``out_proj.weight`` ``[E, E]``, ``out_proj.bias`` ``[E]``.
    dropout : float
        As torch takes it; it is for training alone.
    bias : bool
        Whether there are biases.
    kdim, vdim : int, optional
        Features of keys and values, if they are not E; then the weights are ``q_proj_weight``,
        ``k_proj_weight`` and ``v_proj_weight``.
    batch_first : bool
        Whether the axes are ``[N, L, E]``; by default ``[L, N, E]``, as in torch.
    """

    def __init__(self, embed_dim: int, num_heads: int, dropout: float = 0.0, bias: bool = True, *,
                 kdim: int | None = None, vdim: int | None = None,
                 batch_first: bool = False) -> None:
        if num_heads < 1 or embed_dim % num_heads:
            raise InvalidArgument(f"MultiHeadAttention: num_heads={num_heads} must divide "
                                  f"embed_dim={embed_dim}")
        self.embed_dim, self.num_heads, self.batch_first = embed_dim, num_heads, batch_first
        sizes = [embed_dim, kdim or embed_dim, vdim or embed_dim]
        self.in_proj_weight: Parameter | None = None
        if sizes == [embed_dim] * 3:
            self.in_proj_weight = uniform([3 * embed_dim, embed_dim], embed_dim)
        else:
            self.q_proj_weight, self.k_proj_weight, self.v_proj_weight = (
                uniform([embed_dim, size], size) for size in sizes)
        self.in_proj_bias = Parameter((3 * embed_dim,)) if bias else None
        self.out_proj = Linear(embed_dim, embed_dim, bias)

    def _weights(self, x: Value) -> list[Value]:
        if self.in_proj_weight is None:
            return [weight.of(x) for weight in (self.q_proj_weight, self.k_proj_weight,
                                                self.v_proj_weight)]
        packed, e = self.in_proj_weight.of(x), self.embed_dim
        return [packed[i * e:(i + 1) * e] for i in range(3)]

    def _heads(self, x: Value, weight: Value, bias: Value | None) -> Value:
        """``[N, L, E]`` to ``[N, heads, L, E / heads]``."""
        made = linear(x, weight, bias)
        parts = (self.num_heads, self.embed_dim // self.num_heads)
        return permute(reshape(made, (*made._shape[:2], *parts)), (0, 2, 1, 3))

    def __call__(self, query: Value, key: Value | None = None, value: Value | None = None, *,
                 key_padding_mask: Value | None = None, attn_mask: Value | None = None,
                 is_causal: bool = False) -> Value:
        """Attends, and projects what it found.

        Parameters
        ----------
        query, key, value : Value
            ``[L, N, E]``, ``[S, N, kdim]`` and ``[S, N, vdim]`` (``[N, L, E]`` with
            `batch_first`), or all without N; floats of the weights' dtype. Without `key` it is
            `query`, without `value` it is `key`.
        key_padding_mask : Value, optional
            bool ``[N, S]``, or ``[S]`` without N: True hides a key.
        attn_mask : Value, optional
            ``[L, S]``, or ``[N * heads, L, S]``: bool, True hides a key from a query, as in torch;
            or floats that are added to the scores.
        is_causal : bool
            Query i sees keys up to i; L and S must be equal.

        Returns
        -------
        Value
            The shape of `query`. A query that sees no key gets zeros before the projection, where
            torch has NaN.

        Raises
        ------
        GraphError
            If shapes or dtypes do not fit.
        """
        key = query if key is None else key
        value = key if value is None else value
        given = [query, key, value]
        if any(x.ndim != query.ndim for x in given) or query.ndim not in (2, 3):
            raise fail("MultiHeadAttention", given, "query, key and value must have the axes "
                       f"{'[N, L, E]' if self.batch_first else '[L, N, E]'}, or [L, E]")
        alone = query.ndim == 2
        if alone:
            given = [unsqueeze(x, 0) for x in given]
            if key_padding_mask is not None:
                key_padding_mask = unsqueeze(key_padding_mask, 0)
        elif not self.batch_first:
            given = [permute(x, (1, 0, 2)) for x in given]
        e = self.embed_dim
        packed = None if self.in_proj_bias is None else self.in_proj_bias.of(query)
        biases = [None if packed is None else packed[i * e:(i + 1) * e] for i in range(3)]
        q, k, v = (self._heads(x, weight, bias) for x, weight, bias in zip(
            given, self._weights(query), biases, strict=True))
        if is_causal:
            check_size("MultiHeadAttention", [q, k], "is_causal: queries and keys", q._shape[2],
                       k._shape[2])
        mask = self._mask(q, k, key_padding_mask, attn_mask)
        mixed = permute(attention(q, k, v, mask, causal=is_causal), (0, 2, 1, 3))
        result = self.out_proj(reshape(mixed, [*mixed._shape[:2], e]))
        if alone:
            return reshape(result, result._shape[1:])
        return result if self.batch_first else permute(result, (1, 0, 2))

    def _mask(self, q: Value, k: Value, padding: Value | None, mask: Value | None) -> Value | None:
        """Returns one mask as `athanor.attention` has it, in which True attends."""
        n, heads, length, keys = *q._shape[:3], k._shape[2]
        if mask is not None:
            if mask.ndim not in (2, 3):
                raise fail("MultiHeadAttention", [mask], "attn_mask must have the axes [L, S] or "
                           "[N * heads, L, S]")
            if mask.ndim == 3:
                mask = reshape(mask, [n, heads, *mask._shape[1:]])
            mask = invert(mask) if mask.dtype == "bool" else mask
        if padding is None:
            return mask
        if padding.dtype != "bool" or padding.ndim != 2:
            raise fail("MultiHeadAttention", [padding], "key_padding_mask must be bool [N, S]")
        check_size("MultiHeadAttention", [padding], "N", n, padding._shape[0])
        check_size("MultiHeadAttention", [padding], "S", keys, padding._shape[1])
        shown = expand(unsqueeze(unsqueeze(invert(padding), 1), 1), [n, 1, length, keys])
        if mask is None:
            return shown
        if mask.dtype == "bool":
            return bitwise_and(shown, mask)
        return where(shown, mask, scalar_like(mask, -math.inf, ()))


MultiheadAttention = MultiHeadAttention  # torch's name
