"""Triton's extensions of the inference protocol as tritonclient sees them, unmodified: its gRPC
client call by call, streams, and system shared memory over gRPC and HTTP."""

from __future__ import annotations

import os
import pathlib
import queue
import re
import subprocess
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import athanor
import numpy as np
import pytest
from conftest import ROOT, Server

TRITONCLIENT = "tritonclient[http]==2.73.0"  # its gRPC client runs on .venv's grpcio


@pytest.fixture(scope="module")
def triton(tmp_path_factory: pytest.TempPathFactory) -> Iterator[types.SimpleNamespace]:
    """The modules tritonclient.grpc, .http and .utils.shared_memory. They come from PyPI: their
    bounds on other packages are below what .venv has."""
    folder = tmp_path_factory.mktemp("tritonclient")
    subprocess.run([sys.executable, "-m", "pip", "install", "--disable-pip-version-check",
                    "--quiet", "--target", folder, TRITONCLIENT], check=True)
    sys.path.append(str(folder))  # .venv's packages go first
    import tritonclient.grpc
    import tritonclient.http
    import tritonclient.utils.shared_memory
    yield types.SimpleNamespace(grpc=tritonclient.grpc, http=tritonclient.http,
                                shared=tritonclient.utils.shared_memory,
                                Error=tritonclient.grpc.InferenceServerException)
    sys.path.remove(str(folder))


@pytest.fixture(scope="module")
def triton_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with "add", y = x + x of f32[b, 4], and "batched", the same with requests that share
    calls."""
    server = Server(tmp_path_factory.mktemp("triton") / "state", "--http_listen=127.0.0.1:0",
                    "--shared_memory=/athanor-e2e-*").start()
    with server.client() as client:
        for name, batch_dim in (("add", None), ("batched", "b")):
            graph = athanor.Graph(name, dims={"b": (1, 65536)})
            x = graph.input("x", ("b", 4), "f32")
            graph.output("y", x + x)
            client.upload(graph, name=name, budget="0", batch_dim=batch_dim).wait(timeout=120)
    yield server
    assert server.stop() == 0, server.log.read_text()


@pytest.fixture
def client(triton: types.SimpleNamespace, triton_server: Server) -> Iterator[Any]:
    """An InferenceServerClient of gRPC."""
    with triton.grpc.InferenceServerClient(triton_server.address) as made:
        yield made


@pytest.fixture
def web(triton: types.SimpleNamespace, triton_server: Server) -> Iterator[Any]:
    """An InferenceServerClient of HTTP."""
    with triton.http.InferenceServerClient(triton_server.http_address) as made:
        yield made


@pytest.fixture
def region(triton: types.SimpleNamespace, request: pytest.FixtureRequest) -> Iterator[Any]:
    """Makes shared memory: ``region(byte_size)`` returns its handle and key."""
    made = []

    def make(byte_size: int) -> tuple[Any, str]:
        key = f"/athanor-e2e-{os.getpid()}-{len(made)}"
        made.append(triton.shared.create_shared_memory_region("region", key, byte_size))
        return made[-1], key

    yield make
    for handle in made:
        triton.shared.destroy_shared_memory_region(handle)


def _input(module: Any, array: np.ndarray) -> Any:
    made = module.InferInput("x", list(array.shape), "FP32")
    made.set_data_from_numpy(array)
    return made


X = np.arange(8, dtype=np.float32).reshape(2, 4)


def test_every_call_works_or_is_refused_with_a_sentence(
        triton: types.SimpleNamespace, client: Any, triton_server: Server, region: Any) -> None:
    """And the guide's table names each."""
    inputs = [_input(triton.grpc, X)]
    _, key = region(64)
    answers: queue.Queue[tuple[Any, Any]] = queue.Queue()

    def streamed() -> bool:
        client.async_stream_infer("add", inputs)
        result, error = answers.get(timeout=60)
        return error is None and np.array_equal(result.as_numpy("y"), X + X)

    def asynchronous() -> bool:
        client.async_infer("add", inputs, lambda result, error: answers.put((result, error)))
        return answers.get(timeout=60)[1] is None

    works: dict[str, Callable[[], object]] = {
        "is_server_live": client.is_server_live,
        "is_server_ready": client.is_server_ready,
        "is_model_ready": lambda: client.is_model_ready("add", "1"),
        "get_server_metadata": lambda: "statistics" in client.get_server_metadata().extensions,
        "get_model_metadata": lambda: client.get_model_metadata("add").inputs,
        "get_model_config": lambda: client.get_model_config("add", as_json=True)["config"],
        "get_model_repository_index": lambda: client.get_model_repository_index().models,
        "get_inference_statistics": lambda: client.get_inference_statistics("add").model_stats,
        "infer": lambda: client.infer("add", inputs, priority=1, timeout=60_000_000),
        "async_infer": asynchronous,
        "start_stream": lambda: client.start_stream(
            lambda result, error: answers.put((result, error))) is None,
        "async_stream_infer": streamed,
        "stop_stream": lambda: client.stop_stream() is None,
        "register_system_shared_memory":
            lambda: client.register_system_shared_memory("r", key, 64) is None,
        "get_system_shared_memory_status":
            lambda: client.get_system_shared_memory_status("r").regions["r"].key == key,
        "unregister_system_shared_memory":
            lambda: client.unregister_system_shared_memory("r") is None,
        "register_plugin": lambda: client.register_plugin(lambda request: None) is None,
        "plugin": client.plugin,
        "unregister_plugin": lambda: client.unregister_plugin() is None,
    }
    refused: dict[str, tuple[str, Callable[[], object]]] = {
        "load_model": ("FAILED_PRECONDITION", lambda: client.load_model("add")),
        "unload_model": ("FAILED_PRECONDITION", lambda: client.unload_model("add")),
        "get_trace_settings": ("UNIMPLEMENTED", lambda: client.get_trace_settings("add")),
        "update_trace_settings": ("UNIMPLEMENTED",
                                  lambda: client.update_trace_settings("add", {"a": "b"})),
        "get_log_settings": ("UNIMPLEMENTED", client.get_log_settings),
        "update_log_settings": ("UNIMPLEMENTED",
                                lambda: client.update_log_settings({"log_info": True})),
        "get_cuda_shared_memory_status": ("UNIMPLEMENTED", client.get_cuda_shared_memory_status),
        "register_cuda_shared_memory":
            ("UNIMPLEMENTED", lambda: client.register_cuda_shared_memory("r", b"aGFuZGxl", 0, 8)),
        "unregister_cuda_shared_memory": ("UNIMPLEMENTED", client.unregister_cuda_shared_memory),
    }
    calls = {name for name in dir(triton.grpc.InferenceServerClient) if not name.startswith("_")}
    assert calls == set(works) | set(refused) | {"close"}
    guide = (ROOT / "docs/triton.md").read_text()
    for name in calls:
        assert f"`{name}`" in guide, name
    for name, (status, call) in refused.items():
        with pytest.raises(triton.Error) as caught:
            call()
        assert caught.value.status() == f"StatusCode.{status}", name
        assert re.search(r"\w+ \w+ \w+", caught.value.message()), name
    for name, call in works.items():
        assert call(), name


def test_what_does_not_exist(triton: types.SimpleNamespace, client: Any) -> None:
    assert not client.is_model_ready("absent")
    assert not client.is_model_ready("add", "7")
    for call in (client.get_model_config, client.get_model_metadata,
                 client.get_inference_statistics,
                 lambda name: client.infer(name, [_input(triton.grpc, X)])):
        with pytest.raises(triton.Error, match='model "absent" does not exist') as caught:
            call("absent")
        assert caught.value.status() == "StatusCode.NOT_FOUND"
    for parameters, text in (({"sequence_id": 1}, "sequence_"), ({"timeout": -1}, "timeout is -1")):
        with pytest.raises(triton.Error, match=text):
            client.infer("add", [_input(triton.grpc, X)], **parameters)
    output = triton.grpc.InferRequestedOutput("y", class_count=2)
    with pytest.raises(triton.Error, match="classification is not supported"):
        client.infer("add", [_input(triton.grpc, X)], outputs=[output])
    words = triton.grpc.InferInput("x", [1], "BYTES")
    words.set_data_from_numpy(np.array([b"word"], dtype=np.object_))
    with pytest.raises(triton.Error, match="BYTES"):
        client.infer("add", [words])


def test_configurations_say_how_to_batch(client: Any, web: Any) -> None:
    """As image_client and perf_analyzer read them."""
    for name, batch, dims in (("add", 0, [-1, 4]), ("batched", 65536, [4])):
        config = client.get_model_config(name).config
        assert (config.max_batch_size, list(config.input[0].dims)) == (batch, dims)
        assert not config.model_transaction_policy.decoupled
        told = web.get_model_config(name)
        assert (told["max_batch_size"], told["input"][0]["dims"]) == (batch, dims)
        assert told["input"][0]["data_type"] == "TYPE_FP32"
        assert list(client.get_model_metadata(name).inputs[0].shape) == [-1, 4]


def test_statistics_count(triton: types.SimpleNamespace, client: Any, web: Any) -> None:
    def counted() -> tuple[int, int]:
        over_grpc = client.get_inference_statistics("add", "1").model_stats[0]
        over_http = web.get_inference_statistics("add", "1")["model_stats"][0]
        assert over_grpc.inference_count == over_http["inference_count"]
        return over_grpc.inference_count, over_grpc.inference_stats.fail.count

    before = counted()
    client.infer("add", [_input(triton.grpc, X)])
    with pytest.raises(triton.Error):
        client.infer("add", [])
    after = counted()
    assert (after[0] - before[0], after[1] - before[1]) == (1, 1)


def test_a_stream_answers_in_order(triton: types.SimpleNamespace, client: Any) -> None:
    answers: queue.Queue[tuple[Any, Any]] = queue.Queue()
    client.start_stream(lambda result, error: answers.put((result, error)))
    for i in range(200):
        model = "absent" if i % 50 == 7 else "add"
        client.async_stream_infer(model, [_input(triton.grpc, X + i)], request_id=str(i),
                                  enable_empty_final_response=i == 3)
    for i in range(200):
        result, error = answers.get(timeout=60)
        if i % 50 == 7:
            assert "does not exist" in error.message()
            continue
        assert error is None
        response = result.get_response()
        assert response.id == str(i)
        assert response.parameters["triton_final_response"].bool_param == (i == 3)
        np.testing.assert_array_equal(result.as_numpy("y"), 2 * (X + i))
    client.stop_stream()
    client.start_stream(lambda result, error: answers.put((result, error)),
                        headers={"triton_grpc_error": "true"})
    client.async_stream_infer("absent", [_input(triton.grpc, X)])
    result, error = answers.get(timeout=60)
    assert (result, error.status()) == (None, "StatusCode.NOT_FOUND")
    client.stop_stream()


def _shared_infer(module: Any, client: Any, array: np.ndarray) -> Any:
    """Infers with x at the front of region "r", and y behind it."""
    given = module.InferInput("x", list(array.shape), "FP32")
    given.set_shared_memory("r", array.nbytes)
    wanted = module.InferRequestedOutput("y")
    wanted.set_shared_memory("r", array.nbytes, offset=array.nbytes)
    return client.infer("add", [given], outputs=[wanted])


def test_600_kilobytes_through_shared_memory(
        triton: types.SimpleNamespace, client: Any, web: Any, region: Any) -> None:
    array = np.random.default_rng(1).standard_normal((37_500, 4), dtype=np.float32)
    handle, key = region(2 * array.nbytes)
    for module, each in ((triton.grpc, client), (triton.http, web)):
        triton.shared.set_shared_memory_region(handle, [array, np.zeros_like(array)])
        each.register_system_shared_memory("r", key, 2 * array.nbytes)
        result = _shared_infer(module, each, array)
        output = triton.shared.get_contents_as_numpy(handle, np.float32, array.shape, array.nbytes)
        np.testing.assert_array_equal(output, array + array)
        told = result.get_output("y")
        if module is triton.grpc:
            assert told.parameters["shared_memory_region"].string_param == "r"
        else:
            assert "parameters" not in told
            assert "data" not in told
        array = array[::-1].copy()
        assert [one["name"] for one in web.get_system_shared_memory_status()] == ["r"]
        each.unregister_system_shared_memory()
        assert not client.get_system_shared_memory_status().regions
        del output  # a view of the region


def test_regions_out_of_bounds_or_vanished(
        triton: types.SimpleNamespace, client: Any, web: Any, region: Any) -> None:
    handle, key = region(64)
    path = pathlib.Path(f"/dev/shm{key}")

    def register(name: str, key: str, byte_size: int, offset: int = 0) -> None:
        client.register_system_shared_memory(name, key, byte_size, offset)

    for arguments, text in ((("r", key, 65), "has 64 bytes"), (("r", key, 0), "byte_size is 0"),
                            (("r", key, 8, 60), "has 64 bytes"),
                            (("r", "/athanor-e2e-absent", 8), "there is no shared memory object"),
                            (("r", "/other", 8), "--shared_memory allows"),
                            (("r", "/athanor-e2e-/../x", 8), "shm_open"),
                            (("", key, 8), "no name")):
        with pytest.raises(triton.Error, match=text):
            register(*arguments)
        if arguments[0]:
            with pytest.raises(triton.Error, match=text):
                web.register_system_shared_memory(*arguments)
    register("r", key, 64)
    with pytest.raises(triton.Error, match="already"):
        register("r", key, 64)
    _shared_infer(triton.grpc, client, X)
    for nbytes, offset, text in ((32, 33, "do not lie in"), (64, 0, "its shape needs 32"),
                                 (2**62, 2**62, "do not lie in")):
        given = triton.grpc.InferInput("x", [2, 4], "FP32")
        given.set_shared_memory("r", nbytes, offset=offset)
        with pytest.raises(triton.Error, match=text):
            client.infer("add", [given])
    small = triton.grpc.InferRequestedOutput("y")
    small.set_shared_memory("r", 31)
    with pytest.raises(triton.Error, match="has 32 bytes; shared_memory_byte_size is 31"):
        client.infer("add", [_input(triton.grpc, X)], outputs=[small])
    os.truncate(path, 8)
    for module, each in ((triton.grpc, client), (triton.http, web)):
        with pytest.raises(triton.Error, match="was truncated"):
            _shared_infer(module, each, X)
    os.truncate(path, 64)
    _shared_infer(triton.grpc, client, X)
    path.rename(path.with_name(path.name + "-moved"))
    with pytest.raises(triton.Error, match="was unlinked"):
        _shared_infer(triton.grpc, client, X)
    path.write_bytes(bytes(64))
    with pytest.raises(triton.Error, match="was replaced"):
        _shared_infer(triton.grpc, client, X)
    path.with_name(path.name + "-moved").rename(path)
    _shared_infer(triton.grpc, client, X)
    client.unregister_system_shared_memory()
    with pytest.raises(triton.Error, match="there is no shared memory region"):
        _shared_infer(triton.grpc, client, X)
    assert client.is_server_live()


def test_a_client_that_truncates_while_it_infers(
        triton: types.SimpleNamespace, client: Any, region: Any) -> None:
    """Costs answers, never the server."""
    array = np.ones((37_500, 4), np.float32)
    _, key = region(2 * array.nbytes)
    client.register_system_shared_memory("r", key, 2 * array.nbytes)
    cutter = subprocess.Popen([sys.executable, "-c", f"""
import os
while True:
    os.truncate("/dev/shm{key}", 0)
    os.truncate("/dev/shm{key}", {2 * array.nbytes})
"""])
    try:
        refusals = 0
        for _ in range(100):
            try:
                _shared_infer(triton.grpc, client, array)
            except triton.Error as error:
                refusals += 1
                assert "was truncated" in error.message()
        assert client.is_server_live()
    finally:
        cutter.kill()
        cutter.wait()
        client.unregister_system_shared_memory()
