"""A time of day that jumps by years, during uploads, searches and failures, and between starts."""

from __future__ import annotations

import pathlib
import subprocess

import athanor
from harness import Background, Run, check, eventually, metrics, numbered, upload
from verify import cache_is_clean

DAYS = (400, -800, 0)  # from what it is


def _library(run: Run) -> pathlib.Path:
    library = run.folder / "clock.so"
    source = pathlib.Path(__file__).with_name("clock.c")
    subprocess.run(["clang-19", "-O1", "-shared", "-fPIC", "-o", library, source, "-ldl"],
                   check=True)
    return library


def scenario(run: Run) -> None:
    offset = run.folder / "offset"
    offset.write_bytes(bytes(4096))

    def jump(days: int) -> None:
        with offset.open("r+b") as file:
            file.write((days * 86_400).to_bytes(8, "little", signed=True))

    environment = {"LD_PRELOAD": str(_library(run)), "ATHANOR_TEST_CLOCK": str(offset)}
    server = run.server("state", "--search_budget=exhaust", environment=environment).start()
    searched = numbered(1)
    with server.client() as client:
        model = upload(client, searched, budget=f"exhaust:{run.count(2, 20)}s")
        check(model, searched)
        job = model.info().compile_job_id
        eventually(lambda: _candidates(client.job(job)) > 0, "a candidate is measured")
        begin = _candidates(client.job(job))
        with Background(lambda: check(model, searched)) as asking:
            for turn, days in enumerate(DAYS * run.count(1, 10)):
                jump(days)
                new = numbered(2 + turn)
                check(upload(client, new, budget="0"), new)
        end = list(client.watch(job, timeout=300))[-1]
        # Times are of clocks that do not jump.
        assert (end.phase, end.stop_reason) in (
            ("DONE", "STOP_BUDGET"), ("DONE", "STOP_EXHAUSTED")), end
        assert end.search.candidates >= begin and 0 < end.search.seconds < 86_400, end.search
        jobs = client.jobs()
        assert all(job.phase == "DONE" for job in jobs), jobs
        kept = sorted(info.name for info in client.models())
    compiled = 0
    for days in DAYS:
        jump(days)
        assert server.stop() == 0
        server.start()
        with server.client() as client:
            assert sorted(info.name for info in client.models()) == kept
            check(client.model(searched.name), searched)
            cache_is_clean(server)
        compiled += metrics(server)['athanor_kernels_compiled_total{device="cpu"}']
    run.figure("jumps", len(DAYS) * run.count(1, 10) + len(DAYS))
    run.figure("calls meanwhile", asking.rounds)
    run.figure("kernels compiled after a jump and a restart", compiled, at_most=0)
    assert server.stop() == 0


def _candidates(job: athanor.CompileJob) -> int:
    return job.search.candidates if job.search is not None else 0
