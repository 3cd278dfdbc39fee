"""A graph with its parameters in one file, for the CLI and for `Client.upload`.

    bytes 0-7    "ATHANOR1"
    8 bytes      length of the graph, little-endian, as all lengths here
    8 bytes      number of tensors
    40 bytes     per tensor: its SHA-256 and its length
    the graph    an athanor.v1.Graph
    the tensors  in that order, nothing in between

Nothing in it is executed or unpickled when it is read.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping

from athanor.core import content_hash
from athanor.errors import InvalidArgument

MAGIC = b"ATHANOR1"


def save(path: str | os.PathLike[str], graph: bytes, tensors: Mapping[bytes, bytes]) -> None:
    """Writes a serialised graph and its tensors by hash."""
    with open(path, "wb") as file:
        file.write(MAGIC + struct.pack("<QQ", len(graph), len(tensors)))
        for key, data in tensors.items():
            file.write(key + struct.pack("<Q", len(data)))
        file.write(graph)
        for data in tensors.values():
            file.write(data)


def load(path: str | os.PathLike[str]) -> tuple[bytes, dict[bytes, bytes]]:
    """Reads a file written by `save`: the serialised graph, and the tensors by hash.

    Raises
    ------
    InvalidArgument
        If the file is no bundle, is cut off, or a tensor does not match its hash.
    """
    size = os.path.getsize(path)
    with open(path, "rb") as file:
        def take(count: int, what: str) -> bytes:
            if count > size - file.tell():
                raise InvalidArgument(f"{os.fspath(path)}: ends inside {what}, which needs {count} "
                                      f"bytes at offset {file.tell()}")
            return file.read(count)

        if take(8, "the magic") != MAGIC:
            raise InvalidArgument(f"{os.fspath(path)}: is not an Athanor bundle (Graph.save makes "
                                  "one)")
        graph_size, count = struct.unpack("<QQ", take(16, "the header"))
        rows = [struct.unpack("<32sQ", take(40, f"row {i}")) for i in range(count)]
        graph = take(graph_size, "the graph")
        tensors = {}
        for i, (key, length) in enumerate(rows):
            data = take(length, f"tensor {i}")
            if content_hash(data) != key:
                raise InvalidArgument(f"{os.fspath(path)}: tensor {i} does not have the SHA-256 "
                                      f"{key.hex()} of its row")
            tensors[key] = data
        if file.tell() != size:
            raise InvalidArgument(f"{os.fspath(path)}: {size - file.tell()} bytes after the last "
                                  "tensor")
    return graph, tensors
