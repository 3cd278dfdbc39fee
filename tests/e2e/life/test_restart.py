"""Restarts: what served serves again, with no compiler, from the first call."""

from __future__ import annotations

import pathlib
import sqlite3
from collections.abc import Iterator

import athanor
import mlp
import numpy as np
import pytest
from conftest import Server
from http_pages import metric

CONFIG = mlp.Config(widths=(64, 96, 32), batch=16)


@pytest.fixture
def server(tmp_path: pathlib.Path) -> Iterator[Server]:
    """A server that searches, with metrics; started."""
    running = Server(tmp_path / "state", "--search_budget=exhaust:4s",
                     "--http_listen=127.0.0.1:0").start()
    yield running
    running.kill()


def check(model: athanor.Model) -> str:
    """Answers against numpy; the plan that gave them."""
    plans = set()
    for batch in (1, 5, CONFIG.batch):
        x = np.random.default_rng(batch).standard_normal((batch, CONFIG.widths[0]), np.float32)
        reply = model.infer({"x": x}, timeout=120)
        np.testing.assert_allclose(reply["y"], mlp.mlp_numpy(x, CONFIG), rtol=1e-4, atol=1e-4)
        plans.add(reply.plan_id)
    assert len(plans) == 1
    return plans.pop()


def assert_warm(server: Server) -> None:
    """Checks that nothing was compiled or measured since the start, and no job runs."""
    assert server.children() == []
    assert metric(server, "athanor_kernels_compiled_total") == 0
    assert metric(server, "athanor_search_candidates_total") == 0


def searched(client: athanor.Client, name: str = "m") -> athanor.Model:
    """A model whose search has ended, whether it found a faster plan or not."""
    return client.upload(mlp.mlp_graph(config=CONFIG), name=name).wait("optimised", timeout=120)


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_what_served_serves_again(server: Server, how: str) -> None:
    with server.client() as client:
        model = searched(client)
        before = check(model)
        plans = client.model("m").info().plan_ids
        while client.cache_stat().writes_waiting > 0:
            pass
    getattr(server, how)()
    server.start()
    with server.client() as client:
        info = client.model("m").info()
        assert info.state == "READY", "it is there before the server answers"
        assert check(client.model("m")) == before
        assert info.plan_ids == plans
        job = client.jobs("m")[0]
        assert (job.phase, job.stop_reason) == ("DONE", "STOP_RESTORED")
        assert job.kernels_from_cache == job.kernels_total > 0
        assert client.model("m").wait("optimised", timeout=30).plan_id == before
        assert_warm(server)
        # A graph that is known is compiled for nobody.
        again = client.upload(mlp.mlp_graph(config=CONFIG), name="again")
        assert check(again.wait("optimised", timeout=120)) == before
        assert client.jobs("again")[0].kernels_from_cache > 0
        assert_warm(server)
    assert server.stop() == 0


def test_pins_and_kept_plans(server: Server) -> None:
    with server.client() as client:
        model = searched(client)
        latest = check(model)
        first = model.info().plan_ids[-1]
        model.pin_plan(first)
        assert check(model) == first
    server.kill()
    server.start()
    with server.client() as client:
        model = client.model("m")
        assert check(model) == first and model.info().pinned
        model.pin_plan("")
        assert check(model) == latest, "the plan that serves without the pin is known, too"
        model.pin_plan(latest)
        assert_warm(server)
    # A pinned plan outlives the cache.
    assert server.stop() == 0
    for path in server.state.glob("cache.db*"):
        path.unlink()
    server.start()
    with server.client() as client:
        model = client.model("m").wait("baseline", timeout=120)
        assert check(model) == latest and model.info().pinned
        assert metric(server, "athanor_kernels_compiled_total") > 0
    server.kill()
    server.start()
    with server.client() as client:
        assert check(client.model("m")) == latest
        assert_warm(server)


def test_only_missing_kernels_are_compiled(server: Server) -> None:
    with server.client() as client:
        before = check(searched(client))
    assert server.stop() == 0
    with sqlite3.connect(server.state / "cache.db") as cache:
        cache.execute("DELETE FROM kernels WHERE rowid = (SELECT min(rowid) FROM kernels)")
    server.start()
    with server.client() as client:
        model = client.model("m").wait("baseline", timeout=120)
        assert check(model) == before
    assert server.stop() == 0


@pytest.mark.parametrize("gone", ["cache", "plans"])
def test_what_is_gone_is_made_again_and_the_log_says_why(server: Server, gone: str) -> None:
    with server.client() as client:
        check(searched(client))
    assert server.stop() == 0
    if gone == "cache":
        for path in server.state.glob("cache.db*"):
            path.unlink()
    else:
        with sqlite3.connect(server.state / "cache.db") as cache:
            cache.execute("DELETE FROM plans")
    server.start()
    with server.client() as client:
        check(client.model("m").wait("baseline", timeout=120))
    log = server.log.read_text()
    assert "plan not restored" in log or "a plan is made anew" in log
    if gone == "plans":
        assert "plans: none of graph" in log
    assert server.stop() == 0
