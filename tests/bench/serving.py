"""A server for the length of a bench: fresh process, empty state.

    with server("--threads=1") as served:
        athanor.Client(served.address)
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

BIN = Path(__file__).resolve().parents[2] / "bazel-bin"


class Served(NamedTuple):
    """A server that takes requests."""

    address: str
    pid: int

    def child_seconds(self) -> float:
        """Processor time of its child processes so far, and of theirs that have ended."""
        ticks = 0
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = stat.read_text(encoding="utf-8").rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[1]) == self.pid:
                ticks += sum(map(int, fields[11:15]))
        return ticks / os.sysconf("SC_CLK_TCK")


def free_address() -> str:
    """An address of this machine that nothing listened on a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


@contextmanager
def server(*flags: str, build: Path = BIN, log: Path | None = None) -> Iterator[Served]:
    """A server; without further flags it never searches.

    `build` is a folder with `server/athanord`, or with `athanord` itself; what the server says goes
    to the file `log`.
    """
    import athanor

    binary = build / "server/athanord"
    if not binary.exists():
        binary = build / "athanord"
    with (tempfile.TemporaryDirectory() as state,
          (log or Path(os.devnull)).open("w", encoding="utf-8") as said):
        address = free_address()
        process = subprocess.Popen([str(binary), f"--listen={address}", f"--state_dir={state}",
                                    "--search_budget=0", *flags],
                                   stdout=subprocess.DEVNULL, stderr=said)
        try:
            with athanor.Client(address) as client:
                deadline = time.monotonic() + 20
                while time.monotonic() < deadline:
                    try:
                        if client.ready(timeout=1):
                            break
                    except athanor.Error:
                        time.sleep(0.02)
            yield Served(address, process.pid)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)
