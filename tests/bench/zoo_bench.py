"""A model of the zoo, uploaded as ONNX, through the server against ONNX Runtime in this process.

The same file, inputs and threads; values of both checked against float64 first; interleaved. Two
ratios: `call` has the client, gRPC and the protocol in our time, `executing` is the server's time
for running the plan (`exec_us` of the replies), which is what ONNX Runtime's time compares with.

    .venv/bin/python tests/bench/zoo_bench.py --model resnet18 [--tiny] [--plan search] [--json]
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/bench"), str(ROOT / "tests/models")]

import athanor  # noqa: E402
import peers  # noqa: E402
import zoo  # noqa: E402
from race import Elsewhere, quartiles, race, ratios  # noqa: E402
from serving import server  # noqa: E402

WAIT_S = 1800


class Ours:
    """Calls through the server; remembers what the server says each took."""

    def __init__(self, model: athanor.Model, feed: dict[str, np.ndarray]) -> None:
        self.model = model
        self.feed = feed
        self.executing: list[float] = []
        self.outputs: athanor.InferResult | None = None

    def __call__(self) -> None:
        self.outputs = self.model.infer(self.feed)
        self.executing.append(self.outputs.exec_us * 1e-6)


def uploaded(client: athanor.Client, model: zoo.Model, folder: Path,
             args: argparse.Namespace) -> tuple[athanor.Model, dict[str, float]]:
    """The model once its plan is there, and the seconds that took."""
    path = folder / "model.onnx"
    model.write(path)
    begin = time.perf_counter()
    served = client.upload(path, model.name, dims=model.dims, buckets={},
                           budget=f"{args.search_budget:g}s" if args.plan == "search" else "0")
    stored = time.perf_counter() - begin
    served.wait("baseline", timeout=WAIT_S)
    ready = time.perf_counter() - begin
    if args.plan == "search":
        served.wait("optimised", timeout=WAIT_S)
    return served, {"file_mib": sum(f.stat().st_size for f in folder.iterdir()) / 2**20,
                    "stored_s": stored, "baseline_s": ready}


def compare(served: athanor.Model, model: zoo.Model, feed: dict[str, np.ndarray],
            args: argparse.Namespace) -> dict[str, object]:
    """Checks values, then times both sides.

    Raises
    ------
    ValueError
        A side's values are wrong.
    """
    ours = Ours(served, feed)
    theirs = peers.onnxruntime_side(model.write, feed, args.threads)
    wanted = model.reference(feed)
    first = next(iter(wanted))
    ours()
    theirs.call()
    errors = {"ours": max(zoo.deviation(ours.outputs[name], value)
                          for name, value in wanted.items()),
              "onnxruntime": zoo.deviation(theirs.output(), wanted[first])}
    for name, error in errors.items():
        if not error <= model.tolerance:
            raise ValueError(f"{model.name}: {name} differs from float64 by {error:.1e}; at most "
                             f"{model.tolerance} passes")
    load = os.getloadavg()[0]
    with Elsewhere() as other:
        times = race({"ours": ours, "onnxruntime": theirs.call}, args.rounds)
    # As many calls a round as any other: the median of all stands for each.
    executing = [float(np.median(ours.executing))] * len(times["onnxruntime"])
    return {"load": load, "busy_elsewhere_percent": other.percent,
            "ours": quartiles(times["ours"]) | {"error": errors["ours"]},
            "executing": quartiles(ours.executing) | {
                "ratio": ratios(executing, times["onnxruntime"])},
            "onnxruntime": quartiles(times["onnxruntime"]) | {
                "error": errors["onnxruntime"], "version": theirs.version,
                "ratio": ratios(times["ours"], times["onnxruntime"])}}


def arguments() -> argparse.Namespace:
    """Parses the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", choices=zoo.MODELS, required=True)
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--plan", choices=("baseline", "search"), default="baseline")
    parser.add_argument("--search_budget", type=float, default=60, help="seconds")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=41)
    parser.add_argument("--json", action="store_true", help="one line of JSON")
    return parser.parse_args()


def main() -> None:
    """The command."""
    args = arguments()
    model = zoo.MODELS[args.model]
    if args.tiny:
        model = model.tiny
    feed = model.inputs(model.typical, 3)
    with (tempfile.TemporaryDirectory() as folder, server(f"--threads={args.threads}") as running,
          athanor.Client(running.address) as client):
        served, upload = uploaded(client, model, Path(folder), args)
        row = {"bench": "zoo", "model": args.model, "tiny": args.tiny, **model.typical,
               "plan": args.plan, "threads": args.threads, "rounds": args.rounds, **upload}
        row |= compare(served, model, feed, args)
    if args.json:
        print(json.dumps(row))
        return
    theirs = row["onnxruntime"]
    print(f"{args.model} {dict(model.typical)}: ONNX Runtime {theirs['median_ms']:.3f} ms; ours "
          f"{row['ours']['median_ms']:.3f} ms a call (ratio {theirs['ratio']['median']:.2f}), "
          f"{row['executing']['median_ms']:.3f} ms executing "
          f"(ratio {row['executing']['ratio']['median']:.2f})")


if __name__ == "__main__":
    main()
