"""perf_analyzer, Triton's load generator, as it is: it asks for models, statistics and regions,
sends load in all its ways, and prints what it measured."""

from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys
from collections.abc import Callable, Iterator

import athanor
import pytest
from conftest import Server

# The last tritonclient that has the program, and the library that it is linked with.
PACKAGES = ("tritonclient==2.41.0", "nvidia-cuda-runtime-cu12==12.9.79")
# Short windows, and no wish for equal ones: what is measured is not the point.
SHORT = ("--measurement-interval=200", "--stability-percentage=999")


@pytest.fixture(scope="module")
def analyzer(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """Runs perf_analyzer with arguments; returns what it prints."""
    folder = tmp_path_factory.mktemp("perf_analyzer")
    subprocess.run([sys.executable, "-m", "pip", "install", "--disable-pip-version-check",
                    "--quiet", "--no-deps", "--target", folder, *PACKAGES], check=True)
    environment = {**os.environ, "LD_LIBRARY_PATH": str(folder / "nvidia/cuda_runtime/lib")}

    def run(*arguments: str) -> str:
        done = subprocess.run([folder / "bin/perf_analyzer", *arguments, *SHORT], env=environment,
                              capture_output=True, text=True, timeout=300, check=False)
        said = done.stdout + done.stderr
        assert done.returncode == 0, said
        return said
    return run


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with "add", y = x + z of f32[b, 4], whose requests share calls."""
    state: pathlib.Path = tmp_path_factory.mktemp("analyzed") / "state"
    server = Server(state, "--http_listen=127.0.0.1:0", "--shared_memory=*").start()
    with server.client() as client:
        graph = athanor.Graph("add", dims={"b": (1, 64)})
        x, z = graph.input("x", ("b", 4), "f32"), graph.input("z", ("b", 4), "f32")
        graph.output("y", x + z)
        client.upload(graph, name="add", budget="0", batch_dim="b").wait(timeout=120)
    yield server
    assert server.stop() == 0, server.log.read_text()


WAYS = [(), ("--async", "--concurrency-range=1:4:3"), ("-b", "8"),
        ("--request-rate-range=200:400:200",),
        ("--shared-memory=system", "--output-shared-memory-size=1024")]


@pytest.mark.parametrize(("protocol", "arguments"), [
    *((protocol, way) for protocol in ("grpc", "http") for way in WAYS),
    ("grpc", ("--streaming", "--async"))],
    ids=lambda value: value if isinstance(value, str) else " ".join(value))
def test_load(analyzer: Callable[..., str], served: Server, protocol: str,
              arguments: tuple[str, ...]) -> None:
    address = served.address if protocol == "grpc" else served.http_address
    said = analyzer("-m", "add", "-i", protocol, "-u", address, *arguments)
    found = re.findall(r"Successful request count: (\d+)", said)
    assert found, said
    assert all(int(count) > 0 for count in found), said
    assert "Failed" not in said
