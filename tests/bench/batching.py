"""Measures how many more calls a second a model answers when calls of several clients share runs.

    .venv/bin/python tests/bench/batching.py [--widths 2048,2048,2048,2048,2048] [--callers 64]

Two servers with one model, uploaded to the second with `batch_dim`; athanor-bench calls each with
one row at a time, in turns of a second. Prints a JSON line a model: calls per second and times of
each, and the ratio, turn by turn. A first model that computes next to nothing says what gRPC alone
allows on this machine, where the callers share the server's cores.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/bench"), str(ROOT / "tests/models")]

import athanor  # noqa: E402
import mlp  # noqa: E402
from serving import server  # noqa: E402

BENCH = ROOT / "bazel-bin/clients/bench/athanor-bench"
# Models that compute nothing, fit the last-level cache, or are read from memory.
WIDTHS = ("16,16", "1024,1024,1024,1024,1024", "2048,2048,2048,2048,2048")
KEYS = ("request_throughput", "p50_e2el_ms", "p99_e2el_ms", "mean_queue_ms", "mean_exec_ms")

Row = dict[str, object]


def batching(config: mlp.Config, callers: int, seconds: float, *flags: str) -> Row:
    """A row: `config`'s model unjoined and joined; `flags` are the second server's."""
    graph = mlp.mlp_graph(config=config)
    with server() as alone, server(*flags) as joined:
        for served, batch_dim in ((alone, ""), (joined, "b")):
            with athanor.Client(served.address) as client:
                info = client.upload(graph, name=config.name, batch_dim=batch_dim).wait().info()
        if not info.batching.on:
            raise RuntimeError(f"calls do not share runs: {info.batching.reason}")
        done = subprocess.run(
            [str(BENCH), "run", f"--address={alone.address}", f"--address={joined.address}",
             f"--model={config.name}", f"--shape={config.input}=1x{config.widths[0]}",
             f"--concurrency={callers}", f"--duration={seconds}s", "--slice=1s", "--warmup=200",
             "--out=-"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"athanor-bench: {done.stderr[-800:]}")
    results = json.loads(done.stdout)
    row: Row = {"bench": "batching", "widths": config.widths, "callers": callers,
                "parameters": sum(a * b + b for a, b in itertools.pairwise(config.widths)),
                "flags": flags, "load": os.getloadavg()[0]}
    for name, run in zip(("alone", "joined"), results["runs"], strict=True):
        row[name] = {key: run[key] for key in KEYS} | {
            "completed": run["completed"], "errors": run["errors"]}
    row["joined_over_alone"] = results["comparison"]["ratios"]
    return row


def rows(widths: tuple[str, ...] = WIDTHS, callers: int = 64, seconds: float = 12,
         flags: tuple[str, ...] = ()) -> Iterator[Row]:
    """A row for each model."""
    for text in widths:
        config = mlp.Config(name="mlp", widths=tuple(map(int, text.split(","))))
        yield batching(config, callers, seconds, *flags)


def main() -> int:
    """Prints the rows."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--widths", nargs="+", default=WIDTHS, help="of the models' layers")
    parser.add_argument("--callers", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=12, help="of calls, for each server")
    parser.add_argument("--flag", action="append", default=[], metavar="--NAME=VALUE",
                        help="of the server that joins calls: --flag=--batch_delay=2ms")
    args = parser.parse_args()
    for row in rows(tuple(args.widths), args.callers, args.seconds, tuple(args.flag)):
        print(json.dumps(row), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
