"""Checkpoints of language models on their way to the server."""

from __future__ import annotations

import json
import pathlib

import athanor
import pytest
from athanor import uploads
from athanor.checkpoint_files import checkpoint_files
from athanor.given import Given


def _folder(folder: pathlib.Path, *names: str) -> pathlib.Path:
    folder.mkdir(exist_ok=True)
    for name in names:
        (folder / name).write_bytes(name.encode())
    return folder


def _index(folder: pathlib.Path, *shards: object) -> None:
    weight_map = {f"w{number}": shard for number, shard in enumerate(shards)}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))


def test_what_is_sent_of_a_folder(tmp_path: pathlib.Path) -> None:
    texts = ["config.json", "generation_config.json", "tokenizer.json", "tokenizer.model",
             "tekken.json", "any.tiktoken", "tokenizer_config.json", "special_tokens_map.json",
             "added_tokens.json", "chat_template.jinja"]
    folder = _folder(tmp_path / "all", *texts, "model.safetensors", "pytorch_model.bin",
                     "consolidated.safetensors", "README.md", "other.safetensors")
    source = uploads.read_source(folder, None)
    assert (source.format, source.graph, source.tensors) == ("hf", b"", {})
    assert sorted(source.files) == sorted([*texts, "model.safetensors"])
    messages = list(uploads.requests(source, "m", uploads.Division(), None, "0"))
    assert {f.path: f.bytes for f in messages[0].header.files} == {
        name: len(name) for name in source.files}
    assert not messages[0].header.graph_sha256
    assert messages[1].file.data == messages[0].header.files[0].path.encode()
    assert uploads.read_source(str(folder), "hf").files == source.files


def test_shards_are_those_of_the_index(tmp_path: pathlib.Path) -> None:
    folder = _folder(tmp_path / "m", "config.json", "a.safetensors", "b.safetensors",
                     "old.safetensors", "consolidated.00.safetensors")
    assert sorted(checkpoint_files(folder)) == [
        "a.safetensors", "b.safetensors", "config.json", "old.safetensors"]
    _index(folder, "b.safetensors", "a.safetensors", "a.safetensors")
    assert list(checkpoint_files(folder)) == [
        "config.json", "model.safetensors.index.json", "a.safetensors", "b.safetensors"]
    _index(folder, "a.safetensors", "missing.safetensors")
    with pytest.raises(FileNotFoundError, match=r"missing\.safetensors"):
        checkpoint_files(folder)
    for wrong in ("../b.safetensors", "/b.safetensors", "c\\b.safetensors", 3, "", "..", "x/"):
        _index(folder, wrong)
        with pytest.raises(athanor.InvalidArgument, match="is no name of a file beside it"):
            checkpoint_files(folder)
    for text in ("", "[]", "{}", '{"weight_map": []}'):
        (folder / "model.safetensors.index.json").write_text(text)
        with pytest.raises(athanor.InvalidArgument, match="no index of shards"):
            checkpoint_files(folder)


def test_folders_without_a_checkpoint(tmp_path: pathlib.Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"config\.json"):
        checkpoint_files(_folder(tmp_path / "a", "model.safetensors"))
    with pytest.raises(athanor.InvalidArgument, match="no .safetensors file"):
        checkpoint_files(_folder(tmp_path / "b", "config.json", "pytorch_model.bin",
                                 "consolidated.safetensors"))
    with pytest.raises(FileNotFoundError):
        uploads.read_source(tmp_path / "none.gguf", None)


def test_links_stay_in_their_folder(tmp_path: pathlib.Path) -> None:
    _folder(tmp_path / "blobs", "1", "2")
    secret = _folder(tmp_path / "other", "secret") / "secret"
    snapshot = _folder(tmp_path / "snapshot")
    (snapshot / "config.json").symlink_to("../blobs/1")  # as a model hub's cache links all
    (snapshot / "model.safetensors").symlink_to("../blobs/2")
    assert sorted(checkpoint_files(snapshot)) == ["config.json", "model.safetensors"]
    (snapshot / "tokenizer.json").symlink_to(secret)
    with pytest.raises(athanor.InvalidArgument, match=r"'tokenizer\.json' is a link out"):
        checkpoint_files(snapshot)


def test_a_gguf_file(tmp_path: pathlib.Path) -> None:
    path = _folder(tmp_path / "m", "w.gguf") / "w.gguf"
    for read in (uploads.read_source(path, None), uploads.read_source(str(path), "gguf")):
        assert (read.format, dict(read.files)) == ("gguf", {"w.gguf": path})


def test_what_has_not_the_formats_form_is_refused_by_name(tmp_path: pathlib.Path) -> None:
    folder = _folder(tmp_path / "m", "config.json", "a.safetensors", "w.gguf")
    file = folder / "w.gguf"
    for source, format, named in ((folder, "gguf", f"{folder}: .* 'gguf' is one file"),
                                  (file, "hf", f"{file}: .* 'hf' is a folder"),
                                  (b"x", "gguf", "bytes: .* 'gguf' is one file; pass its path"),
                                  (b"", "hf", "bytes: .* 'hf' is a folder; pass its path")):
        with pytest.raises(athanor.InvalidArgument, match=named):
            uploads.read_source(source, format)


def _header(given: Given, format: str = "gguf") -> object:
    source = uploads.Source(format, b"", {})
    return next(uploads.requests(source, "m", uploads.Division(), None, None, given=given)).header


def test_settings() -> None:
    header = _header(Given(ignore_keys=["a.b"], decoder={"context": 4096, "tokens": 1}))
    assert list(header.ignore_keys) == ["a.b"]
    assert (header.decoder.context, header.decoder.tokens, header.decoder.sequences) == (4096, 1, 0)
    assert not _header(Given()).HasField("decoder")
    for wrong in ({"context": 0}, {"context": True}, {"block": 16}, {"tokens": "1"},
                  {"tokens": 1 << 63}):
        with pytest.raises(athanor.InvalidArgument, match="tokens, sequences, context"):
            _header(Given(decoder=wrong))
    with pytest.raises(athanor.InvalidArgument, match="must be a sequence of names"):
        _header(Given(ignore_keys="a.b"))
    with pytest.raises(athanor.InvalidArgument, match="decoder: applies to checkpoints"):
        _header(Given(decoder={"context": 1}), "onnx")
    with pytest.raises(athanor.InvalidArgument, match="dims: applies to ONNX models only"):
        _header(Given(dims={"b": 1}), "hf")


def test_modules_of_sentence_transformers(tmp_path: pathlib.Path) -> None:
    folder = _folder(tmp_path / "m", "config.json", "model.safetensors", "vocab.txt",
                     "sentence_bert_config.json", "config_sentence_transformers.json")
    _folder(folder / "1_Pooling", "config.json", "README.md")
    _folder(folder / "3_Dense", "config.json", "model.safetensors", "pytorch_model.bin")
    modules = [{"idx": i, "name": str(i), "path": path, "type": "t"}
               for i, path in enumerate(["", "1_Pooling", "2_Normalize", "3_Dense"])]
    (folder / "modules.json").write_text(json.dumps(modules))
    assert sorted(checkpoint_files(folder)) == [
        "1_Pooling/config.json", "3_Dense/config.json", "3_Dense/model.safetensors", "config.json",
        "config_sentence_transformers.json", "model.safetensors", "modules.json",
        "sentence_bert_config.json", "vocab.txt"]
    for wrong in ("..", "a/b", "a\\b", "/etc", "a\0b", 3, None):
        (folder / "modules.json").write_text(json.dumps([{"path": wrong}]))
        with pytest.raises(athanor.InvalidArgument, match="is no name of a folder beside it"):
            checkpoint_files(folder)
    for text in ("", "{", "3", "[3]", "[{}]"):
        (folder / "modules.json").write_text(text)
        with pytest.raises(athanor.InvalidArgument, match="no list of modules"):
            checkpoint_files(folder)
    secret = _folder(tmp_path / "other", "config.json")
    (folder / "4_Link").symlink_to(secret)
    (folder / "modules.json").write_text(json.dumps([{"path": "4_Link"}]))
    with pytest.raises(athanor.InvalidArgument, match="'4_Link/config.json' is a link out"):
        checkpoint_files(folder)
