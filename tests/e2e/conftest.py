"""Fixtures: a real server as a child process, and a client of it."""

from __future__ import annotations

import pathlib
import re
import sys
from collections.abc import Iterator

import athanor
import pytest
from server_process import ATHANORD, CLI, ROOT, Server, built

__all__ = ["ATHANORD", "CLI", "ROOT", "Server", "built"]
sys.path[:0] = [str(ROOT / "tests/models"), str(ROOT / "clients/python/examples")]


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Starts one server for all tests that do not stop it."""
    running = Server(tmp_path_factory.mktemp("shared") / "state").start()
    yield running
    assert running.stop() == 0, running.log.read_text()


@pytest.fixture(scope="session")
def client(server: Server) -> Iterator[athanor.Client]:
    """A client of the shared server."""
    with server.client() as shared:
        yield shared


@pytest.fixture
def own_server(tmp_path: pathlib.Path, request: pytest.FixtureRequest) -> Iterator[Server]:
    """A server that the test may stop and kill; started, with flags from an indirect parameter."""
    running = Server(tmp_path / "state", *getattr(request, "param", ())).start()
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
