"""Measures the effect of a client that asks for more than the server can do on another client.

    .venv/bin/python tests/bench/greedy.py [--batch 16] [--greedy 128] [--rounds 8]

First what the server does for callers that always have some calls out: its capacity. Then turns in
which a modest client, one connection, calls at a fifth of that: alone; beside a greedy one that
always has `--greedy` calls out on a connection of its own; and beside programs that only compute,
one a core, with no other client. The last is the floor where the clients share the server's cores:
the operating system makes every thread wait for one. Prints JSON: the modest one's refusals, its
times in milliseconds, and the ratios of each turn over the turn alone before it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/bench"), str(ROOT / "tests/models")]

import athanor  # noqa: E402
import mlp  # noqa: E402
from callers import Caller, spread  # noqa: E402
from serving import Served, server  # noqa: E402

QUANTILES = ("p50", "p99")
PARTS = ("e2el", "queue", "exec")  # parts of a call's time, by the load generator's names


def caller(served: Served, config: mlp.Config, batch: int, seconds: float, *how: str) -> Caller:
    """A client of `config`'s model."""
    return Caller("run", served.address, config.name,
                  f"--shape={config.input}={batch}x{config.widths[0]}", f"--duration={seconds}s",
                  *how)


@contextlib.contextmanager
def busy_cores() -> Iterator[None]:
    """A process that only computes for each core this process may use."""
    spinners = [subprocess.Popen([sys.executable, "-c", "while True: pass"])
                for _ in os.sched_getaffinity(0)]
    try:
        yield
    finally:
        for spinner in spinners:
            spinner.kill()
            spinner.wait()


def greedy(config: mlp.Config, batch: int, outstanding: int, rounds: int, seconds: float,
           flags: list[str]) -> dict[str, object]:
    """The row."""
    alone, beside, busy, greed = [], [], [], []
    with server(*flags) as served, athanor.Client(served.address) as client:
        client.upload(mlp.mlp_graph(config=config), name=config.name).wait("baseline")
        full = caller(served, config, batch, seconds, "--concurrency=8").result()
        rate = full["completed"] / seconds / 5
        modest = (f"--rate={rate}", "--arrival=fixed", "--warmup=20")
        for _ in range(rounds):
            alone.append(caller(served, config, batch, seconds, *modest).result())
            # It is there before and after the other's turn.
            other = caller(served, config, batch, seconds + 2, f"--concurrency={outstanding}")
            beside.append(caller(served, config, batch, seconds, *modest).result())
            greed.append(other.result())
            with busy_cores():
                busy.append(caller(served, config, batch, seconds, *modest).result())
    row: dict[str, object] = {
        "bench": "greedy", "model": config.name, "batch": batch, "greedy": outstanding,
        "capacity_per_s": full["completed"] / seconds, "rate": rate, "rounds": rounds,
        "seconds": seconds, "load": os.getloadavg()[0],
        "calls": sum(turn["completed"] for turn in beside),
        "refused_alone": sum(turn["failed"] for turn in alone),
        "refused_beside": sum(turn["failed"] for turn in beside),
        "greedy_answered": sum(turn["completed"] for turn in greed),
        "greedy_refused": sum(turn["failed"] for turn in greed),
        "errors": [turn["errors"] for turn in beside if turn["failed"]]}
    turns = {"alone": alone, "beside": beside, "busy": busy}
    for q in QUANTILES:
        for name, results in turns.items():
            row[f"{q}_{name}"] = {
                part: float(np.median([turn[f"{q}_{part}_ms"] for turn in results]))
                for part in PARTS}
        key = f"{q}_e2el_ms"
        for name in ("beside", "busy"):
            ratios = [b[key] / a[key] for a, b in zip(alone, turns[name], strict=True)]
            row[f"{q}_{name}_over_alone"] = spread(ratios)
    return row


def main() -> int:
    """Prints the row."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", choices=("mlp", "digits"), default="mlp")
    parser.add_argument("--batch", type=int, default=16, help="rows of a call")
    parser.add_argument("--greedy", type=int, default=128, help="calls that are always out")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=5.0, help="of one turn")
    parser.add_argument("flags", nargs="*", help="of the server, after --")
    args = parser.parse_args()
    config = {"mlp": mlp.DEFAULT, "digits": mlp.DIGITS}[args.model]
    print(json.dumps(greedy(config, args.batch, args.greedy, args.rounds, args.seconds,
                            args.flags)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
