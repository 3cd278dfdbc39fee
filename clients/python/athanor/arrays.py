"""Arrays of users: numpy's, and CPU tensors of others that come by DLPack.

numpy reads DLPack itself, but not dtypes that it lacks, such as torch's bf16. These are read here,
after dlpack.h of DLPack 1.1 (https://dmlc.github.io/dlpack): the capsule "dltensor" holds a
DLManagedTensor, which begins with the DLTensor.
"""

from __future__ import annotations

import ctypes
from typing import Any, Protocol

import numpy as np

from athanor.dtypes import DTYPES, ELEMENTS
from athanor.errors import InvalidArgument

# DLDeviceType: memory that the CPU can read (kDLCPU, kDLCUDAHost, kDLROCMHost).
_HOST = (1, 3, 11)


class SupportsDLPack(Protocol):
    """A tensor of another package, such as torch.Tensor."""

    def __dlpack__(self, *, stream: Any = None) -> Any:
        """Returns the capsule."""

    def __dlpack_device__(self) -> tuple[Any, Any]:
        """Returns kind and number of the device that holds it."""
        raise NotImplementedError


class _DLTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


def _kinds() -> dict[tuple[int, int], np.dtype]:
    """Returns numpy's dtypes by DLDataTypeCode and bits."""
    kinds = {(4, 16): DTYPES["bf16"].numpy, (10, 8): DTYPES["f8e4m3"].numpy,
             (12, 8): DTYPES["f8e5m2"].numpy, (14, 8): DTYPES["f8e8m0"].numpy}
    for code, element in ((11, "float8e4m3fnuz"), (13, "float8e5m2fnuz")):
        if element in ELEMENTS:
            kinds[code, 8] = ELEMENTS[element]
    return kinds


def _tensor(capsule: object) -> _DLTensor:
    function = ctypes.pythonapi.PyCapsule_GetPointer
    function.restype, function.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return _DLTensor.from_address(function(capsule, b"dltensor"))


def _read(value: SupportsDLPack) -> np.ndarray | None:
    """Returns a copy of a tensor with a dtype that numpy lacks and this package has; None for other
    dtypes, and for tensors that the CPU cannot read.
    """
    if value.__dlpack_device__()[0] not in _HOST:
        return None
    capsule = value.__dlpack__()  # it holds the memory; its destructor frees the tensor
    tensor = _tensor(capsule)
    kind = _kinds().get((tensor.code, tensor.bits))
    if kind is None or tensor.lanes != 1:
        return None
    shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
    if 0 in shape:
        return np.empty(shape, kind)
    item = kind.itemsize
    if tensor.strides:
        strides = tuple(tensor.strides[i] * item for i in range(tensor.ndim))
    else:
        strides = np.empty(shape, kind).strides
    # Strides may be negative: the memory begins at the lowest element.
    steps = [(size - 1) * stride for size, stride in zip(shape, strides, strict=True)]
    low, high = sum(min(step, 0) for step in steps), sum(max(step, 0) for step in steps)
    start = tensor.data + tensor.byte_offset + low
    memory = (ctypes.c_uint8 * (high - low + item)).from_address(start)
    carrier = np.dtype(f"u{item}")
    return np.ndarray(shape, carrier, memory, -low, strides).copy(order="C").view(kind)


def _from_dlpack(value: SupportsDLPack, what: str) -> np.ndarray:
    try:
        return np.from_dlpack(value)
    except (BufferError, RuntimeError, TypeError) as error:
        failed: Exception = error
    try:
        array = _read(value)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        array, failed = None, error
    if array is None:
        raise InvalidArgument(
            f"{what} came by DLPack and cannot be read ({failed}); pass a CPU tensor without "
            f"gradients, of one of the dtypes {', '.join(DTYPES)}") from None
    return array


def host_array(value: Any, what: str) -> np.ndarray:
    """Converts an array, a numpy scalar, or anything with ``__dlpack__`` on the CPU to an array.

    Copies only if DLPack or numpy must, and tensors of dtypes that numpy lacks (bf16, f8). Refuses
    lists and Python numbers, which have no dtype of their own: guessing one would be a silent cast.
    """
    if isinstance(value, np.ndarray | np.generic):
        array = np.asarray(value)
    elif hasattr(value, "__dlpack__"):
        array = _from_dlpack(value, what)
    elif hasattr(value, "__array__"):
        array = np.asarray(value)
    else:
        raise InvalidArgument(f"{what} is a {type(value).__name__} and has no dtype of its own; "
                              "pass an array, such as np.asarray(value, np.float32)")
    if array.dtype.byteorder == ">":
        array = array.astype(array.dtype.newbyteorder("<"))  # the same values
    return array
