"""A model in this process, for benchmarks that alternate calls with another runtime.

    model = InProcess(graph_proto_bytes, {"w": array}, threads=2)
    y = model({"x": x}, {"b": 1}, {"y": np.empty((1, 10), np.float32)})
"""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np

_LIBRARY = Path(__file__).resolve().parents[2] / "bazel-bin/tests/bench/libinprocess.so"


class InProcess:
    """One loaded model; not thread-safe.

    Parameters
    ----------
    graph
        A serialised ``athanor.v1.Graph``.
    parameters
        Weights by name; kept alive by this object.
    input_names, output_names
        The graph's, in its order.
    threads
        Execution threads, the calling one included.
    """

    def __init__(
        self,
        graph: bytes,
        parameters: dict[str, np.ndarray],
        input_names: list[str],
        output_names: list[str],
        threads: int,
    ) -> None:
        lib = ctypes.CDLL(str(_LIBRARY))
        lib.athanor_load.restype = ctypes.c_void_p
        lib.athanor_dim.restype = ctypes.c_char_p
        lib.athanor_dim.argtypes = [ctypes.c_void_p, ctypes.c_int]
        lib.athanor_free.argtypes = [ctypes.c_void_p]
        self._lib = lib
        self._parameters = {k: np.ascontiguousarray(v) for k, v in parameters.items()}
        self._inputs, self._outputs = input_names, output_names
        n = len(self._parameters)
        names = (ctypes.c_char_p * n)(*[k.encode() for k in self._parameters])
        data = (ctypes.c_void_p * n)(*[v.ctypes.data for v in self._parameters.values()])
        sizes = (ctypes.c_size_t * n)(*[v.nbytes for v in self._parameters.values()])
        self._error = ctypes.create_string_buffer(4096)
        self._handle = lib.athanor_load(
            graph, ctypes.c_size_t(len(graph)), names, data, sizes, n, threads,
            self._error, ctypes.c_size_t(4096),
        )
        if not self._handle:
            raise RuntimeError(self._error.value.decode())
        self._dims = []
        while (name := lib.athanor_dim(self._handle, len(self._dims))) is not None:
            self._dims.append(name.decode())

    def _arguments(self, inputs, dims, outputs):
        ins = [np.ascontiguousarray(inputs[k]) for k in self._inputs]
        outs = [outputs[k] for k in self._outputs]
        keep = (ins, outs)
        return keep, (
            ctypes.c_void_p(self._handle),
            (ctypes.c_void_p * len(ins))(*[a.ctypes.data for a in ins]),
            (ctypes.c_size_t * len(ins))(*[a.nbytes for a in ins]),
            (ctypes.c_int64 * max(1, len(self._dims)))(*[dims[d] for d in self._dims]),
            (ctypes.c_void_p * len(outs))(*[a.ctypes.data for a in outs]),
            (ctypes.c_size_t * len(outs))(*[a.nbytes for a in outs]),
        )

    def bind(self, inputs, dims, outputs):
        """A callable that runs the model on these very arrays, without per-call Python work."""
        keep, arguments = self._arguments(inputs, dims, outputs)
        error = self._error

        def call(_keep=keep):
            if self._lib.athanor_run(*arguments, error, ctypes.c_size_t(4096)) != 0:
                raise RuntimeError(error.value.decode())

        return call

    def profile(self, inputs, dims, outputs) -> list[tuple[str, int]]:
        """Label and nanoseconds of each step of one run."""
        _, arguments = self._arguments(inputs, dims, outputs)
        capacity = 4096
        times = (ctypes.c_int64 * capacity)()
        labels = (ctypes.c_char_p * capacity)()
        steps = self._lib.athanor_profile(*arguments, times, labels, capacity)
        if steps < 0:
            raise RuntimeError("the profiled run failed")
        return [(labels[i].decode(), times[i]) for i in range(steps)]

    def close(self) -> None:
        """Frees the model."""
        self._lib.athanor_free(self._handle)
