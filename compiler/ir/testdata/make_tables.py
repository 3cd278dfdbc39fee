"""Writes the tables that the reference kernels are tested against.

Needs mpmath, numpy and ml_dtypes; none of the code under test is used. Values are exact bits
in hexadecimal, computed with 400 bits and rounded to nearest even by an exact search in fractions.

    functions.txt   function dtype operand [operand] result
    encode.txt      dtype f64-operand result
    decode.txt      dtype code f64-result       (every code of the 8-bit formats, some of 16 bits)
    philox.txt      seed element word

Usage: python3 make_tables.py [directory]
"""

import math
import pathlib
import random
import struct
import sys
from fractions import Fraction

import ml_dtypes
import mpmath
import numpy as np

mpmath.mp.prec = 400
# name: (bytes, significand digits, smallest normal exponent, largest exponent)
FORMATS = {"f16": (2, 11, -14, 15), "bf16": (2, 8, -126, 127), "f32": (4, 24, -126, 127),
           "f64": (8, 53, -1022, 1023), "f8e4m3": (1, 4, -6, 8), "f8e5m2": (1, 3, -14, 15)}
NUMPY = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64,
         "f8e4m3": ml_dtypes.float8_e4m3fn, "f8e5m2": ml_dtypes.float8_e5m2,
         "f8e8m0": ml_dtypes.float8_e8m0fnu}
UINT = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


def f64_bits(value: float) -> str:
    return f"{struct.unpack('<Q', struct.pack('<d', value))[0]:016x}"


def decode(dtype: str, code: int) -> float:
    kind = NUMPY[dtype]
    return float(np.array([code], dtype=UINT[np.dtype(kind).itemsize]).view(kind)[0])


def code_of(dtype: str, value: float) -> str:
    """Hex code of a value that the dtype holds exactly, or of an infinity or NaN."""
    size = FORMATS[dtype][0]
    array = np.array([value], dtype=np.float64).astype(NUMPY[dtype])
    return f"{int(array.view(UINT[size])[0]):0{2 * size}x}"


def round_fraction(dtype: str, exact: Fraction, negative_zero: bool = False) -> float:
    """Nearest even in the dtype, as a float; infinity beyond (NaN in f8e4m3)."""
    _, digits, low, high = FORMATS[dtype]
    if exact == 0:
        return -0.0 if negative_zero else 0.0
    magnitude = abs(exact)
    exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    if Fraction(2) ** exponent > magnitude:
        exponent -= 1
    quantum = Fraction(2) ** (max(exponent, low) - digits + 1)
    rounded = round(magnitude / quantum) * quantum  # Fraction.__round__ is to even
    largest = (2 - Fraction(2) ** (1 - digits)) * Fraction(2) ** high
    if dtype == "f8e4m3":
        largest = Fraction(448)
    if rounded > largest:
        rounded = math.nan if dtype == "f8e4m3" else math.inf
    return math.copysign(float(rounded), -1 if exact < 0 else 1)


def to_fraction(value: mpmath.mpf) -> Fraction:
    sign, mantissa, exponent, _ = value._mpf_
    return Fraction(-mantissa if sign else mantissa) * Fraction(2) ** exponent


def gelu_tanh(x):
    return x * (1 + mpmath.tanh(mpmath.sqrt(2 / mpmath.pi)
                                * (x + mpmath.mpf("0.044715") * x ** 3))) / 2


MP = {"Log2": lambda x: mpmath.log(x) / mpmath.log(2), "Exp2": lambda x: mpmath.mpf(2) ** x,
      "Sin": mpmath.sin, "Sqrt": mpmath.sqrt, "Recip": lambda x: 1 / x, "Exp": mpmath.exp,
      "Log": mpmath.log, "Tanh": mpmath.tanh, "Erf": mpmath.erf,
      "Sigmoid": lambda x: 1 / (1 + mpmath.exp(-x)), "Silu": lambda x: x / (1 + mpmath.exp(-x)),
      "Gelu": lambda x: x * mpmath.erfc(-x / mpmath.sqrt(2)) / 2, "GeluTanh": gelu_tanh}
POSITIVE = {"Log2", "Log", "Sqrt"}
# Written after the others, each with its own operands, and with the interval of its domain.
EVERYWHERE = (-math.inf, math.inf)
MORE = {"Cos": (mpmath.cos, EVERYWHERE), "Tan": (mpmath.tan, EVERYWHERE),
        "Asin": (mpmath.asin, (-1, 1)), "Acos": (mpmath.acos, (-1, 1)),
        "Atan": (mpmath.atan, EVERYWHERE), "Sinh": (mpmath.sinh, EVERYWHERE),
        "Cosh": (mpmath.cosh, EVERYWHERE), "Asinh": (mpmath.asinh, EVERYWHERE),
        "Acosh": (mpmath.acosh, (1, math.inf)), "Atanh": (mpmath.atanh, (-1, 1)),
        "Log1p": (mpmath.log1p, (-1, math.inf)), "Expm1": (mpmath.expm1, EVERYWHERE)}
LARGE_TOO = {"Cos", "Tan", "Atan", "Asinh", "Acosh", "Log1p"}


def inputs_of(name: str, dtype: str, rng: random.Random) -> list:
    _, digits, low, high = FORMATS[dtype]
    values = [1.0, 0.5, 1.5, 2.0, 3.0, 0.1, 0.7, 5.25, 11.0, 2.0 ** -10]
    values += [rng.uniform(0.01, 8) for _ in range(10)]
    if name in ("Log", "Log2", "Sqrt", "Sin", "Recip"):
        values += [2.0 ** (low - digits + 1), 2.0 ** low, 2.0 ** (high - 1) * 1.3, 100.7, 12345.0]
    if name in ("Sin", "Tanh", "Erf"):
        values += [2.0 ** (low - digits + 1), 2.0 ** (low + 3)]
    values = [round_fraction(dtype, Fraction(v)) for v in values]
    if name not in POSITIVE:
        values += [-v for v in values]
    return list(dict.fromkeys(v for v in values if math.isfinite(v)))


def more_inputs_of(name: str, dtype: str, ends: tuple) -> list:
    _, digits, low, high = FORMATS[dtype]
    rng = random.Random(f"{name} {dtype}")
    values = [1.0, 0.5, 1.5, 2.0, 3.0, 0.1, 0.7, 5.25, 11.0, 2.0 ** -10, 1 - 2.0 ** -7,
              1 + 2.0 ** -7, 2.0 ** (low - digits + 1), 2.0 ** low, 2.0 ** (low + 3)]
    values += [rng.uniform(0.01, 1) for _ in range(10)]
    values += [rng.uniform(1, 8) for _ in range(10)]
    if name in LARGE_TOO:
        values += [2.0 ** (high - 1) * 1.3, 100.7, 12345.0]
    values = [round_fraction(dtype, Fraction(v)) for v in values]
    values += [-v for v in values]
    # At the ends, results are infinite or exact.
    inside = (v for v in values if math.isfinite(v) and ends[0] < v < ends[1])
    return list(dict.fromkeys(inside))


def more_rows() -> list:
    rows = []
    for name, (function, ends) in MORE.items():
        for dtype in ("f16", "bf16", "f32", "f64"):
            for value in more_inputs_of(name, dtype, ends):
                result = round_fraction(dtype, to_fraction(function(mpmath.mpf(value))), value < 0)
                rows.append(f"{name} {dtype} {code_of(dtype, value)} {code_of(dtype, result)}")
    return rows


def function_rows(rng: random.Random) -> list:
    rows = []
    for name, function in MP.items():
        for dtype in ("f16", "bf16", "f32", "f64"):
            for value in inputs_of(name, dtype, rng):
                exact = to_fraction(function(mpmath.mpf(value)))
                result = round_fraction(dtype, exact, value < 0)
                rows.append(f"{name} {dtype} {code_of(dtype, value)} {code_of(dtype, result)}")
    for dtype in ("f16", "bf16", "f32", "f64"):
        for base, exponent in [(2, 10), (2, -3), (-2, 3), (0.5, 0.5), (3, 0.25), (1.1, 7.5),
                               (9, -0.5), (-1.5, 4), (10, 3), (0.3, 2)]:
            a = round_fraction(dtype, Fraction(base))
            b = round_fraction(dtype, Fraction(exponent))
            exact = to_fraction(mpmath.mpf(a) ** mpmath.mpf(b))
            rows.append(f"Pow {dtype} {code_of(dtype, a)} {code_of(dtype, b)} "
                        f"{code_of(dtype, round_fraction(dtype, exact))}")
    return rows


def encode_rows(rng: random.Random) -> list:
    rows = []
    for dtype in ("f16", "bf16", "f32", "f8e4m3", "f8e5m2"):
        _, digits, low, high = FORMATS[dtype]
        values = [0.0, -0.0, 1.0, math.inf, -math.inf, 448.0, 464.0, 465.0, 480.0, 65504.0, 65519.0,
                  65520.0, 57344.0, 61439.0, 61440.0, 2.0 ** 128, (2 - 2.0 ** -24) * 2.0 ** 127]
        for _ in range(12):  # halfway, and as little beside it as a double can say
            exponent = rng.randint(low - digits, min(high, low + 40))
            step = 2.0 ** (max(exponent, low) - digits + 1)
            middle = (rng.randrange(1, 2 ** digits) + 0.5) * step
            values += [middle, math.nextafter(middle, 0), -math.nextafter(middle, math.inf)]
        values += [math.ldexp(rng.uniform(-2, 2), rng.randint(low - digits, high))
                   for _ in range(20)]
        for value in values:
            result = value if math.isinf(value) else round_fraction(
                dtype, Fraction(value), math.copysign(1, value) < 0)
            if math.isinf(value) and dtype == "f8e4m3":
                result = math.nan
            if math.isnan(result):
                rows.append(f"{dtype} {f64_bits(value)} nan")
            else:
                rows.append(f"{dtype} {f64_bits(value)} {code_of(dtype, result)}")
    return rows


def decode_rows(rng: random.Random) -> list:
    rows = []
    for dtype in ("f8e4m3", "f8e5m2", "f8e8m0", "f16", "bf16"):
        if dtype.startswith("f8"):
            codes = range(256)
        else:
            codes = [0, 1, 2, 0x3ff, 0x400, 0x7f, 0x80, 0x7bff, 0x7c00, 0x7f7f, 0x7f80, 0x7fc0,
                     0x8000, 0x8001, 0xfc00, 0xff80] + [rng.randrange(65536) for _ in range(40)]
        for code in codes:
            value = decode(dtype, code)
            rows.append(f"{dtype} {code:04x} {'nan' if math.isnan(value) else f64_bits(value)}")
    return rows


def philox(counter: list, key: list) -> list:
    """Philox4x32-10 from its description: Salmon et al., SC 2011, section 3."""
    c, k = list(counter), list(key)
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(b >> 32) ^ c[1] ^ k[0], b & 0xFFFFFFFF, (a >> 32) ^ c[3] ^ k[1], a & 0xFFFFFFFF]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c


def philox_rows() -> list:
    ones = 0xFFFFFFFF  # the three known answers published with the algorithm
    assert philox([0] * 4, [0] * 2) == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    assert philox([ones] * 4, [ones] * 2) == [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]
    assert philox([0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344], [0xA4093822, 0x299F31D0]) == [
        0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1]
    rows = []
    for seed in (0, 1, 0x0123456789ABCDEF, 0xFFFFFFFFFFFFFFFF):
        for element in range(11):
            word = philox([element // 4, 0, 0, 0], [seed & ones, seed >> 32])[element % 4]
            rows.append(f"{seed:016x} {element} {word:08x}")
    return rows


def main() -> None:
    directory = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent)
    rng = random.Random(20240611)
    for name, rows in (("functions", function_rows(rng) + more_rows()),
                       ("encode", encode_rows(rng)), ("decode", decode_rows(rng)),
                       ("philox", philox_rows())):
        (directory / f"{name}.txt").write_text("\n".join(rows) + "\n")


if __name__ == "__main__":
    main()
