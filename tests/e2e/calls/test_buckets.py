"""Buckets over two dims: each size is right, served by its box, and compiles nothing."""

from __future__ import annotations

import concurrent.futures
import pathlib
from collections.abc import Iterator

import athanor
import numpy as np
import pytest
from conftest import Server
from http_pages import metric

ROWS, STEPS, WIDTH = 24, 40, 16
BUCKETS = {"b": [(1, 1), (2, 8), (9, ROWS)], "s": [(1, 16), (17, STEPS)]}
REQUESTS = 200


def mix_graph(seed: int) -> tuple[athanor.Graph, np.ndarray, np.ndarray]:
    """Two contractions with a softmax over the second dim between them, and its weights."""
    random = np.random.default_rng(seed)
    w = random.standard_normal((WIDTH, WIDTH), np.float32) / WIDTH**0.5
    u = random.standard_normal((WIDTH, 8), np.float32) / WIDTH**0.5
    g = athanor.Graph("mix")
    g.dim("b", 1, ROWS)
    g.dim("s", 1, STEPS)
    x = g.input("x", ("b", "s", WIDTH), "f32")
    mixed = athanor.softmax(x @ g.parameter("w", w), axis=1)
    g.output("y", athanor.relu(mixed @ g.parameter("u", u)) + 1.0)
    return g, w, u


def mix_numpy(x: np.ndarray, w: np.ndarray, u: np.ndarray) -> np.ndarray:
    scores = x.astype(np.float64) @ w
    shares = np.exp(scores - scores.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    return np.maximum(shares @ u, 0) + 1


def box_of(b: int, s: int) -> str:
    rows = next(r for r in BUCKETS["b"] if r[0] <= b <= r[1])
    steps = next(r for r in BUCKETS["s"] if r[0] <= s <= r[1])
    return f"b={rows[0]}..{rows[1]} s={steps[0]}..{steps[1]}"


def kernels_compiled(server: Server) -> int:
    return int(metric(server, "athanor_kernels_compiled_total"))


@pytest.fixture
def http_server(tmp_path: pathlib.Path) -> Iterator[Server]:
    running = Server(tmp_path / "state", "--http_listen=127.0.0.1:0").start()
    yield running
    running.kill()


def call(model: athanor.Model, x: np.ndarray) -> athanor.InferResult:
    return model.infer({"x": x}, timeout=60)


def check_random_sizes(model: athanor.Model, w: np.ndarray, u: np.ndarray) -> None:
    random = np.random.default_rng(11)
    seen = set()
    for i in range(REQUESTS):
        b, s = int(random.integers(1, ROWS + 1)), int(random.integers(1, STEPS + 1))
        if i < 4:  # corners
            b, s = (1, ROWS)[i % 2], (1, STEPS)[i // 2]
        x = random.standard_normal((b, s, WIDTH), np.float32)
        result = call(model, x)
        np.testing.assert_allclose(result["y"], mix_numpy(x, w, u), rtol=1e-4, atol=1e-5,
                                   err_msg=f"b={b} s={s}")
        assert result.bucket == box_of(b, s)
        seen.add(result.bucket)
    assert len(seen) == 6


def test_random_sizes_compile_nothing(http_server: Server) -> None:
    """200 requests of random sizes over two dims: 0 compiles, 0 wrong; again after a restart."""
    graph, w, u = mix_graph(5)
    with http_server.client() as client:
        model = client.upload(graph, name="mix", buckets=BUCKETS, budget="0")
        model.wait("optimised", timeout=300)
        info = model.info()
        assert [b.text for b in info.buckets] == [
            box_of(b, s) for b in (1, 2, 9) for s in (1, 17)]
        assert all(b.plan_id and b.reason == "" for b in info.buckets)
        assert len({b.plan_id for b in info.buckets} | {info.plan_id}) == 7
        before = kernels_compiled(http_server)
        assert before > 0
        check_random_sizes(model, w, u)
        assert kernels_compiled(http_server) == before
        with pytest.raises(athanor.InvalidArgument, match=rf'"b".*\[1, {ROWS}\]'):
            call(model, np.zeros((ROWS + 1, 1, WIDTH), np.float32))
        with pytest.raises(athanor.InvalidArgument, match=rf'"s".*\[1, {STEPS}\]'):
            call(model, np.zeros((1, STEPS + 1, WIDTH), np.float32))
    assert http_server.stop() == 0
    http_server.start()
    with http_server.client() as client:
        model = client.model("mix")
        model.wait("optimised", timeout=300)
        check_random_sizes(model, w, u)
        assert kernels_compiled(http_server) == 0


def served_by(model: athanor.Model) -> dict[str, str]:
    """Returns, by box, the plan that answers a call of its sizes."""
    return {box_of(b, s): call(model, np.zeros((b, s, WIDTH), np.float32)).plan_id
            for b in (1, 2, ROWS) for s in (1, STEPS)}


def check_answers(model: athanor.Model, w: np.ndarray, u: np.ndarray, count: int) -> None:
    random = np.random.default_rng(12)
    for _ in range(count):
        b, s = int(random.integers(1, ROWS + 1)), int(random.integers(1, STEPS + 1))
        x = random.standard_normal((b, s, WIDTH), np.float32)
        np.testing.assert_allclose(call(model, x)["y"], mix_numpy(x, w, u), rtol=1e-4, atol=1e-5,
                                   err_msg=f"b={b} s={s}")


def test_boxes_are_searched_for(tmp_path: pathlib.Path) -> None:
    """Each box gets its share of the budget; the plans that serve then also serve after a
    restart."""
    graph, w, u = mix_graph(9)
    server = Server(tmp_path / "state").start()
    try:
        with server.client() as client:
            model = client.upload(graph, name="mix", buckets=BUCKETS, budget="42c")
            model.wait("optimised", timeout=600)
            info = model.info()
            job = client.job(info.compile_job_id)
            assert job.stop_reason.startswith("STOP_") and job.stop_reason != "STOP_SEARCH_FAILED"
            assert (job.buckets_searched, job.buckets_total, job.search_bucket) == (6, 6, "")
            check_answers(model, w, u, 60)
            found = served_by(model)
            boxes = {b.text: b for b in info.buckets}
            for text, plan in found.items():
                assert plan == (boxes[text].plan_id or info.plan_id)
                assert boxes[text].plan_id or boxes[text].reason
        assert server.stop() == 0
        server.start()
        with server.client() as client:
            model = client.model("mix")
            model.wait("optimised", timeout=300)
            assert client.jobs("mix")[0].stop_reason == "STOP_RESTORED"
            assert served_by(model) == found
            stat = client.cache_stat()
            assert stat.kernels_compiled == 0 and stat.candidates_measured == 0
            check_answers(model, w, u, 60)
    finally:
        server.kill()


def test_calls_are_shared_in_the_box_of_all_their_rows(tmp_path: pathlib.Path) -> None:
    graph, w, u = mix_graph(10)
    server = Server(tmp_path / "state", "--batch_delay=20ms").start()
    try:
        with server.client() as client:
            model = client.upload(graph, name="mix", buckets=BUCKETS, budget="0", batch_dim="b")
            model.wait("optimised", timeout=300)
            random = np.random.default_rng(13)
            inputs = [random.standard_normal((int(random.integers(1, 4)), 5 + 30 * (i % 2), WIDTH),
                                             np.float32) for i in range(48)]
            with concurrent.futures.ThreadPoolExecutor(8) as pool:
                results = list(pool.map(lambda x: call(model, x), inputs))
            for x, result in zip(inputs, results, strict=True):
                np.testing.assert_allclose(result["y"], mix_numpy(x, w, u), rtol=1e-4, atol=1e-5)
                assert result.bucket == box_of(result.batch_rows, x.shape[1])
            assert max(result.batch_rows for result in results) > 3, "none shared a call"
    finally:
        server.kill()


def test_boxes_share_their_weights(tmp_path: pathlib.Path) -> None:
    """Weights that plans of boxes prepare the same way are in memory once, and go with the
    model."""
    server = Server(tmp_path / "state").start()
    try:
        with server.client() as client:
            graph, _, _ = mix_graph(6)
            alone = client.upload(graph, name="alone", budget="0")
            alone.wait("optimised", timeout=300)
            cut = client.upload(graph, name="cut", buckets=BUCKETS, budget="0")
            cut.wait("optimised", timeout=300)
            # Seven plans of one graph: at most a layout more for the smallest and largest boxes.
            assert cut.info().memory["prepared"] <= 3 * alone.info().memory["prepared"] + 4096
    finally:
        server.kill()


def test_a_pinned_box(tmp_path: pathlib.Path) -> None:
    """A box pinned to a plan keeps it, whatever is searched for, and over a restart."""
    graph, w, u = mix_graph(11)
    server = Server(tmp_path / "state").start()
    one, first = np.zeros((1, 1, WIDTH), np.float32), box_of(1, 1)
    try:
        with server.client() as client:
            model = client.upload(graph, name="mix", buckets=BUCKETS, budget="0")
            model.wait("optimised", timeout=300)
            pinned = next(b.plan_id for b in model.info().buckets if b.text == first)
            info = model.pin_plan(pinned)
            assert [b.text for b in info.buckets if b.pinned] == [first] and not info.pinned
            *_, job = client.watch(client.compile("mix", budget="42c").id, timeout=600)
            assert job.phase == "DONE" and job.buckets_searched == 5
            assert call(model, one).plan_id == pinned
        assert server.stop() == 0
        server.start()
        with server.client() as client:
            model = client.model("mix")
            model.wait("optimised", timeout=300)
            result = call(model, one)
            assert (result.plan_id, result.bucket) == (pinned, first)
            assert client.cache_stat().kernels_compiled == 0
            check_answers(model, w, u, 30)
            assert not any(b.pinned for b in model.pin_plan("").buckets)
            check_answers(model, w, u, 30)
    finally:
        server.kill()


def test_a_model_that_does_not_fit_is_refused_with_the_numbers(tmp_path: pathlib.Path) -> None:
    size = 1024
    g = athanor.Graph("large")
    x = g.input("x", (64, size), "f32")
    weights = [np.random.default_rng(i).standard_normal((size, size), np.float32)
               for i in range(8)]
    for i, w in enumerate(weights):
        x = x @ g.parameter(f"w{i}", w)
    g.output("y", x)
    server = Server(tmp_path / "state", "--memory_limit=48MiB").start()
    try:
        with server.client() as client:
            model = client.upload(g, name="large", budget="0")
            with pytest.raises(athanor.ResourceExhausted) as refused:
                model.infer({"x": np.zeros((64, size), np.float32)}, timeout=120)
            text = str(refused.value)
            assert f'model "large", version 1, of {8 * 4 * size * size} bytes of weights' in text
            for word in ("bytes of prepared weights", "of arena", "of scratch", "--memory_limit",
                         "parameters"):
                assert word in text, text
            # The memory left serves others.
            graph, w, u = mix_graph(7)
            small = client.upload(graph, name="small", budget="0")
            x = np.ones((2, 3, WIDTH), np.float32)
            np.testing.assert_allclose(call(small, x)["y"], mix_numpy(x, w, u), rtol=1e-4)
    finally:
        server.kill()


def test_wrong_buckets_are_refused(client: athanor.Client) -> None:
    graph, _, _ = mix_graph(8)
    for buckets, message in [
            ({"b": [(1, 4), (6, ROWS)]}, r"sizes \[5, 5\] are in no range"),
            ({"b": [(1, 4), (4, ROWS)]}, r"ranges \[1, 4\] and \[4, 24\] overlap"),
            ({"s": [(1, 3), (STEPS, 4)]}, r"range \[40, 4\] is inverted"),
            ({"q": [(1, 3)]}, 'dim "q": the graph has no such dim')]:
        with pytest.raises(athanor.InvalidArgument, match=message):
            client.upload(graph, name="wrong", buckets=buckets)
