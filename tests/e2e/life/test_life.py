"""Models over their life: versions, restarts, a killed server, shared weights, progress."""

from __future__ import annotations

import pathlib

import athanor
import grpc
import numpy as np
import onnx
import pytest
from athanor import calls, uploads
from athanor.core import content_hash
from athanor.protos import Stub, model_pb2
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


@pytest.fixture
def travelled(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Bytes of tensors that the SDK sends, one number for each upload."""
    bytes_of: list[int] = []
    stream = uploads._stream

    def counting(header: object, tensors: dict[bytes, bytes], files: object) -> object:
        bytes_of.append(0)
        for message in stream(header, tensors, files):
            bytes_of[-1] += len(message.chunk.data)
            yield message

    monkeypatch.setattr(uploads, "_stream", counting)
    return bytes_of


BIG = 300_001 * 4  # bytes of the larger weight of scaled(f, 1)


def test_weights_travel_once(client: athanor.Client, travelled: list[int]) -> None:
    client.upload(scaled(5, 1), name="once")
    client.upload(scaled(5, 1), name="once")
    assert client.check(scaled(5, 1)).inputs
    client.upload(scaled(6, 1), name="once")  # one of the two weights differs
    assert travelled == [BIG + 4, 0, 0, 4]
    np.testing.assert_array_equal(client.model("once", "2").infer({"x": X})["y"], X * 5)
    np.testing.assert_array_equal(client.model("once", "3").infer({"x": X})["y"], X * 6)
    client.delete("once")
    client.upload(scaled(5, 1), name="once")
    assert travelled[-1] == BIG + 4
    client.delete("once")


@pytest.mark.asyncio
async def test_weights_travel_once_with_asyncio(server: Server, travelled: list[int]) -> None:
    async with athanor.AsyncClient(server.address) as client:
        await client.upload(scaled(8, 1), name="async once")
        model = await client.upload(scaled(8, 1), name="async once")
        assert travelled == [BIG + 4, 0]
        np.testing.assert_array_equal((await model.infer({"x": X}))["y"], X * 8)
        await client.delete("async once")


def test_weights_travel_once_over_restarts(own_server: Server, travelled: list[int]) -> None:
    with own_server.client() as client:
        client.upload(scaled(5, 1), name="m")
    assert own_server.stop() == 0
    own_server.start()
    with own_server.client() as client:
        again = client.upload(scaled(5, 1), name="m")
        np.testing.assert_array_equal(again.infer({"x": X}, timeout=120)["y"], X * 5)
    assert travelled == [BIG + 4, 0]


def test_a_restart_between_proof_and_upload(own_server: Server, travelled: list[int]) -> None:
    """The nonce is forgotten: all is sent, without a word to the caller."""
    with own_server.client() as client:
        client.upload(scaled(5, 1), name="m")
    source = uploads.read_source(scaled(5, 1), None)
    flow = calls.send_model(source, lambda division: calls.upload(
        source, "m", division, None, None, False, None, False, None))
    with own_server.client() as client:
        proofs = flow.send(client._run(next(flow)))
        upload = flow.send(client._run(proofs))
    assert own_server.stop() == 0
    own_server.start()
    with own_server.client() as client:
        with pytest.raises(athanor.FailedPrecondition) as error:
            client._run(upload)
        with pytest.raises(StopIteration) as end:
            flow.send(client._run(flow.throw(error.value)))
        assert end.value.value == ("m", "2")
    assert travelled == [BIG + 4, 0, BIG + 4]


def test_weights_of_onnx_travel_once(client: athanor.Client, travelled: list[int]) -> None:
    weight = np.arange(2500, dtype=np.float32).reshape(50, 50)
    model = onnx.helper.make_model(onnx.helper.make_graph(
        [onnx.helper.make_node("MatMul", ["x", "w"], ["y"])], "g",
        [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [2, 50])],
        [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [2, 50])],
        [onnx.numpy_helper.from_array(weight, "w")]),
        opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    client.upload(model, name="onnx once")
    graph = athanor.Graph("g")
    graph.output("y", graph.input("x", (2, 50), "f32") @ graph.parameter("w", weight))
    client.upload(graph, name="onnx once")
    assert travelled == [0, 0]
    client.delete("onnx once")


def test_weights_of_others_cannot_be_had_by_their_hash(client: athanor.Client,
                                                       server: Server) -> None:
    victim = scaled(31)
    client.upload(victim, name="victim")
    graph = victim.proto()
    header = model_pb2.UploadHeader(name="thief", format="athanor",
                                    graph=graph.SerializeToString(),
                                    graph_sha256=content_hash(graph.SerializeToString()))
    requests = [model_pb2.UploadModelRequest(header=header),
                model_pb2.UploadModelRequest(commit=model_pb2.UploadCommit())]
    with grpc.insecure_channel(server.address) as channel:
        stub = Stub(channel, model_pb2, "ModelService")
        with pytest.raises(grpc.RpcError) as error:
            stub.UploadModel(iter(requests))
        assert error.value.code() == grpc.StatusCode.FAILED_PRECONDITION
        asked = model_pb2.MissingTensorsRequest(hashes=list(victim.tensors))
        assert list(stub.MissingTensors(asked).hashes) == list(victim.tensors)
    with pytest.raises(athanor.FailedPrecondition, match="send its bytes, or prove"):
        client.upload(graph.SerializeToString(), name="thief", format="athanor")
    with pytest.raises(athanor.FailedPrecondition, match="send its bytes, or prove"):
        client.check(graph.SerializeToString(), format="athanor")
    assert not client.models("thief")
    client.delete("victim")


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
    # Bytes carry no weights, and who has them is not known by their hashes.
    with pytest.raises(athanor.FailedPrecondition, match="send its bytes, or prove"):
        client.upload(scaled(4).proto().SerializeToString(), name="bundle", format="athanor")
    bare = athanor.Graph("relu")
    bare.output("y", athanor.relu(bare.input("x", 3, "f32")))
    model = client.upload(bare.proto().SerializeToString(), name="bundle", format="athanor")
    np.testing.assert_array_equal(model.infer({"x": X[:3]})["y"], X[:3])
    client.delete("bundle")


def test_missing_weights_are_named(client: athanor.Client) -> None:
    g = scaled(123.5, extra=77)
    hashes = "|".join(key.hex() for key in g.tensors)
    with pytest.raises(athanor.Error, match=hashes) as error:
        client.upload(g.proto().SerializeToString(), name="missing", format="athanor")
    assert error.value.code in ("FAILED_PRECONDITION", "INVALID_ARGUMENT", "NOT_FOUND")
    assert not client.models("missing")
