"""The files that an ONNX model names beside itself, found without reading its weights.

    external_files("model.onnx") == {"model.bin": pathlib.Path("model.bin")}

Walks the message by its field numbers and skips tensors' bytes, so that a model of any size costs
only its nodes.
"""

from __future__ import annotations

import errno
import mmap
import os
import pathlib
from collections.abc import Iterator

from athanor.errors import InvalidArgument

# For each message, its fields that hold messages with tensors somewhere below.
_INSIDE: dict[str, dict[int, str]] = {
    "Model": {7: "Graph", 25: "Function"},
    "Graph": {1: "Node", 5: "Tensor", 15: "Sparse"},
    "Function": {7: "Node", 11: "Attribute"},
    "Node": {5: "Attribute"},
    "Attribute": {5: "Tensor", 6: "Graph", 10: "Tensor", 11: "Graph", 22: "Sparse", 23: "Sparse"},
    "Sparse": {1: "Tensor", 2: "Tensor"},
    "Tensor": {13: "Entry"},
}


def _varint(data: mmap.mmap | bytes, at: int, end: int) -> tuple[int, int]:
    value = shift = 0
    while at < end and shift < 70:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise ValueError("cut off")


def _fields(data: mmap.mmap | bytes, at: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yields number, begin and end of each field that has a length."""
    while at < end:
        tag, at = _varint(data, at, end)
        kind = tag & 7
        if kind == 2:
            length, at = _varint(data, at, end)
            if length > end - at:
                raise ValueError("cut off")
            yield tag >> 3, at, at + length
            at += length
        elif kind == 0:
            _, at = _varint(data, at, end)
        elif kind in (1, 5):
            at += 8 if kind == 1 else 4
        else:
            raise ValueError("no wire type of ONNX's")


def locations(data: mmap.mmap | bytes) -> list[str]:
    """Returns the ``location`` of each tensor's external data, each once, in order of appearance.

    If the bytes are malformed, returns what precedes the error; the server reports where it is.
    """
    found: dict[str, None] = {}
    waiting = [("Model", 0, len(data))]
    try:
        while waiting:
            kind, begin, end = waiting.pop()
            if kind == "Entry":
                entry = {number: bytes(data[low:high]) for number, low, high
                         in _fields(data, begin, end)}
                if entry.get(1) == b"location":
                    found[entry.get(2, b"").decode()] = None
                continue
            inside = [(_INSIDE[kind][number], low, high)
                      for number, low, high in _fields(data, begin, end)
                      if number in _INSIDE[kind]]
            waiting.extend(reversed(inside))
    except ValueError:  # also for a location that is not UTF-8
        pass
    return list(found)


def _outside(path: str | os.PathLike[str], name: str) -> InvalidArgument:
    return InvalidArgument(f"{os.fspath(path)}: its external data {name!r} is outside the model's "
                           "folder; it must be a relative path below it, and no link out of it")


def is_inside(file: pathlib.Path, model: pathlib.Path) -> bool:
    """Reports whether a file, with links followed, is in the model's folder or that of its
    target."""
    homes = [model.parent.resolve(), model.resolve().parent]
    return any(file.resolve().is_relative_to(home) for home in homes)


def external_files(path: str | os.PathLike[str]) -> dict[str, pathlib.Path]:
    """Returns, by location, the files beside the model at `path` that it names.

    Raises
    ------
    InvalidArgument
        If a location is absolute or leaves the model's folder, also by a link: a model must not
        make the client send other files. If the model itself is a link, as in caches of model hubs,
        its files may link to its target's folder.
    FileNotFoundError, PermissionError
        If a file is missing or unreadable.
    """
    folder = pathlib.Path(path).parent
    with open(path, "rb") as file:
        if os.fstat(file.fileno()).st_size == 0:
            return {}
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            names = locations(data)
    files = {}
    for name in names:
        parts = pathlib.PurePosixPath(name)
        if not name or parts.is_absolute() or ".." in parts.parts or "\\" in name or "\0" in name:
            raise _outside(path, name)
        files[name] = folder / name
        if not files[name].is_file():
            raise FileNotFoundError(errno.ENOENT, f"{os.fspath(path)} has external data there",
                                    os.fspath(files[name]))
        if not is_inside(files[name], pathlib.Path(path)):
            raise _outside(path, name)
        with open(files[name], "rb"):  # an error raised while gRPC iterates would arrive as UNKNOWN
            pass
    return files
