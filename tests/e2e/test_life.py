"""Models over their life: versions, restarts, a killed server, shared weights, progress."""

from __future__ import annotations

import pathlib

import athanor
import numpy as np
import pytest
from athanor import calls, wire
from conftest import Server


def scaled(factor: float, extra: int = 0) -> athanor.Graph:
    """y = x * w, with another parameter that only makes the graph differ."""
    g = athanor.Graph("scaled", dims={"n": (1, 64)})
    w = g.parameter("w", np.full(1, factor, np.float32))
    big = g.parameter("big", np.arange(300_000 + extra, dtype=np.float32))
    g.output("y", g.input("x", "n", "f32") * w + big[:1])
    return g


X = np.arange(5, dtype=np.float32)


def test_restart_keeps_models(own_server: Server) -> None:
    with own_server.client() as client:
        first = client.upload(scaled(2), name="m").wait("baseline", timeout=120)
        hashes = {info.version: info.graph_hash for info in client.models()}
        np.testing.assert_array_equal(first.infer({"x": X})["y"], X * 2)
    assert own_server.stop() == 0
    own_server.start()
    with own_server.client() as client:
        assert {info.version: info.graph_hash for info in client.models()} == hashes
        reply = client.model("m").infer({"x": X}, timeout=120)
        np.testing.assert_array_equal(reply["y"], X * 2)
        job = client.jobs("m")[0]
        assert job.kernels_from_cache == job.kernels_total > 0, "a restart compiles nothing"


def test_killed_server_keeps_what_it_acknowledged(own_server: Server) -> None:
    with own_server.client() as client:
        client.upload(scaled(2), name="m")
    own_server.kill()
    own_server.start()
    with own_server.client() as client:
        reply = client.model("m").infer({"x": X}, timeout=120)
        np.testing.assert_array_equal(reply["y"], X * 2)


def test_versions_roll_forward_and_back(own_server: Server) -> None:
    with own_server.client() as client:
        one = client.upload(scaled(2), name="m").wait(timeout=120)
        two = client.upload(scaled(3), name="m").wait(timeout=120)
        assert (one.version, two.version) == ("1", "2")
        serving = client.model("m")
        np.testing.assert_array_equal(serving.infer({"x": X})["y"], X * 3)
        np.testing.assert_array_equal(one.infer({"x": X})["y"], X * 2)
        assert [info.version for info in client.models("m") if info.serving] == ["2"]
        assert client.rollback("m").version == "1"
        np.testing.assert_array_equal(serving.infer({"x": X})["y"], X * 2)
        assert client.delete("m", "2") == ["2"]
        with pytest.raises(athanor.NotFound):
            two.infer({"x": X})
        assert client.delete("m") == ["1"]
        assert client.models() == []


def test_weights_travel_once(client: athanor.Client) -> None:
    g = scaled(5)
    ask = calls.missing_tensors(wire.read_source(g, None))
    assert set(client._run(ask)) == set(g.tensors)
    client.upload(g, name="once")
    assert not client._run(ask)
    changed = scaled(6)
    client.upload(changed, name="once")
    np.testing.assert_array_equal(client.model("once", "2").infer({"x": X})["y"], X * 6)
    client.delete("once")


def test_progress(client: athanor.Client) -> None:
    model = client.upload(scaled(7), name="progress")
    jobs = list(model.watch(timeout=120))
    assert jobs[-1].phase == "DONE" and jobs[-1].percent == 100
    assert jobs[-1].kernels_done == jobs[-1].kernels_total > 0
    percents = [job.percent for job in jobs]
    assert percents == sorted(percents)
    again = client.compile("progress")
    assert list(client.watch(again.id, timeout=120))[-1].phase == "DONE"
    assert client.job(again.id).finished
    client.delete("progress")


def test_wait_none(own_server: Server) -> None:
    with own_server.client() as client:
        model = client.upload(scaled(2), name="m")
        try:
            model.infer({"x": X}, wait="none")
        except athanor.FailedPrecondition as error:
            assert "m" in str(error)
        np.testing.assert_array_equal(model.infer({"x": X}, wait="baseline")["y"], X * 2)
        np.testing.assert_array_equal(model.infer({"x": X}, wait="none")["y"], X * 2)


def test_bundle_and_bytes(client: athanor.Client, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "m.athanor"
    scaled(4).save(path)
    model = client.upload(path, name="bundle")
    np.testing.assert_array_equal(model.infer({"x": X})["y"], X * 4)
    # Bytes carry no weights; the server holds them already.
    again = client.upload(scaled(4).proto().SerializeToString(), name="bundle", format="athanor")
    np.testing.assert_array_equal(again.infer({"x": X})["y"], X * 4)
    client.delete("bundle")


def test_missing_weights_are_named(client: athanor.Client) -> None:
    g = scaled(123.5, extra=77)
    hashes = "|".join(key.hex() for key in g.tensors)
    with pytest.raises(athanor.Error, match=hashes) as error:
        client.upload(g.proto().SerializeToString(), name="missing", format="athanor")
    assert error.value.code in ("FAILED_PRECONDITION", "INVALID_ARGUMENT", "NOT_FOUND")
    assert not client.models("missing")
