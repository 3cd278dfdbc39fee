"""More calls than the server can answer: those it takes are answered in time, the rest are refused
at once with the right code, and memory stays.

First five times the capacity, then a flood: as many calls as one client can send, of a model so
small that refusing them is most of the work, with thousands outstanding.

The server and what sends the calls keep to cores of their own, so that neither is measured by how
the other is scheduled. The capacity is that of a closed loop from which more callers bring less
than 3 %.
"""

from __future__ import annotations

import os
import pathlib
import sqlite3
import threading
import time

import mlp
import numpy as np
from harness import Background, Run, bench, check, eventually, metrics, resident
from server_process import Server

# Some 7 ms of one core a call: five times its capacity is what the other core can send.
MODEL = mlp.Config(name="mlp", widths=(64, 2048, 2048, 2048, 64), batch=16)
SMALL = mlp.Config(name="small", widths=(64, 512, 512, 512, 64), batch=4)
FLOOD_RATE = 15_000
FLOOD_OUTSTANDING = 10_000
FLOOD_MIB = 256  # --max_connection_calls of one connection, and what the models hold


class Load:
    """Sends calls of a model from cores that the server does not use, where there are two."""

    def __init__(self, server: Server) -> None:
        cores = sorted(os.sched_getaffinity(0))
        half = max(1, len(cores) // 2)
        self.server = server
        self.sender = ("taskset", "-c", ",".join(map(str, cores[-half:])))
        self.about = f"{half} of {len(cores)}"

    @staticmethod
    def server_cores() -> tuple[str, ...]:
        cores = sorted(os.sched_getaffinity(0))
        return ("taskset", "-c", ",".join(map(str, cores[:max(1, len(cores) // 2)])))

    def send(self, config: mlp.Config, *arguments: object) -> dict:
        shape = f"--shape=x={config.batch}x{config.widths[0]}"
        return bench(self.server, f"--model={config.name}", shape, "--requests=4", "--warmup=20",
                     "--timeout=60s", *arguments, prefix=self.sender)

    def capacity(self, config: mlp.Config, seconds: float) -> float:
        """Calls a second."""
        best = 0.0
        for concurrency in (1, 2, 4, 8, 16, 32):
            rate = self.send(config, f"--concurrency={concurrency}",
                             f"--duration={round(1000 * seconds)}ms")["request_throughput"]
            if rate < 1.03 * best:
                return max(rate, best)
            best = rate
        return best


class Memory:
    """Looks at the server's resident memory while a block runs."""

    def __init__(self, server: Server, every: float) -> None:
        self._server = server
        self._every = every
        self._ended = threading.Event()
        self._begin = time.monotonic()
        self.looks: list[tuple[float, int]] = []  # seconds, bytes
        self._looking = Background(self._look)

    def _look(self) -> None:
        self.looks.append((time.monotonic() - self._begin, resident(self._server.pid)))
        self._ended.wait(self._every)

    def __enter__(self) -> Memory:
        self._looking.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._looking.__exit__(*error)

    def most_mib(self) -> float:
        return max(held for _, held in self.looks) / 2**20

    def growth_percent(self) -> float:
        """The most in the second half against the most in the first."""
        half = len(self.looks) // 2
        return 100 * (max(held for _, held in self.looks[half:])
                      / max(held for _, held in self.looks[:half]) - 1)

    def mib_per_minute(self) -> float:
        """The slope of the second half."""
        times, held = np.array(self.looks[len(self.looks) // 2:]).T
        return float(np.polyfit(times, held, 1)[0]) * 60 / 2**20


def _refusals(summary: dict, calls: pathlib.Path) -> tuple[int, float]:
    """Returns how many calls were refused, and the 99th percentile of ms until then; fails on
    others."""
    other = [row for row in summary["errors"] if row["code"] != "RESOURCE_EXHAUSTED"]
    assert not other, other
    with sqlite3.connect(calls) as db:
        times = [ns / 1e6 for (ns,) in db.execute(
            "SELECT done_ns - sent_ns FROM calls WHERE code != 0 AND sent_ns > 0")]
    return len(times), float(np.percentile(times, 99)) if times else 0.0


def _five_times(run: Run, load: Load) -> None:
    seconds = run.count(4, 60)
    capacity = load.capacity(MODEL, 0.5 if not run.long else 5)
    at_capacity = load.send(MODEL, f"--rate={capacity:.0f}", f"--duration={seconds}s")
    calls = run.folder / "calls.db"
    with Memory(load.server, seconds / 40) as memory:
        over = load.send(MODEL, f"--rate={5 * capacity:.0f}", f"--duration={seconds}s",
                         f"--db={calls}", "--save_calls")
    refused, known_ms = _refusals(over, calls)
    assert over["completed"] > 0 and refused > 0 and over["not_sent"] == 0, over["errors"]
    run.figure("capacity", capacity, "calls/s")
    run.figure("5x: answered", over["completed"] / over["duration"], "calls/s")
    run.figure("5x: refused", refused)
    run.figure("p99 at capacity", at_capacity["p99_e2el_ms"], "ms")
    run.figure("5x: p99 of those accepted", over["p99_e2el_ms"], "ms",
               at_most=2 * at_capacity["p99_e2el_ms"], timed=True)
    run.figure("5x: p99 until refused", known_ms, "ms")
    run.figure("5x: the generator kept up", str(over["generator"]["kept_up"]))
    run.figure("5x: resident, second half against the first", memory.growth_percent(), "%",
               at_most=2 if run.long else 20)
    run.figure("5x: resident, slope of the second half", memory.mib_per_minute(), "MiB/min")


def _flood(run: Run, load: Load) -> None:
    seconds = run.count(2, 20)
    capacity = load.capacity(SMALL, 0.5 if not run.long else 5)
    calls = run.folder / "flood.db"
    with Memory(load.server, seconds / 40) as memory:
        flood = load.send(SMALL, f"--rate={FLOOD_RATE}", f"--duration={seconds}s",
                          f"--max_outstanding={FLOOD_OUTSTANDING}", f"--db={calls}",
                          "--save_calls")
    refused, _ = _refusals(flood, calls)
    assert flood["completed"] > 0, flood["errors"]
    run.figure("flood: capacity", capacity, "calls/s")
    run.figure("flood: answered", flood["completed"] / flood["duration"], "calls/s")
    run.figure("flood: refused", refused / flood["duration"], "calls/s")
    run.figure("flood: resident at most", memory.most_mib(), "MiB", at_most=FLOOD_MIB)


def scenario(run: Run) -> None:
    server = run.server("state", prefix=Load.server_cores()).start()
    load = Load(server)
    run.figure("cores of the server", load.about)
    with server.client() as client:
        models = [(client.upload(mlp.mlp_graph(config=config), name=config.name), config)
                  for config in (MODEL, SMALL)]
        for model, config in models:
            check(model.wait(timeout=120), config, batch=config.batch)
        _five_times(run, load)
        _flood(run, load)
        eventually(lambda: metrics(server)["athanor_queued_requests"] == 0, "the queue is empty")
        for model, config in models:  # and all is well again
            check(model, config, batch=config.batch)
    assert server.stop() == 0
