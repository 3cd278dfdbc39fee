"""Options of the search: budgets, rules, determinism; and things that disturb it."""

from __future__ import annotations

import json
import os
import pathlib
import re
import signal
import subprocess
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator

import athanor
import mlp
import numpy as np
import pytest
from conftest import CLI, Server, built

CONFIG = mlp.Config(widths=(64, 96, 32), batch=16)
BAD_BUDGETS = ("soon", "0s", "-5s", "0c", "-1c", "1.5c", "721h", "99999999999999999999h",
               "2000000c", "fast:", "exhaust:0", "exhaust:fast", "30", " 30s")


@pytest.fixture(scope="module")
def searching(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server whose searches go on until they are told otherwise."""
    state = tmp_path_factory.mktemp("options") / "state"
    running = Server(state, "--search_budget=exhaust").start()
    yield running
    running.kill()


def answers(model: athanor.Model, batch: int = 5) -> np.ndarray:
    """An answer that agrees with numpy."""
    x = np.random.default_rng(batch).standard_normal((batch, CONFIG.widths[0]), np.float32)
    y = model.infer({"x": x}, timeout=120)["y"]
    np.testing.assert_allclose(y, mlp.mlp_numpy(x, CONFIG), rtol=1e-4, atol=1e-4)
    return y


def upload(client: athanor.Client, name: str, **options: object) -> athanor.Model:
    return client.upload(mlp.mlp_graph(config=CONFIG), name=name, **options)


def when(client: athanor.Client, job: str, holds: Callable[[athanor.CompileJob], bool],
         ) -> athanor.CompileJob:
    """The job's first state for which `holds` does."""
    for state in client.watch(job, timeout=120):
        if holds(state):
            return state
    pytest.fail(f"job {job} ended without it: {state}")


def searched(state: athanor.CompileJob, candidates: int = 1) -> bool:
    return state.search is not None and state.search.candidates >= candidates


def test_budgets_and_rules_are_refused(searching: Server) -> None:
    with searching.client() as client:
        model = upload(client, "refused", budget="0").wait(timeout=120)
        for budget in BAD_BUDGETS:
            for call in (lambda b=budget: upload(client, "never", budget=b),
                         lambda b=budget: client.compile("refused", budget=b)):
                with pytest.raises(athanor.InvalidArgument, match="a time such as 30s"):
                    call()
        for call in (lambda: upload(client, "never", disable_rules=["no_such_rule"]),
                     lambda: client.compile("refused", disable_rules=["no_such_rule"])):
            with pytest.raises(athanor.InvalidArgument,
                               match='"no_such_rule" is neither a rule nor a family.*algebra'):
                call()
        assert not client.models("never")
        answers(model)


def test_a_number_of_candidates(searching: Server) -> None:
    with searching.client() as client:
        model = upload(client, "counted", budget="5c", disable_rules=["layout"])
        job = list(model.wait("optimised", timeout=120).watch())[-1]
        assert (job.phase, job.stop_reason) == ("DONE", "STOP_BUDGET")
        assert 0 < job.search.candidates <= 5
        options = job.search_options
        assert (options.budget, options.disabled_rules, options.use) == ("5c", ("layout",), "SERVE")
        answers(model)


def test_deterministic_answers_are_equal_bits(searching: Server) -> None:
    with searching.client() as client:
        model = upload(client, "fixed", deterministic=True)
        first = list(model.wait("optimised", timeout=120).watch())[-1]
        assert first.stop_reason == "STOP_BASELINE_ONLY" and model.info().deterministic
        baseline, before = model.plan_id, answers(model)
        job = client.compile("fixed", budget="40c")
        assert job.search_options.use == "KEEP"
        # A second one waits for the first.
        second = client.compile("fixed", budget="1c")
        assert client.job(second.id).phase == "QUEUED"
        caught = 0
        for state in client.watch(job.id, timeout=120):
            caught += state.phase == "SEARCHING"
            assert answers(model).tobytes() == before.tobytes()
        assert caught and state.phase == "DONE" and state.comparison.against == baseline
        *_, after = client.watch(second.id, timeout=120)
        info = model.info()
        taken = state.search.plans_taken
        assert info.plan_id == baseline
        assert taken < len(info.plan_ids) <= taken + after.search.plans_taken + 1
        for plan in model.info().plan_ids:
            assert model.pin_plan(plan).pinned and model.plan_id == plan
            pinned = answers(model)
            assert all(answers(model).tobytes() == pinned.tobytes() for _ in range(3))
        assert not model.pin_plan().pinned and model.plan_id == baseline
        with pytest.raises(athanor.NotFound, match='no plan "p-none"'):
            model.pin_plan("p-none")
        with pytest.raises(athanor.InvalidArgument, match="is deterministic"):
            client.compile("fixed", use="serve")
        assert answers(model).tobytes() == before.tobytes()


def test_a_model_deleted_during_its_search(searching: Server) -> None:
    with searching.client() as client:
        model = upload(client, "gone")
        job = when(client, model.info().compile_job_id, searched)
        assert job.phase == "SEARCHING"
        model.delete()
        end = list(client.watch(job.id, timeout=120))[-1]
        assert (end.phase, end.stop_reason) == ("CANCELLED", "STOP_MODEL_DELETED")
        with pytest.raises(athanor.NotFound):
            model.infer({"x": np.zeros((1, CONFIG.widths[0]), np.float32)})
        answers(upload(client, "gone", budget="0"))


def test_a_third_model_while_two_are_searched_for(searching: Server) -> None:
    with searching.client() as client:
        # Equal searches would be made one after the other.
        models = [upload(client, name, budget=budget)
                  for name, budget in (("first", "exhaust:9h"), ("second", "exhaust:8h"))]
        jobs = [model.info().compile_job_id for model in models]
        for job in jobs:
            when(client, job, searched)
        answers(upload(client, "third", budget="0"))
        for model, job in zip(models, jobs, strict=True):
            assert client.job(job).phase == "SEARCHING"
            answers(model)
        seen = [client.job(job).search.candidates for job in jobs]
        for job, count in zip(jobs, seen, strict=True):  # both go on
            when(client, job, lambda state, count=count: searched(state, count + 1))
            assert client.cancel(job).stop_reason == "STOP_CANCELLED"
        for model in models:
            answers(model)


@pytest.mark.parametrize("own_server", [("--compile_workers=1",)], indirect=True)
def test_an_upload_waits_for_no_step_of_a_search(own_server: Server) -> None:
    with own_server.client() as client:
        builders = own_server.children()
        assert len(builders) == 1, "one worker, and nothing to search yet"
        models = [upload(client, name, budget=budget)
                  for name, budget in (("first", "exhaust:9h"), ("second", "exhaust:8h"))]
        jobs = [model.info().compile_job_id for model in models]
        for job in jobs:
            when(client, job, searched)
        [searcher] = set(own_server.children()) - set(builders)
        os.kill(searcher, signal.SIGSTOP)  # its step ends when it is told to go on
        try:
            third = upload(client, "third", budget="0")
            answers(third)
            last = list(third.watch(timeout=120))[-1]
            assert (last.phase, last.stop_reason) == ("DONE", "STOP_BASELINE_ONLY")
            fourth = upload(client, "fourth", budget="exhaust")
            answers(fourth)
            jobs.append(fourth.info().compile_job_id)
            assert [client.job(job).phase for job in jobs[:2]] == ["SEARCHING"] * 2
        finally:
            os.kill(searcher, signal.SIGCONT)
        for job in jobs:
            count = getattr(client.job(job).search, "candidates", 0)
            when(client, job, lambda state, count=count: searched(state, count + 1))
        for job in jobs:
            assert client.cancel(job).stop_reason == "STOP_CANCELLED"
        for model in (*models, third, fourth):
            answers(model)
        # Memory of the searches is freed with the last of them.
        end = time.monotonic() + 60
        while own_server.children() != builders and time.monotonic() < end:
            time.sleep(0.05)
        assert own_server.children() == builders


def test_a_tuner_killed_during_a_search(searching: Server) -> None:
    with searching.client() as client:
        model = upload(client, "killed")
        job = model.info().compile_job_id
        count = when(client, job, searched).search.candidates
        for _ in range(3):
            for pid in searching.children():
                os.kill(pid, signal.SIGKILL)
            answers(model)
            # The next child goes on where it was.
            count = when(client, job, lambda s, n=count: searched(s, n + 2)).search.candidates
        assert client.cancel(job).stop_reason == "STOP_CANCELLED"
        answers(model)


def test_explain_writes_the_plan_and_ablates(searching: Server, tmp_path: pathlib.Path) -> None:
    def cli(*arguments: str, status: int = 0) -> str:
        command = [built(CLI), "--address", searching.address, *arguments]
        result = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        assert result.returncode == status, (result.stdout, result.stderr)
        return result.stdout + result.stderr

    with searching.client() as client:
        model = upload(client, "explained", budget="20c").wait("optimised", timeout=120)
        plan = model.plan_id
    text = cli("explain", "explained", "--out", str(tmp_path / "plan"))
    assert "Steps at b=" in text and "roofline" in text and "plan.svg" in text
    svg = ElementTree.parse(tmp_path / "plan/plan.svg").getroot()
    boxes = [rect for rect in svg.iter("{http://www.w3.org/2000/svg}rect") if rect.get("rx")]
    described = json.loads((tmp_path / "plan/plan.json").read_text())
    assert len(boxes) == len(described["steps"]) + 2
    for cost in described["costs"]:
        assert cost["size"].startswith("b=") and len(cost["steps"]) == len(described["steps"])
        for step in cost["steps"]:
            # A step that only moves values has no operations.
            assert step["seconds"] > 0 and step["flops"] >= 0 and step["bytes"] > 0
            assert step["roofline_seconds"] > 0
        assert any(step["flops"] > 0 for step in cost["steps"])
    kernels = described["kernels"]
    assert len(list((tmp_path / "plan").glob("*.kir"))) == len(kernels)
    for source in (tmp_path / "plan").glob("*.cc"):
        assert "athanor" in source.read_text() or "void" in source.read_text()
    assert (tmp_path / "plan/genome.txt").read_text().count("kernel ") >= len(kernels)
    regions = json.loads(cli("--json", "explain", "explained"))["job"]["search"]["regions"]
    for number, region in enumerate(regions):
        assert f"region {number}: {region['instances']} x {region['nodes']} nodes" in text
        dot = cli("explain", "explained", "--egraph", str(number))
        assert dot.startswith("digraph egraph {") and dot.endswith("}\n")
        assert dot.count("subgraph cluster_") == region["e_classes"]
        assert len(re.findall(r"^ *n\d+ \[label=", dot, re.MULTILINE)) == region["e_nodes"]
        (drawn,) = cli("--json", "explain", "explained/1", "--egraph", str(number)).splitlines()
        assert json.loads(drawn) == {"region": number, "dot": dot}
        with searching.client() as client:
            assert client.model("explained").egraph(number) == dot
    missing = cli("explain", "explained", "--egraph", str(len(regions)), status=1)
    assert "has no region" in missing and f"0 to {len(regions) - 1}" in missing
    assert cli("explain", "explained", "--egraph", "-1", status=2)
    assert cli("explain", "explained", "--egraph", "0", "--rules", status=2)
    rows = [json.loads(line) for line in
            cli("--json", "explain", "explained", "--ablate", "--budget", "10c").splitlines()]
    explained, rows = rows[0], rows[1:]
    assert explained["details"]["info"]["plan_id"] == plan
    disabled = [row["disabled"] for row in rows]
    assert disabled[0] == "" and "fuse" in disabled
    for row in rows:
        assert row["comparison"]["against"] == plan and row["comparison"]["ratio"] > 0
        assert row["search_options"]["budget"] == "10c"
        assert row["search_options"]["use"] == "COMPARE"
    with searching.client() as client:
        assert client.model("explained").plan_id == plan
    assert '"nope" does not exist' in cli("models", "nope", status=1)
    assert '"nope" does not exist' in cli("explain", "nope", status=1)
    assert cli("compile", "explained", "--keep", "--compare", status=2)


def test_an_unknown_rule_stops_the_server_at_once(tmp_path: pathlib.Path) -> None:
    begin = time.monotonic()
    result = subprocess.run(
        [built(CLI.parents[2] / "server/athanord"), "--listen=127.0.0.1:0",
         f"--state_dir={tmp_path / 'state'}", "--disable_rules=algebra,no_such_rule"],
        capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode != 0 and time.monotonic() - begin < 60
    assert '--disable_rules: "no_such_rule" is neither a rule nor a family' in (
        result.stdout + result.stderr).replace("\\", "")
