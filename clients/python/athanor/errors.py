"""Errors: one class per gRPC status code that the server answers with.

    try:
        client.model("digits")
    except athanor.NotFound as error:
        print(error)            # the server's message
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence

import grpc
from google.protobuf import duration_pb2, empty_pb2
from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet

from athanor.protos import model_pb2

# Trailing metadata with refusals of an ONNX model, and the metadata that asks for it.
REFUSALS_KEY = "athanor-refusals-bin"
REFUSALS_ASKED = ("athanor-max-refusal-bytes", str(512 << 10))
# Trailing metadata with the google.rpc.Status of a failed call.
STATUS_KEY = "grpc-status-details-bin"
# Trailing metadata with the id of a call.
REQUEST_ID_KEY = "x-request-id"


@dataclasses.dataclass(frozen=True)
class Refusal:
    """The reason why one node of an ONNX model, or the model itself, is refused.

    Attributes
    ----------
    code : str
        ``"INVALID_ARGUMENT"`` or ``"UNIMPLEMENTED"``.
    node, domain, op : str
        May be empty.
    version : int
        Version of the op's schema; 0 if there is none.
    reason : str
    inputs : tuple of str
        Graph inputs whose values, given at upload (``values=``), would settle it.
    """

    code: str
    node: str
    domain: str
    op: str
    version: int
    reason: str
    inputs: tuple[str, ...]


class Error(Exception):
    """Base of all errors of this package.

    Attributes
    ----------
    message : str
        What was wrong and what would be right.
    code : str
        Name of the gRPC status code, such as ``"INVALID_ARGUMENT"``.
    refusals : tuple of Refusal
        Every reason why an ONNX model was refused, of which the message holds only some.
    retry_after : float, optional
        Seconds after which the server wants to be asked again; None if it does not say.
    request_id : str
        Id of the call that failed, which the server's log has too; empty if it did not reach a
        server.
    """

    code = "UNKNOWN"
    refusals: tuple[Refusal, ...] = ()
    retry_after: float | None = None
    request_id = ""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class InvalidArgument(Error, ValueError):
    """The request or graph is wrong."""

    code = "INVALID_ARGUMENT"


class GraphError(InvalidArgument):
    """An operation of a graph under construction does not fit its operands."""


class NotFound(Error, LookupError):
    """No such model, version, job or plan."""

    code = "NOT_FOUND"


class AlreadyExists(Error):
    """The name is taken."""

    code = "ALREADY_EXISTS"


class FailedPrecondition(Error):
    """The request is right but comes at the wrong time: for example before the first plan, with
    ``wait="none"``."""

    code = "FAILED_PRECONDITION"


class OutOfRange(Error, IndexError):
    """An index in the data lies outside its axis."""

    code = "OUT_OF_RANGE"


class ResourceExhausted(Error):
    """A limit, a full queue or full memory; the message names it."""

    code = "RESOURCE_EXHAUSTED"


class DeadlineExceeded(Error, TimeoutError):
    """The timeout passed."""

    code = "DEADLINE_EXCEEDED"


class Cancelled(Error):
    """The call or the compile job was cancelled."""

    code = "CANCELLED"


class Unimplemented(Error, NotImplementedError):
    """An op, dtype or format that this server lacks; the message names it."""

    code = "UNIMPLEMENTED"


class PermissionDenied(Error, PermissionError):
    """Not allowed."""

    code = "PERMISSION_DENIED"


class Unauthenticated(Error):
    """No valid credentials."""

    code = "UNAUTHENTICATED"


class Unavailable(Error, ConnectionError):
    """The server cannot be reached, or is draining."""

    code = "UNAVAILABLE"


class Aborted(Error):
    """Another change came first."""

    code = "ABORTED"


class DataLoss(Error):
    """Stored data is damaged."""

    code = "DATA_LOSS"


class Internal(Error):
    """A bug of the server."""

    code = "INTERNAL"


_BY_CODE = {
    kind.code: kind
    for kind in (InvalidArgument, NotFound, AlreadyExists, FailedPrecondition, OutOfRange,
                 ResourceExhausted, DeadlineExceeded, Cancelled, Unimplemented, PermissionDenied,
                 Unauthenticated, Unavailable, Aborted, DataLoss, Internal)
}
_BY_NUMBER = {code.value[0]: code.name for code in grpc.StatusCode}


# Reasons of the operating system and of gRPC for not reaching a server.
_CAUSE = re.compile(r"Connection refused|Connection reset by peer|No route to host|Network is "
                    r"unreachable|Connection timed out|No such file or directory|Socket closed|"
                    r"Domain name not found")


# Fields of a request's header that are arguments here.
_ARGUMENT = re.compile(r"^header\.(search_(?=budget\b)|(?=(name|buckets|batch_dim|device|format|"
                       r"disable_rules|dims|values|random_seed|ignore_keys)\b))")


def _in_words(error: grpc.RpcError, address: str, timeout: float | None) -> str:
    """Returns the server's message; gRPC's own by what the caller can do about it."""
    details = error.details() or error.code().name
    code, lowered = error.code().name, details.lower()
    if code == "DEADLINE_EXCEEDED" and lowered == "deadline exceeded" and timeout is not None:
        return f"no answer from {address} within timeout={timeout:g} s"
    if code == "UNAVAILABLE" and "handshake failed" in lowered:
        return (f"no secure connection to {address}: the server has another certificate than "
                f"root_certificates, or no TLS ({details})")
    if code == "UNAVAILABLE" and re.search("failed to connect|resolv", lowered):
        cause = _CAUSE.search(details)
        return (f"no server answers at {address} ({cause[0] if cause else details}); start "
                "athanord there, or say where it is: athanor.Client(address), or ATHANOR_ADDRESS")
    return _ARGUMENT.sub("", details)


def from_rpc(error: grpc.RpcError, address: str = "", timeout: float | None = None) -> Error:
    """Converts a failed call, to `address` within `timeout` seconds, to an error of this
    package."""
    found = _BY_CODE.get(error.code().name, Error)(_in_words(error, address, timeout))
    metadata = error.trailing_metadata() or ()
    found.refusals = _refusals(metadata)
    found.retry_after = _retry_after(metadata)
    found.request_id = next((str(value) for key, value in metadata if key == REQUEST_ID_KEY), "")
    return found


def _parts(data: bytes, field: int) -> list[bytes]:
    """Returns the messages that a message has in a field; none if it is no message."""
    try:
        fields = UnknownFieldSet(empty_pb2.Empty.FromString(data))
    except DecodeError:
        return []
    return [one.data for one in fields if one.field_number == field and one.wire_type == 2]


def _retry_after(metadata: Sequence[tuple[str, str | bytes]]) -> float | None:
    """Reads google.rpc.RetryInfo (google/rpc/error_details.proto), which not every protobuf has."""
    for key, value in metadata:
        if key != STATUS_KEY or not isinstance(value, bytes):
            continue
        for detail in _parts(value, 3):  # Status.details, each an Any: type_url, value
            if not any(url.endswith(b"/google.rpc.RetryInfo") for url in _parts(detail, 1)):
                continue
            for delay in (part for info in _parts(detail, 2) for part in _parts(info, 1)):
                try:
                    return float(duration_pb2.Duration.FromString(delay).ToTimedelta()
                                 .total_seconds())
                except (DecodeError, OverflowError):
                    return None
    return None


def _refusals(metadata: Sequence[tuple[str, str | bytes]]) -> tuple[Refusal, ...]:
    for key, value in metadata:
        if key == REFUSALS_KEY:
            message = model_pb2.Refusals.FromString(value)
            return tuple(Refusal(_BY_NUMBER.get(r.code, "UNKNOWN"), r.node, r.domain, r.op,
                                 r.version, r.reason, tuple(r.inputs)) for r in message.refusals)
    return ()


def from_number(code: int, message: str) -> Error:
    """Makes an error from a numeric status code, as in a compile job."""
    return _BY_CODE.get(_BY_NUMBER.get(code, "UNKNOWN"), Error)(message)
