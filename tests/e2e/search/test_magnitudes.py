"""Facts about weights' contents: rules that need finite weights are used where they are finite."""

from __future__ import annotations

from collections.abc import Iterator

import athanor
import numpy as np
import pytest
from conftest import Server

WIDTH, OUT = 96, 64
# Move a norm's factor and shift into the weight and the bias behind it: the shift only on request,
# as it loses digits where it cancels.
FACTOR_ROW = "weight_takes_factor"
SHIFT_ROWS = ("contract_splits_bias", "biases_add")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that searches until a hundred kernels were measured."""
    state = tmp_path_factory.mktemp("magnitudes") / "state"
    running = Server(state, "--search_budget=100c").start()
    yield running
    running.kill()


def weights(dtype: type = np.float32) -> dict[str, np.ndarray]:
    random = np.random.default_rng(3)
    return {"gamma": (1 + random.standard_normal(WIDTH) / 8).astype(dtype),
            "beta": (random.standard_normal(WIDTH) / 8).astype(dtype),
            "w": (random.standard_normal((WIDTH, OUT)) / 10).astype(dtype),
            "bias": random.standard_normal(OUT).astype(dtype)}


def normed_linear(values: dict[str, np.ndarray]) -> athanor.Graph:
    """A layer norm of which only a linear layer reads: one block of a pre-norm transformer."""
    g = athanor.Graph("normed_linear")
    g.dim("b", 1, 32)
    x = g.input("x", ("b", WIDTH), "f32")
    p = {name: athanor.cast(g.parameter(name, value), "f32") if value.dtype != np.float32
         else g.parameter(name, value) for name, value in values.items()}
    g.output("y", athanor.layer_norm(x, p["gamma"], p["beta"], epsilon=1e-5) @ p["w"] + p["bias"])
    return g


def reference(values: dict[str, np.ndarray], x: np.ndarray) -> np.ndarray:
    v = {name: value.astype(np.float64) for name, value in values.items()}
    wide = x.astype(np.float64)
    centred = wide - wide.mean(-1, keepdims=True)
    normed = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
    with np.errstate(invalid="ignore"):
        return (normed * v["gamma"] + v["beta"]) @ v["w"] + v["bias"]


def rounding(values: dict[str, np.ndarray]) -> np.ndarray:
    """Error allowed for f32, per column: a normed value near zero is a difference of larger
    ones."""
    v = {name: np.abs(value.astype(np.float64)) for name, value in values.items()}
    with np.errstate(invalid="ignore"):
        return 1e-4 + 1e-6 * ((4 * v["gamma"] + v["beta"]) @ v["w"])


def check_answers(model: athanor.Model, values: dict[str, np.ndarray]) -> None:
    for batch in (1, 7, 32):
        x = np.random.default_rng(batch).standard_normal((batch, WIDTH), np.float32)
        got = model.infer({"x": x}, timeout=120)["y"]
        want, off = reference(values, x), np.nan_to_num(rounding(values), posinf=1e-4, nan=1e-4)
        finite = np.isfinite(want)
        np.testing.assert_array_equal(np.isfinite(got), finite)
        np.testing.assert_array_equal(got[~finite], want[~finite])
        off = np.broadcast_to(off, want.shape)
        near = np.abs(got[finite] - want[finite]) <= off[finite] + 1e-4 * np.abs(want[finite])
        assert near.all()


def fired(model: athanor.Model) -> set[str]:
    *_, job = model.watch(timeout=300)
    assert job.phase == "DONE" and job.search is not None and not job.search.forms_error
    return {rule.rule for region in job.search.regions for rule in region.rules if rule.fired}


@pytest.mark.parametrize(("name", "value"), [
    ("gamma", np.nan), ("gamma", 1e30), ("beta", np.inf), ("beta", 1e30), ("w", np.nan),
    ("w", 1e30), ("bias", -np.inf)])
def test_answers_are_right_whatever_a_weight_holds(server: Server, name: str, value: float) -> None:
    values = weights()
    values[name].flat[5] = value
    with server.client() as client:
        model = client.upload(normed_linear(values), name=f"{name}_{value}", budget="fast")
        fired(model)
        check_answers(model, values)


def test_the_same_graph_with_finite_and_with_infinite_weights(server: Server) -> None:
    finite, infinite = weights(), weights()
    infinite["gamma"][5] = np.inf
    with server.client() as client:
        models = [client.upload(normed_linear(values), name="m", approximate=approximate)
                  for values, approximate in ((finite, True), (infinite, False), (finite, False))]
        assert {FACTOR_ROW, *SHIFT_ROWS} <= fired(models[0])
        assert FACTOR_ROW not in fired(models[1])
        # The factor is under the shift here, and a shift is moved on request only.
        assert not fired(models[2]) & {FACTOR_ROW, *SHIFT_ROWS}
        for model, values in zip(models, (finite, infinite, finite), strict=True):
            check_answers(model, values)
        hashes = {info.version: info.graph_hash for info in client.models() if info.name == "m"}
        assert hashes["1"] == hashes["3"] != hashes["2"]
    # Facts about the contents outlive the process.
    server.kill()
    server.start()
    with server.client() as client:
        again = {info.version: info.graph_hash for info in client.models() if info.name == "m"}
        assert again == hashes


@pytest.mark.parametrize("finite", [True, False])
def test_a_factor_moves_into_finite_weights(server: Server, finite: bool) -> None:
    values = {name: value for name, value in weights().items() if name in ("gamma", "w")}
    if not finite:
        values["w"][3, 4] = np.inf
    g = athanor.Graph("scaled_linear")
    g.dim("b", 1, 32)
    x = g.input("x", ("b", WIDTH), "f32")
    gamma, w = (g.parameter(name, values[name]) for name in ("gamma", "w"))
    g.output("y", athanor.rms_norm(x, gamma, epsilon=1e-5) @ w)
    with server.client() as client:
        model = client.upload(g, name="scaled")
        assert (FACTOR_ROW in fired(model)) == finite
        row = np.random.default_rng(3).standard_normal((5, WIDTH), np.float32)
        got = model.infer({"x": row}, timeout=120)["y"]
        normed = row / np.sqrt((row.astype(np.float64)**2).mean(-1, keepdims=True) + 1e-5)
        want = (normed * values["gamma"]) @ values["w"].astype(np.float64)
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["beta", "w"])
def test_a_shift_that_may_be_infinite_stays_where_it_is(server: Server, name: str) -> None:
    values = weights()
    values[name].flat[7] = -np.inf
    with server.client() as client:
        model = client.upload(normed_linear(values), name="shift_" + name, approximate=True)
        assert not set(SHIFT_ROWS) & fired(model)
        check_answers(model, values)


def test_weights_in_f16_are_known_too(server: Server) -> None:
    values = weights(np.float16)
    with server.client() as client:
        model = client.upload(normed_linear(values), name="half")
        fired(model)
        check_answers(model, values)
