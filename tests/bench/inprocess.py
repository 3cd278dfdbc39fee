"""A model in this process, for benchmarks that alternate calls with another runtime.

    model = InProcess(graph, threads=2)
    call = model.bind({"x": x}, {"b": 1}, {"y": np.empty((1, 10), np.float32)})
    call()
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from pathlib import Path

import athanor
import numpy as np

_LIBRARY = Path(__file__).resolve().parents[2] / "bazel-bin/tests/bench/libinprocess.so"
_ERROR_BYTES = 4096

Arrays = Mapping[str, np.ndarray]


def _library() -> ctypes.CDLL:
    lib = ctypes.CDLL(str(_LIBRARY))
    lib.athanor_load.restype = ctypes.c_void_p
    for name in ("dim", "input", "output"):
        function = getattr(lib, f"athanor_{name}")
        function.restype, function.argtypes = ctypes.c_char_p, [ctypes.c_void_p, ctypes.c_int]
    for name in ("plan_id", "plan_kind"):
        function = getattr(lib, f"athanor_{name}")
        function.restype, function.argtypes = ctypes.c_char_p, [ctypes.c_void_p]
    for name in ("kernels", "steps", "free"):
        getattr(lib, f"athanor_{name}").argtypes = [ctypes.c_void_p]
    lib.athanor_seconds.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    lib.athanor_save.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t]
    return lib


class InProcess:
    """A loaded model; not thread-safe.

    Parameters
    ----------
    graph
        With its weights.
    threads
        Execution threads, the calling one included.
    plan_folder
        Holds the plan to run (tests/bench/plan_folder.h); without it the baseline plan is made
        here.

    Raises
    ------
    RuntimeError
        The graph or the plan is refused, or the plan is of another graph or number of threads.
    """

    def __init__(self, graph: athanor.Graph, threads: int, plan_folder: Path | None = None) -> None:
        self._lib = lib = _library()
        message, tensors = graph.proto(), graph.tensors
        self._parameters = {n.name: np.frombuffer(tensors[n.content_hash], np.uint8)
                            for n in message.nodes if n.op == "Parameter"}
        count = len(self._parameters)
        names = (ctypes.c_char_p * count)(*[k.encode() for k in self._parameters])
        data = (ctypes.c_void_p * count)(*[v.ctypes.data for v in self._parameters.values()])
        sizes = (ctypes.c_size_t * count)(*[v.nbytes for v in self._parameters.values()])
        self._error = ctypes.create_string_buffer(_ERROR_BYTES)
        text = message.SerializeToString()
        self._handle = lib.athanor_load(
            text, ctypes.c_size_t(len(text)), names, data, sizes, count, threads,
            None if plan_folder is None else str(plan_folder).encode(),
            self._error, ctypes.c_size_t(_ERROR_BYTES))
        if not self._handle:
            raise RuntimeError(self._error.value.decode())
        self._dims = self._names(lib.athanor_dim)
        self._inputs = self._names(lib.athanor_input)
        self._outputs = self._names(lib.athanor_output)

    def _names(self, function: Callable[[int, int], bytes | None]) -> list[str]:
        names = []
        while (name := function(self._handle, len(names))) is not None:
            names.append(name.decode())
        return names

    @property
    def plan(self) -> dict[str, object]:
        """Describes the loaded plan: id, kind, distinct kernels, steps, seconds it took to load."""
        seconds = (ctypes.c_double * 3)()
        self._lib.athanor_seconds(self._handle, seconds)
        return {"plan_id": self._lib.athanor_plan_id(self._handle).decode(),
                "plan_kind": self._lib.athanor_plan_kind(self._handle).decode(),
                "kernels": self._lib.athanor_kernels(self._handle),
                "steps": self._lib.athanor_steps(self._handle),
                "plan_s": seconds[0], "compile_s": seconds[1], "load_s": seconds[2]}

    def save(self, folder: Path) -> None:
        """Writes the plan and its kernels' objects, to be given as `plan_folder`."""
        if self._lib.athanor_save(self._handle, str(folder).encode(), self._error, _ERROR_BYTES):
            raise RuntimeError(self._error.value.decode())

    def _arguments(self, inputs: Arrays, dims: Mapping[str, int], outputs: Arrays) -> tuple:
        ins = [np.ascontiguousarray(inputs[k]) for k in self._inputs]
        outs = [outputs[k] for k in self._outputs]
        return (ins, outs), (
            ctypes.c_void_p(self._handle),
            (ctypes.c_void_p * max(1, len(ins)))(*[a.ctypes.data for a in ins]),
            (ctypes.c_size_t * max(1, len(ins)))(*[a.nbytes for a in ins]),
            (ctypes.c_int64 * max(1, len(self._dims)))(*[dims[d] for d in self._dims]),
            (ctypes.c_void_p * len(outs))(*[a.ctypes.data for a in outs]),
            (ctypes.c_size_t * len(outs))(*[a.nbytes for a in outs]),
        )

    def bind(self, inputs: Arrays, dims: Mapping[str, int], outputs: Arrays) -> Callable[[], None]:
        """A callable that runs the model on these very arrays, without per-call Python work."""
        keep, arguments = self._arguments(inputs, dims, outputs)
        error, size = self._error, ctypes.c_size_t(_ERROR_BYTES)
        run = self._lib.athanor_run

        def call(_keep: tuple = keep) -> None:
            if run(*arguments, error, size) != 0:
                raise RuntimeError(error.value.decode())

        return call

    def profile(self, inputs: Arrays, dims: Mapping[str, int],
                outputs: Arrays) -> list[tuple[str, int]]:
        """Label and nanoseconds of each step of one run."""
        keep, arguments = self._arguments(inputs, dims, outputs)
        capacity = self._lib.athanor_steps(self._handle)
        times = (ctypes.c_int64 * capacity)()
        labels = (ctypes.c_char_p * capacity)()
        steps = self._lib.athanor_profile(*arguments, times, labels, capacity)
        del keep
        if steps < 0:
            raise RuntimeError("the profiled run failed")
        return [(labels[i].decode(), times[i]) for i in range(steps)]

    def close(self) -> None:
        """Frees the model; once."""
        self._lib.athanor_free(self._handle)
        self._handle = None
