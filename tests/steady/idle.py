"""Measures the server's cost while no client calls it."""

from __future__ import annotations

import time

from harness import Run, check, cpu_seconds, numbered, upload


def scenario(run: Run) -> None:
    seconds = run.count(3, 60)
    server = run.server("state").start()
    with server.client() as client:
        for number in range(3):
            check(upload(client, numbered(number)), numbered(number))
    time.sleep(2)  # memory is given back, threads have gone to sleep
    pids = [server.pid, *server.children()]
    begin, used = time.monotonic(), sum(map(cpu_seconds, pids))
    time.sleep(seconds)
    percent = 100 * (sum(map(cpu_seconds, pids)) - used) / (time.monotonic() - begin)
    run.figure("idle for", seconds, "s")
    run.figure("processes", len(pids))
    run.figure("processor time of the server and its children", percent, "% of a core",
               at_most=0.5, timed=True)
    assert server.stop() == 0
