"""Where a server is and who calls it: what a client connects with.

    Connection()                              # $ATHANOR_ADDRESS, else 127.0.0.1:50051
    Connection("server", root_certificates=b"")   # server:50051 with TLS
"""

from __future__ import annotations

import dataclasses
import ipaddress
import os
import re
from typing import Any

import grpc

from athanor.errors import InvalidArgument

DEFAULT_PORT = 50051
DEFAULT_ADDRESS = f"127.0.0.1:{DEFAULT_PORT}"
# Requests and replies may be as large as the server's own limits allow.
_CHANNEL_OPTIONS = [
    ("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1),
    # Refusals of a large model come as metadata (errors.py).
    ("grpc.max_metadata_size", 1 << 20), ("grpc.absolute_max_metadata_size", 2 << 20),
]
# gRPC's own forms of an address, which stay as they are.
_SCHEME = re.compile(r"(dns|ipv4|ipv6|unix|unix-abstract|vsock|xds):")


def full_address(address: str | None) -> str:
    """Returns an address with its port: of the environment if None, with the default port if it
    has none.

    Raises
    ------
    InvalidArgument
        If it is no address.
    """
    source = "address"
    if address is None:
        address, source = os.environ.get("ATHANOR_ADDRESS") or DEFAULT_ADDRESS, "ATHANOR_ADDRESS"
    if not isinstance(address, str) or not address or re.search(r"[\s\x00-\x1f]", address):
        raise InvalidArgument(f"{source}={address!r}: it must be \"host:port\", as in "
                              f'"{DEFAULT_ADDRESS}"')
    if _SCHEME.match(address):
        return address
    if "/" in address:
        raise InvalidArgument(f'{source}={address!r}: it must be "host:port" without a scheme or '
                              f'path, as in "{DEFAULT_ADDRESS}"')
    if address.count(":") > 1 and not address.startswith("["):
        address = f"[{address}]"
    if address.startswith("[") and not _is_ipv6(address[1:].partition("]")[0]):
        raise InvalidArgument(f'{source}={address!r}: it must be "host:port", with an IPv6 address '
                              'as in "[::1]:50051"')
    host, colon, port = address.rpartition(":")
    if not colon or address.endswith("]"):
        return f"{address}:{DEFAULT_PORT}"
    if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 1 << 16:
        raise InvalidArgument(f"{source}={address!r}: it must be \"host:port\" with a port in "
                              "[1, 65535]")
    return address


def _is_ipv6(text: str) -> bool:
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return True


def is_local(address: str) -> bool:
    """Reports whether an address is of this machine alone."""
    scheme, _, rest = address.partition(":")
    if scheme in ("unix", "unix-abstract"):
        return True
    host = rest if _SCHEME.match(address) else address
    host = host.rpartition("/")[2].rpartition(":")[0].strip("[]")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _checked_token(token: str | None) -> str:
    """Returns the token to send, of the environment if None; empty for none."""
    source = "token"
    if token is None:
        token, source = os.environ.get("ATHANOR_TOKEN", ""), "ATHANOR_TOKEN"
    elif token == "":
        raise InvalidArgument("token is empty; leave it out to send none")
    if not isinstance(token, str) or not re.fullmatch(r"[\x21-\x7e]*", token):
        # The token itself is told to nobody.
        raise InvalidArgument(f"{source}: it must be a str of printable ASCII without spaces")
    return token


@dataclasses.dataclass(frozen=True)
class Connection:
    """What a client connects with; see `athanor.Client`.

    Pickled, it does not hold what is secret: a token must be in ATHANOR_TOKEN where it is loaded,
    and one with a `client_key` cannot be pickled.
    """

    address: str
    root_certificates: bytes | None = None
    client_certificate: bytes | None = None
    client_key: bytes | None = dataclasses.field(default=None, repr=False)
    token: str = dataclasses.field(default="", repr=False)
    insecure: bool = False

    @staticmethod
    def of(address: str | None, root_certificates: bytes | None, client_certificate: bytes | None,
           client_key: bytes | None, token: str | None, insecure: bool) -> Connection:
        """Checks and completes what a user gave.

        Raises
        ------
        InvalidArgument
            Naming what is wrong and what would be right.
        """
        for name, value in (("root_certificates", root_certificates), ("client_key", client_key),
                            ("client_certificate", client_certificate)):
            if value is not None and not isinstance(value, bytes):
                raise InvalidArgument(f"{name} is a {type(value).__name__}; it must be the bytes "
                                      "of PEM")
        if (client_certificate is None) != (client_key is None):
            raise InvalidArgument("client_certificate and client_key belong together; give both")
        if client_key is not None and root_certificates is None:
            raise InvalidArgument("client_certificate needs TLS: give root_certificates, b\"\" for "
                                  "those of the system")
        whole = full_address(address)
        secret = _checked_token(token)
        if secret and root_certificates is None and not insecure and not is_local(whole):
            raise InvalidArgument(
                f"a token would travel to {whole} in plain text: connect with TLS "
                "(root_certificates=b\"\" for the system's), or give insecure=True")
        return Connection(whole, root_certificates, client_certificate, client_key, secret,
                          insecure)

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """Metadata of every call."""
        return (("authorization", f"Bearer {self.token}"),) if self.token else ()

    def channel(self, module: Any) -> Any:
        """Opens a channel of `grpc` or `grpc.aio`."""
        if self.root_certificates is None:
            return module.insecure_channel(self.address, _CHANNEL_OPTIONS)
        credentials = grpc.ssl_channel_credentials(self.root_certificates or None, self.client_key,
                                                   self.client_certificate)
        return module.secure_channel(self.address, credentials, _CHANNEL_OPTIONS)

    def __reduce__(self) -> tuple[Any, ...]:
        if self.client_key is not None:
            raise TypeError("a client with a client_key cannot be pickled: the key would be in the "
                            "pickle; make the client where it is used")
        return _restored, (self.address, self.root_certificates, bool(self.token), self.insecure)


def _restored(address: str, root_certificates: bytes | None, with_token: bool,
              insecure: bool) -> Connection:
    token = os.environ.get("ATHANOR_TOKEN", "") if with_token else ""
    if with_token and not token:
        raise InvalidArgument("the pickled client had a token, which pickles do not hold; set "
                              "ATHANOR_TOKEN where it is loaded")
    return Connection(address, root_certificates, token=_checked_token(token or None) if token
                      else "", insecure=insecure)
