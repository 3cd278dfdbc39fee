"""The search behind the baseline: answers stay right while plans change, and how its job ends."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import pathlib
import pty
import re
import subprocess
from collections.abc import Iterator

import athanor
import mlp
import numpy as np
import pytest
from conftest import CLI, Server, built

SEARCH_ENDS = ("STOP_ROOFLINE", "STOP_STAGNATION", "STOP_EXHAUSTED", "STOP_BUDGET")
CONFIG = mlp.Config(widths=(64, 96, 32), batch=16)


@pytest.fixture(scope="module")
def searching_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that searches for three seconds, unless an upload says otherwise."""
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
        # Exhaustive, so that it goes on after it has found what it can.
        model = client.upload(mlp.mlp_graph(config=CONFIG), name="mlp", budget="exhaust:8s")
        jobs = model.watch(timeout=120)
        seen = [next(jobs)]
        first = check_answers(model)
        caught = 0
        for job in jobs:
            seen.append(job)
            if job.phase == "SEARCHING" and caught < 20:
                check_answers(model)
                caught += client.job(job.id).phase == "SEARCHING"
        assert caught > 0, "answers were given while the search went on"
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


def cli(server: Server, *arguments: str) -> str:
    command = [built(CLI), "--address", server.address, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout


def on_a_terminal(server: Server, *arguments: str) -> str:
    """Returns the tool's output to a terminal of unknown size."""
    outer, inner = pty.openpty()
    command = [built(CLI), "--address", server.address, *arguments]
    shown = b""
    with subprocess.Popen(command, stdout=inner, stderr=inner) as process:
        os.close(inner)
        while True:
            try:
                piece = os.read(outer, 4096)
            except OSError:  # the other end is closed
                break
            if not piece:
                break
            shown += piece
    os.close(outer)
    assert process.returncode == 0, shown
    return shown.decode()


def test_watch_and_explain(searching_server: Server, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "seen.athanor"
    # Not one whose kernels' times are known: that search would end before it is drawn.
    new = dataclasses.replace(CONFIG, widths=(64, 80, 48))
    mlp.mlp_graph(config=new).save(path)
    coloured = on_a_terminal(searching_server, "upload", str(path))
    shown = re.sub(r"\x1b\[\d*m", "", coloured)
    assert "SEARCHING" in shown and "candidates (" in shown and "plans taken" in shown
    assert "A\x1b[K[" in shown, "it is redrawn in place"
    # Lines of what was drawn, without the terminal's own marks.
    last = shown[shown.rindex("\x1b[K["):].replace("\x1b[K", "").replace("\x1b[J", "")
    lines = last.split("\r\n")
    assert lines[0].startswith("[##############################] 100 %  DONE")
    assert any("Contract" in line for line in lines) and all(len(line) < 80 for line in lines[:-3])
    assert any(line.startswith("DONE: ") and "STOP" not in line for line in lines)
    states = [json.loads(line) for line in cli(searching_server, "--json", "watch",
                                               "seen").splitlines()]
    assert states[-1]["stop_reason"] in SEARCH_ENDS and states[-1]["search"]["tasks"]
    text = cli(searching_server, "watch", "seen")
    assert "\x1b" not in text and "DONE, " in text
    explained = json.loads(cli(searching_server, "--json", "explain", "seen"))
    assert explained["plan"]["plan_id"] == explained["model"]["plan_id"]
    assert explained["job"] == states[-1]
    kernels = explained["kernels"]
    assert [k["about"] for k in kernels] == [t["about"] for t in states[-1]["search"]["tasks"]]
    assert sum(kernel["share"] for kernel in kernels) == pytest.approx(1)
    text = cli(searching_server, "explain", "seen/1")
    assert explained["plan"]["plan_id"] in text and explained["plan"]["kind"] in text
    for kernel in kernels:
        assert kernel["schedule"] in text and f"kernel {len(kernels)}: " in text
    for size in explained["job"]["search"]["sizes"]:
        assert f"  {size} " in text
    regions = states[-1]["search"]["regions"]
    assert any(region["rules"] for region in regions)
    assert "Rules that found anything" not in text
    table = cli(searching_server, "explain", "seen", "--rules")
    assert text in table and "Rules that found anything" in table
    for rule in (rule for region in regions for rule in region["rules"]):
        (line,) = (x for x in table.splitlines() if x.split()[:3] ==
                   [rule["rule"], rule["family"], rule["rule_class"]])
        matches, fired = line.split()[3:5]
        assert int(matches) >= rule["matches"] and int(fired) >= rule["fired"]


def test_explain_without_search(searching_server: Server) -> None:
    with searching_server.client() as client:
        client.upload(mlp.mlp_graph(config=CONFIG), name="plain", budget="0").wait(timeout=120)
        list(client.model("plain").watch(timeout=120))
    assert "no search was asked for" in cli(searching_server, "explain", "plain")
    explained = json.loads(cli(searching_server, "--json", "explain", "plain"))
    assert explained["kernels"] == [] and explained["job"]["search"] is None
    with searching_server.client() as client:
        model = client.model("plain")
        with pytest.raises(athanor.FailedPrecondition, match="no search has used the rules"):
            model.egraph()
