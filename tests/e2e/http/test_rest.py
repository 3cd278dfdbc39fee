"""KServe's REST protocol as tritonclient's HTTP client sees it, unmodified, and as a plain program
does. The client comes from PyPI: its bound on ml_dtypes is below what .venv has."""

from __future__ import annotations

import http.client
import json
import re
import subprocess
import sys
import types
from collections.abc import Callable, Iterator

import athanor
import numpy as np
import pytest
from conftest import ROOT, Server

TRITONCLIENT = "tritonclient[http]==2.73.0"
DATATYPES = {"BOOL": np.bool_, "INT8": np.int8, "INT16": np.int16, "INT32": np.int32,
             "INT64": np.int64, "UINT8": np.uint8, "UINT16": np.uint16, "UINT32": np.uint32,
             "UINT64": np.uint64, "FP16": np.float16, "FP32": np.float32, "FP64": np.float64}
DTYPES = {"BOOL": "bool", "INT8": "i8", "INT16": "i16", "INT32": "i32", "INT64": "i64",
          "UINT8": "u8", "UINT16": "u16", "UINT32": "u32", "UINT64": "u64", "FP16": "f16",
          "FP32": "f32", "FP64": "f64"}


@pytest.fixture(scope="module")
def triton(tmp_path_factory: pytest.TempPathFactory) -> Iterator[types.ModuleType]:
    """The module tritonclient.http."""
    folder = tmp_path_factory.mktemp("tritonclient")
    subprocess.run([sys.executable, "-m", "pip", "install", "--disable-pip-version-check",
                    "--quiet", "--target", folder, TRITONCLIENT], check=True)
    sys.path.append(str(folder))  # .venv's packages go first
    import tritonclient.http
    yield tritonclient.http
    sys.path.remove(str(folder))


@pytest.fixture(scope="module")
def rest_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with "add", y = x + x of f32[b, 4], and "team/same", which gives its input back."""
    server = Server(tmp_path_factory.mktemp("rest") / "state", "--http_listen=127.0.0.1:0",
                    "--shared_memory=/athanor-e2e-*").start()
    add = athanor.Graph("add", dims={"b": (1, 65536)})
    x = add.input("x", ("b", 4), "f32")
    add.output("y", x + x)
    same = athanor.Graph("same")
    for datatype, dtype in DTYPES.items():
        same.output(f"{datatype}_out", same.input(datatype, (2,), dtype))
    with server.client() as client:
        client.upload(add, name="add", budget="0").wait(timeout=120)
        client.upload(same, name="team/same", budget="0").wait(timeout=120)
    yield server
    assert server.stop() == 0, server.log.read_text()


@pytest.fixture
def client(triton: types.ModuleType, rest_server: Server) -> Iterator[object]:
    """An InferenceServerClient."""
    with triton.InferenceServerClient(rest_server.http_address) as made:
        yield made


def _input(triton: types.ModuleType, name: str, datatype: str, array: np.ndarray,
           binary: bool = True) -> object:
    made = triton.InferInput(name, list(array.shape), datatype)
    made.set_data_from_numpy(array, binary_data=binary)
    return made


def test_every_call_works_or_is_refused_with_a_sentence(triton: types.ModuleType,
                                                        client: object) -> None:
    """And the guide's table names each."""
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    inputs = [_input(triton, "x", "FP32", x)]
    body, json_bytes = triton.InferenceServerClient.generate_request_body(inputs)
    works: dict[str, Callable[[], object]] = {
        "is_server_live": client.is_server_live,
        "is_server_ready": client.is_server_ready,
        "is_model_ready": lambda: client.is_model_ready("add", "1"),
        "get_server_metadata": lambda: client.get_server_metadata()["extensions"],
        "get_model_metadata": lambda: client.get_model_metadata("add")["inputs"],
        "get_model_config": lambda: client.get_model_config("team/same")["input"],
        "get_model_repository_index": client.get_model_repository_index,
        "get_inference_statistics": lambda: client.get_inference_statistics("add")["model_stats"],
        "infer": lambda: client.infer("add", inputs),
        "async_infer": lambda: client.async_infer("add", inputs).get_result(),
        "generate_request_body": lambda: body and json_bytes,
        "parse_response_body": lambda: triton.InferenceServerClient.parse_response_body(
            b'{"outputs":[]}'),
        "get_system_shared_memory_status":
            lambda: client.get_system_shared_memory_status() == [],
        "unregister_system_shared_memory":
            lambda: client.unregister_system_shared_memory() is None,
        "register_plugin": lambda: client.register_plugin(lambda request: None) is None,
        "plugin": client.plugin,
        "unregister_plugin": lambda: client.unregister_plugin() is None,
        "close": lambda: client.close() is None,
    }
    refused: dict[str, Callable[[], object]] = {
        "get_trace_settings": lambda: client.get_trace_settings("add"),
        "update_trace_settings": lambda: client.update_trace_settings(settings={}),
        "get_log_settings": client.get_log_settings,
        "update_log_settings": lambda: client.update_log_settings({}),
        "get_cuda_shared_memory_status": client.get_cuda_shared_memory_status,
        "register_cuda_shared_memory":
            lambda: client.register_cuda_shared_memory("r", b"handle", 0, 8),
        "unregister_cuda_shared_memory": client.unregister_cuda_shared_memory,
    }
    calls = {name for name in dir(triton.InferenceServerClient) if not name.startswith("_")}
    # These need a folder of models or of shared memory: test_repository.py, test_tritonclient.py.
    elsewhere = {"load_model", "unload_model", "register_system_shared_memory"}
    assert calls == set(works) | set(refused) | elsewhere
    guide = (ROOT / "docs/rest.md").read_text()
    for name, call in refused.items():
        with pytest.raises(triton.InferenceServerException) as caught:
            call()
        assert caught.value.status() == "501", name
        assert re.search(r"\w+ \w+ \w+", caught.value.message()), name
        assert f"`{name}`" in guide, name
    for name, call in works.items():
        assert call(), name
        assert f"`{name}`" in guide, name


@pytest.mark.parametrize("binary", [True, False])
def test_all_datatypes_come_back(triton: types.ModuleType, client: object, binary: bool) -> None:
    sent = {}
    for datatype, dtype in DATATYPES.items():
        if dtype is np.bool_:
            sent[datatype] = np.array([True, False])
        elif np.issubdtype(dtype, np.integer):
            sent[datatype] = np.array([np.iinfo(dtype).min, np.iinfo(dtype).max], dtype)
        else:
            sent[datatype] = np.array([np.finfo(dtype).tiny, 0.1], dtype)
    inputs = [_input(triton, name, name, array, binary or name == "FP16")
              for name, array in sent.items()]
    outputs = [triton.InferRequestedOutput(f"{name}_out", binary_data=binary or name == "FP16")
               for name in sent]
    answer = client.infer("team/same", inputs, outputs=outputs, request_id="7")
    assert answer.get_response()["id"] == "7"
    for name, array in sent.items():
        got = answer.as_numpy(f"{name}_out")
        assert got.dtype == array.dtype
        np.testing.assert_array_equal(got, array, err_msg=name)


def test_600_kilobytes(triton: types.ModuleType, client: object) -> None:
    x = np.random.default_rng(1).standard_normal((37_500, 4), dtype=np.float32)
    for binary in (True, False):
        output = triton.InferRequestedOutput("y", binary_data=binary)
        answer = client.infer("add", [_input(triton, "x", "FP32", x, binary)], outputs=[output],
                              priority=3, timeout=60_000_000)
        np.testing.assert_array_equal(answer.as_numpy("y"), x + x)
    assert answer.get_response()["parameters"]["compile_state"] == "baseline"


def test_errors_are_sentences(triton: types.ModuleType, client: object) -> None:
    x = np.zeros((1, 4), np.float32)
    given = [_input(triton, "x", "FP32", x)]
    for call, status, text in (
            (lambda: client.infer("absent", given), "404", 'model "absent" does not exist'),
            (lambda: client.infer("add", given, model_version="7"), "404", "version"),
            (lambda: client.infer("add", [_input(triton, "z", "FP32", x)]), "400",
             'the model has no input "z"; it has x'),
            (lambda: client.infer("add", given, sequence_id=1), "400", "sequence_"),
            (lambda: client.infer("add", given, request_compression_algorithm="gzip"), "501",
             "Content-Encoding"),
            (lambda: client.infer("add", given, outputs=[
                triton.InferRequestedOutput("y", class_count=2)]), "501", "classification"),
            (lambda: client.get_model_metadata("absent"), "404", "does not exist")):
        with pytest.raises(triton.InferenceServerException) as caught:
            call()
        assert caught.value.status() == status, caught.value
        assert text in caught.value.message()
    assert not client.is_model_ready("absent")
    answer = client.infer("add", given, response_compression_algorithm="gzip")
    np.testing.assert_array_equal(answer.as_numpy("y"), x)


def _ask(server: Server, method: str, path: str, body: bytes | None = None,
         **headers: str) -> tuple[int, bytes, http.client.HTTPMessage]:
    connection = http.client.HTTPConnection(server.http_address, timeout=60)
    connection.request(method, path, body, headers)
    answer = connection.getresponse()
    read = answer.read()
    connection.close()
    return answer.status, read, answer.headers


def test_plain_programs(rest_server: Server) -> None:
    for path in ("/v2/health/live", "/v2/health/ready", "/livez", "/healthz"):
        assert _ask(rest_server, "GET", path)[0] == 200
    request = {"inputs": [{"name": "x", "shape": [1, 4], "datatype": "FP32",
                           "data": [[1, 2.5, -3, 1e-45]]}]}
    status, body, headers = _ask(rest_server, "POST", "/v2/models/add/infer",
                                 json.dumps(request).encode())
    assert status == 200, body
    assert headers["content-type"] == "application/json"
    answer = json.loads(body)
    np.testing.assert_array_equal(np.float32(answer["outputs"][0]["data"]),
                                  2 * np.float32([1, 2.5, -3, 1e-45]))
    for path, body, status in (("/v2/models/add/infer", b"{", 400),
                               ("/v2/models/add/infer", b"[" * 1_000_000, 400),
                               ("/v2/models/add/infer", b'{"inputs":[]}', 400),
                               ("/v2/nothing", b"", 404),
                               ("/v2/health/live", b"", 405)):
        got, said, _ = _ask(rest_server, "POST", path, body)
        assert got == status, said
        assert json.loads(said)["error"]
    assert _ask(rest_server, "GET", "/status.json")[0] == 200, "the pages are there too"


def test_lying_lengths(rest_server: Server) -> None:
    head = json.dumps({"inputs": [{"name": "x", "shape": [1, 4], "datatype": "FP32",
                                   "parameters": {"binary_data_size": 16}}]}).encode()
    name = "Inference-Header-Content-Length"
    whole = head + bytes(16)
    status, said, _ = _ask(rest_server, "POST", "/v2/models/add/infer", whole,
                           **{name: str(len(head))})
    assert status == 200, said
    for body, length in ((whole, len(head) - 1), (whole, len(whole) + 1), (whole[:-1], len(head)),
                         (whole + b"x", len(head)), (whole, -1), (whole, 0)):
        status, said, _ = _ask(rest_server, "POST", "/v2/models/add/infer", body,
                               **{name: str(length)})
        assert status in (400, 501), said
        assert json.loads(said)["error"]
