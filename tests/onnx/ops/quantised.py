"""Quantised ops of both domains. Scales are powers of two or not; results may differ by one step
where a product is rounded to f32 before it is divided by the scale."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import window
from draw import FLOATS, Draw, Elem

BYTES = (Elem.INT8, Elem.UINT8)


def _scale(d: Draw, shape: list[int] | tuple = (), low: float = 0.02, high: float = 0.3
           ) -> np.ndarray:
    return np.asarray(d.random.uniform(low, high, shape), np.float32)


def _bytes(d: Draw, elem: int, shape: list[int]) -> np.ndarray:
    return d.array(elem, shape, -128, 255)


def _zero(d: Draw, elem: int, shape: list[int] | tuple = ()) -> np.ndarray:
    return d.array(elem, shape, -20, 20) if d.coin(0.8) else d.array(elem, shape, 0, 0)


def quantize(d: Draw) -> None:
    """Per tensor, axis or block; zero point left out, or of the type that is wanted."""
    data = d.elem(d.schema.inputs[0].name, [*FLOATS, Elem.INT32])
    code = d.elem(d.schema.outputs[0].name)
    shape = d.shape(1, 4, empty=False, most=200)
    _with_scales(d, shape, data, code, lambda: d.array(data, shape, -9, 9), data)


def _with_scales(d: Draw, shape: list[int], given: int, code: int,
                 contents: Callable[[], np.ndarray], scale_elem: int) -> None:
    axis = d.axis(len(shape))
    ways = ["tensor", *(["axis"] if d.opset >= 13 else []), *(["block"] if d.opset >= 21 else [])]
    way = d.choose(ways)
    sizes: list[int] = []
    if way == "axis":
        sizes = [shape[axis]]
    elif way == "block":
        block = d.whole(1, shape[axis])
        sizes = list(shape)
        sizes[axis] = math.ceil(shape[axis] / block)
        d.attribute("block_size", block)
    d.attribute("axis", axis, 0 if way == "tensor" else 1)
    d.operand(contents(), given, known=0.2)
    scale = Elem.FLOAT if scale_elem not in FLOATS else scale_elem
    d.operand(_scale(d, sizes).astype(d.array(scale, [0]).dtype), scale)
    if code in (Elem.INT32,) or code not in (Elem.INT8, Elem.UINT8, Elem.INT16, Elem.UINT16,
                                             Elem.INT4, Elem.UINT4):
        d.operand(d.array(code, sizes, 0, 0), code)
    elif code != Elem.UINT8 or d.coin(0.8) or d.op == "DequantizeLinear":
        d.operand(d.array(code, sizes, -5, 5), code)
    if scale in (Elem.FLOAT16, Elem.BFLOAT16) and d.op == "QuantizeLinear":
        # The quotient is rounded before the code is: a step of float8 is up to a quarter.
        d.steps, d.rtol = 1, 0.26


def dequantize(d: Draw) -> None:
    """Likewise."""
    code = d.elem(d.schema.inputs[0].name)
    scale = d.elem("x_scale", FLOATS) if d.opset >= 19 else Elem.FLOAT
    shape = d.shape(1, 4, empty=False, most=200)
    _with_scales(d, shape, code, code, lambda: _bytes(d, code, shape), scale)


def dynamic_quantize(d: Draw) -> None:
    """0 is always within the range."""
    low = d.choose([-9, 0, 1])
    d.operand(d.array(Elem.FLOAT, d.shape(0, 4, empty=False), low, 9), Elem.FLOAT)
    d.results = 3
    d.steps = 1


def _product(d: Draw) -> tuple[list[int], list[int]]:
    m, k, n = d.whole(1, 5), d.whole(1, 9), d.whole(1, 5)
    batch = d.shape(0, 2, empty=False, most=6)
    return [*batch, m, k], [*(batch if d.coin() else []), k, n]


def matmul_integer(d: Draw) -> None:
    """Zero points per tensor, of B also per column."""
    a, b = d.elem("A"), d.elem("B")
    left, right = _product(d)
    d.operand(_bytes(d, a, left), a)
    d.operand(_bytes(d, b, right), b)
    if d.coin(0.7):
        d.operand(_zero(d, a), a)
        if d.coin(0.8):
            columns = len(right) == 2 and d.coin()
            d.operand(_zero(d, b, [right[-1]] if columns else []), b, known=0.7)


def qlinear_matmul(d: Draw) -> None:
    """The scale of B per column too."""
    types = [d.elem(f"{x}_zero_point", BYTES) for x in "aby"]
    left, right = _product(d)
    columns = len(right) == 2 and d.coin(0.3)
    for elem, shape, wide in ((types[0], left, False), (types[1], right, columns)):
        d.operand(_bytes(d, elem, shape), elem)
        sizes = [right[-1]] if wide else []
        d.operand(_scale(d, sizes), Elem.FLOAT)
        d.operand(_zero(d, elem, sizes), elem)
    d.operand(_scale(d, [], 0.5, 5), Elem.FLOAT)
    d.operand(_zero(d, types[2]), types[2])
    d.steps = 1


def conv_integer(d: Draw) -> None:
    """Padding is the zero point."""
    x, w = d.elem("x"), d.elem("w")
    kernel, image = window._window(d, d.whole(1, 2))
    group = d.whole(1, 2)
    inner, maps = d.whole(1, 2), group * d.whole(1, 2)
    d.operand(_bytes(d, x, [d.whole(1, 2), group * inner, *image]), x)
    d.operand(_bytes(d, w, [maps, inner, *kernel]), w)
    if d.coin(0.7):
        d.operand(_zero(d, x), x)
        if d.coin():
            d.operand(_zero(d, w), w)
    d.attribute("group", group)
    d.attribute("kernel_shape", kernel, 0.5)


def qlinear_conv(d: Draw) -> None:
    """Per channel of the weight."""
    x, w = d.elem("x"), d.elem("w")
    y = d.elem("y_zero_point")
    kernel, image = window._window(d, d.whole(1, 2))
    group = d.whole(1, 2)
    inner, maps = d.whole(1, 2), group * d.whole(1, 2)
    sizes = [maps] if d.coin() else []
    d.operand(_bytes(d, x, [d.whole(1, 2), group * inner, *image]), x)
    d.operand(_scale(d), Elem.FLOAT)
    d.operand(_zero(d, x), x)
    d.operand(_bytes(d, w, [maps, inner, *kernel]), w, known=1)
    d.operand(_scale(d, sizes), Elem.FLOAT, known=1)
    d.operand(d.array(w, sizes, 0, 0) if sizes else _zero(d, w), w, known=1)
    d.operand(_scale(d, [], 0.5, 5), Elem.FLOAT)
    d.operand(_zero(d, y), y)
    if d.coin():
        d.operand(d.array(Elem.INT32, [maps], -200, 200), Elem.INT32, known=1)
    d.attribute("group", group)
    d.attribute("kernel_shape", kernel, 0.5)
    d.steps = 1


def q_binary(d: Draw) -> None:
    """QLinearAdd, QLinearMul: operands broadcast."""
    elem = d.elem("T")
    shape = d.shape(1, 4, empty=False)
    for sizes in (shape, d.below(shape)):
        d.operand(_bytes(d, elem, sizes), elem)
        d.operand(_scale(d), Elem.FLOAT)
        d.operand(_zero(d, elem), elem)
    d.operand(_scale(d, [], 0.1, 2), Elem.FLOAT)
    d.operand(_zero(d, elem), elem)
    d.steps = 1


def _q_unary(d: Draw, shape: list[int], low: float = 0.02, high: float = 0.3) -> None:
    elem = d.elem("T")
    d.operand(_bytes(d, elem, shape), elem)
    d.operand(_scale(d), Elem.FLOAT)
    d.operand(_zero(d, elem), elem)
    d.operand(_scale(d, [], low, high), Elem.FLOAT, known=1)
    d.operand(_zero(d, elem), elem, known=1)
    d.steps = 1


def q_unary(d: Draw) -> None:
    """QLinearSigmoid, QLinearLeakyRelu."""
    _q_unary(d, d.shape(1, 4, empty=False))
    if d.op == "QLinearLeakyRelu":
        d.attribute("alpha", d.real(0.01, 0.5), 0.7)


def q_softmax(d: Draw) -> None:
    """Draws by the rules before opset 13 or since."""
    shape = d.shape(1, 4, empty=False)
    # 1 is within the range: ONNX Runtime wraps around where it is not.
    _q_unary(d, shape, 0.012, 0.03)
    d.attribute("opset", d.opset)
    d.attribute("axis", d.whole(-len(shape), len(shape) - 1))


def q_pool(d: Draw) -> None:
    """Global or over windows."""
    last = d.coin(0.3)
    if d.op == "QLinearGlobalAveragePool":
        image = d.shape(2, 2, empty=False, most=60)
    else:
        kernel, image = window._window(d, 2, dilated=False, ceil=True, pad_less=True)
        d.attribute("kernel_shape", kernel)
        d.attribute("count_include_pad", d.whole(0, 1), 0.6)
    n, c = d.whole(1, 2), d.whole(1, 4)
    _q_unary(d, [n, *image, c] if last else [n, c, *image])
    d.attribute("channels_last", int(last), 1 if last else 0.3)


def q_concat(d: Draw) -> None:
    """Each part of its own scale."""
    elem = d.elem("T8")
    d.operand(_scale(d), Elem.FLOAT)
    d.operand(_zero(d, elem), elem)
    shape = d.shape(1, 4, empty=False)
    axis = d.whole(-len(shape), len(shape) - 1)
    for _ in range(d.whole(1, 3)):
        part = list(shape)
        part[axis] = d.whole(1, 4)
        d.operand(_bytes(d, elem, part), elem)
        d.operand(_scale(d), Elem.FLOAT, known=1)
        d.operand(_zero(d, elem), elem, known=1)
    d.attribute("axis", axis)
    d.steps = 1


def q_gemm(d: Draw) -> None:
    """Quantised again, or as floats where it has no scale of Y."""
    a, b = d.elem("TA"), d.elem("TB")
    if a == Elem.INT8:
        b = Elem.INT8
    m, k, n = d.whole(1, 5), d.whole(1, 9), d.whole(1, 5)
    left, right = d.coin(), d.coin()
    d.operand(_bytes(d, a, [k, m] if left else [m, k]), a)
    d.operand(_scale(d), Elem.FLOAT, known=1)
    d.operand(_zero(d, a), a, known=1)
    columns = [n] if d.coin(0.4) else []
    d.operand(_bytes(d, b, [n, k] if right else [k, n]), b)
    d.operand(_scale(d, columns), Elem.FLOAT, known=1)
    d.operand(_zero(d, b, columns), b, known=1)
    again = d.coin()
    if d.coin():
        d.operand(d.array(Elem.INT32, [n], -200, 200), Elem.INT32)
    elif again:
        d.omit()
    if again:
        d.operand(_scale(d, [], 0.5, 5), Elem.FLOAT, known=1)
        d.operand(_zero(d, a), a, known=1)
        d.steps = 1
    d.attribute("transA", int(left))
    d.attribute("transB", int(right))
    d.attribute("alpha", d.real(0.5, 2), 0.5)


def to_float(d: Draw) -> None:
    """MatMulIntegerToFloat, DynamicQuantizeMatMul."""
    dynamic = d.op == "DynamicQuantizeMatMul"
    a = Elem.FLOAT if dynamic else d.elem("T1")
    b = d.elem("T2")
    m, k, n = d.whole(1, 5), d.whole(1, 9), d.whole(1, 5)
    d.operand(d.array(a, [m, k], -9, 9) if dynamic else _bytes(d, a, [m, k]), a)
    d.operand(_bytes(d, b, [k, n]), b, known=1)
    columns = [n] if d.coin(0.4) else []
    if not dynamic:
        d.operand(_scale(d), Elem.FLOAT)
    d.operand(_scale(d, columns), Elem.FLOAT)
    if not dynamic:
        d.operand(_zero(d, a), a)
    d.operand(_zero(d, b, columns), b)
    if d.coin():
        d.operand(d.array(Elem.FLOAT, [n]), Elem.FLOAT)
    # A value halfway between two codes may be rounded to either.
    d.rtol, d.atol = (1e-2, 1e-2) if dynamic else (1e-5, 1e-5)


def dynamic_lstm(d: Draw) -> None:
    """Both directions, shorter sequences, initial states, peepholes; scales per tensor or column.
    ONNX Runtime wants zero points alike, and of the scales' rank."""
    elem = d.elem("T2")
    steps, batch, width, hidden = d.whole(1, 5), d.whole(1, 3), d.whole(1, 4), d.whole(1, 4)
    direction = str(d.choose(["forward", "reverse", "bidirectional"]))
    count = 2 if direction == "bidirectional" else 1
    d.operand(d.array(Elem.FLOAT, [steps, batch, width]), Elem.FLOAT, known=0)
    d.operand(_bytes(d, elem, [count, width, 4 * hidden]), elem, known=1)
    d.operand(_bytes(d, elem, [count, hidden, 4 * hidden]), elem, known=1)
    optional = [([count, 8 * hidden], 0.6), None, ([count, batch, hidden], 0.5),
                ([count, batch, hidden], 0.5), ([count, 3 * hidden], 0.3)]
    for each in optional:
        if each is None and d.coin(0.4):
            lengths = d.random.integers(1, steps, batch, endpoint=True).astype(np.int32)
            d.operand(lengths, Elem.INT32, known=0.2)
        elif each is not None and d.coin(each[1]):
            d.operand(d.array(Elem.FLOAT, each[0], -1, 1), Elem.FLOAT, known=0.8)
        else:
            d.omit()
    for _ in "WR":
        columns = d.coin(0.4)
        sizes = [count, 4 * hidden] if columns else [count]
        zero = 0 if columns and elem == Elem.INT8 else d.whole(-9, 9) % 200
        d.operand(_scale(d, sizes, 0.002, 0.02), Elem.FLOAT, known=1)
        d.operand(d.array(elem, sizes, zero, zero) if columns else _zero(d, elem, sizes), elem,
                  known=1)
    d.attribute("direction", direction, 1 if direction != "forward" else 0.5)
    d.attribute("hidden_size", hidden)
    d.attribute("input_forget", d.whole(0, 1), 0.3)
    d.attribute("clip", d.real(0.3, 2), 0.2)
    d.results = 3
    # A value halfway between two codes may be rounded to either.
    d.rtol, d.atol = 1e-2, 1e-2


def matmul_n_bits(d: Draw) -> None:
    """Blocks of 4 or 8 bits, zero points packed, a bias."""
    elem = d.elem("T1", [Elem.FLOAT, Elem.FLOAT16])
    bits, block = int(d.choose([4, 4, 8])), int(d.choose([16, 32]))
    k, n = d.whole(1, 70), d.whole(1, 9)
    blocks = math.ceil(k / block)
    d.operand(d.array(elem, [*d.shape(1, 2, empty=False, most=6), k], -1, 1), elem, known=0)
    d.operand(d.random.integers(0, 256, [n, blocks, block * bits // 8]).astype(np.uint8),
              Elem.UINT8, known=1)
    dtype = d.array(elem, [0]).dtype
    flat = d.coin()
    scales = d.random.uniform(0.02, 0.2, [n * blocks] if flat else [n, blocks]).astype(dtype)
    d.operand(scales, elem, known=1)
    bias = d.coin(0.3)
    if d.coin():
        row = math.ceil(blocks * bits / 8)
        zero = d.random.integers(0, 256, [n * row] if flat else [n, row]).astype(np.uint8)
        d.operand(zero, Elem.UINT8, known=1)
    elif bias:
        d.omit()
    if bias:
        d.omit()
        d.operand(d.array(elem, [n]), elem)
    for name, value in (("K", k), ("N", n), ("bits", bits), ("block_size", block)):
        d.attribute(name, value)
    d.attribute("accuracy_level", d.whole(0, 1), 0.3)
    d.atol = 1e-4 if elem == Elem.FLOAT else 2e-2


FAMILY = {
    "ConvInteger": conv_integer, "DequantizeLinear": dequantize,
    "DynamicQuantizeLinear": dynamic_quantize, "MatMulInteger": matmul_integer,
    "QLinearConv": qlinear_conv, "QLinearMatMul": qlinear_matmul, "QuantizeLinear": quantize,
}
MICROSOFT = {
    **dict.fromkeys(("QLinearAdd", "QLinearMul"), q_binary),
    **dict.fromkeys(("QLinearLeakyRelu", "QLinearSigmoid"), q_unary),
    **dict.fromkeys(("QLinearAveragePool", "QLinearGlobalAveragePool"), q_pool),
    **dict.fromkeys(("DynamicQuantizeMatMul", "MatMulIntegerToFloat"), to_float),
    "DynamicQuantizeLSTM": dynamic_lstm, "MatMulNBits": matmul_n_bits, "QGemm": q_gemm,
    "QLinearConcat": q_concat, "QLinearSoftmax": q_softmax,
}
