"""Measures the effect of another model's search on a model's callers on the same server.

    .venv/bin/python tests/bench/neighbour.py [--model mlp|digits] [--rate 200] [--rounds 8]

The server has one compile worker and serves with one thread, which leaves a core of two to the
search. With --search_cores=1 the server sets that core aside, and the client too keeps off it, with
and without a search; else all three go where the system puts them. Turns with and without a search
alternate; each search is for a model of widths not seen before, so that nothing of it is in the
kernel cache. A third turn is beside a loop that only counts, on the search's core and at its
priority: what the machine itself makes of a second busy core. Prints JSON lines: times of a call in
microseconds, the ratios over alone, turn by turn, and how much of a core the search had.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests/bench"), str(ROOT / "tests/models")]

import athanor  # noqa: E402
import encoder  # noqa: E402
import mlp  # noqa: E402
from serving import Served, server  # noqa: E402

BENCH = ROOT / "bazel-bin/clients/bench/athanor-bench"
CONFIGS = {"mlp": mlp.DEFAULT, "digits": mlp.DIGITS}
# Until a search has left its first steps.
SETTLE_SECONDS = 1.0
QUANTILES = ("p50", "p90", "p99")

Row = dict[str, object]


def load(served: Served, config: mlp.Config, rate: float, seconds: float) -> dict[str, float]:
    """Makes one slice of calls of `config`'s model with batch 1, on the server's cores.

    One call is out at a time; with a rate, its time counts from when it was due. Microseconds.
    """
    cpus = ",".join(map(str, os.sched_getaffinity(served.pid)))
    pace = [f"--rate={rate}", "--arrival=fixed", "--max_outstanding=1"] if rate > 0 else []
    done = subprocess.run(
        ["taskset", "-c", cpus, str(BENCH), "run", f"--address={served.address}",
         f"--model={config.name}", f"--shape={config.input}=1x{config.widths[0]}",
         f"--duration={seconds}s", "--warmup=30", "--out=-", *pace],
        capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"athanor-bench: {done.stderr[-800:]}")
    run = json.loads(done.stdout)
    if run["failed"]:
        raise RuntimeError(f"athanor-bench: {run['errors']}")
    times = {q: run[f"{q}_e2el_ms"] * 1e3 for q in (*QUANTILES, "p999")}
    return {"calls": run["completed"], **times}


def neighbour_graph(turn: int) -> athanor.Graph:
    """A model to search for that no turn before had; its search takes longer than a turn."""
    heads = 5 + turn
    return encoder.encoder_graph(True, encoder.Config(
        layers=2, width=32 * heads, heads=heads, hidden=96 * heads, vocabulary=500, positions=128))


def beside(client: athanor.Client, served: Served, config: mlp.Config, rate: float, seconds: float,
           turn: int) -> tuple[dict[str, float], float]:
    """A turn of calls while a new model is searched for; also the cores the search had.

    Raises
    ------
    RuntimeError
        The search was over before the turn was.
    """
    found = client.upload(neighbour_graph(turn), name=f"neighbour{turn}", budget="10m")
    found.wait("baseline")
    job = next(job for job in client.jobs(found.name) if not job.finished)
    time.sleep(SETTLE_SECONDS)
    before, start = served.child_seconds(), time.monotonic()
    times = load(served, config, rate, seconds)
    cores = (served.child_seconds() - before) / (time.monotonic() - start)
    state = client.job(job.id)
    if state.phase != "SEARCHING":
        raise RuntimeError(f"the search ended during the turn: {state}")
    client.cancel(job.id)
    while not client.job(job.id).finished:
        time.sleep(0.02)
    client.delete(found.name)
    return times, cores


@contextmanager
def counting(aside: int) -> Iterator[None]:
    """A process that computes without memory, where and how a search's work is run."""
    cpu = min(os.sched_getaffinity(0))

    def settle() -> None:
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        if aside:
            os.sched_setaffinity(0, {cpu})

    process = subprocess.Popen([sys.executable, "-c", "while True: pass"], preexec_fn=settle)
    try:
        time.sleep(SETTLE_SECONDS)
        yield
    finally:
        process.kill()
        process.wait()


def neighbour(model: str, rate: float, threads: int, aside: int, rounds: int,
              seconds: float) -> Row:
    """A row: `model` called at `rate` per second (0: one call after the other)."""
    config = CONFIGS[model]
    turns: dict[str, list[dict[str, float]]] = {"alone": [], "beside": [], "counting": []}
    cores = []
    with (server(f"--threads={threads}", f"--search_cores={aside}",
                 "--compile_workers=1") as served,
          athanor.Client(served.address) as client):
        client.upload(mlp.mlp_graph(config=config), name=config.name).wait("baseline")
        load(served, config, rate, 1.0)
        for turn in range(rounds):
            turns["alone"].append(load(served, config, rate, seconds))
            times, used = beside(client, served, config, rate, seconds, turn)
            turns["beside"].append(times)
            cores.append(used)
            with counting(aside):
                turns["counting"].append(load(served, config, rate, seconds))
    row: Row = {"bench": "neighbour", "model": model, "rate": rate, "threads": threads,
                "search_cores_aside": aside, "rounds": rounds, "seconds": seconds,
                "load": os.getloadavg()[0],
                "search_cores": float(np.mean(cores))}
    for name, each in turns.items():
        row[name] = {q: float(np.median([turn[q] for turn in each])) for q in QUANTILES} | {
            "calls": sum(turn["calls"] for turn in each)}
    for name, each in turns.items():
        for q in QUANTILES if name != "alone" else ():
            ratios = [b[q] / a[q] for a, b in zip(turns["alone"], each, strict=True)]
            q1, median, q3 = np.percentile(ratios, (25, 50, 75))
            row[f"{q}_{name}_over_alone"] = {"median": median, "q1": q1, "q3": q3}
    return row


def main() -> int:
    """Prints the rows."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", nargs="+", choices=CONFIGS, default=list(CONFIGS))
    parser.add_argument("--rate", nargs="+", type=float, default=[200.0, 0.0],
                        help="calls per second; 0: one after the other")
    parser.add_argument("--threads", type=int, default=1, help="that serve")
    parser.add_argument("--search_cores", type=int, default=0,
                        help="set aside for searches, alone as beside one")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=4.0, help="of one turn")
    args = parser.parse_args()
    for model in args.model:
        for rate in args.rate:
            row = neighbour(model, rate, args.threads, args.search_cores, args.rounds, args.seconds)
            print(json.dumps(row), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
