"""A real server as a child process; what pytest and `tests/steady` run it with."""

from __future__ import annotations

import os
import pathlib
import re
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence

import athanor

ROOT = pathlib.Path(__file__).resolve().parents[2]
ATHANORD = ROOT / "bazel-bin/server/athanord"
CLI = ROOT / "bazel-bin/clients/cpp/athanor"
MEMORY_BYTES = 12 << 30


class ServerFailed(AssertionError):
    """A server that does not start, or does not stop."""


def built(binary: pathlib.Path) -> pathlib.Path:
    """The path of a binary; a missing one fails its test, it does not skip it."""
    if not binary.exists():
        target = f"//{binary.parent.relative_to(ROOT / 'bazel-bin')}:{binary.name}"
        raise ServerFailed(f"{binary} is not there; build it first: bazel build {target}")
    return binary


class Server:
    """An athanord process on a free port, with a state directory that outlives it.

    Use `start`, `stop` (SIGTERM, drains) and `kill` (SIGKILL) as often as wanted; `address` is that
    of the latest start. It searches, and has HTTP, only where a test gives it --search_budget and
    --http_listen. `prefix` is a command that it is run by, `environment` is added to this
    process's, `address_space` is the most bytes of addresses that it may have, mapped files
    included.
    """

    binary = ATHANORD

    def __init__(self, state: pathlib.Path, *flags: str, prefix: Sequence[str | pathlib.Path] = (),
                 environment: Mapping[str, str] | None = None,
                 address_space: int = MEMORY_BYTES) -> None:
        self.state = state
        self.prefix = tuple(prefix)
        self.environment = dict(environment or {})
        self.address_space = address_space
        self.flags = ("--search_budget=0", "--http_listen=", *flags)
        self.log = state.with_suffix(".log")
        self.address = ""
        self.http_address = ""  # the address of --http_listen
        self.openai_address = ""  # that of --openai_listen
        self._process: subprocess.Popen | None = None

    def start(self, timeout: float = 60) -> Server:
        """Returns when it serves."""
        assert self._process is None, "started twice"
        begin = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("ab") as log:
            # In a process group of its own, so that `kill` takes its children along.
            # A server that asks for ever more memory fails its test, not the machine. The shell
            # sets the limit: gRPC threads do not survive a fork that runs Python first.
            limit = ["/bin/sh", "-c", f'ulimit -v {self.address_space >> 10}; exec "$@"', "sh"]
            self._process = subprocess.Popen(
                [*self.prefix, *limit, *self.command()],
                stdout=log, stderr=log, start_new_session=True,
                env={**os.environ, **self.environment})
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            text = self.log.read_text()[begin:]
            found = re.search(r'msg="?serving"?.*\bport=(\d+).*\n', text)
            if found:
                self.address = f"127.0.0.1:{found[1]}"
                http = re.search(r"\bhttp_port=(\d+)", found[0])
                self.http_address = f"127.0.0.1:{http[1]}"
                openai = re.search(r"\bopenai_port=([1-9]\d*)", found[0])
                self.openai_address = f"127.0.0.1:{openai[1]}" if openai else ""
                return self
            if self._process.poll() is not None:
                break
            time.sleep(0.02)
        status = self._process.poll()
        self.kill()
        raise ServerFailed(f"athanord does not serve (status {status}); its log:\n"
                           f"{self.log.read_text()}")

    def command(self) -> list[str | pathlib.Path]:
        """The server and its flags."""
        return [built(self.binary), "--listen=127.0.0.1:0", f"--state_dir={self.state}",
                *self.flags]

    def stop(self, timeout: float = 60) -> int:
        """SIGTERM; returns the exit status of the drained server."""
        self._process.send_signal(signal.SIGTERM)
        try:
            status = self._process.wait(timeout)
        except subprocess.TimeoutExpired as error:
            self.kill()
            raise ServerFailed(f"athanord did not drain in {timeout} s; log:\n"
                               f"{self.log.read_text()}") from error
        self._process = None
        return status

    def kill(self) -> None:
        """SIGKILL to it and its children; nothing if it does not run."""
        if self._process is not None:
            try:
                os.killpg(self._process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            self._process.wait()
            self._process = None

    def pause(self) -> None:
        """It runs no further until `resume`."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """It runs on; nothing if it does not run at all."""
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)

    @property
    def running(self) -> bool:
        """Reports whether it was started and neither stopped nor killed since."""
        return self._process is not None

    @property
    def cache(self) -> pathlib.Path:
        """The file of its cache."""
        given = [flag.partition("=")[2] for flag in self.flags if flag.startswith("--cache=")]
        return pathlib.Path(given[-1]) if given else self.state / "cache.db"

    @property
    def pid(self) -> int:
        """Returns the id of the running process."""
        assert self._process is not None, "not started"
        return self._process.pid

    def children(self) -> list[int]:
        """Its tuner processes."""
        pids = []
        for status in pathlib.Path("/proc").glob("[0-9]*/stat"):
            try:
                text = status.read_text()
            except OSError:
                continue
            name = text[text.index("(") + 1:text.rindex(")")]
            parent = int(text[text.rindex(")") + 2:].split()[1])
            if parent == self.pid and name.startswith("athanor-tuner"):
                pids.append(int(text.split()[0]))
        return pids

    def model_files(self) -> list[str]:
        """Lists the files of models: tensors, blobs, uploads in progress; below the state
        directory."""
        return [str(path.relative_to(self.state)) for folder in ("tensors", "blobs", "tmp")
                for path in (self.state / folder).rglob("*") if path.is_file()]

    def keeps_no_files(self, timeout: float = 60) -> None:
        """Returns once it does: a call removes what it spooled a moment after its answer."""
        end = time.monotonic() + timeout
        while files := self.model_files():
            assert time.monotonic() < end, files
            time.sleep(0.005)

    def client(self) -> athanor.Client:
        """A client of its own."""
        return athanor.Client(self.address)
