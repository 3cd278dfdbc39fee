"""Attention of both domains, and com.microsoft's other float ops."""

from __future__ import annotations

import numpy as np
from draw import FLOATS, Draw, Elem
from draw import MICROSOFT as DOMAIN

USED = (Elem.FLOAT, Elem.FLOAT16)


def attention(d: Draw) -> None:
    """Grouped heads, a cache, masks, softcap; of 3 or 4 axes."""
    elem = d.elem("T1", USED)
    d.elems["T2"] = elem
    batch, groups, repeat = d.whole(1, 2), d.whole(1, 2), d.whole(1, 2)
    heads = groups * repeat
    queries, keys, size, wide = d.whole(1, 4), d.whole(1, 5), d.whole(1, 5), d.whole(1, 4)
    flat = d.coin(0.4)

    def give(count: int, length: int, width: int) -> None:
        shape = [batch, length, count * width] if flat else [batch, count, length, width]
        d.operand(d.array(elem, shape, -2, 2), elem, known=0.05)

    give(heads, queries, size)
    give(groups, keys, size)
    give(groups, keys, wide)
    causal = d.coin(0.3)
    past = d.whole(1, 3) if d.coin(0.3) else 0
    mask = d.coin(0.5)
    if mask:
        kind = Elem.BOOL if d.coin() else elem
        total = past + keys
        shape = [[queries, total], [batch, 1, queries, total], [batch, heads, queries, total],
                 [1, 1, queries, total]][d.whole(0, 3)]
        value = d.array(kind, shape, -2, 2)
        if kind == Elem.BOOL:
            value[..., 0] = True  # a row of which nothing is seen is read differently
        d.operand(value, kind)
    elif past:
        d.omit()
    if past:
        d.operand(d.array(elem, [batch, groups, past, size]), elem)
        d.operand(d.array(elem, [batch, groups, past, wide]), elem)
        d.results = 3
    elif d.opset >= 24 and not mask and d.coin(0.4):
        for _ in range(3):
            d.omit()
        d.operand(d.random.integers(1, keys, batch, endpoint=True), Elem.INT64)
    d.attribute("is_causal", int(causal), 1 if causal else 0.3)
    if flat:
        d.attribute("q_num_heads", heads)
        d.attribute("kv_num_heads", groups)
    d.attribute("scale", d.real(0.1, 1), 0.4)
    d.attribute("softcap", d.real(0.5, 5), 0.3)
    if d.coin(0.2):
        d.results = 4
        d.wanted = [True, past > 0, past > 0, True]
        d.attribute("qk_matmul_output_mode", d.whole(0, 3))


def rotary(d: Draw) -> None:
    """ONNX's and com.microsoft's: part of the head, interleaved, positions."""
    microsoft = d.domain == DOMAIN
    elem = d.elem("T", USED)
    batch, heads, length, half = d.whole(1, 2), d.whole(1, 3), d.whole(1, 4), d.whole(1, 3)
    part = d.coin(0.3) and not microsoft
    size = 2 * half + (2 if part else 0)
    flat = d.coin()
    shape = [batch, length, heads * size] if flat else [batch, heads, length, size]
    d.operand(d.array(elem, shape), elem, known=0)
    most = length + 4
    positions = d.random.integers(0, most, [batch, length])

    def caches() -> None:
        at = most if microsoft or given else None
        sizes = [at, half] if at else [batch, length, half]
        for _ in range(2):
            d.operand(d.array(elem, sizes, -1, 1), elem)

    given = d.coin()
    if microsoft:
        d.operand(np.asarray([d.whole(0, 3)]) if d.coin(0.3) else positions, Elem.INT64)
        caches()
    else:
        caches()
        if given:
            d.operand(positions, Elem.INT64)
    d.attribute("interleaved", d.whole(0, 1), 0.7)
    if flat or part:
        d.attribute("num_heads", heads)
    if part:
        d.attribute("rotary_embedding_dim", 2 * half)


def multi_head(d: Draw) -> None:
    """Bias, key padding, a past, a bias of the scores."""
    elem = Elem.FLOAT
    batch, heads, size = d.whole(1, 2), d.whole(1, 3), d.whole(1, 4)
    length = d.whole(1, 4)
    width = heads * size
    past = d.whole(1, 3) if d.coin(0.3) else 0
    keys = length if past else d.whole(1, 5)
    d.operand(d.array(elem, [batch, length, width], -2, 2), elem, known=0)
    for _ in range(2):
        d.operand(d.array(elem, [batch, keys, width], -2, 2), elem, known=0)
    rest: list[tuple[np.ndarray, int] | None] = [None] * 5
    if d.coin(0.4):
        rest[0] = d.array(elem, [3 * width]), elem
    if d.coin(0.3) and not past:
        shape, most = ([batch], keys) if d.coin() else ([batch, keys], 1)
        value = d.array(Elem.INT32, shape, 1, most)
        if len(shape) == 2:
            value = d.array(Elem.INT32, shape, 0, 1)
            value[:, 0] = 1
        rest[1] = value, Elem.INT32
    if d.coin(0.4):
        rest[2] = d.array(elem, [d.choose([1, batch]), d.choose([1, heads]), length, past + keys]
                          ), elem
    if past:
        rest[3] = d.array(elem, [batch, heads, past, size]), elem
        rest[4] = d.array(elem, [batch, heads, past, size]), elem
        d.results = 3
    while rest and rest[-1] is None:
        rest.pop()
    for one in rest:
        d.omit() if one is None else d.operand(*one)
    d.attribute("num_heads", heads)
    d.attribute("scale", d.real(0.1, 1), 0.4)
    d.attribute("unidirectional", d.whole(0, 1), 0.3)
    if d.coin(0.2):
        d.results, d.wanted = 4, [True, past > 0, past > 0, True]
        d.kinds[3] = elem


def packed(d: Draw) -> None:
    """com.microsoft's Attention: one product for q, k and v."""
    elem = Elem.FLOAT
    batch, heads, size, length = d.whole(1, 2), d.whole(1, 3), d.whole(1, 4), d.whole(1, 4)
    width, inner = heads * size, d.whole(1, 6)
    d.operand(d.array(elem, [batch, length, inner], -2, 2), elem, known=0)
    d.operand(d.array(elem, [inner, 3 * width], -1, 1), elem, known=0.9)
    d.operand(d.array(elem, [3 * width], -1, 1), elem)
    past = d.whole(1, 3) if d.coin(0.3) else 0
    if d.coin(0.4):
        if d.coin():
            value = d.array(Elem.INT32, [batch], 1, past + length)
        else:
            value = d.array(Elem.INT32, [batch, past + length], 0, 1)
            value[:, 0] = 1
        d.operand(value, Elem.INT32)
    elif past:
        d.omit()
    if past:
        d.operand(d.array(elem, [2, batch, heads, past, size]), elem)
        d.results = 2
    d.attribute("num_heads", heads)
    d.attribute("scale", d.real(0.1, 1), 0.4)
    d.attribute("unidirectional", d.whole(0, 1), 0.5)


def group_query(d: Draw) -> None:
    """A cache that grows or a buffer; rotary positions, windows, sinks."""
    elem = d.elem("T", USED)
    groups, repeat = d.whole(1, 2), d.whole(1, 2)
    heads, size = groups * repeat, 16
    past = d.whole(1, 4) if d.coin(0.6) else 0
    batch = 1 if past else d.whole(1, 2)
    length = d.whole(1, 3)
    dense = d.coin(0.3)
    if dense:
        d.operand(d.array(elem, [batch, length, (heads + 2 * groups) * size], -1, 1), elem, known=0)
        d.omit()
        d.omit()
    else:
        d.operand(d.array(elem, [batch, length, heads * size], -1, 1), elem, known=0)
        for _ in range(2):
            d.operand(d.array(elem, [batch, length, groups * size], -1, 1), elem, known=0)
    for _ in range(2):
        d.operand(d.array(elem, [batch, groups, past, size], -1, 1), elem, known=0)
    total = past + length
    d.operand(np.full([batch], total - 1, np.int32), Elem.INT32, known=0.1)
    d.operand(np.asarray(total, np.int32), known=0.9)
    turned = d.coin(0.5)
    rest: list[tuple[np.ndarray, int] | None] = [None] * 9
    if turned:
        rest[0] = rest[1] = None
        rest[0] = d.array(elem, [total + 3, size // 2], -1, 1), elem
        rest[1] = d.array(elem, [total + 3, size // 2], -1, 1), elem
        d.attribute("do_rotary", 1)
        d.attribute("rotary_interleaved", d.whole(0, 1), 0.5)
    if d.coin(0.2):
        rest[3] = d.array(elem, [d.choose([1, batch]), d.choose([1, heads]), length, total],
                          -1, 1), elem
    if d.coin(0.2):
        rest[4] = d.array(elem, [heads], -1, 1), elem
    elif d.coin(0.1):
        d.attribute("smooth_softmax", 1)
    if d.coin(0.2):
        rest[7] = d.array(elem, [size], 0.5, 1.5), elem
        rest[8] = d.array(elem, [size], 0.5, 1.5), elem
        d.attribute("qk_norm_epsilon", d.real(1e-6, 1e-2), 0.5)
    while rest and rest[-1] is None:
        rest.pop()
    for one in rest:
        d.omit() if one is None else d.operand(*one)
    d.attribute("num_heads", heads)
    d.attribute("kv_num_heads", groups)
    d.attribute("scale", d.real(0.1, 1), 0.3)
    d.attribute("softcap", d.real(0.5, 5), 0.2)
    d.attribute("local_window_size", d.whole(1, 4), 0.2)
    d.results = 3
    if d.coin(0.15):
        d.results = 4
        d.attribute("qk_output", d.whole(1, 2))
    d.atol = 1e-4 if elem == Elem.FLOAT else 1e-2


def gelus(d: Draw) -> None:
    """With or without a bias."""
    elem = d.elem("T", FLOATS)
    shape = d.shape(1, 4, empty=False)
    if d.op == "BiasSplitGelu":
        shape = [d.whole(1, 2), d.whole(1, 3), int(d.choose([1280, 2560]))]
    d.operand(d.array(elem, shape, -4, 4), elem, known=0)
    if elem == Elem.DOUBLE:
        d.rtol, d.atol = 1e-6, 1e-6  # constants of f32 in it
    if d.op.startswith("Bias") or (d.op == "FastGelu" and d.coin()):
        d.operand(d.array(elem, [shape[-1]]), elem)
    if d.op == "QuickGelu":
        d.attribute("alpha", d.real(0.5, 2), 0.7)


def skip_norm(d: Draw) -> None:
    """Skip, bias, the sum as a result; ONNX Runtime's own names of it."""
    single = d.op == "SimplifiedLayerNormalization"
    elem = Elem.FLOAT if single else d.elem("T", USED)
    shape = d.shape(3, 3, empty=False)
    inner = [shape[-1]]
    d.operand(d.array(elem, shape), elem, known=0)
    if not single:
        d.operand(d.array(elem, shape if d.coin(0.7) else [1, *shape[1:]]), elem, known=0)
    d.operand(d.array(elem, inner), elem)
    if d.op == "SkipLayerNormalization" and d.coin():
        d.operand(d.array(elem, inner), elem)
        if d.coin():
            d.operand(d.array(elem, inner), elem)
    elif d.op == "SkipSimplifiedLayerNormalization" and d.coin():
        d.operand(d.array(elem, inner), elem)
    d.attribute("epsilon", d.real(1e-5, 1e-2), 1 if single else 0.7)
    if single:
        d.attribute("axis", -1)
        d.attribute("stash_type", 1)
    elif d.coin(0.4):
        d.results, d.wanted = 4, [True, False, False, True]


def embed_norm(d: Draw) -> None:
    """Words, positions and perhaps segments."""
    elem = d.elem("T", USED)
    batch, length, width, words = d.whole(1, 2), d.whole(1, 4), d.whole(2, 6), d.whole(2, 9)
    segments = d.coin()

    def ids(most: int) -> np.ndarray:
        return d.array(Elem.INT32, [batch, length], 0, most - 1)

    d.operand(ids(words), Elem.INT32)
    if segments:
        d.operand(ids(2), Elem.INT32)
    else:
        d.omit()
    d.operand(d.array(elem, [words, width]), elem)
    d.operand(d.array(elem, [length + 2, width]), elem)
    if segments:
        d.operand(d.array(elem, [2, width]), elem)
    else:
        d.omit()
    d.operand(d.array(elem, [width]), elem)
    d.operand(d.array(elem, [width]), elem)
    if d.coin():
        d.operand(ids(2), Elem.INT32)
        if d.coin():
            d.operand(ids(length), Elem.INT32)
    d.results = d.whole(2, 3)
    d.attribute("epsilon", d.real(1e-6, 1e-2), 0.5)


def fused_matmul(d: Draw) -> None:
    """Transposed either side, scaled."""
    elem = d.elem("T", FLOATS)
    m, k, n = d.whole(1, 5), d.whole(1, 5), d.whole(1, 5)
    batch = d.shape(0, 2, empty=False, most=6)
    left, right = d.coin(), d.coin()
    d.operand(d.array(elem, [*batch, *([k, m] if left else [m, k])]), elem)
    d.operand(d.array(elem, [*batch, *([n, k] if right else [k, n])]), elem)
    d.attribute("transA", int(left))
    d.attribute("transB", int(right))
    d.attribute("alpha", d.real(0.2, 2), 0.6)


FAMILY = {"Attention": attention, "RotaryEmbedding": rotary,
          "SimplifiedLayerNormalization": skip_norm}
MICROSOFT = {
    **dict.fromkeys(("BiasGelu", "BiasSplitGelu", "FastGelu", "Gelu", "QuickGelu"), gelus),
    **dict.fromkeys(("SkipLayerNormalization", "SkipSimplifiedLayerNormalization"), skip_norm),
    "Attention": packed, "EmbedLayerNormalization": embed_norm, "FusedMatMul": fused_matmul,
    "GroupQueryAttention": group_query, "MultiHeadAttention": multi_head,
    "RotaryEmbedding": rotary,
}
