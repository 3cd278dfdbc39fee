"""Writes casts.txt, the casts of ml_dtypes for element types that are codes: `python casts.py`.

A line "decode TYPE" lists the number of each code, as bits of f32. A line "encode TYPE MODE" lists
the codes that all f16 values, in order of their bits, are cast to: "FIRST:CODE" at each change
(hexadecimal). MODE is "saturate", as onnx.numpy_helper.saturate_cast does, or "plain".
"""

import pathlib

import ml_dtypes
import numpy as np
from onnx.numpy_helper import saturate_cast

TYPES = {
    "float8e4m3fn": ml_dtypes.float8_e4m3fn,
    "float8e5m2": ml_dtypes.float8_e5m2,
    "float8e4m3fnuz": ml_dtypes.float8_e4m3fnuz,
    "float8e5m2fnuz": ml_dtypes.float8_e5m2fnuz,
    "float4e2m1": ml_dtypes.float4_e2m1fn,
    "float6e2m3": ml_dtypes.float6_e2m3fn,
    "float6e3m2": ml_dtypes.float6_e3m2fn,
}


def main() -> None:
    lines = []
    every = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    for name, dtype in TYPES.items():
        codes = np.arange(1 << ml_dtypes.finfo(dtype).bits, dtype=np.uint8)
        bits = codes.view(dtype).astype(np.float32).view(np.uint32)
        lines.append(f"decode {name} " + " ".join(f"{b:x}" for b in bits))
        for mode in ("saturate", "plain"):
            if mode == "saturate" and not name.startswith("float8"):
                continue
            cast = every.astype(dtype)
            if mode == "saturate":
                cast = saturate_cast(every, np.dtype(dtype))
            code = cast.view(np.uint8)
            first = np.flatnonzero(np.concatenate(([True], code[1:] != code[:-1])))
            runs = " ".join(f"{i:x}:{code[i]:x}" for i in first)
            lines.append(f"encode {name} {mode} {runs}")
    path = pathlib.Path(__file__).with_name("casts.txt")
    path.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
