"""Requests that share calls (``batch_dim`` of an upload): right answers, who shares with whom."""

from __future__ import annotations

import asyncio
import contextlib
import json
import pathlib
import subprocess
import threading
from collections.abc import Callable, Iterator

import athanor
import mlp
import numpy as np
import pytest
from conftest import CLI, Server, built

CONFIG = mlp.Config(widths=(64, 96, 32), batch=16)
ROWS = 16  # most of a call


def lookup_graph() -> athanor.Graph:
    """Sums of rows of an integer table, an id outside of which is found when it runs."""
    random = np.random.default_rng(5)
    g = athanor.Graph("lookup", dims={"b": (0, ROWS), "s": (1, 8)})
    ids = g.input("ids", ("b", "s"), "i32")
    shift = g.input("shift", (), "i32")
    table = g.parameter("table", random.integers(-1000, 1000, (50, 3)).astype(np.int32))
    g.output("y", athanor.embedding(table, ids + shift).sum(1))
    g.output("twice", shift * 2)
    return g


def mixing_graph() -> athanor.Graph:
    g = athanor.Graph("mixing", dims={"b": (1, 8)})
    g.output("y", athanor.softmax(g.input("x", ("b", 3), "f32"), axis=0).named("mixed"))
    return g


def ids_of(seed: int, rows: int = 1, width: int = 4) -> dict[str, np.ndarray]:
    ids = np.random.default_rng(seed).integers(0, 40, (rows, width)).astype(np.int32)
    return {"ids": ids, "shift": np.int32(3)}


def at_once(count: int, call: Callable[[int], athanor.InferResult]) -> list:
    """Runs each ``call(i)`` in a thread of its own; returns its result or its error."""
    answers: list = [None] * count
    start = threading.Barrier(count)

    def run(i: int) -> None:
        start.wait()
        try:
            answers[i] = call(i)
        except athanor.Error as error:
            answers[i] = error

    threads = [threading.Thread(target=run, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


@contextlib.contextmanager
def serving(state: pathlib.Path, *flags: str) -> Iterator[athanor.Client]:
    running = Server(state, *flags).start()
    try:
        with running.client() as client:
            yield client
        assert running.stop() == 0, running.log.read_text()
    finally:
        running.kill()


@pytest.fixture(scope="module")
def patient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[athanor.Client]:
    """A server whose requests wait for company for a minute, or until their call is full."""
    with serving(tmp_path_factory.mktemp("patient") / "state", "--batch_delay=60s") as client:
        client.upload(lookup_graph(), name="lookup", batch_dim="b").wait(timeout=120)
        client.upload(lookup_graph(), name="alone").wait(timeout=120)
        yield client


@pytest.fixture(scope="module")
def hurried(tmp_path_factory: pytest.TempPathFactory) -> Iterator[athanor.Client]:
    """Starts a server whose requests wait for others for at most 2 ms."""
    with serving(tmp_path_factory.mktemp("hurried") / "state", "--batch_delay=2ms") as client:
        yield client


def test_a_model_says_whether_its_requests_share_calls(patient: athanor.Client) -> None:
    assert patient.model("lookup").info().batching == athanor.Batching(
        "b", True, "", ROWS, 60_000_000)
    assert patient.model("alone").info().batching == athanor.Batching()


@pytest.mark.parametrize("rows", [1, 2, 4])
def test_a_full_call_answers_each_with_its_own_rows(patient: athanor.Client, rows: int) -> None:
    joined, alone = patient.model("lookup"), patient.model("alone")
    count = ROWS // rows
    answers = at_once(count, lambda i: joined.infer(ids_of(i, rows), timeout=120))
    for i, answer in enumerate(answers):
        want = alone.infer(ids_of(i, rows))
        assert answer["y"].tobytes() == want["y"].tobytes() and answer["y"].shape == (rows, 3)
        assert answer["twice"] == 6
        assert answer.batch_rows == ROWS and want.batch_rows == 0


def test_a_wrong_one_of_sixteen_is_split_out(patient: athanor.Client) -> None:
    joined, alone = patient.model("lookup"), patient.model("alone")

    def inputs(i: int) -> dict[str, np.ndarray]:
        given = ids_of(i)
        if i == 9:
            given["ids"][0, 2] = 1000
        return given

    answers = at_once(ROWS, lambda i: joined.infer(inputs(i), timeout=120))
    with pytest.raises(athanor.InvalidArgument):
        alone.infer(inputs(9))
    for i, answer in enumerate(answers):
        if i == 9:
            assert isinstance(answer, athanor.InvalidArgument), answer
            continue
        np.testing.assert_array_equal(answer["y"], alone.infer(inputs(i))["y"])
        assert answer.batch_rows == 1


def test_only_requests_that_differ_in_their_rows_alone(patient: athanor.Client) -> None:
    """Two groups of other sizes and one of another input without rows, each full."""
    joined, alone = patient.model("lookup"), patient.model("alone")

    def inputs(i: int) -> dict[str, np.ndarray]:
        given = ids_of(i, 2, width=(4, 5, 4)[i % 3])
        given["shift"] = np.int32((3, 3, 7)[i % 3])
        return given

    for i, answer in enumerate(at_once(3 * ROWS // 2,
                                       lambda i: joined.infer(inputs(i), timeout=120))):
        want = alone.infer(inputs(i))
        assert answer["y"].tobytes() == want["y"].tobytes()
        assert answer["twice"] == want["twice"] and answer.batch_rows == ROWS


def test_a_deadline_shorter_than_the_delay_is_met(patient: athanor.Client) -> None:
    answer = patient.model("lookup").infer(ids_of(1), timeout=6)
    assert answer.batch_us > 0 and answer.batch_rows == 1


def test_other_priorities_are_no_company(patient: athanor.Client) -> None:
    joined = patient.model("lookup")
    answers = at_once(4, lambda i: joined.infer(ids_of(i), timeout=10, priority=1 + i % 2))
    assert [answer.batch_rows for answer in answers] == [2, 2, 2, 2]


def test_taps_run_alone(patient: athanor.Client) -> None:
    answer = patient.model("lookup").infer(ids_of(1), taps=["ids"], timeout=120)
    assert answer.batch_rows == 0
    np.testing.assert_array_equal(answer["ids"], ids_of(1)["ids"])


def test_a_deterministic_version_runs_each_alone(patient: athanor.Client) -> None:
    model = patient.upload(lookup_graph(), name="fixed", batch_dim="b", deterministic=True)
    batching = model.info().batching
    assert not batching.on and "deterministic" in batching.reason
    for i, answer in enumerate(at_once(8, lambda i: model.infer(ids_of(i), timeout=120))):
        assert answer.batch_rows == 0
        np.testing.assert_array_equal(answer["y"],
                                      patient.model("alone").infer(ids_of(i))["y"])
    patient.delete("fixed")


def test_rows_that_are_mixed_are_served_and_said(tmp_path: pathlib.Path) -> None:
    server = Server(tmp_path / "state").start()
    x = np.random.default_rng(2).standard_normal((5, 3), np.float32)
    raised = np.exp(x.astype(np.float64))
    why = '"mixed" (Softmax): normalises across the rows of dim b'
    try:
        with server.client() as client:
            client.upload(mixing_graph(), name="mixing", batch_dim="b").wait(timeout=120)
        for restarted in (False, True):
            if restarted:
                assert server.stop() == 0
                server.start()
            with server.client() as client:
                model = client.model("mixing")
                assert model.info().batching == athanor.Batching("b", False, why)
                answer = model.infer({"x": x}, timeout=120)
                np.testing.assert_allclose(answer["y"], raised / raised.sum(0), rtol=1e-5)
                assert answer.batch_rows == 0
            listed = subprocess.run(
                [built(CLI), "--address", server.address, "models", "mixing"], capture_output=True,
                text=True, timeout=60, check=True).stdout
            assert f"requests share no calls over b: {why}" in listed
        assert "requests share no calls" in server.log.read_text()
    finally:
        server.kill()


def test_an_unknown_dim_is_refused(patient: athanor.Client) -> None:
    with pytest.raises(athanor.InvalidArgument, match='"rows" is no dim .* its dims: "b", "s"'):
        patient.upload(lookup_graph(), name="wrong", batch_dim="rows")


def test_asyncio_names_the_dim_too(patient: athanor.Client) -> None:
    async def batching() -> athanor.Batching:
        async with athanor.AsyncClient(patient.address) as client:
            model = await client.upload(lookup_graph(), name="async", batch_dim="b")
            return (await model.info()).batching

    assert asyncio.run(batching()).on
    patient.delete("async")


def test_sixty_four_threads_of_integers_are_bit_for_bit(hurried: athanor.Client) -> None:
    joined = hurried.upload(lookup_graph(), name="lookup", batch_dim="b").wait(timeout=120)
    alone = hurried.upload(lookup_graph(), name="alone").wait(timeout=120)
    want = [alone.infer(ids_of(i, i % 4))["y"].tobytes() for i in range(64)]

    def calls(i: int) -> list[athanor.InferResult]:
        return [joined.infer(ids_of(k, k % 4), timeout=120) for k in range(i, i + 20)]

    shared = 0
    for i, answers in enumerate(at_once(64, calls)):
        assert isinstance(answers, list), answers
        for k, answer in enumerate(answers, i):
            shared += answer.batch_rows > answer["y"].shape[0]
            if k < 64:
                assert answer["y"].tobytes() == want[k]
    assert shared > 0


def test_sixty_four_threads_of_floats_stay_within_bounds(hurried: athanor.Client) -> None:
    model = hurried.upload(mlp.mlp_graph(config=CONFIG), name="mlp", batch_dim="b")
    model.wait(timeout=120)
    shared = check_threads(model, 64, 20)
    assert shared > 0


def check_threads(model: athanor.Model, threads: int, rounds: int) -> int:
    """Calls of all sizes against numpy; how many shared one."""

    def calls(i: int) -> int:
        shared = 0
        for k in range(rounds):
            rows = 1 + (i + k) % 3
            x = np.random.default_rng(i * 100 + k).standard_normal((rows, 64), np.float32)
            answer = model.infer({"x": x}, timeout=120)
            np.testing.assert_allclose(answer["y"], mlp.mlp_numpy(x, CONFIG), rtol=1e-4, atol=1e-4)
            shared += answer.batch_rows > rows
        return shared

    shared = at_once(threads, calls)
    assert all(isinstance(each, int) for each in shared), shared
    return sum(shared)


def test_plans_are_swapped_while_calls_are_shared(tmp_path: pathlib.Path) -> None:
    with serving(tmp_path / "state", "--batch_delay=1ms", "--search_budget=3s") as client:
        model = client.upload(mlp.mlp_graph(config=CONFIG), name="mlp", batch_dim="b")
        stop = threading.Event()

        def swap() -> None:
            model.wait("optimised", timeout=120)
            ids = model.info().plan_ids
            for plan_id in [*ids, *ids, ""]:
                model.pin_plan(plan_id)
            stop.set()

        swapper = threading.Thread(target=swap)
        swapper.start()
        shared = 0
        while not stop.is_set() and swapper.is_alive():
            shared += check_threads(model, 8, 10)
        swapper.join()
        assert stop.is_set() and shared > 0


def test_the_command_line_names_the_dim_and_shows_what_became_of_it(
        patient: athanor.Client, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "lookup.athanor"
    lookup_graph().save(path)

    def tool(*arguments: str) -> subprocess.CompletedProcess:
        return subprocess.run([built(CLI), "--address", patient.address, *arguments],
                              capture_output=True, text=True, timeout=120, check=False)

    done = tool("upload", str(path), "--name", "told", "--batch_dim", "b")
    assert done.returncode == 0, done.stderr
    assert "requests share calls over b, at most 16 rows, and wait at most 6" in done.stdout
    stored = json.loads(tool("--json", "upload", str(path), "--name", "told", "--batch_dim", "s",
                             "--no_wait").stdout.splitlines()[0])
    assert stored["batching"]["dim"] == "s" and not stored["batching"]["on"]
    assert "dim s" in stored["batching"]["reason"]
    assert "requests share no calls over s" in tool("models", "told").stdout
    wrong = tool("upload", str(path), "--batch_dim", "rows")
    assert wrong.returncode == 1 and '"rows" is no dim of the graph' in wrong.stderr
    patient.delete("told")
