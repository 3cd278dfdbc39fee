"""What a server and its children hold in anonymous memory, sampled while something goes on.

    with MemoryWatch(server.pid) as watch:
        client.upload(...)
    watch.peak.total, watch.peak.server   # bytes

Anonymous is what the kernel calls so, and memory shared by a process and those forked from it;
files that are mapped are page cache and not counted. Pages that a forked process shares with its
parent until one writes count for both: sums are upper bounds.
"""

from __future__ import annotations

import os
import pathlib
import re
import threading
from types import TracebackType
from typing import NamedTuple

_ROW = re.compile(r"^Rss(Anon|Shmem):\s*(\d+) kB", re.MULTILINE)


class Held(NamedTuple):
    """Bytes of anonymous memory."""

    server: int
    children: int  # all processes below the server
    shared: int  # the most that one of all these maps of shared memory

    @property
    def total(self) -> int:
        """Of all processes."""
        return self.server + self.children + self.shared


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


def held(pid: int) -> Held:
    """What a process and those below it hold now."""
    own = _rows(pid)
    program = os.readlink(f"/proc/{pid}/exe")
    children, shared = 0, own["Shmem"]
    for child in _below(pid):
        try:
            if os.readlink(f"/proc/{child}/exe") == program:
                continue  # between its fork and its exec: the server's pages, not its own
            rows = _rows(child)
            children += rows["Anon"]
            shared = max(shared, rows["Shmem"])
        except (OSError, KeyError):  # it has ended
            continue
    return Held(own["Anon"], children, shared)


class MemoryWatch:
    """Samples every `interval` seconds inside a `with` block; `peak` is the largest total."""

    def __init__(self, pid: int, interval: float = 0.01) -> None:
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
            except (OSError, KeyError):  # the server has ended; who waits for it says so
                return

    def __enter__(self) -> MemoryWatch:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self._stop.set()
        self._thread.join()
