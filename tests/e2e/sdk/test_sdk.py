"""What a user of the SDK meets at a real server: defaults, one input, processes, notebooks."""

from __future__ import annotations

import asyncio
import concurrent.futures
import hashlib
import multiprocessing
import pathlib
import pickle

import athanor
import numpy as np
import pytest
from server_process import Server


def doubled(client: athanor.Client, name: str) -> athanor.Model:
    """Uploads a model with one input."""
    g = athanor.Graph(name, dims={"b": (1, 64)})
    g.output("y", g.input("x", ("b", 2), "f32") * 2)
    return client.upload(g, name)


def test_one_input_alone(client: athanor.Client, server: Server) -> None:
    model = doubled(client, "sdk-one")
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    np.testing.assert_array_equal(model.infer(x)["y"], x * 2)
    np.testing.assert_array_equal(model.infer({"x": x})["y"], x * 2)
    np.testing.assert_array_equal(client.model("sdk-one").infer(x)["y"], x * 2)

    async def asynchronous() -> np.ndarray:
        async with athanor.AsyncClient(server.address) as other:
            return (await (await other.model("sdk-one")).infer(x))["y"]

    np.testing.assert_array_equal(asyncio.run(asynchronous()), x * 2)
    client.delete("sdk-one")


def test_the_address_of_the_environment(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATHANOR_ADDRESS", server.address)
    with athanor.Client() as client:
        assert client.ready(timeout=10) and client.address == server.address


def test_models_go_to_other_processes(client: athanor.Client) -> None:
    """As arguments of a process of a pool, which pickles them, and the results."""
    model = doubled(client, "sdk-pool").wait("baseline", timeout=120)
    # The method is named, not a function of this file: the process imports the SDK and no test.
    with concurrent.futures.ProcessPoolExecutor(
            1, mp_context=multiprocessing.get_context("spawn")) as pool:
        results = [pool.submit(athanor.Model.infer, model, np.full((rows, 2), rows, np.float32),
                               timeout=120) for rows in (1, 2)]
        for rows, result in enumerate(results, start=1):
            reply = result.result(timeout=300)
            np.testing.assert_array_equal(reply["y"], np.full((rows, 2), 2 * rows, np.float32))
            assert reply.plan_id
    copy = pickle.loads(pickle.dumps(client))
    assert copy.address == client.address and copy.ready(timeout=10)
    copy.close()
    client.delete("sdk-pool")


def test_a_model_as_a_table(client: athanor.Client) -> None:
    model = doubled(client, "sdk-table").wait("baseline", timeout=120)
    html = model._repr_html_()
    for part in ("sdk-table", "READY", "f32[b, 2]", "b 1 to 64", "(serves)"):
        assert part in html, html
    client.delete("sdk-table")
    assert "NOT_FOUND" in model._repr_html_()


def test_tokens_and_quotas(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A token says who calls, in other processes too; refusals have their class and their delay."""
    monkeypatch.delenv("ATHANOR_TOKEN", raising=False)
    tokens = {"ops": "ops-0123456789abcdef", "slow": "slow-0123456789abcdef"}
    lines = []
    for name, rest in (("ops", "roles = admin"),
                       ("slow", "roles = infer\nmodels = sdk-*\ncalls_per_second = 1")):
        digest = hashlib.sha256(tokens[name].encode()).hexdigest()
        lines.append(f"[{name}]\n{rest}\ntoken = sha256:{digest}\n")
    auth = tmp_path / "auth.conf"
    auth.write_text("\n".join(lines))
    auth.chmod(0o600)
    server = Server(tmp_path / "state", f"--auth={auth}").start()
    x = np.ones((1, 2), np.float32)
    try:
        with server.client() as stranger:
            assert stranger.ready()
            with pytest.raises(athanor.Unauthenticated):
                stranger.models()
        with athanor.Client(server.address, token=tokens["ops"]) as ops:
            model = doubled(ops, "sdk-auth").wait("baseline", timeout=120)
            assert [job.phase for job in model.watch()][-1] == "DONE"
            data = pickle.dumps(model)
        monkeypatch.setenv("ATHANOR_TOKEN", tokens["slow"])
        again = pickle.loads(data)  # as whoever loads it
        with pytest.raises(athanor.PermissionDenied):
            again.delete()
        with pytest.raises(athanor.ResourceExhausted) as refused:
            for _ in range(100):
                again.infer(x)
        assert refused.value.retry_after is not None and 0 < refused.value.retry_after <= 2
        again.client.close()
    finally:
        server.kill()
    assert all(token not in server.log.read_text() for token in tokens.values())
