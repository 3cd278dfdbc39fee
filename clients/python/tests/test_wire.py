"""Requests and replies without a server."""

from __future__ import annotations

import pathlib

import athanor
import grpc
import numpy as np
import pytest
from athanor import errors, jobs, uploads, wire
from athanor.core import content_hash
from athanor.dtypes import DTYPES
from athanor.protos import model_pb2, search_pb2
from athanor.protos import open_inference_grpc_pb2 as oip


def test_every_dtype_that_travels_round_trips() -> None:
    for name, row in DTYPES.items():
        if row.datatype is None:
            continue
        array = np.arange(6).reshape(2, 3).astype(row.numpy)
        request = wire.infer_request("m", "", [wire.Tensor("x", name, ("2", "3"))], {"x": array},
                                     None, {})
        assert request.inputs[0].datatype == row.datatype
        reply = oip.ModelInferResponse(raw_output_contents=request.raw_input_contents)
        reply.outputs.add(name="y", datatype=row.datatype, shape=[2, 3])
        result = wire.infer_result(reply)["y"]
        assert result.dtype == array.dtype and result.tobytes() == array.tobytes()
        assert result.flags.writeable and result.flags.owndata is False


def test_empty_and_scalar_outputs() -> None:
    reply = oip.ModelInferResponse(raw_output_contents=[b"", b"\x01\0\0\0"])
    reply.outputs.add(name="empty", datatype="FP32", shape=[0, 3])
    reply.outputs.add(name="scalar", datatype="INT32", shape=[])
    reply.parameters["plan_id"].string_param = "p-1"
    reply.parameters["exec_us"].int64_param = 5
    reply.parameters["batch_us"].int64_param = 7
    reply.parameters["batch_rows"].int64_param = 64
    result = wire.infer_result(reply)
    assert result["empty"].shape == (0, 3) and result["scalar"].shape == ()
    assert result["scalar"] == 1 and (result.plan_id, result.exec_us) == ("p-1", 5)
    assert (result.batch_us, result.batch_rows) == (7, 64)


def test_request_parameters() -> None:
    request = wire.infer_request("m", "2", [], {}, ["y"], {"wait": "none", "priority": 1,
                                                           "taps": None})
    assert request.model_version == "2" and request.outputs[0].name == "y"
    assert request.parameters["wait"].string_param == "none"
    assert request.parameters["priority"].int64_param == 1
    assert "taps" not in request.parameters
    for wrong, kind in {("priority", 1.5): "an int", ("priority", True): "an int",
                        ("priority", "1"): "an int", ("wait", 1): "a str"}.items():
        with pytest.raises(athanor.InvalidArgument, match=f"{wrong[0]}={wrong[1]!r}.*be {kind}"):
            wire.infer_request("m", "", [], {}, None, dict([wrong]))


def test_taps_are_names_between_commas() -> None:
    assert wire.tap_names(()) is None and wire.tap_names(None) is None
    assert wire.tap_names(["b", "a"]) == "b,a"
    assert wire.tap_names([""]) == "", "the server says what is wrong"
    assert wire.tap_names(["a,b", "c\\", "\\,"]) == r"a\,b,c\\,\\\,"
    with pytest.raises(athanor.InvalidArgument, match=r"\['hidden'\]"):
        wire.tap_names("hidden")
    with pytest.raises(athanor.InvalidArgument, match=r"taps\[1\]=3: it must be the name of"):
        wire.tap_names(["a", 3])


def test_upload_is_header_chunks_commit() -> None:
    large = bytes(range(256)) * (uploads.CHUNK_BYTES // 128 + 1)
    tensors = {content_hash(data): data for data in (large, b"", b"small")}
    source = uploads.Source("athanor", b"graph", tensors)
    buckets = {"b": [(1, 1), (2, 64)]}
    messages = list(uploads.requests(source, "m", uploads.Division(list(tensors)), buckets, "5s"))
    header = messages[0].header
    assert header.graph_sha256 == content_hash(b"graph") and header.search_budget == "5s"
    assert [t.bytes for t in header.tensors] == [len(large), 0, 5]
    assert [(r.min, r.max) for r in header.buckets[0].ranges] == [(1, 1), (2, 64)]
    assert messages[-1].WhichOneof("kind") == "commit"
    received: dict[bytes, bytes] = {}
    for message in messages[1:-1]:
        assert message.chunk.offset == len(received.get(message.chunk.hash, b""))
        assert 0 < len(message.chunk.data) <= uploads.CHUNK_BYTES
        received[message.chunk.hash] = received.get(message.chunk.hash, b"") + message.chunk.data
    assert received == {key: data for key, data in tensors.items() if data}


def test_sources(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(b"onnx bytes")  # no model: the server says so
    assert uploads.read_source(path, None) == uploads.Source("onnx", b"onnx bytes", {})
    assert uploads.read_source(b"x", "onnx").graph == b"x"
    with pytest.raises(athanor.InvalidArgument, match="format"):
        uploads.read_source(b"x", None)
    with pytest.raises(athanor.InvalidArgument, match=r"\.bin"):
        uploads.read_source("model.bin", None)
    with pytest.raises(athanor.InvalidArgument, match="int"):
        uploads.read_source(3, None)
    with pytest.raises(FileNotFoundError):
        uploads.read_source(tmp_path / "none.onnx", None)


def test_every_grpc_code_has_its_error() -> None:
    for code in grpc.StatusCode:
        error = errors.from_number(code.value[0], "words")
        assert isinstance(error, athanor.Error) and str(error) == "words"
        if code.name not in ("OK", "UNKNOWN"):
            assert error.code == code.name


def test_where_a_model_is_executed() -> None:
    source, none = uploads.Source("athanor", b"g", {}), uploads.Division()
    assert next(uploads.requests(source, "m", none, None, None)).header.device == ""
    header = next(uploads.requests(source, "m", none, None, None, device="cuda:1")).header
    assert header.device == "cuda:1"
    assert wire.model_info(model_pb2.Model(name="m", device="cpu")).device == "cpu"


def test_how_requests_share_calls() -> None:
    source = uploads.Source("athanor", b"g", {})
    none = uploads.Division()
    assert next(uploads.requests(source, "m", none, None, None)).header.batch_dim == ""
    header = next(uploads.requests(source, "m", none, None, None, batch_dim="b")).header
    assert header.batch_dim == "b"
    model = model_pb2.Model(name="m")
    assert wire.model_info(model).batching == athanor.Batching()
    model.batching.dim, model.batching.on = "b", True
    model.batching.max_rows, model.batching.max_delay_us = 64, 100
    assert wire.model_info(model).batching == athanor.Batching("b", True, "", 64, 100)


def test_what_a_search_may_do() -> None:
    source = uploads.Source("athanor", b"g", {})
    header = next(uploads.requests(source, "m", uploads.Division(), None, "fast",
                                   deterministic=True, disable_rules=("layout",),
                                   approximate=True)).header
    assert (header.search_budget, header.deterministic, header.approximate) == ("fast", True, True)
    assert list(header.disable_rules) == ["layout"]
    request = jobs.start_compile("m", "2", None, "200c", ["algebra"], False, 5, "compare")
    assert (request.search_budget, request.search_seed) == ("200c", 5)
    assert request.use == search_pb2.SearchOptions.COMPARE
    assert list(request.disable_rules) == ["algebra"]
    assert jobs.start_compile("m", "", None, None, None, False, 0, None).use == 0
    for wrong, text in (({"budget": 30}, "budget=30: it must be a str"),
                        ({"rules": "layout"}, "disable_rules='layout': it must be a sequence"),
                        ({"rules": [3]}, r"disable_rules\[0\]=3: it must be the name of a rule"),
                        ({"seed": -1}, "seed=-1"), ({"seed": 1.0}, "seed=1.0"),
                        ({"use": "SERVE"}, "use='SERVE'.*\"serve\", \"keep\" or \"compare\"")):
        with pytest.raises(athanor.InvalidArgument, match=text):
            jobs.start_compile("m", "", None, wrong.get("budget"), wrong.get("rules"), False,
                               wrong.get("seed", 0), wrong.get("use"))


def test_a_dtype_without_numpy_counterpart_stays_bits() -> None:
    """Runs in a process of its own, as on a machine without ml_dtypes."""
    import subprocess
    import sys

    program = """
import sys
sys.modules["ml_dtypes"] = None
import athanor, numpy as np
g = athanor.Graph("g")
x = g.input("x", 3, "bf16")
y = x * 1.00390625   # halfway between two bf16 numbers: to even
bits = y.inputs[1].inputs[0].attrs["value"].tensor.data
assert bits == np.uint16(0x3f80).tobytes(), bits
assert g.parameter("w", np.zeros(3, np.uint16)).dtype == "u16"
assert g.parameter("v", np.zeros(3, np.uint16), "bf16").dtype == "bf16"
"""
    subprocess.run([sys.executable, "-c", program], check=True, cwd="/")


def test_buckets_of_a_model() -> None:
    model = model_pb2.Model(name="m", version="1")
    first = model.buckets.add(plan_id="p-1")
    first.bucket.add(name="b", min=1, max=1)
    first.bucket.add(name="s", min=1, max=128)
    second = model.buckets.add(reason="too large")
    second.bucket.add(name="b", min=2, max=64)
    second.bucket.add(name="s", min=1, max=128)
    info = wire.model_info(model)
    assert [b.text for b in info.buckets] == ["b=1..1 s=1..128", "b=2..64 s=1..128"]
    assert info.buckets[0] == athanor.Bucket({"b": (1, 1), "s": (1, 128)}, "p-1", False, "")
    assert (info.buckets[1].plan_id, info.buckets[1].reason) == ("", "too large")
