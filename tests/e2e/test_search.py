"""The search behind the baseline: answers stay right while plans change, and how its job ends."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import athanor
import mlp
import numpy as np
import pytest
from conftest import Server

SEARCH_ENDS = ("STOP_ROOFLINE", "STOP_STAGNATION", "STOP_EXHAUSTED", "STOP_BUDGET")
CONFIG = mlp.Config(widths=(64, 96, 32), batch=16)


@pytest.fixture(scope="module")
def searching_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that searches for three seconds."""
    state = tmp_path_factory.mktemp("search") / "state"
    running = Server(state, "--search_budget=3s").start()
    yield running
    running.kill()


def check_answers(model: athanor.Model) -> str:
    """Answers at the ends and inside of the dim's range, against numpy; the plan that gave them."""
    for batch in (1, 3, CONFIG.batch):
        x = np.random.default_rng(batch).standard_normal((batch, CONFIG.widths[0]), np.float32)
        reply = model.infer({"x": x}, timeout=120)
        expected = mlp.mlp_numpy(x, CONFIG)
        np.testing.assert_allclose(reply["y"], expected, rtol=1e-4, atol=1e-4)
    return reply.plan_id


def test_answers_stay_right_before_during_and_after(searching_server: Server) -> None:
    with searching_server.client() as client:
        model = client.upload(mlp.mlp_graph(config=CONFIG), name="mlp")
        jobs = model.watch(timeout=120)
        seen = [next(jobs)]
        first = check_answers(model)
        for job in jobs:
            seen.append(job)
            if job.phase == "SEARCHING" and len(seen) % 8 == 0:
                check_answers(model)
        assert model.wait("optimised", timeout=120) is model
        served = check_answers(model)
        searched = [job.search for job in seen if job.search is not None]
        assert any(job.phase == "SEARCHING" for job in seen)
        last = seen[-1]
        assert last.phase == "DONE" and last.stop_reason in SEARCH_ENDS
        assert last.percent == 100 and last.error is None
        counts = [search.candidates for search in searched]
        assert counts == sorted(counts) and counts[-1] > 0
        check_progress(last.search)
        assert served == model.plan_id
        # Another plan serves only if one was taken; the first answers may have seen one already.
        assert served == first or last.search.plans_taken > 0
        assert (last.search.best < 1) == (last.search.plans_taken > 0)
        assert client.job(last.id).search == last.search
        assert asyncio.run(search_seen_by_asyncio(searching_server, last.id)) == last.search


def check_progress(search: athanor.SearchProgress) -> None:
    assert 0 <= search.candidates_failed <= search.candidates
    assert 0 <= search.plans_taken <= search.plans_measured
    assert 0 < search.best <= 1 and search.seconds > 0
    assert search.sizes and all(size.startswith("b=") for size in search.sizes)
    assert search.tasks
    for task in search.tasks:
        assert task.about and task.calls > 0 and len(task.roofline_seconds) == len(search.sizes)
        assert all(seconds > 0 for seconds in task.seconds)
        assert len(task.seconds) in (0, len(search.sizes))


async def search_seen_by_asyncio(server: Server, job: str) -> athanor.SearchProgress | None:
    async with athanor.AsyncClient(server.address) as client:
        return (await client.job(job)).search


def test_no_search_without_budget(searching_server: Server) -> None:
    with searching_server.client() as client:
        model = client.upload(mlp.mlp_graph(config=CONFIG), name="still", budget="0")
        job = list(model.wait("optimised", timeout=120).watch(timeout=120))[-1]
        assert (job.phase, job.stop_reason) == ("DONE", "STOP_BASELINE_ONLY")
        assert job.search is None
