"""A folder of models in Triton's layout: loaded at start, by polls and by calls; broken ones,
half-copied ones and changed ones; restarts and kills. tritonclient comes from PyPI, unmodified."""

from __future__ import annotations

import http.client
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time
import types
from collections.abc import Callable, Iterator

import athanor
import numpy as np
import onnx
import pytest
from conftest import Server
from onnx_models import linear, linear_numpy

TRITONCLIENT = "tritonclient[http]==2.73.0"
X = np.random.default_rng(7).standard_normal((3, 16), np.float32)
CONFIG = """
platform: "onnxruntime_onnx"
max_batch_size: 64
input [ { name: "x" data_type: TYPE_FP32 dims: [ 16 ] } ]
output [ { name: "y" data_type: TYPE_FP32 dims: [ 8 ] } ]
dynamic_batching { preferred_batch_size: [ 8, 16 ] }
instance_group [ { kind: KIND_CPU } ]
"""


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


@pytest.fixture
def models(tmp_path: pathlib.Path) -> pathlib.Path:
    """The folder of the repository, empty."""
    folder = tmp_path / "models"
    folder.mkdir()
    return folder


@pytest.fixture
def serve(tmp_path: pathlib.Path, models: pathlib.Path) -> Iterator[Callable[..., Server]]:
    """Starts the server on `models` with flags, and returns it when it is ready."""
    started: list[Server] = []

    def start(*flags: str, ready: bool = True) -> Server:
        if started:
            started[-1].kill()
        server = Server(tmp_path / "state", f"--model_repository={models}",
                        "--http_listen=127.0.0.1:0", *flags)
        started.append(server.start())
        if ready:
            until(lambda: get(server, "/v2/health/ready")[0] == 200)
        return server

    yield start
    if started:
        started[-1].kill()


def until(holds: Callable[[], bool], timeout: float = 120) -> None:
    """Returns once it holds."""
    end = time.monotonic() + timeout
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.02)


def get(server: Server, path: str, body: object = None) -> tuple[int, str]:
    """The status and text of GET, or of POST with a body as JSON."""
    connection = http.client.HTTPConnection(server.http_address, timeout=120)
    try:
        if body is None:
            connection.request("GET", path)
        else:
            connection.request("POST", path, json.dumps(body))
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def index(server: Server) -> dict[str, tuple[str, str]]:
    """State and reason by "name/version"."""
    listed = json.loads(get(server, "/v2/repository/index", {})[1])
    return {f"{each['name']}/{each.get('version', '')}": (each["state"], each.get("reason", ""))
            for each in listed}


def put(folder: pathlib.Path, seed: int, config: str | None = CONFIG) -> onnx.ModelProto:
    """Writes `linear` as a version's model.onnx, each file whole at once."""
    folder.mkdir(parents=True, exist_ok=True)
    made = linear(seed)
    files = {folder / "model.onnx": made.SerializeToString()}
    if config is not None:
        files = {folder.parent / "config.pbtxt": config.encode(), **files}
    for path, data in files.items():
        aside = path.with_name(".aside")
        aside.write_bytes(data)
        aside.rename(path)
    return made


def two_polls(server: Server, models: pathlib.Path) -> None:
    """Returns once two polls have looked at what is there now."""
    hollow = models / "zzz"  # the last in order; listed once two looks have found it
    hollow.mkdir()
    until(lambda: "zzz/" in index(server))
    hollow.rmdir()
    until(lambda: "zzz/" not in index(server))


def answers_as(server: Server, name: str, made: onnx.ModelProto, version: str = "") -> bool:
    """Whether the model answers as `made` does."""
    with server.client() as client:
        model = client.model(name, version) if version else client.model(name)
        y = model.infer({"x": X}, timeout=120)["y"]
    return bool(np.allclose(y, linear_numpy(made, X), rtol=1e-4, atol=1e-4))


def test_a_start_serves_the_folder_and_a_restart_keeps_it(
        serve: Callable[..., Server], models: pathlib.Path) -> None:
    """Nothing is read or compiled again."""
    put(models / "a/1", 1)
    newest = put(models / "a/10", 2)
    beside = linear(3)
    (models / "b/3/model.onnx").mkdir(parents=True)
    onnx.save(linear(3), str(models / "b/3/model.onnx/model.onnx"), save_as_external_data=True,
              location="weights.bin", size_threshold=0)
    (models / "b/config.pbtxt").write_text(CONFIG)
    graph = athanor.Graph("double")
    x = graph.input("x", (4,), "f32")
    graph.output("y", x + x)
    (models / "c/1").mkdir(parents=True)
    graph.save(models / "c/1/model.athanor")

    server = serve()
    assert index(server) == {"a/10": ("READY", ""), "b/3": ("READY", ""), "c/1": ("READY", "")}
    assert answers_as(server, "a", newest)
    assert answers_as(server, "a", newest, "10")
    assert answers_as(server, "b", beside, "3")
    with server.client() as client:
        y = client.model("c").infer({"x": np.arange(4, dtype=np.float32)})["y"]
        assert y.tolist() == [0, 2, 4, 6]
        with pytest.raises(athanor.FailedPrecondition, match="--model_repository"):
            client.upload(graph, name="a")
        with pytest.raises(athanor.FailedPrecondition, match="--model_repository"):
            client.delete("a")
    assert ('without_effect="instance_group, dynamic_batching.preferred_batch_size"'
            in server.log.read_text())
    assert server.log.read_text().count("model loaded from the repository") == 3

    os.utime(models / "a/10/model.onnx")  # the same bytes
    server = serve()  # kills the first
    assert answers_as(server, "a", newest, "10")
    with server.client() as client:
        assert client.cache_stat().kernels_compiled == 0
    assert server.log.read_text().count("model loaded from the repository") == 3

    shutil.rmtree(models / "c")
    server = serve()
    assert sorted(index(server)) == ["a/10", "b/3"]
    assert server.stop() == 0, server.log.read_text()


def test_tritonclient_loads_and_unloads(serve: Callable[..., Server], models: pathlib.Path,
                                        triton: types.ModuleType) -> None:
    first = put(models / "m/1", 1)
    server = serve("--model_control=explicit")
    with triton.InferenceServerClient(server.http_address, network_timeout=120,
                                      connection_timeout=120) as client:
        listed = client.get_model_repository_index()
        assert [(each["name"], each["state"]) for each in listed] == [("m", "UNAVAILABLE")]
        assert not client.is_model_ready("m")
        client.load_model("m")
        assert client.is_model_ready("m", "1")
        given = triton.InferInput("x", list(X.shape), "FP32")
        given.set_data_from_numpy(X)
        result = client.infer("m", [given], model_version="1")
        np.testing.assert_allclose(result.as_numpy("y"), linear_numpy(first, X), rtol=1e-4,
                                   atol=1e-4)
        second = put(models / "m/2", 2)
        client.load_model("m")
        assert client.is_model_ready("m", "2")
        assert not client.is_model_ready("m", "1")
        assert answers_as(server, "m", second)
        for arguments in ({"config": "{}"}, {"config": "{}", "files": {"file:1/model.onnx": b"x"}}):
            with pytest.raises(triton.InferenceServerException, match="what its folder holds"):
                client.load_model("m", **arguments)
        with pytest.raises(triton.InferenceServerException, match="no folder"):
            client.load_model("none")
        client.unload_model("m", unload_dependents=True)
        assert not client.is_model_ready("m")
        with pytest.raises(triton.InferenceServerException, match="does not exist"):
            client.infer("m", [given])
        (models / "m/2/model.onnx").write_bytes(b"\x08")
        with pytest.raises(triton.InferenceServerException, match="version 2"):
            client.load_model("m")
    assert server.stop() == 0, server.log.read_text()


def test_calls_are_refused_where_they_do_not_apply(serve: Callable[..., Server],
                                                   models: pathlib.Path) -> None:
    put(models / "m/1", 1)
    server = serve("--model_control=poll")
    status, text = get(server, "/v2/repository/models/m/load", {})
    assert status == 400 and "--model_control=explicit" in text
    assert index(server)["m/1"][0] == "READY"


def test_polls_follow_the_folder(serve: Callable[..., Server], models: pathlib.Path) -> None:
    """While calls run, none of which fails."""
    put(models / "stays/1", 9)  # an empty repository would unload nothing
    stays = {"stays/1": ("READY", "")}
    made = put(models / "m/1", 1)
    server = serve("--model_control=poll", "--repository_poll=100ms")
    assert answers_as(server, "m", made)
    made = put(models / "m/2", 2)
    until(lambda: answers_as(server, "m", made))  # each of these calls is answered
    until(lambda: index(server) == {"m/2": ("READY", ""), **stays})
    made = put(models / "m/2", 3)  # in place
    until(lambda: answers_as(server, "m", made, "2"))
    shutil.rmtree(models / "m")
    until(lambda: index(server) == stays)
    made = put(models / "m/2", 4)
    until(lambda: index(server) == {"m/2": ("READY", ""), **stays})
    assert answers_as(server, "m", made)
    assert server.stop() == 0, server.log.read_text()


def test_half_copied_files_are_waited_for(serve: Callable[..., Server],
                                          models: pathlib.Path) -> None:
    """And what serves goes on while they come."""
    before = put(models / "m/1", 1)
    server = serve("--model_control=poll", "--repository_poll=50ms")
    made = linear(2)
    data = made.SerializeToString()
    (models / "m/2").mkdir()
    with (models / "m/2/model.onnx").open("wb", buffering=0) as file:
        sent = 0
        for cut in range(0, len(data), len(data) // 10):
            file.write(data[sent:cut])
            sent = cut
            two_polls(server, models)
            assert index(server)["m/2"][0] == "UNAVAILABLE"
            assert answers_as(server, "m", before)
        file.write(data[sent:])
    until(lambda: index(server) == {"m/2": ("READY", "")})
    assert answers_as(server, "m", made)


def test_broken_models_are_named_and_cost_nothing(serve: Callable[..., Server],
                                                  models: pathlib.Path,
                                                  tmp_path: pathlib.Path) -> None:
    good = put(models / "good/1", 1)
    put(models / "cut/1", 2)
    os.truncate(models / "cut/1/model.onnx", 300)
    put(models / "types/1", 2, CONFIG.replace("TYPE_FP32", "TYPE_INT8"))
    put(models / "sizes/1", 2, CONFIG.replace("[ 16 ]", "[ 17 ]"))
    put(models / "typo/1", 2, CONFIG + "max_batchsize: 3")
    put(models / "open/1", 2, "")
    put(models / "ensemble/1", 2, "ensemble_scheduling { step { model_name: \"good\" } }")
    put(models / "renamed/1", 2, CONFIG + 'name: "good"')
    (models / "hollow").mkdir()
    (tmp_path / "secret").write_bytes(b"secret")
    (models / "link/1").mkdir(parents=True)
    (models / "link/1/model.onnx").symlink_to(tmp_path / "secret")
    (models / "pipe/1").mkdir(parents=True)
    os.mkfifo(models / "pipe/1/model.onnx")
    missing = linear(3)
    (models / "missing/1").mkdir(parents=True)
    onnx.save(missing, str(models / "missing/1/model.onnx"), save_as_external_data=True,
              location="weights.bin", size_threshold=0)
    (models / "missing/1/weights.bin").unlink()
    (models / "missing/config.pbtxt").write_text(CONFIG)
    reasons = {"cut/1": "", "types/1": "TYPE_INT8", "sizes/1": "17", "typo/": "max_batchsize",
               "open/1": "batch=1:64", "ensemble/": "ensemble_scheduling",
               "renamed/": "its folder is", "hollow/": "no folder of a version",
               "link/1": "link out of the model repository", "pipe/1": "neither a file",
               "missing/1": "weights.bin"}
    server = serve()
    found = index(server)
    assert found.pop("good/1") == ("READY", "")
    assert sorted(found) == sorted(reasons)
    for name, (state, reason) in found.items():
        assert state == "UNAVAILABLE" and reason and reasons[name] in reason, (name, reason)
        assert "secret" not in reason
    assert answers_as(server, "good", good)
    assert server.stop() == 0, server.log.read_text()


def test_a_kill_in_the_middle_of_a_load_loses_nothing(serve: Callable[..., Server],
                                                      models: pathlib.Path) -> None:
    """Each start goes on from whatever the kill before it left."""
    made = linear(5, rows=1024, columns=4096)  # 16 MB
    for version in ("1", "2", "3"):
        (models / "m" / version).mkdir(parents=True)
        (models / "m" / version / "model.onnx").write_bytes(made.SerializeToString())
    (models / "m/config.pbtxt").write_text(
        "version_policy { all { } } "
        "parameters { key: \"athanor.dims\" value { string_value: \"batch=1:4\" } }")
    for delay in (0, 0.05, 0.1, 0.2, 0.4):
        server = serve(ready=False)
        time.sleep(delay)
        server.kill()
    server = serve()
    assert index(server) == {f"m/{version}": ("READY", "") for version in (1, 2, 3)}
    x = np.random.default_rng(0).standard_normal((2, 1024), np.float32)
    with server.client() as client:
        for version in ("1", "2", "3"):
            y = client.model("m", version).infer({"x": x})["y"]
            np.testing.assert_allclose(y, linear_numpy(made, x), rtol=1e-3, atol=1e-3)
    assert not [path for path in server.model_files() if path.startswith("tmp/")]
    assert server.stop() == 0, server.log.read_text()


def test_many_folders(serve: Callable[..., Server], models: pathlib.Path) -> None:
    """10,000 folders are listed, and none of them is loaded unasked."""
    for i in range(10_000):
        (models / f"m{i}" / "1").mkdir(parents=True)
    made = put(models / "m77/1", 1)
    server = serve("--model_control=explicit")
    assert len(index(server)) == 10_000
    assert get(server, "/v2/repository/models/m77/load", {})[0] == 200
    assert answers_as(server, "m77", made)
    assert server.stop() == 0, server.log.read_text()
