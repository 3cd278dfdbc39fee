"""Measures how long searches with a budget in time take while requests keep the server busy.

    .venv/bin/python tests/bench/budgets.py [--budget 5] [--searches 20] [--together 1]

A small model is called without a pause; meanwhile models of widths not seen before are uploaded,
`--together` at a time, and searched for. Prints JSON: seconds of each search, by the job's state
from its first step to its end as this process sees them and as the server counts them.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/bench"), str(ROOT / "tests/models")]

import athanor  # noqa: E402
import encoder  # noqa: E402
import mlp  # noqa: E402
from serving import server  # noqa: E402

BENCH = ROOT / "bazel-bin/clients/bench/athanor-bench"


def graph_of(turn: int) -> athanor.Graph:
    """A model to search for that no turn before had; its search takes longer than the budget."""
    heads = 5 + turn
    return encoder.encoder_graph(True, encoder.Config(
        layers=2, width=32 * heads, heads=heads, hidden=96 * heads, vocabulary=500, positions=128))


def search(address: str, turn: int, budget: float, rows: list[dict[str, object]]) -> None:
    """Appends what became of one search."""
    with athanor.Client(address) as client:
        model = client.upload(graph_of(turn), name=f"budget{turn}", budget=f"{budget:g}s")
        model.wait("baseline")
        job = next(iter(client.jobs(model.name)))
        begun = None
        while not job.finished:
            # In line, a search has no first step.
            if begun is None and job.search is not None:
                begun = time.monotonic() - job.search.seconds
            time.sleep(0.02)
            job = client.job(job.id)
        end = time.monotonic()
        rows.append({"turn": turn, "stop": job.stop_reason,
                     "seconds": end - begun if begun is not None else None,
                     "server_seconds": job.search.seconds if job.search is not None else None,
                     "candidates": job.search.candidates if job.search is not None else 0,
                     "plans": job.search.plans_measured if job.search is not None else 0,
                     "best": job.search.best if job.search is not None else 1})
        client.delete(model.name)


def main() -> int:
    """Prints the row."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--budget", type=float, default=5.0, help="seconds")
    parser.add_argument("--searches", type=int, default=20)
    parser.add_argument("--together", type=int, default=1)
    parser.add_argument("--concurrency", type=int, default=4, help="of the load; 0: none")
    args = parser.parse_args()
    rows: list[dict[str, object]] = []
    with server() as served, athanor.Client(served.address) as client:
        client.upload(mlp.mlp_graph(), name="mlp").wait("baseline")
        load = subprocess.Popen(
            [str(BENCH), "run", f"--address={served.address}", "--model=mlp", "--shape=x=1x1024",
             "--duration=1h", f"--concurrency={args.concurrency}", "--out=-"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) if args.concurrency else None
        try:
            for first in range(0, args.searches, args.together):
                threads = [threading.Thread(target=search,
                                            args=(served.address, turn, args.budget, rows))
                           for turn in range(first, min(first + args.together, args.searches))]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
        finally:
            if load is not None:
                load.kill()
                load.wait()
    seconds = sorted(row["seconds"] for row in rows if row["seconds"] is not None)
    print(json.dumps({"bench": "budgets", "budget": args.budget, "searches": len(rows),
                      "together": args.together, "load": os.getloadavg()[0],
                      "longest": seconds[-1], "median": seconds[len(seconds) // 2],
                      "least": seconds[0], "rows": rows}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
