"""Fixtures: a real server as a child process, and a client of it."""

from __future__ import annotations

import os
import pathlib
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import athanor
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
ATHANORD = ROOT / "bazel-bin/server/athanord"
CLI = ROOT / "bazel-bin/clients/cpp/athanor"
MEMORY_BYTES = 12 << 30
sys.path[:0] = [str(ROOT / "tests/models"), str(ROOT / "clients/python/examples")]


def built(binary: pathlib.Path) -> pathlib.Path:
    """The path of a binary; a missing one fails the test, it does not skip it."""
    if not binary.exists():
        target = f"//{binary.parent.relative_to(ROOT / 'bazel-bin')}:{binary.name}"
        pytest.fail(f"{binary} is not there; build it first: bazel build {target}")
    return binary


class Server:
    """One athanord process on a free port, with a state directory that outlives it.

    Use `start`, `stop` (SIGTERM, drains) and `kill` (SIGKILL) as often as wanted; `address` is that
    of the latest start. It searches only where a test gives it a --search_budget.
    """

    def __init__(self, state: pathlib.Path, *flags: str) -> None:
        self.state = state
        self.flags = ("--search_budget=0", *flags)
        self.log = state.with_suffix(".log")
        self.address = ""
        self.http_address = ""  # of --http_listen
        self._process: subprocess.Popen | None = None

    def start(self, timeout: float = 60) -> Server:
        """Returns when it serves."""
        assert self._process is None, "started twice"
        begin = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("ab") as log:
            # In a process group of its own, so that `kill` takes its children along.
            # A server that asks for ever more memory fails its test, not the machine. The shell
            # sets the limit: gRPC threads do not survive a fork that runs Python first.
            limit = ["/bin/sh", "-c", f'ulimit -v {MEMORY_BYTES >> 10}; exec "$@"', "sh"]
            self._process = subprocess.Popen(
                [*limit, built(ATHANORD), "--listen=127.0.0.1:0", f"--state_dir={self.state}",
                 *self.flags],
                stdout=log, stderr=log, start_new_session=True)
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            text = self.log.read_text()[begin:]
            found = re.search(r'msg="?serving"?.*\bport=(\d+).*\n', text)
            if found:
                self.address = f"127.0.0.1:{found[1]}"
                http = re.search(r"\bhttp_port=(\d+)", found[0])
                self.http_address = f"127.0.0.1:{http[1]}"
                return self
            if self._process.poll() is not None:
                break
            time.sleep(0.02)
        status = self._process.poll()
        self.kill()
        pytest.fail(f"athanord does not serve (status {status}); its log:\n{self.log.read_text()}")

    def stop(self, timeout: float = 60) -> int:
        """SIGTERM; returns the exit status of the drained server."""
        self._process.send_signal(signal.SIGTERM)
        try:
            status = self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            pytest.fail(f"athanord did not drain in {timeout} s; log:\n{self.log.read_text()}")
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
        self._process.send_signal(signal.SIGCONT)

    def client(self) -> athanor.Client:
        """A client of its own."""
        return athanor.Client(self.address)


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server for all tests that do not stop it."""
    running = Server(tmp_path_factory.mktemp("shared") / "state").start()
    yield running
    assert running.stop() == 0, running.log.read_text()


@pytest.fixture(scope="session")
def client(server: Server) -> Iterator[athanor.Client]:
    """A client of the shared server."""
    with server.client() as shared:
        yield shared


@pytest.fixture
def own_server(tmp_path: pathlib.Path) -> Iterator[Server]:
    """A server that the test may stop and kill; started."""
    running = Server(tmp_path / "state").start()
    yield running
    running.kill()


@pytest.fixture
def run(client: athanor.Client, request: pytest.FixtureRequest):
    """``run(graph, inputs)``: uploads, infers once, deletes; the outputs."""
    name = re.sub(r"\W+", "-", request.node.name)[:200]

    def call(graph: athanor.Graph, inputs: dict, **options: object) -> athanor.InferResult:
        model = client.upload(graph, name=name)
        try:
            return model.infer(inputs, timeout=120, **options)
        finally:
            client.delete(name)

    return call
