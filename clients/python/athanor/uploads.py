"""Models as they are uploaded: what is read of a source, and the messages that send it.

    source = read_source("model.onnx", None)
    requests(source, "m", Division(), None, "30s")     # header, chunks, commit
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import cast

from google.protobuf.message import Message

from athanor import bundle, onnx_files
from athanor.checkpoint_files import checkpoint_files
from athanor.checks import optional_text
from athanor.core import content_hash, possession_proof
from athanor.errors import InvalidArgument
from athanor.given import (
    Buckets,
    Given,
    bucket_messages,
    budget_text,
    full_range,
    rule_names,
)
from athanor.graph import Graph
from athanor.protos import model_pb2

# The server counts an upload's progress by whole messages; at the lowest rate it accepts
# (--upload_least_rate, 8 KiB a second) a chunk of this size arrives within --upload_idle.
CHUNK_BYTES = 256 << 10
# Largest model that is sent inside the header; a larger one is sent in chunks.
_HEADER_BYTES = 32 << 20
_CHECKPOINTS = {"hf": "a folder", "gguf": "one file"}


@dataclasses.dataclass(frozen=True)
class Source:
    """A model in the form that is sent: its format, its bytes, and its tensors by hash or its files
    by name; for ONNX by the location that the model gives (``""`` is the model itself, if `graph`
    is empty).
    """

    format: str
    graph: bytes
    tensors: dict[bytes, bytes]
    files: dict[str, pathlib.Path | bytes] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Division:
    """The tensors of a model to send, and proofs that the client has the others.

    Attributes
    ----------
    sent : sequence of bytes
        By hash.
    nonce : bytes
        The server's nonce for the proofs.
    proofs : dict
        Proofs of the tensors that are not sent, by hash.
    """

    sent: Sequence[bytes] = ()
    nonce: bytes = b""
    proofs: Mapping[bytes, bytes] = dataclasses.field(default_factory=dict)


def divide(source: Source, missing: Sequence[bytes], nonce: bytes,
           proofs: Mapping[bytes, bytes]) -> Division:
    """Divides the tensors by the server's answer `missing`."""
    lacking = set(missing)
    return Division([key for key in source.tensors if key in lacking], nonce,
                    {key: proof for key, proof in proofs.items() if key not in lacking})


def tensor_proofs(source: Source, nonce: bytes) -> dict[bytes, bytes]:
    """Returns proofs of all tensors of a model, by hash."""
    return {key: possession_proof(nonce, key, data) for key, data in source.tensors.items()}


def proof_messages(proofs: Mapping[bytes, bytes]) -> list[model_pb2.TensorProof]:
    """Returns the proofs as messages."""
    return [model_pb2.TensorProof(hash=key, proof=proof) for key, proof in proofs.items()]


def read_source(source: object, format: str | None) -> Source:
    """Converts a `Graph`, a path or bytes to what is uploaded.

    A path that ends in ``.athanor`` is a bundle (`Graph.save`); bytes need `format`, ``"athanor"``
    for a serialised athanor.v1.Graph. ONNX is a path that ends in ``.onnx``, with the files of
    external data that lie beside it; bytes; or an ``onnx.ModelProto``. The checkpoint of a language
    model is a path that ends in ``.gguf``, or a folder with a ``config.json``.
    """
    if isinstance(source, Graph):
        message = source.proto()
        used = {node.content_hash for node in message.nodes if node.content_hash}
        tensors = {key: data for key, data in source.tensors.items() if key in used}
        return Source("athanor", message.SerializeToString(deterministic=True), tensors)
    if isinstance(source, str | os.PathLike):
        suffix = os.path.splitext(os.fspath(source))[1]
        if suffix == ".athanor" and format in (None, "athanor"):
            return Source("athanor", *bundle.load(source))
        checkpoint = "hf" if os.path.isdir(source) else "gguf"
        if format in _CHECKPOINTS and format != checkpoint:
            raise InvalidArgument(f"{os.fspath(source)}: a checkpoint of format {format!r} is "
                                  f"{_CHECKPOINTS[format]}")
        if format == checkpoint or (format is None and (checkpoint == "hf" or suffix == ".gguf")):
            return Source(checkpoint, b"", {}, dict(checkpoint_files(source)))
        if format is None and suffix != ".onnx":
            raise InvalidArgument(f"{os.fspath(source)}: unknown suffix {suffix!r}; it must be "
                                  '.athanor, .onnx or .gguf, or give format="onnx"')
        if format in (None, "onnx"):
            return _read_onnx(pathlib.Path(source))
        with open(source, "rb") as file:
            return Source(format, file.read(), {})
    if type(source).__module__.startswith("onnx.") and type(source).__name__ == "ModelProto":
        return _onnx_bytes(cast(Message, source).SerializeToString())
    if isinstance(source, bytes | bytearray | memoryview):
        if format is None:
            raise InvalidArgument('bytes need their format: format="onnx" or format="athanor"')
        if format in _CHECKPOINTS:
            raise InvalidArgument(f"bytes: a checkpoint of format {format!r} is "
                                  f"{_CHECKPOINTS[format]}; pass its path")
        return _onnx_bytes(bytes(source)) if format == "onnx" else Source(format, bytes(source), {})
    raise InvalidArgument(f"cannot upload an object of type {type(source).__name__}; pass a Graph, "
                          "a path, bytes or an onnx.ModelProto")


def _read_onnx(path: pathlib.Path) -> Source:
    files: dict[str, pathlib.Path | bytes] = {**onnx_files.external_files(path)}
    if path.stat().st_size == 0:
        raise InvalidArgument(f"{path}: the file is empty; it must be an onnx.ModelProto")
    if path.stat().st_size <= _HEADER_BYTES:
        return Source("onnx", path.read_bytes(), {}, files)
    return Source("onnx", b"", {}, {"": path, **files})


def _onnx_bytes(data: bytes) -> Source:
    if not data:
        raise InvalidArgument("the model has no bytes; they must be an onnx.ModelProto")
    if len(data) <= _HEADER_BYTES:
        return Source("onnx", data, {})
    return Source("onnx", b"", {}, {"": data})


def requests(source: Source, name: str, division: Division, buckets: Buckets | None,
                    budget: str | None, deterministic: bool = False,
                    disable_rules: Sequence[str] | None = None, approximate: bool = False,
                    batch_dim: str | None = None, given: Given | None = None,
                    dry_run: bool = False, device: str | None = None
                    ) -> Iterator[model_pb2.UploadModelRequest]:
    """Yields the header, the chunks of tensors or files to send, and the commit.

    Raises
    ------
    InvalidArgument
        Raised before gRPC iterates, where it would arrive as UNKNOWN.
    """
    given = given or Given()
    if source.format == "onnx" and buckets is not None and not buckets:
        buckets = full_range(given.dims)  # without buckets the server would choose some
    header = model_pb2.UploadHeader(
        name=name, format=source.format, graph=source.graph, dry_run=dry_run,
        graph_sha256=content_hash(source.graph) if source.graph else b"",
        search_budget=budget_text(budget),
        buckets=bucket_messages(buckets), deterministic=deterministic,
        disable_rules=rule_names(disable_rules), approximate=approximate,
        batch_dim=optional_text("batch_dim", batch_dim, "the name of a dim"),
        device=optional_text("device", device, 'the name of a device, as "cuda:0"'),
        nonce=division.nonce, proofs=proof_messages(division.proofs))
    given.write(header)
    for key in division.sent:
        header.tensors.add(hash=key, bytes=len(source.tensors[key]))
    for path, file in source.files.items():
        size = len(file) if isinstance(file, bytes) else file.stat().st_size
        header.files.add(path=path, bytes=size)
    return _stream(header, {key: source.tensors[key] for key in division.sent},
                          list(source.files.values()))


def _pieces(file: pathlib.Path | bytes) -> Iterator[bytes]:
    if isinstance(file, bytes):
        yield from (file[at:at + CHUNK_BYTES] for at in range(0, len(file), CHUNK_BYTES))
        return
    with open(file, "rb") as opened:
        while piece := opened.read(CHUNK_BYTES):
            yield piece


def _stream(header: model_pb2.UploadHeader, tensors: Mapping[bytes, bytes],
                   files: Sequence[pathlib.Path | bytes]
                   ) -> Iterator[model_pb2.UploadModelRequest]:
    yield model_pb2.UploadModelRequest(header=header)
    for number, file in enumerate(files):
        offset = 0
        for piece in _pieces(file):
            yield model_pb2.UploadModelRequest(file=model_pb2.FileChunk(
                file=number, offset=offset, data=piece))
            offset += len(piece)
    for key, data in tensors.items():
        for offset in range(0, len(data), CHUNK_BYTES):
            yield model_pb2.UploadModelRequest(chunk=model_pb2.TensorChunk(
                hash=key, offset=offset, data=data[offset:offset + CHUNK_BYTES]))
    yield model_pb2.UploadModelRequest(commit=model_pb2.UploadCommit())
