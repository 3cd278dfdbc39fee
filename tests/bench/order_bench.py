"""TopK and Sort in this process against ONNX Runtime's TopK and numpy.

The same values and threads; positions are checked against numpy's stable argsort first.

    .venv/bin/python tests/bench/order_bench.py [--threads N] [--rounds N]
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/bench")]

import athanor  # noqa: E402
import onnx  # noqa: E402
import peers  # noqa: E402
from inprocess import InProcess  # noqa: E402
from race import Elsewhere, quartiles, race, ratios  # noqa: E402


@dataclasses.dataclass(frozen=True)
class Case:
    """The `k` largest of each row of [rows, length], or, k = length, all in ascending order."""

    rows: int
    length: int
    k: int
    ascending: bool = False  # the rows are: every element is larger than all before

    @property
    def whole(self) -> bool:
        return self.k == self.length

    def values(self) -> np.ndarray:
        """f32 [rows, length]."""
        x = np.random.default_rng(3).standard_normal((self.rows, self.length), np.float32)
        return np.sort(x, axis=1) if self.ascending else x

    def graph(self) -> athanor.Graph:
        """Makes the graph from x to y, i64 [rows, k]."""
        g = athanor.Graph("order")
        x = g.input("x", (self.rows, self.length), "f32")
        g.output("y", athanor.argsort(x, 1) if self.whole else athanor.top_k(x, self.k, 1))
        return g

    def write_onnx(self, path: str) -> None:
        """The same as ONNX's TopK, of which only the positions are a result."""
        make = onnx.helper
        node = make.make_node("TopK", ["x", "k"], ["values", "y"], axis=1,
                              largest=int(not self.whole))
        value = make.make_tensor_value_info
        graph = make.make_graph(
            [node], "order", [value("x", onnx.TensorProto.FLOAT, [self.rows, self.length])],
            [value("y", onnx.TensorProto.INT64, [self.rows, self.k])],
            [make.make_tensor("k", onnx.TensorProto.INT64, [1], [self.k])])
        onnx.save(make.make_model(graph, opset_imports=[make.make_opsetid("", 17)], ir_version=8),
                  path)

    def numpy(self, x: np.ndarray) -> Callable[[], np.ndarray]:
        """numpy's best way: of few a partition, of all its unstable sort."""
        def first() -> np.ndarray:
            at = np.argpartition(x, self.length - self.k, axis=1)[:, self.length - self.k:]
            order = np.argsort(-np.take_along_axis(x, at, 1), axis=1)
            return np.take_along_axis(at, order, 1)

        return (lambda: np.argsort(x, axis=1)) if self.whole else first


CASES = (Case(8, 50_000, 1), Case(8, 50_000, 10), Case(8, 50_000, 256),
         Case(8, 50_000, 256, ascending=True), Case(10_000, 100, 5), Case(1, 1_000_000, 1_000_000))


def compare(case: Case, threads: int, rounds: int) -> dict[str, object]:
    """Checks positions, then times all sides; the row.

    Raises
    ------
    ValueError
        Our positions are wrong.
    """
    x = case.values()
    want = np.argsort(x if case.whole else -x, axis=1, kind="stable")[:, :case.k]
    ours = InProcess(case.graph(), threads)
    result = np.empty((case.rows, case.k), np.int64)
    side = peers.onnxruntime_side(case.write_onnx, {"x": x}, threads)
    calls = {"ours": ours.bind({"x": x}, {}, {"y": result}), "onnxruntime": side.call,
             "numpy": case.numpy(x)}
    calls["ours"]()
    if not np.array_equal(result, want):
        raise ValueError(f"{case}: positions differ from numpy's")
    load = os.getloadavg()[0]
    with Elsewhere() as other:
        times = race(calls, rounds)
    ours.close()
    row: dict[str, object] = {"bench": "order", **dataclasses.asdict(case), "threads": threads,
                              "rounds": rounds, "load": load,
                              "busy_elsewhere_percent": other.percent}
    versions = {"onnxruntime": side.version, "numpy": np.__version__}
    for name, seconds in times.items():
        row[name] = quartiles(seconds)
        if name != "ours":
            row[name] |= {"version": versions[name], "ratio": ratios(times["ours"], seconds)}
    return row


def main() -> None:
    """Prints a line of JSON for each case."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, os.cpu_count() or 1])
    parser.add_argument("--rounds", type=int, default=21)
    args = parser.parse_args()
    for threads in args.threads:
        for case in CASES:
            print(json.dumps(compare(case, threads, args.rounds)), flush=True)


if __name__ == "__main__":
    main()
