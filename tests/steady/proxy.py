"""A network between a client and a server that can be cut in each way there is.

    with Proxy(server.address) as proxy:
        client = athanor.Client(proxy.address)
        proxy.cut_after = 70_000      # bytes to the server; then both sides get a reset
        proxy.hold()                  # nothing is read or written any more, nothing is closed
"""

from __future__ import annotations

import select
import socket
import struct
import threading

PIECE = 16 << 10


class Proxy:
    """Forwards connections to `address` until it is told otherwise. One thread of its own."""

    def __init__(self, address: str) -> None:
        host, port = address.rsplit(":", 1)
        self._server = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.cut_after: int | None = None
        self._to_server = 0
        self._pairs: dict[socket.socket, socket.socket] = {}  # both directions
        self._clients: set[socket.socket] = set()
        self._held = threading.Event()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._forward)

    def __enter__(self) -> Proxy:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self.reset()
        self._listener.close()

    def hold(self) -> None:
        """From now on drops everything, while both ends believe that the connection stands."""
        self._held.set()

    def reset(self) -> None:
        """Both ends of each connection get a reset."""
        for end in list(self._pairs):
            # Closing with no time to linger sends RST instead of FIN.
            end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            end.close()
        self._pairs.clear()

    def _forward(self) -> None:
        while not self._ended.is_set():
            ends = [] if self._held.is_set() else [self._listener, *self._pairs]
            try:
                ready, _, _ = select.select(ends, [], [], 0.02)
            except ValueError:  # closed meanwhile
                continue
            for end in ready:
                self._accept() if end is self._listener else self._pass(end)

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        server = socket.create_connection(self._server)
        for end in (client, server):
            end.settimeout(5)  # an end that never reads delays others no longer
        self._pairs[client], self._pairs[server] = server, client
        self._clients.add(client)

    def _pass(self, end: socket.socket) -> None:
        if end not in self._pairs:
            return
        other = self._pairs[end]
        try:
            data = end.recv(PIECE)
            if data:
                other.sendall(data)
        except OSError:
            data = b""
        if not data:
            for gone in (end, other):
                self._pairs.pop(gone, None)
                gone.close()
            return
        if end in self._clients:
            self._to_server += len(data)
            if self.cut_after is not None and self._to_server >= self.cut_after:
                self.reset()
