"""Samples the anonymous memory of a server and its children while something goes on.

    with MemoryWatch(server.pid) as watch:
        client.upload(...)
    watch.peak.total, watch.peak.server   # bytes

Anonymous is what the kernel calls so, and memory shared by a process and those forked from it;
files that are mapped are page cache and not counted. Of children their proportional shares are
summed (Pss of `smaps_rollup`): a page of several processes, or mapped several times by one, counts
once. The server's own is read from `status`: a share takes longer to find, the larger a process is.
"""

from __future__ import annotations

import os
import pathlib
import re
import threading
from types import TracebackType
from typing import NamedTuple

_ROW = re.compile(r"^Rss(Anon|Shmem):\s*(\d+) kB", re.MULTILINE)
_SHARE = re.compile(r"^Pss_(?:Anon|Shmem):\s*(\d+) kB", re.MULTILINE)


class Held(NamedTuple):
    """Bytes of anonymous memory."""

    server: int
    children: int  # all processes below the server

    @property
    def total(self) -> int:
        """Returns the sum over all processes."""
        return self.server + self.children


def _rows(pid: int) -> dict[str, int]:
    return {row: int(kilobytes) << 10 for row, kilobytes
            in _ROW.findall(pathlib.Path(f"/proc/{pid}/status").read_text())}


def _below(pid: int) -> list[int]:
    """Processes that descend from one."""
    found = []
    for file in pathlib.Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = [int(child) for child in file.read_text().split()]
        except OSError:  # the thread has ended
            continue
        for child in children:
            found += [child, *_below(child)]
    return found


def _share(pid: int) -> int:
    text = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text()
    return sum(int(kilobytes) << 10 for kilobytes in _SHARE.findall(text))


def held(pid: int) -> Held:
    """Returns the memory of a process and its descendants now."""
    program = os.readlink(f"/proc/{pid}/exe")
    children = 0
    for child in _below(pid):
        try:
            if os.readlink(f"/proc/{child}/exe") == program:
                continue  # between its fork and its exec: the server's pages, not its own
            children += _share(child)
        except (FileNotFoundError, ProcessLookupError):  # it has ended
            continue
    return Held(sum(_rows(pid).values()), children)


class MemoryWatch:
    """Samples every `interval` seconds inside a `with` block; `peak` is the largest total."""

    def __init__(self, pid: int, interval: float = 0.05) -> None:
        self.peak = held(pid)
        self.samples = 1
        self._pid = pid
        self._interval = interval
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _sample(self) -> None:
        self.peak = max(self.peak, held(self._pid), key=lambda sample: sample.total)
        self.samples += 1

    def _run(self) -> None:
        while not self._stop.wait(self._interval):
            try:
                self._sample()
            except (FileNotFoundError, ProcessLookupError):
                return  # the server has ended; who waits for it says so

    def __enter__(self) -> MemoryWatch:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self._stop.set()
        self._thread.join()
