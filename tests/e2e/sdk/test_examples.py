"""Every Python block of the documents, every example of a docstring and every program of
`clients/python/examples` runs as it is written, against a server that has what they name.
"""

from __future__ import annotations

import ast
import asyncio
import doctest
import importlib
import inspect
import os
import pathlib
import pkgutil
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import athanor
import numpy as np
import onnx
import onnx_models
import pytest
import tiny_decoder
from athanor import nn
from server_process import ROOT, Server

PAGES = sorted([ROOT / "README.md", *ROOT.glob("docs/*.md"),
                *ROOT.glob("clients/python/**/README.md")])
EXAMPLES = ROOT / "clients/python/examples"
# Packages that a page's blocks need beside those of .venv, which come from PyPI.
NEEDS = {"docs/rest.md": ["tritonclient[http]==2.73.0"],
         "docs/triton.md": ["tritonclient[grpc]==2.73.0"]}
# What a page's blocks take for granted: by page, the code before its first block.
BEFORE = {
    "docs/rest.md": "pixels = np.zeros((1, 64), np.float32)",
    "docs/triton.md": "pixels = np.zeros((1, 64), np.float32)",
    "docs/infer.md": "images = np.zeros((2, 64), np.float32)",
    "docs/generate.md": 'model = client.model("smollm2")',
    "clients/python/athanor/nn/README.md": "from athanor import nn",
}


def blocks(page: pathlib.Path) -> list[str]:
    """Returns the page's Python blocks."""
    return re.findall(r"^```python\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)


def run(source: str, names: dict[str, Any], where: str) -> None:
    """Runs code, which may await at its top."""
    code = compile(source, where, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    if code.co_flags & inspect.CO_COROUTINE:
        asyncio.run(eval(code, names))
    else:
        exec(code, names)


@pytest.fixture(scope="module")
def ready(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, pathlib.Path]]:
    """A server with the models that the documents name, and the folder with their files.

    SmolLM2 is the tiny decoder under its name, MiniLM a tiny encoder.
    """
    folder = tmp_path_factory.mktemp("examples")
    checkpoint = folder / "SmolLM2-135M-Instruct.gguf"
    checkpoint.mkdir()  # the SDK takes a folder by what it holds
    tiny_decoder.write(checkpoint)
    wide = onnx_models.model(
        [onnx.helper.make_node("Relu", ["x"], ["y"])],
        [onnx_models.value("x", ["batch", "sequence"])],
        [onnx_models.value("y", ["batch", "sequence"])])
    onnx.save(wide, folder / "model.onnx")
    for name, module in {"block": Block(), "model": nn.Sequential(
            nn.Linear(64, 256), athanor.gelu, nn.LayerNorm(256), nn.Linear(256, 10))}.items():
        module.initialise(1)
        np.savez(folder / f"{name}.npz", **module.state_dict())
    server = Server(folder / "state", "--openai_listen=127.0.0.1:0",
                    "--http_listen=127.0.0.1:0", "--shared_memory=/frames-*").start()
    with server.client() as client:
        import digits_demo
        with np.load(digits_demo.WEIGHTS, allow_pickle=False) as weights:
            client.upload(digits_demo.digits_graph(dict(weights)), "digits").wait()
        client.upload(checkpoint, "smollm2", budget="0").wait(timeout=120)
        client.upload(ROOT / "tests/tokens/testdata/bert", "minilm", budget="0").wait(timeout=120)
    yield server, folder
    assert server.stop() == 0, server.log.read_text()


class Block(nn.Module):
    """The block of the docstring of `athanor.nn.Module`."""

    def __init__(self) -> None:
        self.norm = nn.LayerNorm(64)
        self.mlp = nn.MLP([64, 256, 64], athanor.gelu)


@pytest.fixture
def names(ready: tuple[Server, pathlib.Path],
          monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """What examples take for granted: a client, a graph with an input, a model."""
    server, folder = ready
    monkeypatch.chdir(folder)
    monkeypatch.setenv("ATHANOR_ADDRESS", server.address)
    g = athanor.Graph("example", dims={"b": (1, 64)})
    with server.client() as client:
        yield {"athanor": athanor, "np": np, "client": client, "g": g, "graph": one_output(),
               "zero": g.zeros((4,)), "x": g.input("rows", ("b", 4), "f32"),
               "model": client.model("smollm2")}


def one_output() -> athanor.Graph:
    g = athanor.Graph("linear", dims={"b": (1, 64)})
    g.output("y", g.input("x", ("b", 4), "f32") * 2)
    return g


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p)],
                         ids=lambda page: str(page.relative_to(ROOT)))
def test_pages(page: pathlib.Path, ready: tuple[Server, pathlib.Path], names: dict[str, Any],
               tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All blocks of a page, one after another."""
    server, _ = ready
    path = str(page.relative_to(ROOT))
    if path in NEEDS:
        subprocess.run([sys.executable, "-m", "pip", "install", "--disable-pip-version-check",
                        "--quiet", "--target", tmp_path, *NEEDS[path]], check=True)
        monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])  # .venv's packages go first
    run(BEFORE.get(path, ""), names, path)
    for block in blocks(page):
        # The ports of a server that runs alone.
        block = block.replace("127.0.0.1:50051", server.address)
        block = block.replace("127.0.0.1:8000/v1", f"{server.openai_address}/v1")
        block = block.replace("127.0.0.1:8000", server.http_address)
        run(block, names, path)


def documented() -> Iterator[tuple[str, str]]:
    """Yields the examples of docstrings by name."""
    for found in pkgutil.walk_packages(athanor.__path__, "athanor."):
        module = importlib.import_module(found.name)
        for test in doctest.DocTestFinder(exclude_empty=True).find(module):
            if test.examples:
                yield test.name, "".join(example.source for example in test.examples)


@pytest.mark.parametrize(("name", "source"), list(documented()),
                         ids=lambda value: value.split("\n")[0])
def test_docstrings(name: str, source: str, names: dict[str, Any],
                    ready: tuple[Server, pathlib.Path]) -> None:
    server, _ = ready
    if "Async" in name:
        source = f"async def example(model, x):\n{indented(source)}\n"
        run(source, names, name)
        asyncio.run(asynchronously(names["example"], server))
        return
    if name.endswith("Client"):
        names["x"] = np.zeros((2, 4), np.float32)
    run(source, names, name)


def indented(source: str) -> str:
    return "".join(f"    {line}\n" for line in source.splitlines())


async def asynchronously(example: Any, server: Server) -> None:
    async with athanor.AsyncClient(server.address) as client:
        await example(await client.model("smollm2"), np.zeros((2, 4), np.float32))


@pytest.mark.parametrize("program", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_programs(program: pathlib.Path, ready: tuple[Server, pathlib.Path]) -> None:
    server, folder = ready
    done = subprocess.run([sys.executable, program, "--address", server.address], cwd=folder,
                          check=False, capture_output=True, text=True, timeout=300,
                          env={**os.environ, "ATHANOR_ADDRESS": server.address})
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.strip(), "it says what it did"


@pytest.mark.parametrize("module", [athanor, nn], ids=lambda module: module.__name__)
def test_the_packages_say_how_they_are_used(module: Any, names: dict[str, Any]) -> None:
    """The code of their docstrings, which stands without prompts."""
    lines = [line for line in (module.__doc__ or "").splitlines() if line.startswith("    ")]
    assert len(lines) > 3
    run(inspect.cleandoc("\n" + "\n".join(lines)), names, module.__name__)
