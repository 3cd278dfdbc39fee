"""Inner values: ``infer(..., taps=[...])`` against numpy, beside other calls, over restarts."""

from __future__ import annotations

import functools
import operator
import threading
import time
from collections.abc import Callable, Iterator

import athanor
import encoder
import ml_dtypes
import numpy as np
import pytest
from conftest import Server
from scipy.special import erf

WIDTH, HIDDEN = 24, 40


class Block:
    """An attention block with a feed-forward step: as a graph with every step named, and in
    numpy."""

    def __init__(self, composite: bool) -> None:
        random = np.random.default_rng(3)
        self.composite = composite
        self.weights = {
            name: random.standard_normal(shape, np.float32) / np.float32(np.sqrt(shape[0]))
            for name, shape in {"wq": (WIDTH, WIDTH), "wk": (WIDTH, WIDTH), "wv": (WIDTH, WIDTH),
                                "up": (WIDTH, HIDDEN), "down": (HIDDEN, WIDTH)}.items()}

    def graph(self) -> athanor.Graph:
        g = athanor.Graph("block", dims={"b": (0, 4), "s": (1, 32)})
        x = g.input("x", ("b", "s", WIDTH), "f32")
        w = {name: g.parameter(name, array) for name, array in self.weights.items()}
        centred = (x - x.mean(-1, keepdims=True)).named("centred")
        deviation = athanor.sqrt((centred * centred).mean(-1, keepdims=True) + 1e-5)
        norm = (centred / deviation.named("deviation")).named("norm")
        q, k, v = ((norm @ w[name]).named(name[1]) for name in ("wq", "wk", "wv"))
        scores = ((q @ k.permute(0, 2, 1)) * WIDTH**-0.5).named("scores")
        if self.composite:
            weights = athanor.softmax(scores)
        else:
            raised = athanor.exp(scores - scores.max(-1, keepdims=True))
            weights = raised / raised.sum(-1, keepdims=True)
        mixed = (weights.named("weights") @ v).named("mixed")
        inner = (mixed @ w["up"]).named("inner")
        if self.composite:
            active = athanor.gelu(inner)
        else:
            active = inner * 0.5 * (athanor.erf(inner * 0.5**0.5) + 1.0)
        g.output("y", x + active.named("active") @ w["down"])
        return g

    def numpy(self, x: np.ndarray) -> dict[str, np.ndarray]:
        """Computes all steps in float64."""
        x, w = x.astype(np.float64), self.weights
        steps = {"centred": x - x.mean(-1, keepdims=True)}
        steps["deviation"] = np.sqrt((steps["centred"]**2).mean(-1, keepdims=True) + 1e-5)
        steps["norm"] = steps["centred"] / steps["deviation"]
        steps |= {name: steps["norm"] @ w[f"w{name}"] for name in "qkv"}
        steps["scores"] = steps["q"] @ steps["k"].transpose(0, 2, 1) * WIDTH**-0.5
        raised = np.exp(steps["scores"] - steps["scores"].max(-1, keepdims=True))
        steps["weights"] = raised / raised.sum(-1, keepdims=True)
        steps["mixed"] = steps["weights"] @ steps["v"]
        steps["inner"] = steps["mixed"] @ w["up"]
        steps["active"] = steps["inner"] * 0.5 * (1 + erf(steps["inner"] * 0.5**0.5))
        steps["y"] = x + steps["active"] @ w["down"]
        return steps


def numbers(b: int, s: int) -> np.ndarray:
    return np.random.default_rng(b * 100 + s).standard_normal((b, s, WIDTH), np.float32)


def check(block: Block, x: np.ndarray, result: athanor.InferResult, taps: list[str]) -> None:
    want = block.numpy(x)
    assert list(result) == ["y", *taps]
    for name, array in result.items():
        assert array.dtype == np.float32 and array.shape == want[name].shape, name
        np.testing.assert_allclose(array, want[name], rtol=1e-4, atol=2e-5, err_msg=name)


@pytest.fixture(scope="module", params=[True, False], ids=["composites", "primitives"])
def block(client: athanor.Client, request: pytest.FixtureRequest) -> Iterator[tuple]:
    made = Block(request.param)
    name = f"block-{request.param}"
    yield made, client.upload(made.graph(), name=name).wait(timeout=120)
    client.delete(name)


STEPS = [name for name in Block(True).numpy(numbers(1, 1)) if name != "y"]


def test_every_step_at_once(block: tuple) -> None:
    made, model = block
    for b, s in [(1, 1), (3, 17), (0, 5), (4, 32), (2, 7)]:
        x = numbers(b, s)
        check(made, x, model.infer({"x": x}, taps=STEPS, timeout=120), STEPS)


@pytest.mark.parametrize("step", STEPS)
def test_each_step_alone(block: tuple, step: str) -> None:
    made, model = block
    serving = model.plan_id
    x = numbers(3, 17)
    tapped = model.infer({"x": x}, taps=[step], timeout=120)
    check(made, x, tapped, [step])
    plain = model.infer({"x": x})
    check(made, x, plain, [])
    assert plain.plan_id == model.plan_id == serving != tapped.plan_id


def test_inner_values_of_the_encoder(client: athanor.Client) -> None:
    """Compares each layer's last norm with an encoder that ends there."""
    config = encoder.Config(layers=3, width=48, heads=4, hidden=96, vocabulary=101, positions=64)
    graph = encoder.encoder_graph(config=config)
    norms = [node.name for node in graph.proto().nodes if node.op == "LayerNorm"]
    taps = norms[2::2][:2]  # behind the embedding's: two of each layer
    ids = np.random.default_rng(1).integers(0, config.vocabulary, (2, 9))
    result = client.upload(graph, name="inner").infer({"ids": ids}, taps=taps, timeout=120)
    whole = encoder.encoder_weights(config)
    for layers, tap in enumerate(taps, 1):
        shorter = encoder.Config(**{**vars(config), "layers": layers})
        assert all(np.array_equal(whole[name], array)
                   for name, array in encoder.encoder_weights(shorter).items())
        np.testing.assert_allclose(result[tap], encoder.encoder_numpy(ids, shorter), rtol=0,
                                   atol=1e-4)
    client.delete("inner")


def test_nodes_and_dtypes_of_every_kind(run: Callable) -> None:
    g = athanor.Graph("kinds", dims={"n": (0, 9)})
    x = g.input("x", "n", "f32")
    ids = g.input("ids", "n", "i64")
    table = g.parameter("table", np.arange(12, dtype=np.float32).reshape(4, 3))
    constant = g.constant(np.arange(3, dtype=np.int8)).named("constant")
    steps = {
        "f16": x.cast("f16").named("f16"), "bf16": x.cast("bf16").named("bf16"),
        "positive": (x > 0).named("positive"), "total": x.sum().named("total"),
        "rows": athanor.embedding(table, ids).named("rows"),
        "turned": table.permute(1, 0).named("turned"), "shifted": (ids + 1).named("shifted"),
        "half, or so": (x * 0.5).named("half, or so"), "ключ": (x * 7).named("ключ"),
        "back\\slash": athanor.absolute(x).named("back\\slash"),
    }
    # Only what an output needs is part of the model.
    sums = [step.cast("f32").sum() for step in (constant, *steps.values())]
    g.output("y", functools.reduce(operator.add, sums).named("answer"))
    x0, i0 = np.array([1.5, -2.25, 0.1, -0.0, 3], np.float32), np.array([3, 0, 1, 3, 2])
    want = {
        "f16": x0.astype(np.float16), "bf16": x0.astype(ml_dtypes.bfloat16), "positive": x0 > 0,
        "rows": np.arange(12, dtype=np.float32).reshape(4, 3)[i0],
        "turned": np.arange(12, dtype=np.float32).reshape(4, 3).T, "shifted": i0 + 1,
        "half, or so": x0 * np.float32(0.5), "back\\slash": np.abs(x0), "ключ": x0 * 7,
        "x": x0, "ids": i0, constant.name: np.arange(3, dtype=np.int8),
        table.name: np.arange(12, dtype=np.float32).reshape(4, 3),
    }
    result = run(g, {"x": x0, "ids": i0}, taps=[*want, "total", "answer"])
    assert list(result) == ["y", *want, "total", "answer"]
    for name, array in want.items():
        assert result[name].dtype == array.dtype and result[name].shape == array.shape, name
        assert result[name].tobytes() == array.tobytes(), name
    np.testing.assert_allclose(result["total"], x0.sum(dtype=np.float64), rtol=1e-6)
    assert result["answer"].tobytes() == result["y"].tobytes() and result["y"].shape == ()
    # The caller's to write, none of them shared.
    result["answer"] += 1
    assert result["answer"] != result["y"]


def scaled() -> athanor.Graph:
    g = athanor.Graph("scaled", dims={"n": (1, 64)})
    w = g.parameter("w", np.full(1, 3, np.float32))
    big = g.parameter("big", np.arange(300_000, dtype=np.float32))
    inner = (g.input("x", "n", "f32") * w).named("inner")
    g.output("y", (inner + big[:1]).named("shifted") * 2.0)
    return g


X = np.arange(5, dtype=np.float32)


def test_refusals(client: athanor.Client) -> None:
    g = scaled()
    small = g.parameter("small", np.zeros(4, ml_dtypes.float8_e4m3fn))
    g.output("wide", small.cast("f32"))
    model = client.upload(g, name="refusals").wait(timeout=120)
    for taps, words in {("iner",): 'did you mean "inner"', ("y",): '"y", which is not a node',
                        ("inner", "inner"): "twice", ("",): 'names ""'}.items():
        with pytest.raises(athanor.InvalidArgument, match=words):
            model.infer({"x": X}, taps=taps)
    with pytest.raises(athanor.InvalidArgument, match=r"\['inner'\]"):
        model.infer({"x": X}, taps="inner")
    with pytest.raises(athanor.Unimplemented, match='"small" of dtype f8e4m3'):
        model.infer({"x": X}, taps=["small"])
    assert all(not job.taps for job in client.jobs("refusals")), "none of these starts a job"
    client.delete("refusals")


def test_jobs_show_their_taps(client: athanor.Client) -> None:
    model = client.upload(scaled(), name="jobs").wait(timeout=120)
    with pytest.raises(athanor.FailedPrecondition, match='taps "inner"'):
        model.infer({"x": X}, taps=["inner"], wait="none")
    job = client.jobs("jobs")[0]
    assert job.taps == ("inner",) and model.info().compile_job_id != job.id
    assert list(client.watch(job.id, timeout=120))[-1].phase == "DONE"
    result = model.infer({"x": X}, taps=["inner"], wait="none")
    np.testing.assert_array_equal(result["inner"], X * 3)
    assert len(model.info().plan_ids) == 1, "only plans that serve can be pinned"
    client.delete("jobs")


def test_other_sets_in_other_threads(own_server: Server) -> None:
    """More sets than are kept, beside calls without taps, whose plan does not change."""
    made = Block(True)
    with own_server.client() as client:
        model = client.upload(made.graph(), name="m").wait(timeout=120)
        serving = model.plan_id
        failures: list[BaseException] = []

        def work(seed: int) -> None:
            try:
                for i in range(6):
                    x = numbers(1 + (seed + i) % 4, 1 + (seed * 7 + i) % 32)
                    taps = [] if seed % 2 else [STEPS[(seed + i) % 6], "inner"]
                    result = None
                    while result is None:
                        try:
                            result = model.infer({"x": x}, taps=taps, timeout=120)
                        except athanor.ResourceExhausted as full:
                            assert taps and "--tap_plans" in str(full)
                    check(made, x, result, taps)
                    assert taps or result.plan_id == serving
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failures, failures[0]


def test_restart_compiles_nothing_again(own_server: Server) -> None:
    with own_server.client() as client:
        model = client.upload(scaled(), name="m")
        plan = model.infer({"x": X}, taps=["inner", "shifted"], timeout=120).plan_id
    assert own_server.stop() == 0
    own_server.start()
    with own_server.client() as client:
        result = client.model("m").infer({"x": X}, taps=["shifted", "inner"], timeout=120)
        np.testing.assert_array_equal(result["inner"], X * 3)
        np.testing.assert_array_equal(result["shifted"], X * 3)
        assert result.plan_id == plan
        job = client.jobs("m")[0]
        assert job.taps == ("inner", "shifted")
        assert job.kernels_from_cache == job.kernels_total > 0


def test_delete_ends_the_wait(own_server: Server) -> None:
    with own_server.client() as client:
        model = client.upload(scaled(), name="m").wait(timeout=120)
        client.upload(encoder.encoder_graph(), name="large")  # keeps the compile worker busy
        errors: list[athanor.Error] = []

        def call() -> None:
            try:
                model.infer({"x": X}, taps=["inner"], timeout=120)
            except athanor.Error as error:
                errors.append(error)

        waiting = threading.Thread(target=call)
        waiting.start()
        while not any(job.taps for job in client.jobs("m")):
            time.sleep(0.01)
        client.delete("m")
        waiting.join()
        assert [error.code for error in errors] == ["NOT_FOUND"]


@pytest.mark.asyncio
async def test_asyncio(server: Server) -> None:
    async with athanor.AsyncClient(server.address) as client:
        model = await client.upload(scaled(), name="async-taps")
        result = await model.infer({"x": X}, taps=["inner"], timeout=120)
        np.testing.assert_array_equal(result["inner"], X * 3)
        np.testing.assert_array_equal(result["y"], X * 6)
        with pytest.raises(athanor.InvalidArgument, match='"none"'):
            await model.infer({"x": X}, taps=["none"])
        await client.delete("async-taps")
