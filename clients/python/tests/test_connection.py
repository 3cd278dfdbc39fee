"""Where a client connects to, what it says of itself, and what a pickle of it holds."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import pickle
from collections.abc import Callable, Iterator

import athanor
import grpc
import pytest
from athanor.connection import Connection, full_address, is_local
from athanor.protos import model_pb2

SECRET = "furnace-0123456789"


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ATHANOR_ADDRESS", "ATHANOR_TOKEN"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(("given", "whole"), [
    (None, "127.0.0.1:50051"), ("server", "server:50051"), ("server:1", "server:1"),
    ("10.1.2.3", "10.1.2.3:50051"), ("::1", "[::1]:50051"), ("[::1]", "[::1]:50051"),
    ("[::1]:7", "[::1]:7"), ("unix:/run/a.sock", "unix:/run/a.sock"),
    ("dns:///server:1", "dns:///server:1"), ("ipv4:1.2.3.4:5", "ipv4:1.2.3.4:5"),
])
def test_an_address_is_completed(given: str | None, whole: str) -> None:
    assert full_address(given) == whole
    with athanor.Client(given) as client:
        assert client.address == whole and whole in repr(client)


def test_the_environment_says_where(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATHANOR_ADDRESS", "furnace")
    assert full_address(None) == "furnace:50051" and full_address("other") == "other:50051"
    monkeypatch.setenv("ATHANOR_ADDRESS", "furnace:x")
    with pytest.raises(athanor.InvalidArgument, match="ATHANOR_ADDRESS='furnace:x'.*host:port"):
        athanor.Client()
    monkeypatch.setenv("ATHANOR_ADDRESS", "")
    assert full_address(None) == "127.0.0.1:50051"


@pytest.mark.parametrize("wrong", ["", "a b", "host:", ":1", "host:0", "host:65536", "host:-1", 5,
                                   "host:\u0663", "[::1]:x",
                                   "http://localhost:50051", "server/x", "a:b:c", "[server]:5"])
def test_what_is_no_address_is_refused(wrong: object) -> None:
    with pytest.raises(athanor.InvalidArgument, match="address="):
        athanor.Client(wrong)


def test_which_addresses_are_of_this_machine() -> None:
    for local in ("127.0.0.1:1", "127.9.9.9:1", "localhost:1", "[::1]:1", "unix:/x",
                  "ipv4:127.0.0.1:1", "ipv6:[::1]:1", "dns:///localhost:1"):
        assert is_local(local), local
    for other in ("10.0.0.1:1", "server:1", "localhost.evil.example:1", "[2001:db8::1]:1",
                  "0.0.0.0:1", "dns:///server:1"):
        assert not is_local(other), other


@pytest.mark.parametrize("wrong", ["", "a b", "ä", "a\n", "a\x7f", 5, b"x"])
def test_what_is_no_token_is_refused_unseen(wrong: object) -> None:
    with pytest.raises(athanor.InvalidArgument, match="token") as error:
        athanor.Client("127.0.0.1:1", token=wrong)
    assert not isinstance(wrong, str) or len(wrong) < 2 or wrong not in str(error.value)


def test_a_token_does_not_travel_in_plain_text() -> None:
    with pytest.raises(athanor.InvalidArgument, match="server:50051 in plain text.*insecure=True"):
        athanor.Client("server", token=SECRET)
    for options in ({"insecure": True}, {"root_certificates": b""}):
        athanor.Client("server", token=SECRET, **options).close()
    athanor.Client("127.0.0.1:1", token=SECRET).close()


def test_certificates_belong_together() -> None:
    for options, words in (
            ({"client_key": b"k"}, "give both"), ({"client_certificate": b"c"}, "give both"),
            ({"client_certificate": b"c", "client_key": b"k"}, "needs TLS"),
            ({"root_certificates": "pem"}, "root_certificates is a str.*bytes of PEM")):
        with pytest.raises(athanor.InvalidArgument, match=words):
            athanor.Client("server", **options)


def test_secrets_are_not_shown() -> None:
    connection = Connection.of("127.0.0.1:1", b"", b"cert", b"key-bytes", SECRET, False)
    assert SECRET not in repr(connection) and "key-bytes" not in repr(connection)
    with athanor.Client("127.0.0.1:1", token=SECRET) as client:
        assert SECRET not in repr(client) + str(client) + repr(athanor.Model(client, "m"))


def test_pickles_hold_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    with athanor.Client("127.0.0.1:7", token=SECRET) as client:
        data = pickle.dumps(athanor.Model(client, "m", "2"))
    assert SECRET.encode() not in data
    with pytest.raises(athanor.InvalidArgument, match="set ATHANOR_TOKEN"):
        pickle.loads(data)
    monkeypatch.setenv("ATHANOR_TOKEN", "other")
    model = pickle.loads(data)
    assert (model.name, model.version, model.client.address) == ("m", "2", "127.0.0.1:7")
    assert model.client._connection.metadata == (("authorization", "Bearer other"),)
    with athanor.Client("server", root_certificates=b"", client_certificate=b"c",
                        client_key=b"k") as client:
        with pytest.raises(TypeError, match="client_key cannot be pickled"):
            pickle.dumps(client)


def test_a_pickled_client_without_a_token_takes_none(monkeypatch: pytest.MonkeyPatch) -> None:
    with athanor.Client("127.0.0.1:7") as client:
        data = pickle.dumps(client)
    monkeypatch.setenv("ATHANOR_TOKEN", "other")
    assert pickle.loads(data)._connection.metadata == ()


class Recorder(grpc.GenericRpcHandler):
    """Answers every call with an empty message, and keeps its metadata."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, dict[str, str]]] = []

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        self.seen.append((details.method, dict(details.invocation_metadata)))
        if details.method.endswith(("WatchCompileJob", "Generate", "Export")):
            return grpc.unary_stream_rpc_method_handler(lambda request, context: iter(()))
        if details.method.endswith(("UploadModel", "Import")):
            return grpc.stream_unary_rpc_method_handler(lambda requests, context: b"")
        return grpc.unary_unary_rpc_method_handler(lambda request, context: b"")


@pytest.fixture
def recorder() -> Iterator[tuple[Recorder, str]]:
    handler = Recorder()
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(2), [handler])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield handler, f"127.0.0.1:{port}"
    server.stop(None)


def test_every_call_says_who_calls(recorder: tuple[Recorder, str]) -> None:
    handler, address = recorder
    graph = athanor.Graph("g")
    graph.output("y", graph.input("x", 3, "f32"))
    with athanor.Client(address, token=SECRET) as client:
        client.ready()
        client.models()
        client.upload(graph, "m")
        list(client.watch("job"))
        with pytest.raises(athanor.Error):
            client.model("m").generate("x").result()
    assert len(handler.seen) == 6
    for method, metadata in handler.seen:
        assert metadata["authorization"] == f"Bearer {SECRET}", method
    handler.seen.clear()
    with athanor.Client(address) as client:
        client.ready()
    assert "authorization" not in handler.seen[0][1]


def test_the_asyncio_client_says_so_too(recorder: tuple[Recorder, str],
                                        monkeypatch: pytest.MonkeyPatch) -> None:
    handler, address = recorder
    monkeypatch.setenv("ATHANOR_TOKEN", SECRET)
    monkeypatch.setenv("ATHANOR_ADDRESS", address)

    async def call() -> None:
        async with athanor.AsyncClient() as client:
            await client.ready()
            assert [job async for job in client.watch("job")] == []

    asyncio.run(call())
    assert [metadata["authorization"] for _, metadata in handler.seen] == [f"Bearer {SECRET}"] * 2


def test_tables_for_notebooks(recorder: tuple[Recorder, str]) -> None:
    g = athanor.Graph("<g>", dims={"b": (1, 64)})
    x = g.input("x", ("b", 3), "f32")
    g.output("y&", x * 2)
    html = g._repr_html_()
    assert "Graph &#x27;&lt;g&gt;&#x27;" in html and "y&amp;" in html and "f32[b, 3]" in html
    assert "<g>" not in html and "1 to 64" in html
    assert "f32[b, 3]" in x._repr_html_() and "Input" in x._repr_html_()
    for i in range(60):
        g.output(f"o{i}", x)
    assert "and 15 more" in g._repr_html_()
    info = athanor.wire.model_info(model_pb2.Model(name="<m>", version="1"))
    assert "&lt;m&gt;" in info._repr_html_()
    with athanor.Client("127.0.0.1:1") as client:
        assert "UNAVAILABLE" in athanor.Model(client, "m")._repr_html_(), "not an error"


def test_a_fork_is_told_to_be_another_process() -> None:
    """A call from it would hang: gRPC's threads are not there."""
    with athanor.Client("127.0.0.1:1") as client:
        model = athanor.Model(client, "m", "1")
        child = os.fork()
        if child == 0:
            try:
                model.info(timeout=1)
            except athanor.FailedPrecondition as error:
                os._exit(7 if "spawn" in str(error) else 1)
            os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        with pytest.raises(athanor.Unavailable):
            model.info(timeout=1)


@pytest.mark.parametrize(("call", "words"), [
    (lambda c: c.models(), ["no server answers at 127.0.0.1:1 (Connection refused)", "athanord"]),
    (lambda c: c.ready(timeout="1"), ["timeout='1'", "number of seconds"]),
    (lambda c: c.ready(timeout=-1), ["timeout=-1"]),
    (lambda c: c.ready(timeout=float("inf")), ["timeout=inf"]),
    (lambda c: c.model("m", 1), ["version=1", "must be a str"]),
    (lambda c: c.delete(None), ["name=None", "must be a str"]),
    (lambda c: c.job(7), ["job_id=7", "must be a str"]),
    (lambda c: c.upload(athanor.Graph("g"), None), ["name=None"]),
    (lambda c: c.upload(athanor.Graph("g"), "m", buckets={"b": [1, 8]}), ["buckets=", "pairs"]),
])
def test_wrong_calls_are_answered_in_words(call: Callable, words: list[str]) -> None:
    with athanor.Client("127.0.0.1:1") as client, pytest.raises(athanor.Error) as error:
        call(client)
    for word in words:
        assert word in str(error.value), str(error.value)


def test_a_closed_client_says_so() -> None:
    client = athanor.Client("127.0.0.1:1")
    client.close()
    with pytest.raises(athanor.FailedPrecondition, match="the client is closed"):
        client.models()

    async def closed() -> None:
        async with athanor.AsyncClient("127.0.0.1:1") as other:
            pass
        await other.models()

    with pytest.raises(athanor.FailedPrecondition, match="the client is closed"):
        asyncio.run(closed())
