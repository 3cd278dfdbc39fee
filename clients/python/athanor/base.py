"""What the blocking and the asyncio client, and their models, have in common."""

from __future__ import annotations

from contextlib import AbstractContextManager
from types import ModuleType
from typing import ClassVar, Generic, TypeVar

import grpc

from athanor import calls, wire
from athanor.checks import checked_text
from athanor.connection import Connection

AnyClient = TypeVar("AnyClient", bound="ClientBase")


class ClientBase:
    """Connects, and tells with what; a pickle of it connects anew where it is loaded."""

    _grpc: ClassVar[ModuleType] = grpc  # makes the channel

    def __init__(self, address: str | None = None, *, root_certificates: bytes | None = None,
                 client_certificate: bytes | None = None, client_key: bytes | None = None,
                 token: str | None = None, insecure: bool = False) -> None:
        self._open(Connection.of(address, root_certificates, client_certificate, client_key, token,
                                 insecure))

    def _translated(self, timeout: float | None = None) -> AbstractContextManager[None]:
        """Converts errors of gRPC, of a call that may take so many seconds."""
        return calls.translated(self.address, timeout)

    def _open(self, connection: Connection) -> None:
        self._connection = connection
        self._channel = connection.channel(self._grpc)
        self._stubs = calls.Stubs(self._channel, connection.metadata)

    @property
    def address(self) -> str:
        """Where the server is: ``"host:port"``."""
        return self._connection.address

    def __repr__(self) -> str:
        return f"<athanor.{type(self).__name__} {self.address}>"

    def __getstate__(self) -> Connection:
        return self._connection

    def __setstate__(self, connection: Connection) -> None:
        self._open(connection)


class ModelBase(Generic[AnyClient]):
    """Names one version of a model of a client's server, or whichever serves."""

    def __init__(self, client: AnyClient, name: str, version: str = "") -> None:
        for what, text in (("name", name), ("version", version)):
            checked_text(what, text)
        self.client = client
        self.name = name
        self.version = version
        self._inputs: tuple[wire.Tensor, ...] | None = None  # as they were when last read

    def __repr__(self) -> str:
        return f"<athanor.{type(self).__name__} {self.name!r} {self.version or 'serving version'}>"
