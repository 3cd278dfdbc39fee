"""Two servers on one cache: what one makes, the other takes; one that dies is replaced."""

from __future__ import annotations

import concurrent.futures
import os
import pathlib
import signal
import time
from collections.abc import Iterator

import athanor
import numpy as np
import pytest
from conftest import Server

LAYERS = 6
WIDTH = 96


def graph(seed: int = 0) -> tuple[athanor.Graph, np.ndarray]:
    """Enough different kernels that compiling them takes a while; the inputs' answer."""
    rng = np.random.default_rng(seed)
    g = athanor.Graph("m")
    x = np.linspace(-1, 1, WIDTH, dtype=np.float32)[None]
    value, answer = g.input("x", (1, WIDTH), "f32"), x
    for i in range(LAYERS):
        w = rng.standard_normal((answer.shape[1], WIDTH + 8 * i)).astype(np.float32) / WIDTH
        value, answer = value @ g.parameter(f"w{i}", w), answer @ w
        value, answer = athanor.tanh(value), np.tanh(answer)
    g.output("y", value)
    return g, answer


X = {"x": np.linspace(-1, 1, WIDTH, dtype=np.float32)[None]}


@pytest.fixture
def pair(tmp_path: pathlib.Path, request: pytest.FixtureRequest) -> Iterator[tuple[Server, Server]]:
    """Two servers that are up, with one cache that holds nothing; more flags as its parameter."""
    flags = (f"--cache={tmp_path / 'cache.db'}", "--lease_timeout=10m",
             *getattr(request, "param", ()))
    servers = [Server(tmp_path / name, *flags).start() for name in ("one", "two")]
    yield tuple(servers)
    for server in servers:
        server.kill()


def answers(server: Server, name: str, expected: np.ndarray) -> athanor.CompileJob:
    """Waits until it serves; its job, once that has ended, which it does a moment later."""
    with server.client() as client:
        model = client.model(name).wait("baseline", timeout=300)
        result = model.infer(X, timeout=120)
        np.testing.assert_allclose(result["y"], expected, rtol=1e-4, atol=1e-5)
        return list(client.watch(model.info().compile_job_id, timeout=300))[-1]


def compiled(server: Server) -> int:
    with server.client() as client:
        return client.cache_stat().kernels_compiled


def leases(server: Server, kind: str = "plan") -> list[athanor.CacheLease]:
    with server.client() as client:
        return [lease for lease in client.cache_stat().leases if lease.kind == kind]


def no_leases_are_left(server: Server) -> None:
    """A plan serves a moment before its lease is given back."""
    end = time.monotonic() + 60
    while held := leases(server):
        assert time.monotonic() < end, held
        time.sleep(0.005)


def begins_and_stands_still(first: Server, second: Server, g: athanor.Graph) -> athanor.CacheLease:
    """The first holds the lease of `g` and comes no further: its compiler is stopped."""
    with first.client() as client:
        warm = athanor.Graph("warm")
        warm.output("y", warm.input("x", (2,), "f32") + 1)
        client.upload(warm, name="warm").wait("baseline", timeout=120)
        no_leases_are_left(first)
        for child in first.children():
            os.kill(child, signal.SIGSTOP)
        client.upload(g, name="m")
    end = time.monotonic() + 60
    while not (held := leases(second)):
        assert time.monotonic() < end, "nobody took the lease"
        time.sleep(0.005)
    assert not held[0].ours and held[0].pid == first.pid
    assert held[0].about == 'model "m", version 1'
    return held[0]


def waits(client: athanor.Client, job_id: str) -> athanor.CompileJob:
    """The job, once it waits for the other server."""
    for job in client.watch(job_id, timeout=60):
        if job.waits_for:
            assert job.phase == "QUEUED"
            return job
    raise AssertionError(client.job(job_id))


def test_what_both_were_given_is_compiled_once(tmp_path: pathlib.Path,
                                               pair: tuple[Server, Server]) -> None:
    g, expected = graph()
    alone = Server(tmp_path / "alone").start()
    try:
        with alone.client() as client:
            client.upload(g, name="m")
        answers(alone, "m", expected)
        distinct = compiled(alone)
    finally:
        alone.kill()

    def upload(server: Server) -> None:
        with server.client() as client:
            client.upload(g, name="m")

    with concurrent.futures.ThreadPoolExecutor() as pool:
        list(pool.map(upload, pair))
        list(pool.map(lambda server: answers(server, "m", expected), pair))
    counts = sorted(compiled(server) for server in pair)
    assert counts == [0, distinct]
    assert leases(pair[0]) == []


def test_who_waits_says_for_whom_and_goes_on_when_that_one_dies(
        pair: tuple[Server, Server]) -> None:
    g, expected = graph()
    first, second = pair
    lease = begins_and_stands_still(first, second, g)
    with second.client() as client:
        model = client.upload(g, name="m")
        job_id = model.info().compile_job_id
        assert f"process {lease.pid} has held the plan lease" in waits(client, job_id).waits_for
        # The worker is free meanwhile, and callers give up when they want to.
        other = athanor.Graph("other")
        other.output("y", other.input("x", (3,), "f32") * 2)
        y = client.upload(other, name="other").infer({"x": np.ones(3, np.float32)}, timeout=120)
        np.testing.assert_array_equal(y["y"], np.full(3, 2, np.float32))
        with pytest.raises(athanor.DeadlineExceeded):
            model.infer(X, timeout=0.05)
        assert client.job(job_id).waits_for
    first.kill()
    job = answers(second, "m", expected)
    assert job.waits_for == "" and job.phase == "DONE"
    assert leases(second) == []
    # And the one that died takes it from there.
    first.start()
    answers(first, "m", expected)
    assert compiled(first) == 0


def test_a_waiting_job_is_cancelled_and_a_server_stops_beside_one(
        pair: tuple[Server, Server]) -> None:
    g, _ = graph()
    first, second = pair
    begins_and_stands_still(first, second, g)
    with second.client() as client:
        model = client.upload(g, name="m")
        job_id = model.info().compile_job_id
        waits(client, job_id)
        client.cancel(job_id)
        assert [job.phase for job in client.watch(job_id, timeout=60)][-1] == "CANCELLED"
        with pytest.raises(athanor.Error, match="was cancelled"):
            model.wait("baseline", timeout=60)
        # The next one waits as this one did, and ends with the server.
        waits(client, client.compile("m").id)
    assert second.stop() == 0


@pytest.mark.parametrize("pair", [("--search_budget=30c",)], indirect=True)
def test_equal_searches_are_made_once(pair: tuple[Server, Server]) -> None:
    g, expected = graph()

    def search(server: Server) -> athanor.CompileJob:
        with server.client() as client:
            model = client.upload(g, name="m").wait("optimised", timeout=300)
            return client.job(model.info().compile_job_id)

    with concurrent.futures.ThreadPoolExecutor() as pool:
        jobs = list(pool.map(search, pair))
    assert sum(job.stop_reason == "STOP_RESTORED" for job in jobs) == 1, jobs
    measured, plans = [], set()
    for server in pair:
        answers(server, "m", expected)
        with server.client() as client:
            measured.append(client.cache_stat().candidates_measured)
            plans.add(client.model("m").info().plan_id)
            assert client.cache_stat().leases == ()
    assert sorted(measured)[0] == 0 < sorted(measured)[1]
    assert len(plans) == 1


@pytest.mark.parametrize("pair", [("--search_budget=1h",)], indirect=True)
def test_a_search_is_taken_up_where_its_server_dies(pair: tuple[Server, Server]) -> None:
    g, expected = graph()
    first, second = pair
    with first.client() as client:
        job_id = client.upload(g, name="m").info().compile_job_id
        for job in client.watch(job_id, timeout=120):
            if job.search is not None and job.search.candidates > 0:
                break
        for child in first.children():
            os.kill(child, signal.SIGSTOP)
    with second.client() as client:
        model = client.upload(g, name="m").wait("baseline", timeout=120)
        np.testing.assert_allclose(model.infer(X)["y"], expected, rtol=1e-4, atol=1e-5)
        job_id = model.info().compile_job_id
        for job in client.watch(job_id, timeout=60):
            if job.waits_for:
                break
        assert job.phase == "SEARCHING" and job.search is None
        assert "has held the search lease" in job.waits_for
        first.kill()
        for job in client.watch(job_id, timeout=120):
            if job.search is not None and job.search.candidates > 0:
                break
        assert job.phase == "SEARCHING" and job.waits_for == ""
        assert job.search.candidates_from_cache > 0  # measured by the first server
        client.cancel(job_id)
        assert [job.phase for job in client.watch(job_id, timeout=60)][-1] == "CANCELLED"
        np.testing.assert_allclose(model.infer(X)["y"], expected, rtol=1e-4, atol=1e-5)
