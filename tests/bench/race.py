"""Times the sides of a comparison in turn, so that what else runs on the machine meets all alike.

    times = race({"ours": ours, "onnxruntime": theirs}, rounds=41)
    quartiles(times["ours"])
    ratios(times["ours"], times["onnxruntime"])
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np

TURN_SECONDS = 0.02
# Threads of a runtime spin for some milliseconds after a call: not into the next side's turn.
PAUSE_SECONDS = 0.05


def race(calls: Mapping[str, Callable[[], None]], rounds: int) -> dict[str, list[float]]:
    """Seconds of one call of each side in each round.

    A turn is a pause, one call that is not timed, and as many timed ones as fill `TURN_SECONDS`, at
    least one; the sides' order turns around from round to round.
    """
    counts = {}
    for side, call in calls.items():
        call()
        start = time.perf_counter()
        call()
        counts[side] = max(1, int(TURN_SECONDS / (time.perf_counter() - start)))
        for _ in range(counts[side]):
            call()
    order = list(calls)
    times: dict[str, list[float]] = {side: [] for side in order}
    for _ in range(rounds):
        for side in order:
            call, count = calls[side], counts[side]
            time.sleep(PAUSE_SECONDS)
            call()
            start = time.perf_counter()
            for _ in range(count):
                call()
            times[side].append((time.perf_counter() - start) / count)
        order.reverse()
    return times


def quartiles(seconds: Sequence[float]) -> dict[str, float]:
    """Median and quartiles in milliseconds."""
    q1, median, q3 = (1e3 * float(x) for x in np.percentile(seconds, (25, 50, 75)))
    return {"median_ms": median, "q1_ms": q1, "q3_ms": q3}


def ratios(ours: Sequence[float], theirs: Sequence[float]) -> dict[str, float]:
    """Time over time, round by round: median, quartiles, 10th and 90th percentile; below 1 we are
    faster."""
    each = np.array(ours) / np.array(theirs)
    return {name: float(np.percentile(each, at))
            for name, at in (("median", 50), ("q1", 25), ("q3", 75), ("p10", 10), ("p90", 90))}


class Elsewhere:
    """Measures the share of the machine that other processes had: ``with Elsewhere() as other: ...;
    other.percent``.

    `percent` of all cores' time was spent by other processes or taken by the host (steal).
    """

    percent: float = 0.0

    def __enter__(self) -> Elsewhere:
        self._start = self._read()
        return self

    def __exit__(self, *_: object) -> None:
        busy, own, total = (b - a for a, b in zip(self._start, self._read(), strict=True))
        self.percent = 100 * max(0.0, busy - own) / total if total else 0.0

    @staticmethod
    def _read() -> tuple[float, float, float]:
        """Seconds all cores were busy or stolen, that this process ran, and that passed in all."""
        with open("/proc/stat", encoding="ascii") as file:
            fields = [int(x) / os.sysconf("SC_CLK_TCK") for x in file.readline().split()[1:9]]
        # user nice system idle iowait irq softirq steal
        idle = fields[3] + fields[4]
        return sum(fields) - idle, time.process_time(), sum(fields)
