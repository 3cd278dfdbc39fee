"""ONNX models that are wrong or hostile: refused by what is wrong, and nothing of them is kept."""

from __future__ import annotations

import dataclasses
import pathlib
import time
from collections.abc import Callable, Iterator

import athanor
import numpy as np
import onnx
import pytest
from athanor import calls, uploads
from athanor.given import Given
from onnx import TensorProto, helper
from onnx_models import INT64, linear, model, value
from server_process import Server

BATCH = {"batch": (1, 64)}
REFUSED = (athanor.InvalidArgument, athanor.Unimplemented, athanor.ResourceExhausted)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Starts a server to which nothing else is uploaded, so that its files can be checked."""
    running = Server(tmp_path_factory.mktemp("bad") / "state", "--max_tensor_bytes=256MiB").start()
    yield running
    assert running.stop() == 0, running.log.read_text()


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[athanor.Client]:
    """Yields a client of that server."""
    with server.client() as connected:
        yield connected


def _nothing_kept(server: Server, client: athanor.Client) -> None:
    assert client.models() == []  # ended jobs are remembered for a while
    server.keeps_no_files()


def _send(client: athanor.Client, data: bytes, files: dict[str, bytes] | None = None,
          **given: object) -> None:
    """Uploads like a client that checks nothing."""
    source = uploads.Source("onnx", data, {}, files or {})
    client._run(calls.upload(source, "bad", uploads.Division(), None, "0", False, None, False, None,
                             Given(**given)), 60)


def _external(name: str, count: int, location: str, offset: int | None = None,
              length: int | None = None) -> TensorProto:
    tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=[count],
                         data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value=location)
    for key, number in (("offset", offset), ("length", length)):
        if number is not None:
            tensor.external_data.add(key=key, value=str(number))
    return tensor


def _with_weights(*tensors: TensorProto) -> onnx.ModelProto:
    made = model([helper.make_node("Identity", [t.name], [f"y{i}"], name=f"id{i}")
                  for i, t in enumerate(tensors)], [],
                 [value(f"y{i}", None) for i in range(len(tensors))])
    made.graph.initializer.extend(tensors)
    return made


@dataclasses.dataclass(frozen=True)
class Bad:
    """A model that is refused, and words of the message."""

    name: str
    make: Callable[[], onnx.ModelProto]
    words: tuple[str, ...]
    files: dict[str, bytes] = dataclasses.field(default_factory=dict)


def _cycle() -> onnx.ModelProto:
    return model([helper.make_node("Relu", ["b"], ["a"], name="first"),
                  helper.make_node("Relu", ["a"], ["b"], name="second")],
                 [value("x", [2])], [value("a", [2])])


def _cyclic_branch() -> onnx.ModelProto:
    inner = helper.make_graph([helper.make_node("Relu", ["b"], ["a"], name="first"),
                               helper.make_node("Relu", ["a"], ["b"], name="second")],
                              "inner", [], [value("a", [2])])
    return model([helper.make_node("If", ["c"], ["y"], name="choice", then_branch=inner,
                                   else_branch=inner)],
                 [value("c", [], TensorProto.BOOL)], [value("y", [2])])


def _one(op: str, domain: str = "", opset: int = 17) -> onnx.ModelProto:
    made = model([helper.make_node(op, ["x"], ["y"], name="the_node", domain=domain)],
                 [value("x", [2])], [value("y", [2])], opset=opset)
    if domain:
        made.opset_import.append(helper.make_opsetid(domain, 1))
    return made


def _sized(raw: bytes) -> onnx.ModelProto:
    return _with_weights(TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4], raw_data=raw))


def _another_type() -> onnx.ModelProto:
    return model([helper.make_node("Relu", ["x"], ["y"], name="the_node")], [value("x", [2, 3])],
                 [value("y", [2, 3], TensorProto.DOUBLE)])


def _two_opsets() -> onnx.ModelProto:
    made = _one("Relu")
    made.opset_import.append(helper.make_opsetid("ai.onnx", 18))
    return made


def _twice() -> onnx.ModelProto:
    return model([helper.make_node("Relu", ["x"], ["y"], name="first"),
                  helper.make_node("Neg", ["x"], ["y"], name="second")],
                 [value("x", [2])], [value("y", [2])])


def _shadowed() -> onnx.ModelProto:
    inner = helper.make_graph([helper.make_node("Relu", ["x"], ["x"], name="hides")], "inner", [],
                              [value("x", [2])])
    return model([helper.make_node("If", ["c"], ["y"], name="choice", then_branch=inner,
                                   else_branch=inner)],
                 [value("x", [2]), value("c", [], TensorProto.BOOL)], [value("y", [2])])


def _bomb() -> onnx.ModelProto:
    """2^50 elements from a few bytes, summed: nothing of it may be computed."""
    return model([helper.make_node("ConstantOfShape", ["shape"], ["big"], name="bomb"),
                  helper.make_node("Mul", ["big", "x"], ["more"], name="used")],
                 [value("x", [1])], [value("more", None)],
                 {"shape": np.array([1 << 25, 1 << 25])})


def _doubling() -> onnx.ModelProto:
    nodes = [helper.make_node("Concat", [f"t{i}", f"t{i}"], [f"t{i + 1}"], name=f"twice{i}", axis=0)
             for i in range(45)]
    return model(nodes, [value("t0", [1])], [value("t45", None)])


def _endless() -> onnx.ModelProto:
    body = helper.make_graph(
        [helper.make_node("Identity", ["cond_in"], ["cond_out"], name="goes_on"),
         helper.make_node("Relu", ["v_in"], ["v_out"], name="step")], "body",
        [value("i", [], INT64), value("cond_in", [], TensorProto.BOOL), value("v_in", [2])],
        [value("cond_out", [], TensorProto.BOOL), value("v_out", [2])])
    return model([helper.make_node("Loop", ["", "go", "x"], ["y"], name="the_loop", body=body)],
                 [value("x", [2]), value("go", [], TensorProto.BOOL)], [value("y", [2])])


def _recursive() -> onnx.ModelProto:
    made = _one("F", "own")
    made.functions.append(helper.make_function(
        "own", "F", ["x"], ["y"],
        [helper.make_node("F", ["x"], ["y"], name="again", domain="own")],
        [helper.make_opsetid("own", 1)]))
    return made


def _referring() -> onnx.ModelProto:
    made = _one("LeakyRelu")
    made.graph.node[0].attribute.add(name="alpha", ref_attr_name="outer",
                                     type=onnx.AttributeProto.FLOAT)
    return made


def _wrong_kind() -> onnx.ModelProto:
    made = _one("LeakyRelu")
    made.graph.node[0].attribute.add(name="alpha", s=b"text", type=onnx.AttributeProto.STRING)
    return made


W16 = bytes(16)
BAD = [
    Bad("cycle", _cycle, ("first", "second")),
    Bad("cyclic sub-graph", _cyclic_branch, ("first", "second")),
    Bad("unknown domain", lambda: _one("Relu", "no.such.domain"), ("no.such.domain", "the_node")),
    Bad("unknown op", lambda: _one("Rellu"), ("Rellu", "the_node")),
    Bad("opset too new", lambda: _one("Relu", opset=29), ("29", "28")),
    Bad("too few bytes", lambda: _sized(bytes(15)), ("w", "15", "16")),
    Bad("too many bytes", lambda: _sized(bytes(17)), ("w", "17", "16")),
    Bad("no bytes", lambda: _sized(b""), ("w",)),
    Bad("contradicting types", _another_type, ("y", "double", "float")),
    Bad("two opsets", _two_opsets, ("opset", "17", "18")),
    Bad("a name made twice", _twice, ("y",)),
    Bad("a name of outside made again", _shadowed, ("x",)),
    Bad("bomb of constants", _bomb, ("bytes",)),
    Bad("doubling", _doubling, ("bytes",)),
    Bad("endless loop", _endless, ("the_loop", "bound")),
    Bad("recursive function", _recursive, ("F",)),
    Bad("attribute of an outer function", _referring, ("the_node", "alpha")),
    Bad("attribute of another kind", _wrong_kind, ("the_node", "alpha")),
    Bad("external data missing", lambda: _with_weights(_external("w", 4, "w.bin")), ("w", "w.bin")),
    Bad("external data too short", lambda: _with_weights(_external("w", 4, "w.bin", 8)),
        ("w", "w.bin"), {"w.bin": W16}),
    Bad("external data of another length",
        lambda: _with_weights(_external("w", 4, "w.bin", 0, 12)), ("w", "12", "16"),
        {"w.bin": W16}),
    Bad("external data outside", lambda: _with_weights(_external("w", 4, "../w.bin")),
        ("w", "../w.bin"), {"w.bin": W16}),
    Bad("external data absolute", lambda: _with_weights(_external("w", 4, "/etc/passwd")),
        ("w", "/etc/passwd"), {"w.bin": W16}),
    Bad("external data overlapping",
        lambda: _with_weights(_external("w", 4, "w.bin", 0, 16), _external("v", 4, "w.bin", 8, 16)),
        ("w", "v", "overlap"), {"w.bin": bytes(24)}),
]


@pytest.mark.parametrize("bad", BAD, ids=lambda bad: bad.name)
def test_is_refused_by_name(server: Server, client: athanor.Client, bad: Bad) -> None:
    begin = time.monotonic()
    with pytest.raises(REFUSED) as caught:
        _send(client, bad.make().SerializeToString(), bad.files)
    assert time.monotonic() - begin < 10
    said = str(caught.value) + str(caught.value.refusals)
    for word in bad.words:
        assert word in said, said
    _nothing_kept(server, client)


def test_what_is_cut_off(server: Server, client: athanor.Client) -> None:
    data = linear().SerializeToString()
    for i in range(40):
        with pytest.raises(REFUSED):
            _send(client, data[:len(data) * i // 40], dims=BATCH)
    _nothing_kept(server, client)


def test_what_is_corrupt_is_refused_or_another_model(server: Server,
                                                     client: athanor.Client) -> None:
    """A byte of a weight is a weight as well; no other error, and the server lives."""
    data = linear().SerializeToString()
    refused = 0
    for at in range(0, len(data), 97):
        broken = bytearray(data)
        broken[at] ^= 0xFF
        try:
            _send(client, bytes(broken), dims=BATCH)
            client.delete("bad")
        except REFUSED:
            refused += 1
    assert refused and client.ready()
    _nothing_kept(server, client)


def test_no_protobuf_at_all(server: Server, client: athanor.Client) -> None:
    for data in (b"\x00", b"bytes", b"\xff" * 100, b"PK\x03\x04", bytes(1000)):
        with pytest.raises(REFUSED):
            _send(client, data)
    _nothing_kept(server, client)


def test_an_upload_that_ends_early(server: Server, client: athanor.Client) -> None:
    model = _with_weights(_external("w", 4, "w.bin")).SerializeToString()
    source = uploads.Source("onnx", model, {}, {"w.bin": W16})
    messages = list(uploads.requests(source, "bad", uploads.Division(), None, "0"))
    for count in range(len(messages)):
        call = calls.upload(source, "bad", uploads.Division(), None, "0", False, None, False, None)
        with pytest.raises(athanor.InvalidArgument, match="ended before its commit|header"):
            client._run(dataclasses.replace(call, request=iter(messages[:count])), 60)
    _nothing_kept(server, client)


def test_the_client_sends_nothing_from_elsewhere(client: athanor.Client,
                                                 tmp_path: pathlib.Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(_with_weights(_external("w", 4, "/etc/passwd")).SerializeToString())
    with pytest.raises(athanor.InvalidArgument, match="outside the model's folder"):
        client.upload(path, "bad")
