"""ONNX models through the server: dims, external data, values, dry runs, restarts, refusals."""

from __future__ import annotations

import ast
import json
import pathlib
import re
import subprocess

import athanor
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx_models import FLOAT, INT64, linear, linear_numpy, model, value
from server_process import CLI, Server, built

BATCH = {"batch": (1, 64)}


def _infer(served: athanor.Model, made: onnx.ModelProto, batch: int) -> None:
    x = np.random.default_rng(batch).standard_normal((batch, 16), np.float32)
    np.testing.assert_allclose(served.infer({"x": x}, timeout=120)["y"], linear_numpy(made, x),
                               rtol=1e-4, atol=1e-5)


def test_bytes_path_and_proto_are_one_model(client: athanor.Client, tmp_path: pathlib.Path) -> None:
    made = linear()
    onnx.save(made, tmp_path / "m.onnx")
    sources = [(made, None), (made.SerializeToString(), "onnx"), (tmp_path / "m.onnx", None)]
    for source, format in sources:
        served = client.upload(source, "linear", format, budget="0", dims=BATCH)
        _infer(served, made, 3)
        _infer(served, made, 64)
    assert len({info.graph_hash for info in client.models("linear")}) == 1
    assert len(client.delete("linear")) == 3


def test_external_data_and_a_restart(own_server: Server, tmp_path: pathlib.Path) -> None:
    made = linear(rows=16, columns=800)
    stored = onnx.ModelProto.FromString(made.SerializeToString())  # saving moves its tensors away
    onnx.save(stored, tmp_path / "m.onnx", save_as_external_data=True, location="w.bin",
              size_threshold=0)
    with own_server.client() as client:
        _infer(client.upload(tmp_path / "m.onnx", "m", budget="0", dims=BATCH), made, 5)
        before = client.models("m")[0]
    assert any(path.startswith("blobs/") for path in own_server.model_files())
    own_server.kill()
    own_server.start()
    with own_server.client() as client:
        served = client.model("m")
        info = served.info()
        assert (info.graph_hash, info.dims) == (before.graph_hash, {"batch": (1, 64)})
        _infer(served, made, 7)
        client.delete("m")
        assert client.models() == []
        own_server.keeps_no_files()


def test_a_wrong_shape_is_noted_and_stays_so(own_server: Server) -> None:
    """Other runtimes only warn of this; the note is still there after a restart."""
    made = model([helper.make_node("Relu", ["x"], ["h"]), helper.make_node("Neg", ["h"], ["y"])],
                 [value("x", [2, 3])], [value("y", [3, 2])])
    made.graph.value_info.append(value("h", [7]))
    made.opset_import.append(helper.make_opsetid("ai.onnx", 17))  # alike, as some exporters do
    notes = ('output "y" has shape [2, 3], which holds; the file states [3, 2]: axis 0 is wrong',
             'value "h" has shape [2, 3], which holds; the file states [7]: its rank is wrong')
    x = np.arange(-3, 3, dtype=np.float32).reshape(2, 3)
    with own_server.client() as client:
        served = client.upload(made, "m", budget="0")
        assert served.info().notes == notes
        assert [str(t) for t in served.info().outputs] == ["y: f32[2, 3]"]
        np.testing.assert_array_equal(served.infer({"x": x})["y"], -np.maximum(x, 0))
    own_server.kill()
    own_server.start()
    with own_server.client() as client:
        assert client.model("m").info().notes == notes
        listed = subprocess.run([built(CLI), "--address", own_server.address, "models", "m"],
                                capture_output=True, text=True, check=True).stdout
        assert all(note in listed for note in notes), listed


def test_dims_that_must_be_multiples_are_named(client: athanor.Client) -> None:
    """A network that goes down twice and up again, by what its refusal says to give."""
    down = {"kernel_shape": [2, 2], "strides": [2, 2]}
    made = model(
        [helper.make_node("MaxPool", ["x"], ["a"], **down),
         helper.make_node("MaxPool", ["a"], ["b"], **down),
         helper.make_node("Upsample", ["b", "scales"], ["c"]),
         helper.make_node("Concat", ["a", "c"], ["d"], name="skip", axis=1),
         helper.make_node("Upsample", ["d", "scales"], ["e"]),
         helper.make_node("Concat", ["x", "e"], ["y"], axis=1)],
        [value("x", [1, 1, "height", "image width"])], [value("y", [1, 3, "oh", "ow"])],
        {"scales": np.array([1, 1, 2, 2], np.float32)}, opset=9)
    given = {"height": (4, 64), "image width": (8, 32)}
    with pytest.raises(athanor.InvalidArgument, match="for every size of the dims") as caught:
        client.upload(made, "unet", budget="0", dims=given)
    hint = re.search(r"give dims=(\{.*?\})", str(caught.value))
    assert hint, caught.value
    said = ast.literal_eval(hint[1])
    assert said == {"height": "4*h", "h": (1, 16), "image_width": "4*i", "i": (2, 8)}
    served = client.upload(made, "unet", budget="0", dims=said)
    x = np.random.default_rng(1).standard_normal((1, 1, 12, 8), np.float32)
    got = served.infer({"x": x}, timeout=120)["y"]
    a = x.reshape(1, 1, 6, 2, 4, 2).max((3, 5))
    b = a.reshape(1, 1, 3, 2, 2, 2).max((3, 5))

    def up(v: np.ndarray) -> np.ndarray:
        return v.repeat(2, 2).repeat(2, 3)

    np.testing.assert_array_equal(
        got, np.concatenate([x, up(np.concatenate([a, up(b)], 1))], 1))
    with pytest.raises(athanor.InvalidArgument):
        served.infer({"x": x[:, :, :11]}, timeout=120)
    client.delete("unet")


def test_buckets_are_chosen_unless_said(client: athanor.Client) -> None:
    made = linear()
    try:
        info = client.upload(made, "buckets", budget="0", dims=BATCH).wait(timeout=120).info()
        assert [b.ranges["batch"] for b in info.buckets] == [(1, 1), (2, 4), (5, 16), (17, 64)]
        assert not client.upload(made, "buckets", budget="0", dims=BATCH, buckets={}).info().buckets
    finally:
        client.delete("buckets")


def test_a_dry_run_keeps_nothing(own_server: Server) -> None:
    with own_server.client() as client:
        info = client.check(linear(), dims=BATCH, batch_dim="batch")
        assert (info.version, info.plan_id, info.dims) == ("", "", {"batch": (1, 64)})
        assert [str(t) for t in info.inputs + info.outputs] == [
            "x: f32[batch, 16]", "y: f32[batch, 8]"]
        assert info.batching.on, info.batching.reason
        assert client.models() == [] and client.jobs() == []
        own_server.keeps_no_files()
        g = athanor.Graph("g", dims={"b": (1, 4)})
        g.output("y", g.input("x", ("b", 2), "f32") * g.parameter("w", np.ones(2, np.float32)))
        assert client.check(g).dims == {"b": (1, 4)}
        assert client.models() == []
        own_server.keeps_no_files()


def test_dims(client: athanor.Client) -> None:
    made = linear()
    before = client.models()
    for dims, text in (({}, "batch"), ({"batch": (1, 64), "seq": (1, 2)}, "seq"),
                       ({"batch": "rows + 1"}, "rows")):
        with pytest.raises(athanor.InvalidArgument, match=text):
            client.check(made, dims=dims)
    assert client.check(made, dims={"batch": 4}).inputs[0].shape == ("4", "16")
    assert client.check(made, dims={"batch": (None, 8)}).dims == {"batch": (1, 8)}
    assert client.models() == before


def _reduced() -> onnx.ModelProto:
    return model([helper.make_node("ReduceSum", ["x", "axes"], ["y"], name="sum", keepdims=0)],
                 [value("x", [2, 3]), value("axes", [1], INT64)], [value("y", None)], opset=13)


def test_values_that_structure_depends_on(client: athanor.Client) -> None:
    made = _reduced()
    with pytest.raises((athanor.Unimplemented, athanor.InvalidArgument), match="axes") as caught:
        client.upload(made, "reduced")
    (refusal,) = caught.value.refusals
    assert (refusal.node, refusal.op, refusal.inputs) == ("sum", "ReduceSum", ("axes",))
    axes = np.array([1])
    served = client.upload(made, "reduced", budget="0", values={"axes": axes})
    try:
        x = np.arange(6, dtype=np.float32).reshape(2, 3)
        np.testing.assert_array_equal(
            served.infer({"x": x, "axes": axes}, timeout=120)["y"], [3, 12])
        assert [tensor.fixed for tensor in served.info().inputs] == [False, True]
        with pytest.raises(athanor.InvalidArgument, match=r"\[0\].*values that make it \[1\]"):
            served.infer({"x": x, "axes": np.array([0])})
    finally:
        client.delete("reduced")


def test_elements_that_no_dtype_is(client: athanor.Client) -> None:
    import ml_dtypes

    made = model([], [value("q", [4], TensorProto.INT4), value("f", [2], TensorProto.FLOAT8E5M2)],
                 [value("q", [4], TensorProto.INT4), value("f", [2], TensorProto.FLOAT8E5M2)],
                 opset=21)
    served = client.upload(made, "elements", budget="0")
    try:
        q = np.array([-8, -1, 0, 7]).astype(ml_dtypes.int4)
        f = np.array([1.5, -np.inf]).astype(ml_dtypes.float8_e5m2)
        got = served.infer({"q": q, "f": f}, timeout=120)
        assert got["q"].dtype == q.dtype and (got["q"] == q).all()
        assert got["f"].dtype == f.dtype and got["f"].tobytes() == f.tobytes()
        assert [t.element for t in served.info().outputs] == ["int4", "float8e5m2"]
        with pytest.raises(athanor.InvalidArgument, match="element 1 is 8; int4 has -8 to 7"):
            served.infer({"q": np.array([0, 8, 0, 0], np.int8), "f": f})
    finally:
        client.delete("elements")


def test_every_refused_node_is_named(client: athanor.Client) -> None:
    count = 500
    nodes = [helper.make_node(f"Unknown{i % 7}", ["x"], [f"y{i}"], name=f"node{i}")
             for i in range(count)]
    made = model(nodes, [value("x", [2])], [value("y0", [2])])
    with pytest.raises((athanor.Unimplemented, athanor.InvalidArgument)) as caught:
        client.upload(made, "refused")
    assert [refusal.node for refusal in caught.value.refusals] == [f"node{i}" for i in range(count)]
    assert all(f"Unknown{i}" in str(caught.value) for i in range(7)), "each kind is in the message"
    assert client.models("refused") == []


def test_command_line(server: Server, client: athanor.Client, tmp_path: pathlib.Path) -> None:
    def cli(*args: object, status: int = 0) -> str:
        done = subprocess.run([built(CLI), "--address", server.address, *map(str, args)],
                              capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == status, done.stdout + done.stderr
        return done.stdout + done.stderr

    onnx.save(_reduced(), tmp_path / "reduced.onnx")
    onnx.save(linear(), tmp_path / "lin.onnx", save_as_external_data=True, location="w.bin",
              size_threshold=0)
    lin = ("upload", tmp_path / "lin.onnx", "--dim")
    assert "would be taken" in cli(*lin, "batch=1:64", "--check")
    assert client.models("lin") == []
    refused = cli("upload", tmp_path / "reduced.onnx", "--check", status=1)
    assert "sum (ReduceSum-13)" in refused and "--value axes=" in refused
    cli("upload", tmp_path / "reduced.onnx", "--value", "axes=1", "--budget", "0")
    assert client.model("reduced").info().inputs[1].fixed
    cli(*lin, "batch=1:64", "--budget", "0", "--name", "lin")
    _infer(client.model("lin"), linear(), 2)
    checked = json.loads(cli("--json", *lin, "batch=8", "--check").splitlines()[-1])
    assert checked["inputs"][0]["shape"] == ["8", "16"]
    assert "must be" in cli(*lin, "batch", status=2)
    for name in ("reduced", "lin"):
        client.delete(name)


@pytest.mark.parametrize("elem", [FLOAT, INT64])
def test_empty_tensors(client: athanor.Client, elem: int) -> None:
    made = model([], [value("x", [0, 3], elem)], [value("x", [0, 3], elem)])
    served = client.upload(made, "empty", budget="0")
    x = np.zeros((0, 3), np.float32 if elem == FLOAT else np.int64)
    assert served.infer({"x": x}, timeout=120)["x"].shape == (0, 3)
    client.delete("empty")
