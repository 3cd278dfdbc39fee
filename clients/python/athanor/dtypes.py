"""The dtypes as one table: our name, the protocol's, and numpy's.

numpy has no bf16 and no f8. If the package ml_dtypes is installed, its types are used; without it
such tensors are arrays of the unsigned integer of the same width, holding the bits.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from athanor.errors import InvalidArgument

ml_dtypes: Any
try:
    import ml_dtypes
except ImportError:
    ml_dtypes = None


@dataclasses.dataclass(frozen=True)
class DType:
    """A row of the table: ``name`` as in ``"f32"``, ``datatype`` as in ``"FP32"`` (None: storage
    only)."""

    name: str
    datatype: str | None
    numpy: np.dtype
    kind: str  # "bool", "signed", "unsigned", "float" or "storage"

    @property
    def computes(self) -> bool:
        """Reports whether arithmetic exists for it; the f8 dtypes are storage only."""
        return self.kind != "storage"

    @property
    def cast(self) -> str:
        """How to convert an array to it, for messages."""
        module = "np" if self.numpy.type.__module__ == "numpy" else "ml_dtypes"
        return f".astype({module}.{self.numpy.name})"


def _extra(name: str, otherwise: type) -> np.dtype:
    return np.dtype(getattr(ml_dtypes, name) if ml_dtypes else otherwise)


_ROWS = [
    DType("bool", "BOOL", np.dtype(np.bool_), "bool"),
    DType("i8", "INT8", np.dtype(np.int8), "signed"),
    DType("u8", "UINT8", np.dtype(np.uint8), "unsigned"),
    DType("i16", "INT16", np.dtype(np.int16), "signed"),
    DType("u16", "UINT16", np.dtype(np.uint16), "unsigned"),
    DType("i32", "INT32", np.dtype(np.int32), "signed"),
    DType("u32", "UINT32", np.dtype(np.uint32), "unsigned"),
    DType("i64", "INT64", np.dtype(np.int64), "signed"),
    DType("u64", "UINT64", np.dtype(np.uint64), "unsigned"),
    DType("f16", "FP16", np.dtype(np.float16), "float"),
    DType("bf16", "BF16", _extra("bfloat16", np.uint16), "float"),
    DType("f32", "FP32", np.dtype(np.float32), "float"),
    DType("f64", "FP64", np.dtype(np.float64), "float"),
    DType("f8e4m3", None, _extra("float8_e4m3fn", np.uint8), "storage"),
    DType("f8e5m2", None, _extra("float8_e5m2", np.uint8), "storage"),
    DType("f8e8m0", None, _extra("float8_e8m0fnu", np.uint8), "storage"),
]
# Elements for which the server has no dtype: their carrier, and the type of ml_dtypes with
# their values. Codes are the values' bits; of integers the carrier has the same values.
_ELEMENTS = {
    "float8e4m3fn": ("u8", "float8_e4m3fn"),
    "float8e4m3fnuz": ("u8", "float8_e4m3fnuz"),
    "float8e5m2": ("u8", "float8_e5m2"),
    "float8e5m2fnuz": ("u8", "float8_e5m2fnuz"),
    "float8e8m0": ("u8", "float8_e8m0fnu"),
    "float6e2m3": ("u8", "float6_e2m3fn"),
    "float6e3m2": ("u8", "float6_e3m2fn"),
    "float4e2m1": ("u8", "float4_e2m1fn"),
    "uint4": ("u8", "uint4"),
    "int4": ("i8", "int4"),
    "uint2": ("u8", "uint2"),
    "int2": ("i8", "int2"),
}
# By element; without those that the installed ml_dtypes lacks.
ELEMENTS: dict[str, np.dtype] = {
    name: np.dtype(getattr(ml_dtypes, their))
    for name, (_, their) in _ELEMENTS.items() if hasattr(ml_dtypes, their)
}
_CARRIERS = {kind: _ELEMENTS[name][0] for name, kind in ELEMENTS.items()}
DTYPES = {row.name: row for row in _ROWS}
BY_DATATYPE = {row.datatype: row for row in _ROWS if row.datatype}
# Plain integers take precedence over dtypes that they stand in for without ml_dtypes.
_BY_NUMPY: dict[np.dtype, DType] = {}
for _row in _ROWS:
    _BY_NUMPY.setdefault(_row.numpy, _row)


def dtype_of(value: str | DType | np.dtype | type) -> DType:
    """Returns the row for a name (``"f32"``), a numpy dtype or a row.

    Raises
    ------
    InvalidArgument
        If there is none; the message lists the names.
    """
    if isinstance(value, DType):
        return value
    if isinstance(value, str) and value in DTYPES:
        return DTYPES[value]
    try:
        return _BY_NUMPY[np.dtype(value)]
    except (KeyError, TypeError):
        raise InvalidArgument(
            f"{value!r} is not a dtype; the dtypes are {', '.join(DTYPES)}") from None


def carried(array: np.ndarray) -> np.ndarray:
    """Converts an array of an element without a dtype to its carrier; returns others unchanged."""
    carrier = _CARRIERS.get(array.dtype)
    if carrier is None:
        return array
    kind = DTYPES[carrier].numpy
    # Codes keep their bits, integers their values.
    return array.astype(kind) if "int" in array.dtype.name else array.view(kind)


def carried_back(array: np.ndarray, element: str) -> np.ndarray:
    """Undoes `carried`; without ml_dtypes returns the carrier itself."""
    kind = ELEMENTS.get(element)
    if kind is None:
        return array
    return array.astype(kind) if "int" in element else array.view(kind)


def array_bytes(array: np.ndarray) -> bytes:
    """Returns dense, row-major, little-endian bytes."""
    return array.tobytes()
