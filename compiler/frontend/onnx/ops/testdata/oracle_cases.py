"""Writes window_cases.txt and recurrent_cases.txt: single nodes, drawn from a seed, with the
results of ONNX Runtime. Run in this folder: python oracle_cases.py

A case is a line "case OP OPSET", one for each attribute, operand and result:

    attr pads ints 1 0 1 0
    in float32 1,2,3 0.5 -1 ...        # an omitted operand is "in -"
    out int64 1,2 3 0
"""

from __future__ import annotations

import pathlib

import numpy as np
import onnxruntime as ort
from onnx import TensorProto, helper

KINDS = {int: "int", float: "float", str: "string"}
ELEMS = {np.dtype(name): getattr(TensorProto, proto) for name, proto in [
    ("float32", "FLOAT"), ("float64", "DOUBLE"), ("int32", "INT32"), ("int64", "INT64"),
    ("uint8", "UINT8"), ("int8", "INT8")]}


class Writer:
    """Cases of one file; those that ONNX Runtime refuses are left out and counted."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.lines: list[str] = []
        self.refused: dict[str, int] = {}

    def add(self, op: str, opset: int, operands: list[np.ndarray | None], results: int = 1,
            **attrs: object) -> None:
        """A case; attributes that are None are left out."""
        attrs = {name: value for name, value in attrs.items() if value is not None}
        names = ["" if a is None else f"x{i}" for i, a in enumerate(operands)]
        outputs = [f"y{i}" for i in range(results)]
        given = [(n, a) for n, a in zip(names, operands, strict=True) if a is not None]
        graph = helper.make_graph(
            [helper.make_node(op, names, outputs, **attrs)], "case",
            [helper.make_tensor_value_info(n, ELEMS[a.dtype], a.shape) for n, a in given],
            [helper.make_empty_tensor_value_info(y) for y in outputs])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)],
                                  ir_version=8)
        options = ort.SessionOptions()
        options.log_severity_level = 4
        try:
            session = ort.InferenceSession(model.SerializeToString(), options)
            got = session.run(None, dict(given))
        except Exception:  # noqa: BLE001 - whatever it is, no value is expected
            self.refused[op] = self.refused.get(op, 0) + 1
            return
        self.lines.append(f"case {op} {opset}")
        for name, value in attrs.items():
            values = value if isinstance(value, list) else [value]
            kind = KINDS[type(values[0])] + ("s" if isinstance(value, list) else "")
            self.lines.append(f"attr {name} {kind} {' '.join(map(str, values))}")
        for array in operands:
            self.lines.append("in -" if array is None else f"in {text(array)}")
        self.lines += [f"out {text(array)}" for array in got]

    def ints(self, shape: tuple[int, ...], dtype: str = "float32", low: int = -4,
             high: int = 5) -> np.ndarray:
        """Return small integers, whose sums are exact."""
        return self.rng.integers(low, high, shape).astype(dtype)

    def write(self, name: str) -> None:
        """Write the file into this folder."""
        path = pathlib.Path(__file__).with_name(name)
        path.write_text("\n".join(self.lines) + "\n")
        print(name, sum(line.startswith("case") for line in self.lines), "refused:", self.refused)


def text(array: np.ndarray) -> str:
    """Return the array's dtype, shape and numbers as text."""
    shape = ",".join(map(str, array.shape)) or "-"
    numbers = " ".join(repr(v).removesuffix(".0") for v in array.ravel().tolist())
    return f"{array.dtype} {shape} {numbers}".rstrip()


def pick(rng: np.random.Generator, *choices: object) -> object:
    """Return one of the choices."""
    return choices[rng.integers(len(choices))]


def steps(rng: np.random.Generator, rank: int, high: int) -> list[int] | None:
    """Return random steps for an attribute, or None to omit it."""
    return pick(rng, None, [int(v) for v in rng.integers(1, high + 1, rank)])


def windows() -> None:
    """Convolutions and pools of one to three axes."""
    w = Writer(1)
    rng = w.rng
    for i in range(150):
        rank = int(pick(rng, 1, 2, 2, 3))
        size = tuple(int(v) for v in rng.integers(5, 9, rank)) if rank < 3 else (5, 4, 5)
        kernel = [int(v) for v in rng.integers(1, 4, rank)]
        batch, group = int(rng.integers(1, 3)), int(pick(rng, 1, 1, 2))
        channels, maps = group * int(rng.integers(1, 3)), group * int(rng.integers(1, 3))
        auto_pad = pick(rng, None, None, "SAME_UPPER", "SAME_LOWER", "VALID")
        pads = None if auto_pad else pick(
            rng, None, [int(min(p, k - 1)) for p, k in
                        zip(rng.integers(0, 3, 2 * rank), kernel * 2, strict=True)])
        same = auto_pad in ("SAME_UPPER", "SAME_LOWER")
        dilations = None if same else steps(rng, rank, 2)
        strides = steps(rng, rank, 3)
        if same and strides:
            strides = [min(s, k) for s, k in zip(strides, kernel, strict=True)]
        shared = {"strides": strides, "pads": pads, "auto_pad": auto_pad}
        x = w.ints((batch, channels, *size))
        weights = w.ints((maps, channels // group, *kernel))
        bias = pick(rng, None, w.ints((maps,)))
        match i % 10:
            case 0 | 1:
                w.add("Conv", int(pick(rng, 6, 11, 22)),
                      [x, weights] + ([] if bias is None else [bias]),
                      group=group, dilations=dilations, **shared)
            case 2 | 3:
                more = pick(rng, None, [int(s) - 1 for s in strides or [1] * rank])
                out = pick(rng, None, None, [s * n for s, n in
                                             zip(strides or [1] * rank, size, strict=True)])
                w.add("ConvTranspose", 11,
                      [x, w.ints((channels, maps // group, *kernel)),
                       *([] if bias is None else [bias])],
                      group=group, dilations=dilations, strides=strides,
                      output_padding=None if same or out else more, auto_pad=auto_pad,
                      output_shape=None if auto_pad == "VALID" else out,
                      pads=None if out else pads)
            case 4:
                w.add("ConvInteger", 10,
                      [w.ints(x.shape, "uint8", 0, 9), w.ints(weights.shape, "uint8", 0, 9),
                       np.array(3, "uint8"), np.array(2, "uint8")],
                      group=group, dilations=dilations, **shared)
            case 5:
                # Scales without ties between neighbouring results.
                w.add("QLinearConv", 10,
                      [w.ints(x.shape, "uint8", 0, 200), np.array(0.11, "float32"),
                       np.array(100, "uint8"),
                       w.ints(weights.shape, "int8", -99, 99),
                       rng.uniform(0.01, 0.03, maps).astype("float32"), np.zeros(maps, "int8"),
                       np.array(0.37, "float32"), np.array(90, "uint8"),
                       w.ints((maps,), "int32", -50, 50)],
                      group=group, dilations=dilations, **shared)
            case 6 | 7:
                values = w.ints(x.shape, "float32", -9, 10)
                order = int(rng.integers(2))
                w.add("MaxPool", 12, [values], 1 if same else 2, kernel_shape=kernel,
                      storage_order=None if same else order, dilations=dilations,
                      ceil_mode=None if auto_pad else int(rng.integers(2)), **shared)
            case 8:
                w.add("AveragePool", 19, [x], kernel_shape=kernel, dilations=dilations,
                      count_include_pad=int(rng.integers(2)),
                      ceil_mode=None if auto_pad else int(rng.integers(2)), **shared)
            case 9:
                w.add("LpPool", 18, [x], kernel_shape=kernel, p=int(rng.integers(1, 4)),
                      dilations=dilations, ceil_mode=None if auto_pad else int(rng.integers(2)),
                      **shared)
    for op in ("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"):
        for shape in ((2, 3, 5), (1, 2, 3, 4)):
            w.add(op, 6, [w.ints(shape)])
    for op, opset in (("MaxPool", 6), ("MaxPool", 8), ("AveragePool", 6), ("AveragePool", 7),
                      ("AveragePool", 11), ("LpPool", 6), ("LpPool", 11)):
        w.add(op, opset, [w.ints((1, 2, 6, 5))], kernel_shape=[3, 2], strides=[2, 1],
              pads=[1, 0, 1, 1])
    positions = np.array([[[[0, 3], [9, 14]], [[21, 16], [24, 31]]]], "int64")
    w.add("MaxUnpool", 11, [w.ints((1, 2, 2, 2), low=1), positions], kernel_shape=[2, 2],
          strides=[2, 2])
    w.write("window_cases.txt")


def recurrent() -> None:
    """Cells with every attribute, at small sizes."""
    w = Writer(2)
    rng = w.rng
    plain = ["Sigmoid", "Tanh", "Relu", "Softsign", "Softplus"]
    scaled = ["Affine", "LeakyRelu", "ThresholdedRelu", "ScaledTanh", "HardSigmoid", "Elu"]
    for i in range(72):
        op, gates, functions, states = [
            ("RNN", 1, 1, 1), ("GRU", 3, 2, 1), ("LSTM", 4, 3, 2)][i % 3]
        steps_, batch, inputs, hidden = (int(v) for v in rng.integers([1, 1, 1, 1], [5, 4, 4, 4]))
        direction = pick(rng, None, "forward", "reverse", "bidirectional")
        d = 2 if direction == "bidirectional" else 1

        def real(*shape: int) -> np.ndarray:
            return np.round(rng.uniform(-1, 1, shape), 3).astype("float32")

        lens = pick(rng, None, None, rng.integers(1, steps_ + 1, batch).astype("int32"))
        operands = [real(steps_, batch, inputs), real(d, gates * hidden, inputs),
                    real(d, gates * hidden, hidden), pick(rng, None, real(d, 2 * gates * hidden)),
                    lens, *(pick(rng, None, real(d, batch, hidden)) for _ in range(states))]
        if op == "LSTM":
            operands.append(pick(rng, None, real(d, 3 * hidden)))
        while operands[-1] is None:
            operands.pop()
        activations = alpha = beta = None
        if rng.integers(2):
            activations = [str(pick(rng, *plain, *scaled)) for _ in range(functions * d)]
            uses = [a in scaled for a in activations]
            both = [a in ("Affine", "ScaledTanh", "HardSigmoid") for a in activations]
            alpha = [round(float(rng.uniform(0.2, 0.8)), 2) for u in uses if u] or None
            beta = [round(float(rng.uniform(0.2, 0.8)), 2) for u in both if u] or None
        extra = {"linear_before_reset": int(rng.integers(2))} if op == "GRU" else {}
        if op == "LSTM":
            extra["input_forget"] = int(rng.integers(2))
        w.add(op, 14, operands, 1 + states, hidden_size=hidden, direction=direction,
              activations=activations, activation_alpha=alpha, activation_beta=beta,
              clip=pick(rng, None, 0.5), **extra)
    w.write("recurrent_cases.txt")


if __name__ == "__main__":
    windows()
    recurrent()
