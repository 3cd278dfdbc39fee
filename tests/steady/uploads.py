"""Uploads message by message: ones that fail in each way there is."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import grpc
import mlp
from athanor import uploads
from athanor.core import content_hash
from athanor.protos import Stub, model_pb2
from harness import numbered

# Faults of an upload, and the status codes that may refuse it.
FAILURES = {
    "op": ("UNIMPLEMENTED",),
    "budget": ("INVALID_ARGUMENT",),
    "bytes of a weight": ("INVALID_ARGUMENT", "DATA_LOSS"),
    "weights that never come": ("INVALID_ARGUMENT", "FAILED_PRECONDITION"),
    "client, gone": ("CANCELLED",),
}


def messages(config: mlp.Config) -> list[model_pb2.UploadModelRequest]:
    """Header, the tensors one message each, commit."""
    graph = mlp.mlp_graph(config=config)
    source = uploads.read_source(graph, None)
    header = model_pb2.UploadHeader(name=config.name, format="athanor", graph=source.graph,
                                    graph_sha256=content_hash(source.graph))
    chunks = []
    for key, data in source.tensors.items():
        header.tensors.add(hash=key, bytes=len(data))
        chunks.append(model_pb2.UploadModelRequest(
            chunk=model_pb2.TensorChunk(hash=key, offset=0, data=bytes(data))))
    return [model_pb2.UploadModelRequest(header=header), *chunks,
            model_pb2.UploadModelRequest(commit=model_pb2.UploadCommit())]


def fail(channel: grpc.Channel, failure: str, number: int) -> None:
    """Uploads the model `number` with a fault of FAILURES; raises AssertionError unless it fails
    so.
    """
    config = numbered(number)
    sent = messages(config)
    header = sent[0].header
    if failure == "op":
        graph = mlp.mlp_graph(config=config).proto()
        graph.nodes[-1].op = "Rellu"
        header.graph = graph.SerializeToString()
        header.graph_sha256 = content_hash(header.graph)
    elif failure == "budget":
        header.search_budget = "soon"
    elif failure == "bytes of a weight":
        sent[1].chunk.data = bytes(len(sent[1].chunk.data))
    elif failure == "weights that never come":
        del sent[2:-1]
    code = _code(channel, sent, gone=failure == "client, gone")
    assert code in FAILURES[failure], f"an upload with a wrong {failure} of {config.name}: {code}"


def _code(channel: grpc.Channel, sent: list[model_pb2.UploadModelRequest], gone: bool) -> str:
    stub = Stub(channel, model_pb2, "ModelService")
    try:
        if gone:
            return _give_up(stub, sent)
        stub.UploadModel(iter(sent), timeout=60)
    except grpc.RpcError as error:
        return error.code().name
    return "OK"


def _give_up(stub: Stub, sent: list[model_pb2.UploadModelRequest]) -> str:
    """Cancels once half of the messages have been sent."""
    begun, half = threading.Event(), threading.Event()

    def stream() -> Iterator[model_pb2.UploadModelRequest]:
        yield from sent[:len(sent) // 2]
        half.set()
        begun.wait()

    call = stub.UploadModel.future(stream(), timeout=60)
    half.wait(60)
    call.cancel()
    begun.set()
    try:
        call.result()
    except grpc.FutureCancelledError:
        return "CANCELLED"
    return "OK"
