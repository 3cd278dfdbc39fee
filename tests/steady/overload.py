"""Five times the calls that the server can answer: those it takes are answered in time, the rest
are refused at once with the right code, and memory stays.

The server and what sends the calls keep to cores of their own, so that neither is measured by how
the other is scheduled. The capacity is that of a closed loop from which more callers bring less
than 3 %.
"""

from __future__ import annotations

import os
import pathlib
import sqlite3
import threading

import mlp
import numpy as np
from harness import Background, Run, bench, check, eventually, metrics, resident
from server_process import Server

MODEL = mlp.Config(name="mlp", widths=(64, 2048, 2048, 2048, 64), batch=16)
INPUTS = ("--model=mlp", "--shape=x=16x64", "--requests=4", "--warmup=20", "--timeout=60s")


class Load:
    """Sends calls from cores that the server does not use, where there are two."""

    def __init__(self) -> None:
        cores = sorted(os.sched_getaffinity(0))
        half = max(1, len(cores) // 2)
        self.server = ("taskset", "-c", ",".join(map(str, cores[:half])))
        self.sender = ("taskset", "-c", ",".join(map(str, cores[-half:])))
        self.about = f"{half} of {len(cores)}"

    def send(self, server: Server, *arguments: object) -> dict:
        return bench(server, *INPUTS, *arguments, prefix=self.sender)

    def capacity(self, server: Server, seconds: float) -> float:
        """Calls a second."""
        best = 0.0
        for concurrency in (1, 2, 4, 8, 16, 32):
            rate = self.send(server, f"--concurrency={concurrency}",
                             f"--duration={round(1000 * seconds)}ms")["request_throughput"]
            if rate < 1.03 * best:
                return max(rate, best)
            best = rate
        return best


def _refusals(summary: dict, calls: pathlib.Path) -> tuple[int, float]:
    """How many calls were refused, and milliseconds until 99 of 100 knew. Other errors fail."""
    other = [row for row in summary["errors"] if row["code"] != "RESOURCE_EXHAUSTED"]
    assert not other, other
    with sqlite3.connect(calls) as db:
        times = [ns / 1e6 for (ns,) in db.execute(
            "SELECT done_ns - sent_ns FROM calls WHERE code != 0 AND sent_ns > 0")]
    return len(times), float(np.percentile(times, 99)) if times else 0.0


def scenario(run: Run) -> None:
    load = Load()
    seconds = run.count(4, 60)
    server = run.server("state", prefix=load.server).start()
    with server.client() as client:
        model = client.upload(mlp.mlp_graph(config=MODEL), name="mlp").wait(timeout=120)
        check(model, MODEL, batch=16)
        capacity = load.capacity(server, 0.5 if not run.long else 5)
        at_capacity = load.send(server, f"--rate={capacity:.0f}", f"--duration={seconds}s")
        calls = run.folder / "calls.db"
        held: list[int] = []
        ended = threading.Event()

        def look() -> None:
            held.append(resident(server.pid))
            ended.wait(seconds / 40)

        with Background(look):
            over = load.send(server, f"--rate={5 * capacity:.0f}", f"--duration={seconds}s",
                             f"--db={calls}", "--save_calls")
            ended.set()
        refused, known_ms = _refusals(over, calls)
        assert over["completed"] > 0 and refused > 0 and over["not_sent"] == 0, over["errors"]
        eventually(lambda: metrics(server)["athanor_queued_requests"] == 0, "the queue is empty")
        check(model, MODEL, batch=16)  # and all is well again
    half = len(held) // 2
    grown = 100 * (max(held[half:]) / max(held[:half]) - 1)
    run.figure("cores of the server", load.about)
    run.figure("capacity", capacity, "calls/s")
    run.figure("5x: answered", over["completed"] / over["duration"], "calls/s")
    run.figure("5x: refused", refused)
    run.figure("p99 at capacity", at_capacity["p99_e2el_ms"], "ms")
    run.figure("5x: p99 of those accepted", over["p99_e2el_ms"], "ms",
               at_most=2 * at_capacity["p99_e2el_ms"], timed=True)
    run.figure("5x: p99 until refused", known_ms, "ms")
    run.figure("5x: the generator kept up", str(over["generator"]["kept_up"]))
    run.figure("resident, second half against the first", grown, "%", at_most=2 if run.long else 20)
    assert server.stop() == 0
