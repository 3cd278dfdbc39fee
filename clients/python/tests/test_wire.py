"""Requests and replies without a server."""

from __future__ import annotations

import dataclasses
import pathlib

import athanor
import grpc
import numpy as np
import pytest
from athanor import errors, wire
from athanor._proto.proto.athanor.v1 import compile_pb2, search_pb2
from athanor._proto.proto.inference import open_inference_grpc_pb2 as oip
from athanor.core import content_hash
from athanor.dtypes import DTYPES


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
    result = wire.infer_result(reply)
    assert result["empty"].shape == (0, 3) and result["scalar"].shape == ()
    assert result["scalar"] == 1 and (result.plan_id, result.exec_us) == ("p-1", 5)


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
    with pytest.raises(athanor.InvalidArgument, match="3 is a int; it must be the name of a node"):
        wire.tap_names(["a", 3])


def test_upload_is_header_chunks_commit() -> None:
    large = bytes(range(256)) * (wire.CHUNK_BYTES // 128 + 1)
    tensors = {content_hash(data): data for data in (large, b"", b"small")}
    source = wire.Source("athanor", b"graph", tensors)
    buckets = {"b": [(1, 1), (2, 64)]}
    messages = list(wire.upload_requests(source, "m", list(tensors), buckets, "5s"))
    header = messages[0].header
    assert header.graph_sha256 == content_hash(b"graph") and header.search_budget == "5s"
    assert [t.bytes for t in header.tensors] == [len(large), 0, 5]
    assert [(r.min, r.max) for r in header.buckets[0].ranges] == [(1, 1), (2, 64)]
    assert messages[-1].WhichOneof("kind") == "commit"
    received: dict[bytes, bytes] = {}
    for message in messages[1:-1]:
        assert message.chunk.offset == len(received.get(message.chunk.hash, b""))
        assert 0 < len(message.chunk.data) <= wire.CHUNK_BYTES
        received[message.chunk.hash] = received.get(message.chunk.hash, b"") + message.chunk.data
    assert received == {key: data for key, data in tensors.items() if data}


def test_sources(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(b"onnx bytes")
    assert wire.read_source(path, None) == wire.Source("onnx", b"onnx bytes", {})
    assert wire.read_source(b"x", "onnx").graph == b"x"
    with pytest.raises(athanor.InvalidArgument, match="format"):
        wire.read_source(b"x", None)
    with pytest.raises(athanor.InvalidArgument, match=r"\.bin"):
        wire.read_source("model.bin", None)
    with pytest.raises(athanor.InvalidArgument, match="int"):
        wire.read_source(3, None)
    with pytest.raises(FileNotFoundError):
        wire.read_source(tmp_path / "none.onnx", None)


def test_every_grpc_code_has_its_error() -> None:
    for code in grpc.StatusCode:
        error = errors.from_number(code.value[0], "words")
        assert isinstance(error, athanor.Error) and str(error) == "words"
        if code.name not in ("OK", "UNKNOWN"):
            assert error.code == code.name


def test_failed_job_carries_its_error() -> None:
    message = compile_pb2.CompileJob(id="j", phase=compile_pb2.CompileJob.FAILED, error="node x",
                                     error_code=grpc.StatusCode.UNIMPLEMENTED.value[0])
    job = wire.compile_job(message)
    assert job.finished and isinstance(job.error, athanor.Unimplemented)
    assert not wire.compile_job(compile_pb2.CompileJob()).finished


def searching() -> compile_pb2.CompileJob:
    """A job whose search has a different value in every field."""
    message = compile_pb2.CompileJob(id="j", model="m", version="2", percent=97.5,
                                     phase=compile_pb2.CompileJob.SEARCHING)
    search = message.search
    for value, field in enumerate(search_pb2.SearchProgress.DESCRIPTOR.fields, start=1):
        if field.cpp_type in (field.CPPTYPE_INT32, field.CPPTYPE_INT64, field.CPPTYPE_DOUBLE):
            setattr(search, field.name, value)
    search.best = 0.875
    search.sizes.extend(["b=1", "b=8"])
    search.tasks.add(about="Mul over Contract", calls=3, schedule="contract mr=12", measured=9,
                     failed=1, seconds=[1, 2], first_seconds=[3, 4], roofline_seconds=[5, 6])
    search.tasks.add(about="Max", calls=1)
    search.failures.add(kernel="ab", about="Max", message="too slow",
                        code=grpc.StatusCode.DEADLINE_EXCEEDED.value[0])
    search.rules.append("double_not")
    search.mode = search_pb2.SEARCH_EXHAUST
    region = search.regions.add(instances=24, nodes=18, stop="saturated")
    region.fired.add(rule="double_not", applied=3)
    message.search_options.CopyFrom(search_pb2.SearchOptions(
        budget="exhaust:5m", seed=7, disabled_rules=["algebra"], approximate=True,
        use=search_pb2.SearchOptions.KEEP))
    message.comparison.CopyFrom(search_pb2.PlanComparison(plan_id="p-1", against="p-2", ratio=0.5,
                                                          low=0.25, high=0.75))
    return message


def test_what_a_search_may_do() -> None:
    header = next(wire.upload_requests(wire.Source("athanor", b"g", {}), "m", [], None, "fast",
                                       deterministic=True, disable_rules=("layout",),
                                       approximate=True)).header
    assert (header.search_budget, header.deterministic, header.approximate) == ("fast", True, True)
    assert list(header.disable_rules) == ["layout"]
    request = wire.start_compile("m", "2", None, "200c", ["algebra"], False, 5, "compare")
    assert (request.search_budget, request.search_seed) == ("200c", 5)
    assert request.use == search_pb2.SearchOptions.COMPARE
    assert list(request.disable_rules) == ["algebra"]
    assert wire.start_compile("m", "", None, None, None, False, 0, None).use == 0
    for wrong, text in (({"budget": 30}, "budget=30: it must be a str"),
                        ({"rules": "layout"}, "disable_rules='layout': it must be a sequence"),
                        ({"rules": [3]}, "disable_rules: 3 is a int"),
                        ({"seed": -1}, "seed=-1"), ({"seed": 1.0}, "seed=1.0"),
                        ({"use": "SERVE"}, "use='SERVE'.*\"serve\", \"keep\" or \"compare\"")):
        with pytest.raises(athanor.InvalidArgument, match=text):
            wire.start_compile("m", "", None, wrong.get("budget"), wrong.get("rules"), False,
                               wrong.get("seed", 0), wrong.get("use"))


def test_search_progress_mirrors_the_message() -> None:
    message = searching()
    search = wire.compile_job(message).search
    for value, name in ((search, "SearchProgress"), (search.tasks[0], "SearchTask"),
                        (search.regions[0], "SearchRegion"),
                        (wire.compile_job(message).search_options, "SearchOptions"),
                        (wire.compile_job(message).comparison, "PlanComparison")):
        fields = {field.name for field in dataclasses.fields(value)}
        assert fields == set(search_pb2.DESCRIPTOR.message_types_by_name[name].fields_by_name)
    for field in dataclasses.fields(search):
        if field.name not in ("tasks", "failures", "sizes", "regions", "rules", "mode"):
            assert getattr(search, field.name) == getattr(message.search, field.name), field.name
    assert search.sizes == ("b=1", "b=8")
    assert search.rules == ("double_not",) and search.mode == "SEARCH_EXHAUST"
    assert search.regions[0].fired == {"double_not": 3} and search.regions[0].stop == "saturated"
    assert wire.compile_job(message).search_options == athanor.SearchOptions(
        "exhaust:5m", 7, ("algebra",), True, "KEEP")
    assert wire.compile_job(message).comparison == athanor.PlanComparison("p-1", "p-2", 0.5, 0.25,
                                                                          0.75)
    assert search.tasks[0] == athanor.SearchTask("Mul over Contract", 3, "contract mr=12", 9, 1,
                                                 (1, 2), (3, 4), (5, 6))
    assert search.tasks[1].schedule == "" and search.tasks[1].seconds == ()
    failure = search.failures[0]
    assert (failure.kernel, failure.about) == ("ab", "Max")
    assert isinstance(failure.error, athanor.DeadlineExceeded) and str(failure.error) == "too slow"
    assert wire.compile_job(compile_pb2.CompileJob()).search is None


def test_a_job_as_a_line() -> None:
    message = searching()
    line = str(wire.compile_job(message))
    assert line == ("job j m/2: SEARCHING, 98 %, 10.0 s, 1 candidates (2 failed), "
                    "6 of 5 plans taken, 87.5 % of the baseline's time")
    message.phase = compile_pb2.CompileJob.DONE
    message.stop_reason = compile_pb2.CompileJob.STOP_ROOFLINE
    assert str(wire.compile_job(message)) == line.replace("SEARCHING", "DONE") + ", STOP_ROOFLINE"
    message = compile_pb2.CompileJob(id="j", model="m", version="1", message="waits",
                                     phase=compile_pb2.CompileJob.QUEUED)
    assert str(wire.compile_job(message)) == "job j m/1: QUEUED, 0 %, waits"
    message = compile_pb2.CompileJob(id="j", model="m", version="1", error="node x", error_code=12,
                                     phase=compile_pb2.CompileJob.FAILED)
    assert str(wire.compile_job(message)).endswith("FAILED, 0 %, node x")


def test_a_dtype_without_numpy_counterpart_stays_bits() -> None:
    """What a machine without ml_dtypes does, in a process of its own."""
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
