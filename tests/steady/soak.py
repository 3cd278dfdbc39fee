"""Everything at once for hours: calls of all sizes, uploads, deletions, searches, failures. Memory,
open files and the cache's file stay as they are.
"""

from __future__ import annotations

import statistics
import time

import grpc
import uploads
from harness import Background, Run, check, metrics, numbered, open_files, resident, upload
from verify import cache_is_clean

MODELS = 6
HOURS = 8


def scenario(run: Run) -> None:
    seconds = run.count(6, HOURS * 3600)
    server = run.server("state", "--search_budget=2s").start()
    held, files, number = [], [], MODELS
    kinds = list(uploads.FAILURES)
    with server.client() as client, grpc.insecure_channel(server.address) as channel:
        for old in range(MODELS):
            upload(client, numbered(old))

        def ask() -> None:
            of = int(time.monotonic() * 1e6) % MODELS
            check(client.model(numbered(of).name), numbered(of), batch=1 + of * 2)

        end = time.monotonic() + seconds
        with Background(ask, ask) as asking:
            while time.monotonic() < end:
                # The same models again and again: what is new costs a kernel in the cache.
                new = numbered(MODELS + number % 50)
                number += 1
                check(upload(client, new), new)
                uploads.fail(channel, kinds[number % len(kinds)], number)
                client.delete(new.name)
                held.append(resident(server.pid))
                files.append(open_files(server.pid))
                time.sleep(run.random.uniform(0, 0.2))
        cache_is_clean(server)
        size = metrics(server)["athanor_cache_bytes"]
        jobs = [job for job in client.jobs() if job.phase == "FAILED"]
        assert not jobs, jobs
    assert server.stop() == 0
    third = max(1, len(held) // 3)
    run.figure("for", seconds, "s")
    run.figure("calls", asking.rounds)
    run.figure("models uploaded and deleted", number - MODELS)
    run.figure("cache", size / 2**20, "MiB")
    run.figure("resident, last third against the second",
               100 * (statistics.median(held[-third:]) / statistics.median(held[third:2 * third])
                      - 1), "%", at_most=2 if run.long else 20)
    run.figure("open files, last third against the second",
               statistics.median(files[-third:]) - statistics.median(files[third:2 * third]),
               at_most=2 if run.long else 8)


