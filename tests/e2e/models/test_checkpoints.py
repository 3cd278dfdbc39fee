"""Checkpoints of language models: equal to goldens, kept over restarts, or refused by name."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import pathlib
import shutil
import sqlite3
import struct
import subprocess
import threading
from collections.abc import Callable, Iterator

import athanor
import numpy as np
import pytest
from athanor import calls, uploads
from athanor.given import Given
from conftest import CLI, ROOT, Server

DATA = ROOT / "tests/tokens/testdata/llama"
GOLDEN = json.loads((DATA / "golden.json").read_text())
SHARDS = [f"model-0000{i}-of-00003.safetensors" for i in (1, 2, 3)]
HF = ["config.json", "generation_config.json", "model.safetensors.index.json", *SHARDS]
REFUSED = (athanor.InvalidArgument, athanor.Unimplemented, athanor.ResourceExhausted)


def _folder(folder: pathlib.Path) -> pathlib.Path:
    """A copy of the checkpoint in Hugging Face's form alone."""
    folder.mkdir()
    for name in HF:
        shutil.copy(DATA / name, folder)
    return folder


def _source(form: str, tmp_path: pathlib.Path) -> pathlib.Path:
    return _folder(tmp_path / "llama") if form == "hf" else DATA / "model.gguf"


def _assert_golden(model: athanor.Model) -> None:
    """It generates what transformers does. No second token is near: see `gaps`."""
    answer = model.generate(GOLDEN["ids"], max_tokens=64, temperature=0, timeout=120).result()
    assert list(answer.tokens) == GOLDEN["greedy"]


@pytest.mark.parametrize("form", ["hf", "gguf"])
def test_equal_to_golden(client: athanor.Client, form: str, tmp_path: pathlib.Path) -> None:
    model = client.upload(_source(form, tmp_path), name=f"tiny-{form}", budget="0")
    model.wait("baseline", timeout=120)
    info = model.info()
    assert [tensor.name for tensor in info.inputs] == ["ids", "sequence", "position", "table",
                                                       "wanted"]
    assert [bucket.ranges["T"] for bucket in info.buckets] == [(1, 1), (2, 4), (5, 16), (17, 64),
                                                              (65, 512)]
    _assert_golden(model)
    rows = np.zeros(1, np.int32)
    with pytest.raises(athanor.FailedPrecondition, match="GenerateService.Generate"):
        model.infer({"ids": rows, "sequence": rows, "position": rows, "wanted": rows,
                     "table": np.zeros((1, 1), np.int32)})
    client.delete(f"tiny-{form}")


def test_asyncio_and_the_command_line(server: Server, tmp_path: pathlib.Path) -> None:
    folder = _folder(tmp_path / "tiny")

    async def check() -> athanor.ModelInfo:
        async with athanor.AsyncClient(server.address) as client:
            return await client.check(folder, decoder={"tokens": 32, "context": 100})

    assert asyncio.run(check()).dims["T"] == (1, 32)
    for path, name in ((f"{folder}/", "tiny"), (DATA / "model.gguf", "model")):
        done = subprocess.run([CLI, "upload", path, "--address", server.address, "--budget=0",
                               "--tokens=128"], capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        with server.client() as client:
            _assert_golden(client.model(name))
            assert client.model(name).info().dims["T"] == (1, 128)
            client.delete(name)


@pytest.mark.parametrize("form", ["hf", "gguf"])
def test_kept_over_restarts(own_server: Server, form: str, tmp_path: pathlib.Path) -> None:
    with own_server.client() as client:
        client.upload(_source(form, tmp_path), name="m", budget="0").wait("baseline", timeout=120)
        before = client.model("m").info()
    own_server.kill()
    own_server.start()
    with own_server.client() as client:
        assert client.model("m").info().graph_hash == before.graph_hash
        _assert_golden(client.model("m"))
    assert own_server.stop() == 0
    state = own_server.state
    with sqlite3.connect(state / "registry.db") as db:
        files = dict(db.execute("SELECT path, bytes FROM version_files JOIN version_tensors "
                                "USING(name, version, hash)"))
        assert db.execute("SELECT generation FROM versions").fetchone()[0]
    if form == "hf":
        assert files == {name: (DATA / name).stat().st_size for name in HF[:3]}
    else:
        assert list(files) == ["model.gguf"]
        assert 0 < files["model.gguf"] < (DATA / "model.gguf").stat().st_size
    fsck = subprocess.run([CLI, "fsck", "--state_dir", state], capture_output=True, text=True)
    assert fsck.returncode == 0, fsck.stdout
    assert f"{len(files)} of them files" in fsck.stdout
    own_server.start()
    with own_server.client() as client:
        client.delete("m")
        own_server.keeps_no_files()


def test_killed_in_mid_upload(own_server: Server) -> None:
    size = (DATA / "model.gguf").stat().st_size
    source = uploads.Source("gguf", b"", {}, {"model.gguf": DATA / "model.gguf"})
    killed = threading.Event()

    def messages() -> Iterator[object]:
        for number, message in enumerate(uploads.requests(source, "m", uploads.Division(), None,
                                                          None)):
            if number == 1:  # half of the file
                message.file.data = message.file.data[:size // 2]
                yield message
                own_server.kill()
                killed.set()
                return
            yield message

    with own_server.client() as client:
        call = dataclasses.replace(calls.upload(source, "m", uploads.Division(), None, "0", False,
                                                None, False, None), request=messages())
        with pytest.raises(athanor.Error):
            client._run(call, 60)
    assert killed.wait(60)
    own_server.start()
    with own_server.client() as client:
        assert client.models() == []
        own_server.keeps_no_files()


@dataclasses.dataclass(frozen=True)
class Bad:
    """A checkpoint that is refused, and words of the message."""

    name: str
    change: Callable[[dict[str, bytes]], None]
    words: tuple[str, ...]
    format: str = "hf"


def _patched(data: bytes, at: int, *values: object, form: str = "<Q") -> bytes:
    return data[:at] + struct.pack(form, *values) + data[at + struct.calcsize(form):]


def _with_key(key: str, value: object) -> Callable[[dict[str, bytes]], None]:
    def change(files: dict[str, bytes]) -> None:
        config = json.loads(files["config.json"])
        config[key] = value
        files["config.json"] = json.dumps(config).encode()
    return change


def _lying(files: dict[str, bytes]) -> None:
    """The first tensor of the first shard ends behind the file."""
    data = files[SHARDS[0]]
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    first = next(name for name in header if name != "__metadata__")
    header[first]["data_offsets"][1] += 1 << 40
    text = json.dumps(header).encode()
    files[SHARDS[0]] = struct.pack("<Q", len(text)) + text + data[8 + size:]


def _set(name: str, make: Callable[[bytes], bytes]) -> Callable[[dict[str, bytes]], None]:
    return lambda files: files.update({name: make(files[name])})


def _drop(name: str) -> Callable[[dict[str, bytes]], None]:
    return lambda files: files.pop(name) and None


def _add(name: str) -> Callable[[dict[str, bytes]], None]:
    return lambda files: files.update({name: b"x"})


BAD = [
    Bad("truncated_shard", _set(SHARDS[1], lambda data: data[:-10]), (SHARDS[1],)),
    Bad("only_a_length", _set(SHARDS[2], lambda data: data[:8]), (SHARDS[2],)),
    Bad("empty_shard", _set(SHARDS[2], lambda data: b""), (SHARDS[2],)),
    Bad("missing_shard", _drop(SHARDS[1]), (SHARDS[1], "is missing")),
    Bad("lying_offsets", _lying, (SHARDS[0],)),
    Bad("lying_length", _set(SHARDS[0], lambda data: _patched(data, 0, (1 << 64) - 1)),
        (SHARDS[0],)),
    Bad("unknown_key", _with_key("warp_factor", 9), ("warp_factor",)),
    Bad("unknown_type", _with_key("model_type", "warp"), ("warp",)),
    Bad("no_number", _with_key("num_hidden_layers", "two"), ("num_hidden_layers",)),
    Bad("many_layers", _with_key("num_hidden_layers", 1 << 40), ("num_hidden_layers",)),
    Bad("no_json", _set("config.json", lambda data: data[:-5]), ("config.json",)),
    Bad("deep_json", _set("config.json", lambda data: b"[" * 100_000), ("config.json",)),
    Bad("pickled", _add("pytorch_model.bin"), ("pytorch_model.bin", "no file of a checkpoint")),
    Bad("onnx_inside", _add("model.onnx"), ("model.onnx", "no file of a checkpoint")),
    Bad("consolidated", _add("consolidated.safetensors"), ("consolidated.safetensors",)),
    Bad("in_a_folder", _add("original/a.safetensors"), ("original/a.safetensors",)),
    Bad("no_config", _drop("config.json"), ("there is no config.json",)),
    Bad("truncated", _set("model.gguf", lambda data: data[:-10]), ("model.gguf",), "gguf"),
    Bad("truncated_head", _set("model.gguf", lambda data: data[:100]), ("model.gguf",), "gguf"),
    Bad("no_bytes", _set("model.gguf", lambda data: b""), ("model.gguf",), "gguf"),
    Bad("no_gguf", _set("model.gguf", lambda data: b"GGML" + data[4:]), ("model.gguf",), "gguf"),
    Bad("many_keys", _set("model.gguf", lambda data: _patched(data, 16, 1 << 62)),
        ("model.gguf",), "gguf"),
    Bad("many_tensors", _set("model.gguf", lambda data: _patched(data, 8, 1 << 62)),
        ("model.gguf",), "gguf"),
    Bad("two_files", _add("second.gguf"), ("2 files", "is one"), "gguf"),
]


def _files(format: str) -> dict[str, bytes]:
    return {name: (DATA / name).read_bytes() for name in (HF if format == "hf" else ["model.gguf"])}


def _send(client: athanor.Client, format: str, files: dict[str, bytes], **given: object) -> None:
    """Uploads like a client that checks nothing."""
    source = uploads.Source(format, b"", {}, files)
    client._run(calls.upload(source, "bad", uploads.Division(), None, "0", False, None, False, None,
                             Given(**given)), 60)


@pytest.fixture(scope="module")
def bad_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Starts a server to which nothing else is uploaded, so that its files can be checked."""
    running = Server(tmp_path_factory.mktemp("bad") / "state").start()
    yield running
    assert running.stop() == 0, running.log.read_text()


@pytest.mark.parametrize("bad", BAD, ids=lambda bad: bad.name)
def test_refused_by_name(bad_server: Server, bad: Bad) -> None:
    files = _files(bad.format)
    bad.change(files)
    with bad_server.client() as client:
        with pytest.raises(REFUSED) as refused:
            _send(client, bad.format, files)
        for word in bad.words:
            assert word in str(refused.value), refused.value
        assert client.models() == []
    bad_server.keeps_no_files()


def test_every_unknown_key_at_once(bad_server: Server) -> None:
    files = _files("hf")
    keys = ["warp_factor", "phase"]
    for key in keys:
        _with_key(key, 9)(files)
    with bad_server.client() as client:
        with pytest.raises(REFUSED) as refused:
            _send(client, "hf", files)
        assert {refusal.node for refusal in refused.value.refusals} == set(keys)
        _send(client, "hf", files, ignore_keys=keys)
        _assert_golden(client.model("bad"))
        client.delete("bad")
    bad_server.keeps_no_files()


def test_fields_of_the_header(bad_server: Server) -> None:
    with bad_server.client() as client:
        for change, words in (
                (lambda header: header.decoder.__setattr__("tokens", -1), "header.decoder.tokens"),
                (lambda header: header.decoder.__setattr__("context", 1 << 40), "decoder.context"),
                (lambda header: header.dims.add(name="T", max=4), 'dims: of format "onnx" only'),
                (lambda header: header.__setattr__("graph", b"g"), "header.graph: of formats")):
            source = uploads.Source("gguf", b"", {}, _files("gguf"))
            messages = list(uploads.requests(source, "m", uploads.Division(), None, None))
            change(messages[0].header)
            call = calls.upload(source, "m", uploads.Division(), None, "0", False, None, False,
                                None)
            call = dataclasses.replace(call, request=iter(messages))
            with pytest.raises(athanor.InvalidArgument, match=words):
                client._run(call, 60)
    bad_server.keeps_no_files()
