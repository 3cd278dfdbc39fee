"""The runtimes that models are compared with, each at its best settings for the CPU.

    side = onnxruntime_side(write_onnx, feed, threads=2)
    side.call(); y = side.output()
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnxruntime
from race import race

if TYPE_CHECKING:
    import torch

Arrays = Mapping[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class Side:
    """A runtime with a model and inputs: `call` computes, `output` copies the first result."""

    version: str
    call: Callable[[], object]
    output: Callable[[], np.ndarray]


class NotInstalled(Exception):  # noqa: N818 - not an error: the row says so
    """The peer is not there."""


def onnxruntime_side(write: Callable[[str], None], feed: Arrays, threads: int) -> Side:
    """ONNX Runtime on the model that ``write(path)`` writes, inputs and outputs bound once.

    The faster of threads that spin on between calls, its default, and ones that stop when a call
    ends; the version says which.
    """
    sides = {spins: _onnxruntime_side(write, feed, threads, spins) for spins in (True, False)}
    times = race({str(spins): side.call for spins, side in sides.items()}, rounds=9)
    return sides[min(sides, key=lambda spins: float(np.median(times[str(spins)])))]


def _onnxruntime_side(write: Callable[[str], None], feed: Arrays, threads: int,
                      spins: bool) -> Side:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.add_session_config_entry("session.force_spinning_stop", "0" if spins else "1")
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "model.onnx")
        write(path)
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    first = session.get_outputs()[0].name
    binding = session.io_binding()
    for name, array in feed.items():
        binding.bind_cpu_input(name, array)
    result = onnxruntime.OrtValue.ortvalue_from_numpy(session.run([first], dict(feed))[0])
    binding.bind_ortvalue_output(first, result)
    version = f"{onnxruntime.__version__}, {'spinning' if spins else 'not spinning'} between calls"
    return Side(version, lambda: session.run_with_iobinding(binding),
                lambda: np.array(result.numpy()))


def torch_side(build: Callable[[], torch.nn.Module], feed: Arrays, threads: int) -> Side:
    """torch.compile of the module that `build` makes, weights frozen, for these very sizes.

    The faster of its default mode and "max-autotune", which picks among kernels by timing them; the
    version says which.

    Raises
    ------
    NotInstalled
        `torch` cannot be imported.
    """
    try:
        import torch
    except ImportError as error:
        raise NotInstalled from error
    import torch._inductor.config as inductor

    torch.set_num_threads(threads)
    torch.set_grad_enabled(False)  # freezing needs it, and no call pays for it
    inductor.freezing = True
    module = build()
    inputs = [torch.from_numpy(array) for array in feed.values()]
    sides = {}
    for mode in ("default", "max-autotune"):
        torch.compiler.reset()  # else the second takes the first's code
        compiled = torch.compile(module, dynamic=False, mode=mode)
        results: list[torch.Tensor] = []

        def call(compiled: Callable = compiled, results: list[torch.Tensor] = results) -> None:
            results[:] = [compiled(*inputs)]

        call()
        sides[mode] = Side(f"{torch.__version__}, {mode}", call,
                           lambda results=results: results[0].numpy().copy())
    times = race({mode: side.call for mode, side in sides.items()}, rounds=9)
    return sides[min(sides, key=lambda mode: float(np.median(times[mode])))]
