"""Writes files that the gguf package makes, to test our reader and decoder against.

    decode.txt    form rows columns bytes numbers   (blocks of random bytes and what they stand for,
                                                     in hexadecimal as they lie in memory)
    small.gguf    keys of every type, tensors of some types (gguf_test.cc says which)

Scales and offsets, which are f16, are finite; all else is any byte.

Usage: python3 make_goldens.py [directory]          (needs gguf and numpy)
"""

import pathlib
import sys

import numpy as np
from gguf import GGMLQuantizationType, GGUFValueType, GGUFWriter, dequantize
from gguf.constants import GGML_QUANT_SIZES

# form: (offsets of its f16 numbers in a block, rows, blocks of a row)
FORMS = {"F32": ([], 2, 3), "F16": ([0], 2, 64), "BF16": ([], 2, 64), "Q4_0": ([0], 2, 3),
         "Q4_1": ([0, 2], 2, 3), "Q5_0": ([0], 2, 3), "Q5_1": ([0, 2], 2, 3), "Q8_0": ([0], 2, 3),
         "Q4_K": ([0, 2], 2, 2), "Q5_K": ([0, 2], 2, 2), "Q6_K": ([208], 2, 2)}


def decode_lines() -> str:
    random = np.random.default_rng(18)
    lines = ""
    for name, (halves, rows, blocks) in FORMS.items():
        form = GGMLQuantizationType[name]
        elements, size = GGML_QUANT_SIZES[form]
        data = random.integers(0, 256, (rows, blocks, size), dtype=np.uint8)
        for at in halves:
            # Clears an exponent bit of what would be infinite or no number.
            high = data[:, :, at + 1]
            high[(high & 0x7C) == 0x7C] ^= 0x04
        if name in ("F32", "BF16"):
            high = data[:, :, size - 1]
            high[(high & 0x7F) == 0x7F] ^= 0x01
        numbers = dequantize(data.reshape(rows, blocks * size), form)
        assert numbers.shape == (rows, blocks * elements) and np.isfinite(numbers).all()
        lines += (f"{name} {rows} {blocks * elements} {data.tobytes().hex()} "
                  f"{numbers.astype('<f4').tobytes().hex()}\n")
    return lines


def write_small(path: pathlib.Path) -> None:
    writer = GGUFWriter(path, "llama")
    types = GGUFValueType
    for value_type, value in ((types.UINT8, 255), (types.INT8, -128), (types.UINT16, 65535),
                              (types.INT16, -32768), (types.UINT32, 2**32 - 1),
                              (types.INT32, -2**31), (types.UINT64, 2**63 - 1),
                              (types.INT64, -2**63), (types.FLOAT32, 0.1), (types.FLOAT64, 0.1),
                              (types.BOOL, True), (types.STRING, "grüße")):
        writer.add_key_value("a." + value_type.name.lower(), value, value_type)
    writer.add_array("tokens", ["", "a", "▁b"])
    writer.add_array("scores", [0.5, -1.0])
    writer.add_array("merges", [1, -2, 3])
    writer.add_array("flags", [True, False])
    numbers = np.arange(6, dtype=np.float32).reshape(2, 3)
    writer.add_tensor("f32", numbers)
    writer.add_tensor("f16", numbers.astype(np.float16))
    blocks = np.arange(2 * 34, dtype=np.uint8).reshape(2, 34)
    writer.add_tensor("q8_0", blocks, raw_dtype=GGMLQuantizationType.Q8_0)
    writer.add_tensor("one", np.ones(1, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main() -> None:
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent)
    (folder / "decode.txt").write_text(decode_lines())
    write_small(folder / "small.gguf")


if __name__ == "__main__":
    main()
