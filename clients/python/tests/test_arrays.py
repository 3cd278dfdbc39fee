"""Arrays of users: DLPack with dtypes that numpy lacks, and the input alone."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import athanor
import ml_dtypes
import numpy as np
import pytest
from athanor import arrays, wire
from athanor.arrays import host_array

DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class ManagedTensor(ctypes.Structure):
    """DLManagedTensor of dlpack.h."""

    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32),
                ("device_id", ctypes.c_int32), ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8),
                ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64),
                ("manager", ctypes.c_void_p), ("deleter", DELETER)]


def capsule(managed: ManagedTensor, destructor: ctypes.c_void_p | None) -> object:
    """Returns the capsule that a producer gives away."""
    make = ctypes.pythonapi.PyCapsule_New
    make.restype = ctypes.py_object
    make.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    return make(ctypes.addressof(managed), b"dltensor", destructor)


class Tensor:
    """A tensor of another package: the bits of `array`, said to have a code of DLDataType."""

    def __init__(self, array: np.ndarray, code: int, *, device: int = 1, offset: int = 0,
                 strided: bool = True, lanes: int = 1, error: Exception | None = None) -> None:
        self.array, self.device, self.error = array, device, error
        count = max(array.ndim, 1)
        shape = (ctypes.c_int64 * count)(*array.shape)
        strides = (ctypes.c_int64 * count)(*(s // array.itemsize for s in array.strides))
        self.kept = (shape, strides)
        self.managed = ManagedTensor(
            array.ctypes.data - offset, device, 0, array.ndim, code, array.itemsize * 8, lanes,
            shape, strides if strided else None, offset, None, DELETER(lambda _: None))

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device, 0

    def __dlpack__(self, **_: object) -> object:
        if self.error:
            raise self.error
        return capsule(self.managed, None)


BITS = np.arange(24, dtype=np.uint16).reshape(2, 3, 4) * 771


@pytest.mark.parametrize("make", [
    lambda: BITS, lambda: BITS.transpose(2, 0, 1), lambda: BITS[:, ::-1], lambda: BITS[::-1, 1],
    lambda: BITS[:, :0], lambda: BITS[0, 0, 0:1].reshape(()), lambda: BITS[1:, :, ::2]])
def test_bf16_by_dlpack(make: Callable[[], np.ndarray]) -> None:
    bits = make()
    got = host_array(Tensor(bits, 4), "x")
    assert got.dtype == ml_dtypes.bfloat16 and got.shape == bits.shape
    np.testing.assert_array_equal(got.view(np.uint16), bits)
    assert got.flags.c_contiguous and not np.shares_memory(got.view(np.uint16), bits)


def test_offsets_and_dense_tensors() -> None:
    got = host_array(Tensor(BITS, 4, offset=6), "x")
    np.testing.assert_array_equal(got.view(np.uint16), BITS)
    got = host_array(Tensor(BITS, 4, strided=False), "x")
    np.testing.assert_array_equal(got.view(np.uint16), BITS)


@pytest.mark.parametrize(("code", "name"), [(10, "float8_e4m3fn"), (12, "float8_e5m2"),
                                            (14, "float8_e8m0fnu"), (11, "float8_e4m3fnuz")])
def test_f8_by_dlpack(code: int, name: str) -> None:
    bits = np.arange(6, dtype=np.uint8)
    got = host_array(Tensor(bits, code), "x")
    assert got.dtype == np.dtype(getattr(ml_dtypes, name))
    np.testing.assert_array_equal(got.view(np.uint8), bits)


@pytest.mark.parametrize("tensor", [
    Tensor(BITS, 4, device=2), Tensor(BITS, 4, lanes=2), Tensor(BITS, 3), Tensor(BITS, 99),
    Tensor(BITS, 4, error=BufferError("it requires grad"))])
def test_what_cannot_be_read_is_refused_by_name(tensor: Tensor) -> None:
    with pytest.raises(athanor.InvalidArgument, match="input 'x' came by DLPack.*bf16"):
        host_array(tensor, "input 'x'")


def test_the_tensor_is_freed() -> None:
    """By the capsule's destructor, after the copy."""
    freed: list[int] = []
    destroy = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(freed.append)

    class Counted(Tensor):
        def __dlpack__(self, **_: object) -> object:
            assert not freed
            return capsule(self.managed, ctypes.cast(destroy, ctypes.c_void_p))

    got = arrays._read(Counted(BITS, 4))
    assert len(freed) == 1
    np.testing.assert_array_equal(got.view(np.uint16), BITS)


def test_a_parameter_of_bf16() -> None:
    g = athanor.Graph("g")
    w = g.parameter("w", Tensor(BITS, 4))
    assert w.dtype == "bf16" and w.shape == (2, 3, 4)
    assert list(g.tensors.values()) == [BITS.tobytes()]


X, Y = wire.Tensor("x", "f32", ("b", "2")), wire.Tensor("y", "f32", ())


def test_an_array_alone_is_the_only_input() -> None:
    array = np.ones((3, 2), np.float32)
    assert list(wire.check_inputs("m", [X], array)) == ["x"]
    assert wire.check_inputs("m", [X], array)["x"] is array
    for expected, words in (([X, Y], "takes x: f32.b, 2., y: f32.*mapping by name: a ndarray"),
                            ([], "takes no inputs")):
        with pytest.raises(athanor.InvalidArgument, match=words):
            wire.check_inputs("m", expected, array)
    with pytest.raises(athanor.InvalidArgument, match=r"is a list.*np\.asarray"):
        wire.check_inputs("m", [X], [[1.0, 2.0]])
    with pytest.raises(athanor.InvalidArgument, match="float64, the model takes f32"):
        wire.check_inputs("m", [X], np.ones((3, 2)))
