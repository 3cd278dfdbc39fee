"""Products, transforms and recurrences."""

from __future__ import annotations

import numpy as np
from draw import Draw, Elem, Unfit


def matmul(d: Draw) -> None:
    """numpy's: batches broadcast, vectors on either side."""
    elem = d.elem(d.schema.inputs[0].name)
    m, k, n = (int(d.choose([1, 2, 3, 5, 8, 13])) for _ in range(3))
    if d.coin(0.05):
        k = 0
    batch = d.shape(0, 2, empty=False, most=6)
    a = [k] if d.coin(0.15) else [*d.below(batch), m, k]
    b = [k] if d.coin(0.15) else [*d.below(batch), k, n]
    d.operand(d.array(elem, a), elem)
    d.operand(d.array(elem, b), elem)


def gemm(d: Draw) -> None:
    """C broadcasts; may be left out since 11."""
    elem = d.elem("A")
    m, k, n = (int(d.choose([1, 2, 3, 5, 8, 13])) for _ in range(3))
    left, right = d.coin(), d.coin()
    d.operand(d.array(elem, [k, m] if left else [m, k]), elem)
    d.operand(d.array(elem, [n, k] if right else [k, n]), elem)
    if d.opset < 11 or d.coin(0.7):
        c = d.choose([[m, n], [1, n], [n], [m, 1], [1, 1], [1], []])
        d.operand(d.array(elem, c), elem)
    d.attribute("transA", int(left), 1 if left else 0.3)
    d.attribute("transB", int(right), 1 if right else 0.3)
    whole = elem not in (Elem.FLOAT, Elem.DOUBLE, Elem.FLOAT16, Elem.BFLOAT16)
    d.attribute("alpha", float(d.whole(1, 3)) if whole else d.real(0.2, 2), 0.6)
    d.attribute("beta", float(d.whole(0, 3)) if whole else d.real(0, 2), 0.6)


EQUATIONS = ("ij,jk->ik", "bij,bjk->bik", "ij->ji", "ii->i", "ii", "ij->", "i,j->ij", "i,i",
             "...ij,...jk->...ik", "bij,bkj->bik", "bhqd,bhkd->bhqk", "ij,ij->i", "ijk->kij",
             "i,ij,j->", "...->...", "b...d,d->b...", "ij,jk,kl->il", "aab->b")


def einsum(d: Draw) -> None:
    """Sums, diagonals, ellipses."""
    elem = d.elem("Inputs")
    equation = str(d.choose(EQUATIONS))
    sizes = {letter: int(d.choose([1, 2, 3, 5])) for letter in "abdhijklqu"}
    dots = d.shape(0, 2, empty=False, most=6)
    for term in equation.partition("->")[0].split(","):
        head, _, tail = term.partition("...")
        shape = [sizes[x] for x in head] + (dots if "..." in term else [])
        d.operand(d.array(elem, shape + [sizes[x] for x in tail], -2, 2), elem)
    d.attribute("equation", equation.replace(",", ", ") if d.coin(0.2) else equation)


def det(d: Draw) -> None:
    """Draws matrices of 1 to 5 rows."""
    elem = d.elem("X")
    n = d.whole(1, 5)
    d.operand(d.array(elem, [*d.shape(0, 2, empty=False, most=6), n, n], -2, 2), elem)
    d.rtol, d.atol = 1e-4, 1e-4


def dft(d: Draw) -> None:
    """Real or complex, inverse, one side, another length."""
    elem = d.elem("T1")
    shape = [d.whole(1, 2), *d.shape(1, 2, empty=False, most=24)]
    axis = d.whole(1, len(shape) - 1)
    inverse = d.coin(0.3)
    onesided = not inverse and d.coin(0.3)
    parts = 1 if onesided else d.whole(1, 2)
    d.operand(d.array(elem, [*shape, parts]), elem)
    length = d.coin(0.4)
    if length:
        d.operand(np.asarray(d.whole(1, 9), np.int64), known=1)
    if d.opset >= 20:
        if not length:
            d.omit()
        d.operand(np.asarray(axis, np.int64), known=1)
    else:
        d.attribute("axis", axis)
    d.attribute("inverse", int(inverse))
    d.attribute("onesided", int(onesided))
    d.atol = {Elem.FLOAT: 1e-4, Elem.DOUBLE: 1e-6}.get(elem, 1e-2)


def stft(d: Draw) -> None:
    """Frames with or without a window."""
    elem = d.elem("T1")
    length, step, count = int(d.choose([4, 8])), d.whole(1, 4), d.whole(8, 20)
    d.operand(d.array(elem, [d.whole(1, 2), count, 1]), elem)
    d.operand(np.asarray(step, np.int64), known=1)
    window = d.coin(0.7)
    if window:
        d.operand(d.array(elem, [length], 0, 1), elem)
    else:
        d.omit()
    if not window or d.coin():
        d.operand(np.asarray(length, np.int64), known=1)
    d.attribute("onesided", d.whole(0, 1))
    d.atol = 1e-4 if elem != Elem.FLOAT16 else 1e-2


def signal_window(d: Draw) -> None:
    """Hann, Hamming, Blackman."""
    d.operand(np.asarray(d.whole(2, 17), d.choose([np.int32, np.int64])), known=0.9)
    d.attribute("periodic", d.whole(0, 1), 0.7)
    d.attribute("output_datatype", int(d.choose([Elem.FLOAT, Elem.DOUBLE])), 0.6)
    d.atol = 1e-6


def mel(d: Draw) -> None:
    """A table of triangles."""
    for value in (d.whole(2, 8), int(d.choose([16, 32, 64])), 8000):
        d.operand(np.asarray(value, np.int64), known=1)
    for value in (d.real(0, 100), d.real(2000, 4000)):
        d.operand(np.asarray(value, np.float32), known=1)
    d.attribute("output_datatype", int(d.choose([Elem.FLOAT, Elem.DOUBLE])), 0.6)


GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
ACTIVATIONS = ("Tanh", "Relu", "Sigmoid", "Affine", "LeakyRelu", "ThresholdedRelu", "HardSigmoid",
               "Elu", "Softsign", "Softplus")


def recurrent(d: Draw) -> None:
    """Both directions, shorter sequences, initial states, peepholes, activations."""
    elem = d.elem("X")
    gates = GATES[d.op]
    steps, batch, width, hidden = (d.whole(1, 5), d.whole(1, 3), d.whole(1, 4), d.whole(1, 4))
    direction = str(d.choose(["forward", "reverse", "bidirectional"]))
    count = 2 if direction == "bidirectional" else 1
    layout = int(d.opset >= 14 and d.coin(0.2))
    d.operand(d.array(elem, [batch, steps, width] if layout else [steps, batch, width]), elem,
              known=0)
    d.operand(d.array(elem, [count, gates * hidden, width], -1, 1), elem, known=1)
    d.operand(d.array(elem, [count, gates * hidden, hidden], -1, 1), elem, known=1)
    optional: list[np.ndarray | None] = [
        d.array(elem, [count, 2 * gates * hidden], -1, 1) if d.coin() else None,
        d.random.integers(1, steps, batch, endpoint=True).astype(np.int32)
        if d.coin(0.4) else None,
        d.array(elem, [batch, count, hidden] if layout else [count, batch, hidden], -1, 1)
        if d.coin() else None]
    if d.op == "LSTM":
        optional += [d.array(elem, [batch, count, hidden] if layout else [count, batch, hidden],
                             -1, 1) if d.coin() else None,
                     d.array(elem, [count, 3 * hidden], -1, 1) if d.coin(0.3) else None]
        d.attribute("input_forget", d.whole(0, 1), 0.3)
    if d.op == "GRU":
        d.attribute("linear_before_reset", d.whole(0, 1), 0.6)
    while optional and optional[-1] is None:
        optional.pop()
    for value in optional:
        if value is None:
            d.omit()
        elif value.dtype == np.int32:
            d.operand(value, Elem.INT32, known=0.2)
        else:
            d.operand(value, elem, known=0.8)
    d.attribute("direction", direction, 1 if direction != "forward" else 0.5)
    d.attribute("hidden_size", hidden)
    d.attribute("layout", layout, 1 if layout else 0)
    d.attribute("clip", d.real(0.3, 2), 0.2)
    if d.coin(0.3):
        each = {"RNN": 1, "GRU": 2, "LSTM": 3}[d.op] * count
        names = [str(d.choose(ACTIVATIONS)) for _ in range(each)]
        d.attribute("activations", names)
        needs = [{"Affine": 2, "HardSigmoid": 2, "LeakyRelu": 1, "ThresholdedRelu": 1, "Elu": 1
                  }.get(name, 0) for name in names]
        if any(needs):
            d.attribute("activation_alpha", [d.real(0.1, 0.5) for n in needs if n])
        if any(n == 2 for n in needs):
            if any(n == 1 for n in needs):
                raise Unfit  # readings differ on which activation a beta belongs to
            d.attribute("activation_beta", [d.real(0.1, 0.5) for n in needs if n == 2])
    d.results = 3 if d.op == "LSTM" else 2


FAMILY = {
    **dict.fromkeys(("BlackmanWindow", "HammingWindow", "HannWindow"), signal_window),
    **dict.fromkeys(("GRU", "LSTM", "RNN"), recurrent),
    "DFT": dft, "Det": det, "Einsum": einsum, "Gemm": gemm, "MatMul": matmul,
    "MelWeightMatrix": mel, "STFT": stft,
}
