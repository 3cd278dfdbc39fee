"""Errors of calls: what their trailing metadata says."""

from __future__ import annotations

import pickle

import athanor
import grpc
import pytest
from athanor import errors
from google.protobuf import any_pb2, descriptor_pb2, descriptor_pool, duration_pb2, message_factory


def google_rpc() -> tuple[type, type]:
    """Status and RetryInfo, as google/rpc/status.proto and error_details.proto define them."""
    pool = descriptor_pool.DescriptorPool()
    for dependency in (any_pb2, duration_pb2):
        pool.AddSerializedFile(dependency.DESCRIPTOR.serialized_pb)
    file = descriptor_pb2.FileDescriptorProto(
        name="test_rpc.proto", package="google.rpc", syntax="proto3",
        dependency=[any_pb2.DESCRIPTOR.name, duration_pb2.DESCRIPTOR.name])
    status, info = file.message_type.add(name="Status"), file.message_type.add(name="RetryInfo")
    status.field.add(name="code", number=1, type=5, label=1)
    status.field.add(name="message", number=2, type=9, label=1)
    status.field.add(name="details", number=3, type=11, label=3, type_name=".google.protobuf.Any")
    info.field.add(name="retry_delay", number=1, type=11, label=1,
                   type_name=".google.protobuf.Duration")
    pool.AddSerializedFile(file.SerializeToString())
    made = [message_factory.GetMessageClass(pool.FindMessageTypeByName(f"google.rpc.{name}"))
            for name in ("Status", "RetryInfo")]
    return made[0], made[1]


STATUS, RETRY_INFO = google_rpc()


class Failed(grpc.RpcError):
    """A call that failed."""

    def __init__(self, *metadata: tuple[str, bytes]) -> None:
        self.metadata = metadata

    def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.RESOURCE_EXHAUSTED

    def details(self) -> str:
        return "too many calls"

    def trailing_metadata(self) -> tuple[tuple[str, bytes], ...]:
        return self.metadata


def details(*packed: tuple[str, bytes]) -> bytes:
    status = STATUS(code=8, message="too many calls")
    for kind, value in packed:
        status.details.add(type_url=f"type.googleapis.com/{kind}", value=value)
    return status.SerializeToString()


def retry(seconds: int, nanos: int = 0) -> tuple[str, bytes]:
    info = RETRY_INFO()
    info.retry_delay.seconds, info.retry_delay.nanos = seconds, nanos
    return "google.rpc.RetryInfo", info.SerializeToString()


@pytest.mark.parametrize(("data", "wait"), [
    (details(retry(2, 500_000_000)), 2.5), (details(retry(0)), 0.0),
    (details(("google.rpc.DebugInfo", b"\n\x01x"), retry(7)), 7.0),
    (details(("google.rpc.DebugInfo", b"\n\x01x")), None), (details(), None), (b"", None),
    (b"\xff\xff", None), (details(("google.rpc.RetryInfo", b"\xff")), None),
    (details(("google.rpc.RetryInfo", b"")), None),
    (details(("google.rpc.RetryInfo", b"\n\x02\xff\xff")), None),
    (details(retry(1 << 62)), None), (details(retry(2))[:-1], None),
])
def test_when_to_come_again(data: bytes, wait: float | None) -> None:
    error = errors.from_rpc(Failed(("x-request-id", "r-1"), ("grpc-status-details-bin", data)))
    assert error.request_id == "r-1"
    assert isinstance(error, athanor.ResourceExhausted) and str(error) == "too many calls"
    assert error.retry_after == wait


def test_an_error_goes_to_other_processes() -> None:
    error = errors.from_rpc(Failed(("grpc-status-details-bin", details(retry(3)))))
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is athanor.ResourceExhausted and again.retry_after == 3.0
    assert again.message == "too many calls" and errors.from_rpc(Failed()).retry_after is None
    assert errors.from_rpc(Failed()).request_id == ""


@pytest.mark.parametrize(("code", "details", "words"), [
    ("DEADLINE_EXCEEDED", "Deadline Exceeded", "no answer from host:1 within timeout=2.5 s"),
    ("DEADLINE_EXCEEDED", "queued too long", "queued too long"),
    ("UNAVAILABLE", "failed to connect to all addresses; last error: UNKNOWN: ipv4:127.0.0.1:1: "
     "Failed to connect to remote host: Connection refused",
     "no server answers at host:1 (Connection refused); start"),
    ("UNAVAILABLE", "errors resolving host:1: Domain name not found", "(Domain name not found)"),
    ("UNAVAILABLE", "failed to connect: Tls handshake failed", "no secure connection to host:1"),
    ("UNAVAILABLE", "the server is draining", "the server is draining"),
    ("INVALID_ARGUMENT", "header.search_budget: \"soon\"", "budget: \"soon\""),
    ("INVALID_ARGUMENT", "header.device: none", "device: none"),
])
def test_grpc_is_put_in_words(code: str, details: str, words: str) -> None:
    class Told(grpc.RpcError):
        def code(self) -> grpc.StatusCode:
            return grpc.StatusCode[code]

        def details(self) -> str:
            return details

        def trailing_metadata(self) -> tuple:
            return ()

    assert words in str(errors.from_rpc(Told(), "host:1", 2.5))
