"""Ops that gather and scatter."""

from __future__ import annotations

import math

import numpy as np
from draw import FLOATS, Draw, Elem, Unfit


def _indices(d: Draw, shape: list[int], size: int) -> np.ndarray:
    """Within range; negative ones count from the end since 11."""
    low = -size if d.opset >= 11 and d.coin() else 0
    dtype = np.int32 if d.coin(0.3) else np.int64
    return d.random.integers(low, size, shape).astype(dtype)


def _data(d: Draw, low: int = 1, high: int = 4) -> tuple[int, list[int]]:
    elem = d.elem("data")
    shape = d.shape(low, high, empty=False)
    d.operand(d.array(elem, shape, special=0.2), elem)
    return elem, shape


def _index_elem(value: np.ndarray) -> int:
    return Elem.INT32 if value.dtype == np.int32 else Elem.INT64


def gather(d: Draw) -> None:
    """Indices of any rank."""
    _, shape = _data(d)
    axis = d.axis(len(shape))
    indices = _indices(d, d.shape(0, 3, most=40), shape[axis])
    d.operand(indices, _index_elem(indices))
    d.attribute("axis", axis, 1 if axis else 0.5)


def gather_elements(d: Draw) -> None:
    """Indices may be smaller than data on other axes."""
    _, shape = _data(d)
    axis = d.axis(len(shape))
    sizes = [d.whole(1, size) for size in shape]
    sizes[axis] = d.whole(1, 5)
    indices = _indices(d, sizes, shape[axis])
    d.operand(indices, _index_elem(indices))
    d.attribute("axis", axis)


def gather_nd(d: Draw) -> None:
    """Some leading axes by tuple, after batch axes since 12."""
    _, shape = _data(d)
    batch = d.whole(0, min(2, len(shape) - 1)) if d.opset >= 12 else 0
    last = d.whole(1, len(shape) - batch)
    lead = [*shape[:batch], *d.shape(0 if batch else 1, 2, empty=False, most=12)]
    if not lead:
        raise Unfit
    columns = [_indices(d, lead, shape[batch + i]).astype(np.int64) for i in range(last)]
    d.operand(np.stack(columns, -1), Elem.INT64)
    d.attribute("batch_dims", batch, 1 if batch else 0)


def _reduction(d: Draw, elem: int) -> str:
    modes = ["none"]
    if d.opset >= 16:
        modes += ["add", "mul"]
    if d.opset >= 18:
        modes += ["max", "min"]
    return str(d.choose(modes)) if elem not in (Elem.BOOL, Elem.BFLOAT16) else "none"


def scatter_elements(d: Draw) -> None:
    """Positions are distinct where the last one written would count."""
    elem, shape = _data(d)
    axis = d.axis(len(shape))
    mode = _reduction(d, elem) if d.op == "ScatterElements" else "none"
    sizes = [d.whole(1, size) for size in shape]
    indices = _indices(d, sizes, shape[axis])
    if mode == "none":
        places = np.argsort(d.random.random(shape), axis)
        cut = tuple(slice(0, size) for size in sizes)
        indices = places[cut].astype(np.int64)
        if d.opset >= 11:
            indices = np.where(d.random.random(sizes) < 0.2, indices - shape[axis], indices)
    d.operand(indices, _index_elem(indices))
    d.operand(d.array(elem, sizes, -2, 2), elem)
    d.attribute("axis", axis)
    d.attribute("reduction", mode, 1 if mode != "none" else 0)


def scatter_nd(d: Draw) -> None:
    """Likewise for tuples."""
    elem, shape = _data(d)
    last = d.whole(1, len(shape))
    mode = _reduction(d, elem)
    rows = math.prod(shape[:last])
    count = d.whole(1, min(rows, 6))
    flat = d.random.choice(rows, count, replace=mode != "none")
    indices = np.stack(np.unravel_index(flat, shape[:last]), -1).astype(np.int64)
    if d.opset >= 11 and d.coin(0.3):
        indices -= np.asarray(shape[:last])
    if d.coin(0.3):
        indices = indices[None]
    d.operand(indices, Elem.INT64)
    d.operand(d.array(elem, [*indices.shape[:-1], *shape[last:]], -2, 2), elem)
    d.attribute("reduction", mode, 1 if mode != "none" else 0)


def tensor_scatter(d: Draw) -> None:
    """A cache that is written at positions of its own a batch."""
    elem = d.elem("past_cache", [e for e in FLOATS if e != Elem.BFLOAT16])
    batch, length, count = d.whole(1, 3), d.whole(3, 7), d.whole(1, 3)
    inner = d.shape(1, 2, empty=False, most=12)
    circular = d.coin()
    d.operand(d.array(elem, [batch, length, *inner]), elem)
    d.operand(d.array(elem, [batch, count, *inner]), elem)
    most = length - 1 if circular else length - count
    d.operand(d.random.integers(0, most, batch, endpoint=True), Elem.INT64)
    d.attribute("axis", 1)
    d.attribute("mode", "circular" if circular else "linear")


def tf_idf(d: Draw) -> None:
    """Counts of n-grams of integers."""
    elem = d.elem("T", [Elem.INT32, Elem.INT64])
    longest = d.whole(1, 3)
    pool: list[int] = []
    begins, grams = [], 0
    for n in range(1, longest + 1):
        begins.append(len(pool))
        rows = {tuple(int(x) for x in d.random.integers(1, 4, n)) for _ in range(d.whole(1, 4))}
        for row in sorted(rows):
            pool += row
        grams += len(rows)
    d.operand(d.array(elem, d.shape(1, 2, empty=False, most=40), 1, 3), elem)
    d.attribute("mode", d.choose(["TF", "IDF", "TFIDF"]))
    least = d.whole(1, longest)
    d.attribute("min_gram_length", least)
    d.attribute("max_gram_length", d.whole(least, longest))
    d.attribute("max_skip_count", d.whole(0, 3))
    d.attribute("ngram_counts", begins)
    d.attribute("ngram_indexes", [int(x) for x in d.random.permutation(grams)])
    d.attribute("pool_int64s", pool)
    d.attribute("weights", [d.real(0.5, 2) for _ in range(grams)], 0.7)


FAMILY = {
    "TfIdfVectorizer": tf_idf,
    "Gather": gather, "GatherElements": gather_elements, "GatherND": gather_nd,
    "Scatter": scatter_elements, "ScatterElements": scatter_elements, "ScatterND": scatter_nd,
    "TensorScatter": tensor_scatter,
}
