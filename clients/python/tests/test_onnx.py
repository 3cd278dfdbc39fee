"""ONNX models on their way to the server: their files, and what is said beside them."""

from __future__ import annotations

import errno
import io
import pathlib

import athanor
import grpc
import ml_dtypes
import numpy as np
import onnx
import pytest
from athanor import errors, onnx_files, uploads, wire
from athanor.given import Given
from athanor.protos import model_pb2
from athanor.protos import open_inference_grpc_pb2 as oip
from onnx import TensorProto, helper


def _external(name: str, location: str, offset: int = 0) -> TensorProto:
    tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=[2],
                         data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="offset", value=str(offset))
    tensor.external_data.add(key="location", value=location)
    return tensor


def _model(*locations: str) -> onnx.ModelProto:
    """Tensors in initialisers, in an attribute of a sub-graph's node, and in a sparse one."""
    inner = helper.make_graph([helper.make_node("Constant", [], ["c"], value=_external("c", "c"))],
                              "inner", [], [])
    graph = helper.make_graph(
        [helper.make_node("If", ["b"], ["y"], then_branch=inner, else_branch=inner)], "g", [], [],
        initializer=[_external(f"w{i}", path) for i, path in enumerate(locations)])
    graph.sparse_initializer.add(values=_external("s", "sparse/values"))
    return helper.make_model(graph)


def test_every_location_is_found() -> None:
    model = _model("w.bin", "w.bin", "dir/x.bin")
    model.graph.initializer.add(name="raw", raw_data=bytes(range(256)) * 100)
    assert onnx_files.locations(model.SerializeToString()) == [
        "c", "w.bin", "dir/x.bin", "sparse/values"]
    assert onnx_files.locations(b"") == onnx_files.locations(b"no model") == []


def test_cut_off_models_are_left_to_the_server() -> None:
    data = _model("w.bin").SerializeToString()
    for end in range(len(data)):
        assert set(onnx_files.locations(data[:end])) <= {"c", "w.bin", "sparse/values"}


def test_files_lie_beside_the_model(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(_model("w.bin").SerializeToString())
    with pytest.raises(FileNotFoundError, match="has external data there"):
        uploads.read_source(path, None)
    (tmp_path / "sparse").mkdir()
    for name in ("c", "w.bin", "sparse/values"):
        (tmp_path / name).write_bytes(name.encode())
    source = uploads.read_source(path, None)
    assert source.files == {name: tmp_path / name for name in ("c", "w.bin", "sparse/values")}
    messages = list(uploads.requests(source, "m", uploads.Division(), None, None))
    assert [(f.path, f.bytes) for f in messages[0].header.files] == [
        ("c", 1), ("w.bin", 5), ("sparse/values", 13)]
    assert [(m.file.file, m.file.offset, m.file.data) for m in messages[1:-1]] == [
        (0, 0, b"c"), (1, 0, b"w.bin"), (2, 0, b"sparse/values")]


def test_a_file_that_may_not_be_read_is_named_at_once(monkeypatch: pytest.MonkeyPatch,
                                                      tmp_path: pathlib.Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(helper.make_model(helper.make_graph(
        [], "g", [], [], initializer=[_external("w", "w.bin")])).SerializeToString())
    (tmp_path / "w.bin").write_bytes(b"w")

    def refuse(name: pathlib.Path, mode: str) -> io.BufferedReader:
        if name == tmp_path / "w.bin":
            raise PermissionError(errno.EACCES, "denied", str(name))
        return open(name, mode)

    monkeypatch.setattr(onnx_files, "open", refuse, raising=False)
    with pytest.raises(PermissionError, match="w.bin"):
        uploads.read_source(path, None)


@pytest.mark.parametrize("location", ["/etc/passwd", "../w.bin", "a/../../w", "a\\b", ""])
def test_nothing_outside_the_folder_is_sent(tmp_path: pathlib.Path, location: str) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(helper.make_model(helper.make_graph(
        [], "g", [], [], initializer=[_external("w", location)])).SerializeToString())
    with pytest.raises(athanor.InvalidArgument, match="outside the model's folder"):
        uploads.read_source(path, None)


def test_an_empty_file_is_no_model(tmp_path: pathlib.Path) -> None:
    (tmp_path / "m.onnx").touch()
    for source, kind in ((tmp_path / "m.onnx", None), (b"", "onnx")):
        with pytest.raises(athanor.InvalidArgument, match="it must be an|they must be an"):
            uploads.read_source(source, kind)


def test_links_lead_nowhere_else(tmp_path: pathlib.Path) -> None:
    model = helper.make_model(helper.make_graph(
        [], "g", [], [], initializer=[_external("w", "w.bin")])).SerializeToString()
    for folder in ("blobs", "snapshot", "other"):
        (tmp_path / folder).mkdir()
    snapshot = tmp_path / "snapshot"
    for name in ("blobs/2", "other/secret", "snapshot/inside"):
        (tmp_path / name).write_bytes(b"w")
    (tmp_path / "blobs/1").write_bytes(model)
    (snapshot / "m.onnx").write_bytes(model)
    (snapshot / "linked.onnx").symlink_to("../blobs/1")

    def read(weights: str, name: str) -> None:
        (snapshot / "w.bin").unlink(missing_ok=True)
        (snapshot / "w.bin").symlink_to(weights)
        assert list(uploads.read_source(snapshot / name, None).files) == ["w.bin"]

    read("inside", "m.onnx")
    read("../blobs/2", "linked.onnx")  # as a model hub's cache links both
    for weights, name in (("../other/secret", "m.onnx"), ("/etc/passwd", "m.onnx"),
                          ("../blobs/2", "m.onnx"), ("../other/secret", "linked.onnx")):
        with pytest.raises(athanor.InvalidArgument, match="outside the model's folder"):
            read(weights, name)


def test_a_large_model_travels_in_pieces(monkeypatch: pytest.MonkeyPatch,
                                         tmp_path: pathlib.Path) -> None:
    model = helper.make_model(helper.make_graph([], "g", [], []))
    model.doc_string = "x" * (2 * uploads.CHUNK_BYTES)
    data = model.SerializeToString()
    monkeypatch.setattr(uploads, "_HEADER_BYTES", len(data) - 1)
    path = tmp_path / "m.onnx"
    path.write_bytes(data)
    for source in (path, data, model):
        read = uploads.read_source(source, None if source is path else "onnx")
        first, *pieces, last = uploads.requests(read, "m", uploads.Division(), None, None)
        assert first.header.graph == first.header.graph_sha256 == b""
        assert [(f.path, f.bytes) for f in first.header.files] == [("", len(data))]
        assert b"".join(m.file.data for m in pieces) == data
        assert [m.file.offset for m in pieces] == [0, uploads.CHUNK_BYTES, 2 * uploads.CHUNK_BYTES]
        assert last.WhichOneof("kind") == "commit"


def _header(given: Given, format: str = "onnx", **more: object) -> model_pb2.UploadHeader:
    source = uploads.Source(format, b"g", {})
    return next(uploads.requests(source, "m", uploads.Division(), more.get("buckets"), None,
                                 given=given)).header


def test_dims() -> None:
    header = _header(Given({"b": (1, 64), "s": (None, 8), "n": 128, "t": "p + s"}))
    said = {d.name: d for d in header.dims}
    assert (said["b"].min, said["b"].max) == (1, 64)
    assert not said["s"].HasField("min") and said["s"].max == 8
    assert said["n"].equals == "128" and said["t"].equals == "p + s"
    for wrong in ((1,), (1, None), (1.0, 2), (True, 2), 1.5, None, {}, (1, 1 << 63), 1 << 63):
        with pytest.raises(athanor.InvalidArgument, match=r"dims\['b'\]=.*it must be bounds"):
            _header(Given({"b": wrong}))
    with pytest.raises(athanor.InvalidArgument, match="dims: applies to ONNX models only"):
        _header(Given({"b": (1, 2)}), "athanor")


def test_no_buckets_are_the_full_range() -> None:
    assert not _header(Given({"b": (1, 64)})).buckets, "the server chooses"
    header = _header(Given({"n": 3, "b": (None, 64)}), buckets={})
    assert [(b.dim, b.ranges[0].min, b.ranges[0].max) for b in header.buckets] == [("b", 1, 64)]
    assert not _header(Given(), buckets={}).buckets


def test_values_and_seed() -> None:
    header = _header(Given(None, {"axes": np.array([1, -1]), "q": np.array([-8, 7], ml_dtypes.int4),
                                  "f": np.array(1.5, ml_dtypes.float8_e5m2fnuz)}, 0))
    said = {v.name: v.value for v in header.values}
    assert said["axes"].dtype == "i64" and list(said["axes"].shape) == [2]
    assert (said["q"].dtype, said["q"].data) == ("i8", b"\xf8\x07")
    code = np.array(1.5, ml_dtypes.float8_e5m2fnuz).tobytes()
    assert (said["f"].dtype, said["f"].data, list(said["f"].shape)) == ("u8", code, [])
    assert header.HasField("random_seed") and not _header(Given()).HasField("random_seed")
    with pytest.raises(athanor.InvalidArgument, match=r"values\['axes'\] is a list"):
        _header(Given(None, {"axes": [1]}))
    for wrong in (-1, 1 << 64, 1.0, True):
        with pytest.raises(athanor.InvalidArgument, match="random_seed="):
            _header(Given(None, None, wrong))


def test_elements_go_in_and_come_out() -> None:
    kinds = {"int4": ml_dtypes.int4, "uint2": ml_dtypes.uint2,
             "float8e4m3fnuz": ml_dtypes.float8_e4m3fnuz, "float4e2m1": ml_dtypes.float4_e2m1fn}
    for element, kind in kinds.items():
        carrier = "i8" if element.startswith("int") else "u8"
        expected = [wire.Tensor("x", carrier, ("3",), element)]
        array = np.array([0, 1, 1]).astype(kind)
        request = wire.infer_request("m", "", expected, {"x": array}, None, {})
        assert request.inputs[0].datatype == ("INT8" if carrier == "i8" else "UINT8")
        codes = np.frombuffer(request.raw_input_contents[0], np.int8 if carrier == "i8"
                              else np.uint8)
        again = wire.infer_request("m", "", expected, {"x": codes}, None, {})
        assert again.raw_input_contents == request.raw_input_contents
        reply = oip.ModelInferResponse(raw_output_contents=request.raw_input_contents)
        output = reply.outputs.add(name="y", datatype=request.inputs[0].datatype, shape=[3])
        assert wire.infer_result(reply)["y"].dtype == codes.dtype
        output.parameters["element"].string_param = element
        result = wire.infer_result(reply)["y"]
        assert result.dtype == kind and (result == array).all()
        with pytest.raises(athanor.InvalidArgument, match=f"the model takes {element}"):
            wire.infer_request("m", "", expected, {"x": np.zeros(3, np.float32)}, None, {})


def test_refusals_come_with_the_error() -> None:
    class Refused(grpc.RpcError):
        def code(self) -> grpc.StatusCode:
            return grpc.StatusCode.UNIMPLEMENTED

        def details(self) -> str:
            return "words"

        def trailing_metadata(self) -> tuple[tuple[str, bytes], ...]:
            message = model_pb2.Refusals()
            message.refusals.add(code=12, node="n", op="Det", version=11, reason="r", inputs=["x"])
            return (("x-request-id", "r-1"), (errors.REFUSALS_KEY, message.SerializeToString()))

    error = errors.from_rpc(Refused())
    assert isinstance(error, athanor.Unimplemented) and str(error) == "words"
    assert error.refusals == (athanor.Refusal("UNIMPLEMENTED", "n", "", "Det", 11, "r", ("x",)),)
    assert errors.from_number(3, "words").refusals == ()


def test_what_a_model_says_of_itself() -> None:
    model = model_pb2.Model(name="m", notes=["a note"])
    model.inputs.add(name="axes", dtype="i64", shape=["1"], fixed=True)
    model.outputs.add(name="y", dtype="u8", shape=["b"], element="float4e2m1")
    info = wire.model_info(model)
    assert info.notes == ("a note",) and info.inputs[0].fixed and not info.outputs[0].fixed
    assert str(info.outputs[0]) == "y: float4e2m1[b]"
