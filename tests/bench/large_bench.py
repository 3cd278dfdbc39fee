"""Measures seconds and anonymous memory of a large ONNX model with external data, per phase.

    .venv/bin/python tests/bench/large_bench.py [--size billion] [--model FILE] [--json]

The model is `tests/models/large.py`'s, written first unless a file is given (4 GB and as much in
the state directory for `billion`). Beside the phases: what reading the file and hashing it takes on
one thread, from page cache and from the disk. Memory is the peak of the phase, of the server with
its child processes (`tests/e2e/memory_watch.py`), and what is left at its end. Values are compared
with ONNX Runtime once the server is gone, with `--values`.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/e2e"), str(ROOT / "tests/models")]

import athanor  # noqa: E402
import grpc  # noqa: E402
import large  # noqa: E402
from athanor import calls, uploads  # noqa: E402
from athanor.given import Given  # noqa: E402
from memory_watch import MemoryWatch, held  # noqa: E402
from server_process import Server  # noqa: E402

PIECE = 1 << 20
WAIT_S = 1800
SIZES = {"batch": 1, "sequence": 8}


def reading(path: Path) -> dict[str, float]:
    """Seconds to read a file piece by piece: from the disk, then from page cache, then hashed."""
    buffer = bytearray(PIECE)

    def read(use: Callable[[memoryview], object]) -> float:
        begin = time.perf_counter()
        with path.open("rb", buffering=0) as file:
            while got := file.readinto(buffer):
                use(memoryview(buffer)[:got])
        return time.perf_counter() - begin

    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    cold = read(len)
    return {"cold_s": cold, "warm_s": read(len), "sha256_s": read(hashlib.sha256().update)}


class Phases:
    """Rows, one a phase, of a server that may be another process each time."""

    def __init__(self) -> None:
        self.rows: list[dict[str, object]] = []

    @contextmanager
    def phase(self, name: str, server: Server) -> Iterator[None]:
        """Watches `server` until the block ends."""
        begin = time.perf_counter()
        with MemoryWatch(server.pid) as watch:
            yield
        self.add(name, time.perf_counter() - begin, server, watch)

    def add(self, name: str, seconds: float, server: Server, watch: MemoryWatch) -> None:
        """A row of what was watched."""
        peak, left = watch.peak, held(server.pid)
        self.rows.append({"phase": name, "seconds": round(seconds, 3),
                          "peak_mb": round(peak.total / 1e6),
                          "of_server_mb": round(peak.server / 1e6),
                          "of_children_mb": round(peak.children / 1e6),
                          "end_mb": round(left.total / 1e6)})


def upload(phases: Phases, server: Server, path: Path, config: large.Config,
           budget: str) -> athanor.Model:
    """Uploads in two phases: until the last byte is sent, and until the commit is answered."""
    source = uploads.read_source(path, None)
    call = calls.upload(source, "large", uploads.Division(), {}, budget, False, None, False, None,
                        Given(config.dims, None, None))
    with grpc.insecure_channel(server.address) as channel:
        watches = [MemoryWatch(server.pid), MemoryWatch(server.pid)]
        times = [time.perf_counter()]

        def messages() -> Iterator[object]:
            for message in call.request:
                if message.HasField("commit"):
                    watches[0].__exit__(None, None, None)
                    times.append(time.perf_counter())
                    watches[1].__enter__()
                yield message

        watches[0].__enter__()
        try:
            calls.Stubs(channel).send(dataclasses.replace(call, request=messages()), WAIT_S)
        finally:
            watches[len(times) - 1].__exit__(None, None, None)
        times.append(time.perf_counter())
    for i, name in enumerate(("transfer", "commit")):
        phases.add(name, times[i + 1] - times[i], server, watches[i])
    return server.client().model("large")


def infer(phases: Phases, server: Server, model: athanor.Model,
          feed: dict[str, np.ndarray]) -> np.ndarray:
    """The first call, and the fastest of three more."""
    with phases.phase("first inference", server):
        logits = model.infer(feed, timeout=WAIT_S)["logits"]
    phases.rows[-1]["exec_ms"] = min(model.infer(feed, timeout=WAIT_S).exec_us
                                     for _ in range(3)) / 1e3
    return logits


def run(args: argparse.Namespace, path: Path, state: Path) -> dict[str, object]:
    """Runs all phases and returns the row."""
    config = large.SIZES[args.size]
    feed = large.large_inputs(SIZES, config)
    phases = Phases()
    server = Server(state, *args.flags, address_space=args.address_space)
    try:
        server.start()
        model = upload(phases, server, path, config, args.budget)
        with phases.phase("baseline", server):
            model.wait("baseline", timeout=WAIT_S)
        logits = infer(phases, server, model, feed)
        if args.budget != "0":
            with phases.phase("search", server):
                model.wait("optimised", timeout=WAIT_S)
        memory = model.info().memory
        server.stop(timeout=WAIT_S)
        begin = time.perf_counter()
        server.start(timeout=WAIT_S)
        started = time.perf_counter() - begin
        with MemoryWatch(server.pid) as watch:
            pass
        phases.add("restart", started, server, watch)
        again = infer(phases, server, server.client().model("large"), feed)
        np.testing.assert_array_equal(again, logits)
        with phases.phase("delete", server):
            server.client().delete("large")
            time.sleep(args.settle)
        phases.rows[-1]["seconds"] = None
    finally:
        server.kill()
    row = {"bench": "large", "size": args.size, "parameters": config.parameters,
           "file_mb": round(large.data_path(path).stat().st_size / 1e6),
           "flags": args.flags, "budget": args.budget,
           "memory": {kind: round(held / 1e6) for kind, held in memory.items()},
           "read": {name: round(seconds, 3)
                    for name, seconds in reading(large.data_path(path)).items()},
           "phases": phases.rows, "load": os.getloadavg()[0]}
    if args.values:
        row["values"] = compare(path, feed, logits)
    return row


def compare(path: Path, feed: dict[str, np.ndarray], logits: np.ndarray) -> dict[str, object]:
    """The largest difference from ONNX Runtime, relative to the largest value.

    Raises
    ------
    ValueError
        If it is more than 1e-4.
    """
    import onnxruntime

    wanted = onnxruntime.InferenceSession(os.fspath(path)).run(None, feed)[0]
    error = float(np.abs(logits - wanted).max() / np.abs(wanted).max())
    if not error <= 1e-4 or not np.array_equal(logits.argmax(-1), wanted.argmax(-1)):
        raise ValueError(f"differs from ONNX Runtime by {error:.1e}; at most 1e-4 passes")
    return {"onnxruntime": onnxruntime.__version__, "error": error,
            "largest": float(np.abs(wanted).max()), "first": [float(v) for v in logits[0, 0, :4]]}


def arguments() -> argparse.Namespace:
    """Parses the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--size", choices=large.SIZES, default="small")
    parser.add_argument("--model", type=Path, help="written by tests/models/large.py")
    parser.add_argument("--state", type=Path, help="where the state directory is made")
    parser.add_argument("--budget", default="0", help="of the search")
    parser.add_argument("--settle", type=float, default=5, help="seconds to wait after the delete")
    parser.add_argument("--address_space", type=int, default=64 << 30, help="bytes")
    parser.add_argument("--values", action="store_true", help="compare with ONNX Runtime")
    parser.add_argument("--json", action="store_true", help="one line of JSON")
    parser.add_argument("flags", nargs="*", help="of the server, behind --")
    return parser.parse_args()


def main() -> None:
    """The command."""
    args = arguments()
    with tempfile.TemporaryDirectory(dir=args.state) as folder:
        path = args.model
        if path is None:
            path = Path(folder) / "model.onnx"
            large.large_onnx(path, large.SIZES[args.size])
        row = run(args, path, Path(folder) / "state")
    if args.json:
        print(json.dumps(row))
        return
    print(f"{row['parameters']:,} parameters, {row['file_mb']} MB; memory by the ledger, MB: "
          f"{row['memory']}; read, s: {row['read']}; {row.get('values', '')}")
    for phase in row["phases"]:
        print(" ".join(f"{name}={value}" for name, value in phase.items()))


if __name__ == "__main__":
    main()
