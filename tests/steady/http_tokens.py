"""Clients of --openai_listen: one that reads a stream to its end, and a socket for ruder ones.

    text = complete(address, "tokens", [1, 2, 3], 16)
    with Socket(address, request("tokens", [1, 2, 3], 16), buffer=4096) as lost:
        lost.read(1)
        lost.vanish()                 # both sides see a reset
"""

from __future__ import annotations

import http.client
import json
import socket
import struct
from collections.abc import Sequence

PATH = "/v1/completions"


class Cut(Exception):
    """A stream that ended before its end."""


def request(model: str, prompt: Sequence[int], tokens: int, **fields: object) -> bytes:
    """The body of a streamed completion of the likeliest tokens, past the model's own end."""
    return json.dumps({"model": model, "prompt": list(prompt), "max_tokens": tokens,
                       "temperature": 0, "ignore_eos": True, "stream": True, **fields}).encode()


def complete(address: str, model: str, prompt: Sequence[int], tokens: int,
             timeout: float = 300, **fields: object) -> str:
    """The text of a whole answer.

    Raises
    ------
    AssertionError
        The server refused it, or its stream held an error.
    Cut
        It ended early.
    """
    connection = http.client.HTTPConnection(address, timeout=timeout)
    try:
        connection.request("POST", PATH, request(model, prompt, tokens, **fields),
                           {"Content-Type": "application/json"})
        answer = connection.getresponse()
        assert answer.status == 200, (answer.status, answer.read())
        text = ""
        for line in answer:
            if not line.startswith(b"data:"):
                continue
            data = line[5:].strip()
            if data == b"[DONE]":
                return text
            event = json.loads(data)
            assert not event.get("error"), event
            text += "".join(choice["text"] for choice in event["choices"])
    except (OSError, http.client.HTTPException) as error:
        raise Cut(str(error)) from error
    finally:
        connection.close()
    raise Cut("no [DONE]")


class Socket:
    """A connection that has sent a request's header and `send` bytes of its body (None: all).

    `buffer` is how many bytes the system takes in for it; 0: as many as usual.
    """

    def __init__(self, address: str, body: bytes, *, send: int | None = None,
                 buffer: int = 0) -> None:
        host, port = address.rsplit(":", 1)
        self._socket = socket.socket()
        self._socket.settimeout(60)
        if buffer:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        self._socket.connect((host, int(port)))
        head = (f"POST {PATH} HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\n"
                f"Content-Length: {len(body)}\r\n\r\n")
        self._socket.sendall(head.encode() + body[:send])

    def read(self, most: int) -> bytes:
        """Some bytes of the answer; none at its end."""
        return self._socket.recv(most)

    def vanish(self) -> None:
        """Ends with a reset: closing with no time to linger sends RST instead of FIN."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._socket.close()

    def close(self) -> None:
        """Ends with a FIN, or a reset if there is something unread."""
        self._socket.close()

    def __enter__(self) -> Socket:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
